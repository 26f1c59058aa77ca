"""What the documents say is there is there, and nothing that is there is left out."""

import re
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

import attnviz
from attnviz.cli import options
from attnviz.cli.app import COMMANDS
from attnviz.lazy import function
from attnviz.render import FORMATS
from attnviz.sources.registry import NAMED
from tests.cli import run
from tools.make_pictures import PICTURES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_says_what_its_entry_says(name: str) -> None:
    assert f"attnviz {name}" in README
    command = typer.main.get_command(function(COMMANDS[name].app))  # type: ignore[arg-type]
    assert (command.help or "").startswith(COMMANDS[name].summary)
    assert COMMANDS[name].summary in run("--help").text
    assert all(parameter.help for parameter in command.params if parameter.name != "help")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_documented(name: str) -> None:
    assert re.search(rf"\b{name}\b", README)


@pytest.mark.parametrize("name", NAMED)
def test_every_model_is_documented(name: str) -> None:
    assert f"`{name}`" in README


def test_every_colour_map_is_in_the_help() -> None:
    text = re.sub(r"\s+", "", run("heads", "--help").text)
    for name in options.ColorMap:
        assert name in text


@pytest.mark.parametrize("name", PICTURES)
def test_the_readmes_pictures_are_what_the_program_draws(name: str, tmp_path: Path) -> None:
    assert f"docs/{name}" in README
    assert run("heads", *PICTURES[name], "-o", str(tmp_path / name)).code == 0
    with Image.open(ROOT / "docs" / name) as shown, Image.open(tmp_path / name) as drawn:
        np.testing.assert_array_equal(np.asarray(shown.convert("RGB")), np.asarray(drawn.convert("RGB")))


@pytest.mark.parametrize("texts", [3, 5])
def test_the_readmes_capture_of_an_own_model_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: int) -> None:
    import torch

    (block,) = [one for one in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "attnviz.capture" in one]
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(texts, 3, 8, generator=torch.Generator().manual_seed(0))
    monkeypatch.chdir(tmp_path)
    held = {"torch": torch, "model": model, "x": x}
    exec(block, held)  # (it is our own)
    record = attnviz.load("run.safetensors")
    assert [one.name for one in record.maps] == ["layers.0.self_attn", "layers.1.self_attn"]
    _, weights = model.layers[0].self_attn(x, x, x, average_attn_weights=False)
    np.testing.assert_allclose(record.weights[0], weights[2].detach().numpy(), atol=1e-6)
    assert run("heads", "--attention", "run.safetensors").code == 0
