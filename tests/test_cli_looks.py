"""Where the maths of `attnviz heads` runs, and how what it draws looks."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from attnviz.render import FORMATS
from attnviz.render.scale import SCALES
from tests.cli import Answer, error, run
from tests.fonts import NOBODY_ELSE_HAS, forget_fonts, make_font
from tests.models import make_bert
from tests.saved import weights_of

Array = npt.NDArray[Any]

WHOSE = ("minilm", "folder", "scratch", "embeddings")
PICTURES = [one.name for one in FORMATS.values() if one.holds == "picture"]
LOOKED_AT = [one.name for one in FORMATS.values() if one.holds != "numbers"]


@pytest.fixture(scope="module")
def whose(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The arguments that name each source that computes."""
    folder = tmp_path_factory.mktemp("sources")
    make_bert(folder / "own")
    rng = np.random.default_rng(3)
    own = {"embeddings": (5, 9), "Wq": (9, 12), "Wk": (9, 12), "Wv": (9, 6), "Wo": (6, 4)}
    np.savez(folder / "own.npz", **{name: rng.standard_normal(shape) for name, shape in own.items()})  # type: ignore[arg-type]
    arguments = {
        "minilm": ["the cat sat", "--layer", "0,5", "--head", "1,3-6"],
        "folder": ["the cat sat", "--model", str(folder / "own")],
        "scratch": ["the cat sat", "--model", "scratch", "--n-heads", "3", "--d-model", "15"],
        "embeddings": ["--embeddings", str(folder / "own.npz"), "--n-heads", "3"],
    }
    return arguments.__getitem__


def shown(*arguments: str) -> Answer:
    answer = run("heads", *arguments, "--format", "json")
    assert answer.code == 0, answer.err
    return answer


def numbers(answer: Answer) -> tuple[Array, Array]:
    return np.array(answer.json["weights"]), np.array(answer.json["output"])


# where the maths runs


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("options", [[], ["--causal", "--window", "2"], ["--single"]], ids=["plain", "ruled", "single"])
@pytest.mark.parametrize("source", WHOSE)
def test_torch_shows_what_numpy_shows(
    whose: Callable[[str], list[str]], source: str, options: list[str], dtype: str, tolerance: float
) -> None:
    asked = [*whose(source), "--dtype", dtype, "--with-output", *options]
    ours, theirs = (shown(*asked, "--backend", backend) for backend in ("numpy", "torch"))
    for one, other in zip(numbers(ours), numbers(theirs), strict=True):
        assert np.abs(one - other).max() < tolerance * max(1.0, float(np.abs(one).max()))
    for name in ("layers", "heads", "query_tokens", "key_tokens", "query_spans", "query_text", "notes"):
        assert ours.json[name] == theirs.json[name]
    said = {"backend": "numpy", "device": "cpu", "dtype": dtype}
    assert said.items() <= ours.json["provenance"].items()
    assert theirs.json["provenance"] == ours.json["provenance"] | {"backend": "torch"}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("source", WHOSE[1:])
def test_the_dtype_is_that_of_the_file_unless_said(
    whose: Callable[[str], list[str]], source: str, backend: str
) -> None:
    own = shown(*whose(source), "--backend", backend)
    assert own.json["provenance"]["dtype"] == ("float64" if source == "embeddings" else "float32")
    narrow, wide = (shown(*whose(source), "--backend", backend, "--dtype", d) for d in ("float32", "float64"))
    assert (own.out == wide.out, own.out == narrow.out) == (source == "embeddings", source != "embeddings")
    difference = np.abs(np.array(narrow.json["weights"]) - np.array(wide.json["weights"])).max()
    assert 0 < difference < 1e-5
    assert np.abs(np.array(wide.json["weights"]).sum(-1) - 1).max() < 1e-14


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.02), ("bfloat16", 0.1)])
@pytest.mark.parametrize("source", WHOSE)
def test_half_precision_is_torch_s_and_near(
    whose: Callable[[str], list[str]], source: str, dtype: str, tolerance: float
) -> None:
    half = shown(*whose(source), "--backend", "torch", "--dtype", dtype)
    whole = shown(*whose(source))
    assert half.json["provenance"]["dtype"] == dtype
    difference = np.abs(np.array(half.json["weights"]) - np.array(whole.json["weights"])).max()
    assert 1e-6 < difference < tolerance
    message = error("heads", *whose(source), "--dtype", dtype, code=2)
    assert f"{dtype} needs --backend torch" in message


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:17", "mps"])
@pytest.mark.parametrize("source", ["scratch", "embeddings"])
def test_a_device_that_there_is_not(
    tmp_path: Path, whose: Callable[[str], list[str]], source: str, device: str
) -> None:
    there = torch.backends.mps.is_available() if device == "mps" else torch.cuda.is_available()
    if there and device != "cuda:17":
        pytest.skip(f"{device} is here")
    asked = [*whose(source), "--backend", "torch", "--device", device, "-o", str(tmp_path / "x.json")]
    message = error("heads", *asked, code=3)
    assert device.partition(":")[0] in message.lower()
    assert "cpu" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("source", WHOSE)
