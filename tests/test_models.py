import json
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from attnviz.backend import BACKENDS
from attnviz.sources import inventory
from attnviz.sources.inventory import EXTRAS, backends_here, models_here
from attnviz.sources.registry import NAMED
from tests.cli import error, run
from tests.models import make_bert


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of models."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def put_into(cache: Path, name: str) -> Path:
    folder = cache / f"models--{name}" / "snapshots" / "0123"
    folder.mkdir(parents=True)
    return folder


def test_every_named_model_and_backend_is_listed() -> None:
    listed = run("models", "--format", "json").json
    assert {one["name"] for one in listed["models"]} == set(NAMED)
    assert {one["name"]: one["dtypes"] for one in listed["backends"]} == {k: list(v) for k, v in BACKENDS.items()}
    assert listed["extras"].keys() == EXTRAS.keys()
    text = run("models").text
    for name in NAMED:
        assert f"--model {name}" in text
    for name in BACKENDS:
        assert f"--backend {name}" in text


def test_sizes_are_the_models_own() -> None:
    sizes = {one.name: (one.n_layers, one.n_heads) for one in models_here()}
    assert sizes == {"minilm": (6, 12), "scratch": (1, 4)}


def test_checkpoints_in_the_cache_are_listed_and_run(cache: Path) -> None:
    make_bert(put_into(cache, "owner--tiny"))
    (put_into(cache, "owner--other") / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    (put_into(cache, "owner--broken") / "config.json").write_text("{", encoding="utf-8")
    *_, one = models_here()
    assert len(models_here()) == len(NAMED) + 1
    assert (one.name, one.origin) == ("owner/tiny", "in the local cache")
    assert "--model owner/tiny" in run("models").text
    answer = run("heads", "a b", "--model", one.name, "--format", "json")
    assert len(answer.json["layers"]) == one.n_layers
    assert len(answer.json["heads"]) == one.n_heads


def test_models_of_other_kinds_are_listed_by_their_configuration(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, config in (
        ("owner--continues", {"model_type": "gpt2", "n_layer": 7, "n_head": 3}),
        ("owner--translates", {"model_type": "t5", "num_layers": 2, "num_decoder_layers": 4, "num_heads": 6}),
        ("owner--sees", {"model_type": "x", "text_config": {"num_hidden_layers": 5, "num_attention_heads": 8}}),
        ("owner--no-sizes", {"model_type": "gpt2"}),
    ):
        folder = put_into(cache, name)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "model.safetensors").touch()
    monkeypatch.setattr(inventory, "installed", lambda _: "1")
    listed = [(one.name, one.n_layers, one.n_heads) for one in models_here()[2:]]
    assert listed == [("owner/continues", 7, 3), ("owner/sees", 5, 8), ("owner/translates", 4, 6)]
    assert {one.origin for one in models_here()[2:]} == {"in the local cache"}
    monkeypatch.setattr(inventory, "installed", lambda _: None)
    assert {one.origin for one in models_here()[2:]} == {"in the local cache; needs the extra hf"}


@pytest.mark.parametrize("setting", ["HF_HOME", "XDG_CACHE_HOME"])
def test_the_cache_is_looked_for_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(setting, str(tmp_path))
    hub = tmp_path / ("hub" if setting == "HF_HOME" else "huggingface/hub")
    make_bert(put_into(hub, "a--b"))
    assert models_here()[-1].name == "a/b"


def test_what_is_not_installed_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "installed", lambda package: "1.2" if package in ("numpy", "gguf") else None)
    torch = backends_here()[1]
    assert (torch.version, torch.devices) == (None, ())
    monkeypatch.setattr("attnviz.cli.models.installed", inventory.installed)
    text = run("models").text
    assert "--backend torch  not installed" in text
    assert "missing torch: pip install 'attnviz[torch]'" in text
    assert "gguf 1.2  missing transformers, accelerate: pip install 'attnviz[hf]'" in text


def test_the_list_is_ascii_or_escaped_and_one_format_of_two() -> None:
    assert run("models").text.isascii()
    assert "'xml' is not one of" in error("models", "--format", "xml", code=2)
    json.loads(run("models", "--format", "json").text)


def test_a_model_is_fetched_where_it_is_allowed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(make_bert(put_into(cache, name.replace("/", "--"))))

    monkeypatch.setattr("attnviz.sources.hub_download.snapshot_download", fetched)
    command = ("heads", "a b", "--model", "owner/tiny", "--format", "json")
    assert "to fetch it, add --allow-download" in error(*command, code=2)
    assert asked == []
    assert run(*command, "--allow-download").json["provenance"]["model"] == "owner/tiny"
    assert run(*command, "--allow-download").code == 0
    ((name, patterns),) = asked
    assert name == "owner/tiny"
    for safe, unsafe in (("model.safetensors", "model.py"), ("tokenizer.json", "pytorch_model.bin")):
        assert any(fnmatch(safe, one) for one in patterns)
        assert not any(fnmatch(unsafe, one) for one in patterns)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("safe", [True, False])
def test_bin_files_are_fetched_where_there_is_nothing_safer_and_it_is_allowed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, safe: bool, late: bool
) -> None:
    asked: list[list[str]] = []

    def fetched(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        folder = cache / "models--owner--tiny" / "snapshots" / "0123"
        if not folder.exists():
            make_bert(put_into(cache, "owner--tiny"))
            if not safe:
                (folder / "model.safetensors").rename(folder.parent / "later.safetensors")
        elif "pytorch_model*.bin" in allow_patterns:
            torch.save(load_file(folder.parent / "later.safetensors"), folder / "pytorch_model.bin")
        return str(folder)

    monkeypatch.setattr("attnviz.sources.hub_download.snapshot_download", fetched)
    command = ("heads", "a b", "--model", "owner/tiny", "--format", "json", "--allow-download", "--allow-bin")
    if late:  # without what was left out at first
        assert run(*command[:-1]).code == (0 if safe else 3)
    assert run(*command).json["provenance"]["source"] == ("encoder" if safe else "huggingface")
    assert [patterns for patterns in asked if "pytorch_model*.bin" in patterns] == (
        [] if safe else [["pytorch_model*.bin"]]
    )


@pytest.mark.parametrize("why", [OSError("no route to the Hub\nmore"), ValueError("owner/tiny is gated")])
def test_what_cannot_be_fetched_is_said(monkeypatch: pytest.MonkeyPatch, why: Exception) -> None:
    def failing(name: str, allow_patterns: list[str]) -> None:
        raise why

    monkeypatch.setattr("attnviz.sources.hub_download.snapshot_download", failing)
    said = error("heads", "a b", "--model", "owner/tiny", "--allow-download", code=3)
    assert f"owner/tiny cannot be fetched: {str(why).splitlines()[0]}" in said
    assert "is not found" in error("heads", "a b", "--model", "./owner/tiny", "--allow-download", code=2)