def test_cuda_shows_what_numpy_shows(
    whose: Callable[[str], list[str]], source: str, dtype: str, tolerance: float
) -> None:
    asked = [*whose(source), "--dtype", dtype, "--with-output", "--causal"]
    ours, theirs = numbers(shown(*asked)), numbers(shown(*asked, "--backend", "torch", "--device", "cuda"))
    for one, other in zip(ours, theirs, strict=True):
        assert np.abs(one - other).max() < tolerance * max(1.0, float(np.abs(one).max()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "cuda"], "add --backend torch"),
        (["--backend", "jax"], "numpy"),
        (["--backend", "torch", "--device", "tpu"], "cpu, cuda, cuda:N or mps"),
        (["--backend", "torch", "--device", "cuda:-1"], "cuda:-1"),
        (["--backend", "torch", "--device", "cuda:one"], "cuda:one"),
        (["--dtype", "float8"], "float8"),
        (["--dtype", "bfloat16"], "--backend torch"),
    ],
)
@pytest.mark.parametrize("source", ["scratch", "embeddings"])
def test_a_place_that_cannot_be(whose: Callable[[str], list[str]], source: str, options: list[str], words: str) -> None:
    assert words in error("heads", *whose(source), *options, code=2)


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from attnviz.__main__ import main; main()"


def test_without_torch_its_extra_is_named_and_the_rest_works(tmp_path: Path) -> None:
    np.save(tmp_path / "saved.npy", weights_of(2, 3, 3))

    def answer(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, "heads", *arguments], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    code, message = answer("a b", "--model", "scratch", "--backend", "torch")
    assert (code, "attnviz[torch]" in message, "Traceback" in message) == (3, True, False)
    (tmp_path / "saved.pt").write_bytes(b"PK")
    code, message = answer("--attention", str(tmp_path / "saved.pt"))
    assert (code, "attnviz[torch]" in message, "Traceback" in message) == (3, True, False)
    assert answer("--attention", str(tmp_path / "saved.npy"))[0] == 0


# how results look


@pytest.mark.parametrize("scale", SCALES)
def test_a_colour_scale_is_named_and_changes_no_number(tmp_path: Path, scale: str) -> None:
    asked = ["the cat sat", "--model", "scratch", "--color-scale", scale]
    outputs = [tmp_path / f"x.{name}" for name in FORMATS]
    assert run("heads", *asked, *(part for path in outputs for part in ("-o", str(path)))).code == 0
    plain = run("heads", "the cat sat", "--model", "scratch", "--format", "json")
    assert (tmp_path / "x.json").read_bytes() == plain.out
    assert f"{scale} scale" in (tmp_path / "x.svg").read_text(encoding="utf-8") or scale == "linear"
    plain_text = run("heads", "the cat sat", "--model", "scratch", "--format", "txt")
    assert (tmp_path / "x.txt").read_bytes() == plain_text.out  # digits are the weights on every scale


@pytest.mark.parametrize("name", PICTURES)
def test_every_colour_scale_draws_another_picture(name: str) -> None:
    asked = ["heads", "the cat sat", "--model", "scratch", "--format", name, "--color-scale"]
    drawn = {run(*asked, scale).out for scale in SCALES}
    assert len(drawn) == len(SCALES)


def test_a_colour_scale_that_there_is_not_is_answered_with_those_there_are() -> None:
    message = error("heads", "a b", "--color-scale", "cubic", code=2)
    assert "cubic" in message
    for scale in SCALES:
        assert scale in message


@pytest.fixture
def fresh_fonts() -> Iterator[None]:
    """What is known of fonts, forgotten before and after."""
    forget_fonts()
    yield
    forget_fonts()


@pytest.mark.usefixtures("fresh_fonts")
@pytest.mark.parametrize("name", PICTURES)
def test_a_font_of_one_s_own_draws_what_no_other_has(tmp_path: Path, name: str) -> None:
    font = make_font(tmp_path / "own.ttf", NOBODY_ELSE_HAS)
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([NOBODY_ELSE_HAS, "a"]), encoding="utf-8")
    np.save(tmp_path / "saved.npy", weights_of(1, 2, 2))
    asked = ["heads", "--attention", str(tmp_path / "saved.npy"), "--tokens", str(tokens), "--format", name]
    without, with_font = run(*asked), run(*asked, "--font", str(font))
    assert (without.code, with_font.code) == (0, 0)
    assert without.out != with_font.out
    assert (b"own" in with_font.out) == (name != "png")


@pytest.mark.usefixtures("fresh_fonts")
@pytest.mark.parametrize("name", LOOKED_AT)
@pytest.mark.parametrize(
    ("content", "code", "words"),
    [(None, 2, "no such file"), (b"", 3, "font"), (b"not a font", 3, "font"), (b"\0\1\0\0\0\x0c", 3, "font")],
    ids=["missing", "empty", "text", "cut short"],
)
def test_a_font_that_is_none_is_told_before_any_work(
    tmp_path: Path, name: str, content: bytes | None, code: int, words: str
) -> None:
    font = tmp_path / "own.ttf"
    if content is not None:
        font.write_bytes(content)
    message = error("heads", "a b", "--font", str(font), "-o", str(tmp_path / f"x.{name}"), code=code)
    assert words in message
    assert str(font) in message
    assert not list(tmp_path.glob("x.*"))


def test_a_font_is_never_an_output(tmp_path: Path) -> None:
    font = make_font(tmp_path / "own.png", "ab")
    before = font.read_bytes()
    assert "also the input" in error("heads", "a b", "--font", str(font), "-o", str(font), code=2)
    assert font.read_bytes() == before


def test_pictures_draw_every_head_in_one_range_and_say_so(tmp_path: Path) -> None:
    weights = np.stack([[[0.9, 0.1], [0.2, 0.8]], [[0.52, 0.48], [0.49, 0.51]]])
    np.save(tmp_path / "saved.npy", weights)
    answer = run("heads", "--attention", str(tmp_path / "saved.npy"), "--width", "60")
    assert "weight 0 to 1" in answer.text
    assert re.search(r"90 10 .*52 48", answer.text)
