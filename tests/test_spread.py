"""Models spread over several devices: the same attention as on one."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz import RequestError
from attnviz.backend import placing
from attnviz.sources.encoder import open_bundled
from tests.cli import error, run
from tests.hub import save_family

TEXT = "The unwanted cat sat!"
accelerated = pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")


def weights(folder: Path, *more: str) -> tuple[np.ndarray, dict[str, Any]]:
    answer = run("heads", TEXT, "--model", str(folder), "--layer", "all", "--format", "json", *more)
    assert (answer.code, answer.err) == (0, "")
    return np.array(answer.json["weights"]), answer.json["provenance"]


def room(monkeypatch: pytest.MonkeyPatch, folder: Path, share: float) -> None:
    """As if the memory held this share of a model."""
    import transformers.integrations.accelerate as spreading

    n_bytes = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(spreading, "get_max_memory", lambda _=None: {"cpu": int(share * n_bytes)})


@accelerated
@pytest.mark.parametrize("name", ["Llama", "GPT-2", "DistilBERT"])
def test_one_device_is_enough_where_there_is_one(tmp_path: Path, name: str) -> None:
    folder = save_family(tmp_path / name, name)
    (alone, _), (spread, said) = weights(folder), weights(folder, "--device", "auto")
    if not torch.cuda.is_available():
        np.testing.assert_array_equal(spread, alone)
        assert said["device"] == "cpu"
    np.testing.assert_allclose(spread, alone, atol=1e-5)


@accelerated
@pytest.mark.parametrize("name", ["Llama", "Gemma 2"])
@pytest.mark.parametrize("share", [0.4, 0.75])
def test_a_model_that_is_kept_in_two_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, share: float
) -> None:
    """What the memory has no room for is read from disk when its turn comes: accelerate moves it as between devices."""
    folder = save_family(tmp_path / name, name)
    alone, _ = weights(folder)
    room(monkeypatch, folder, share)
    spread, said = weights(folder, "--device", "auto")
    assert said["device"] == "cpu, disk"
    np.testing.assert_allclose(spread, alone, atol=1e-6)


@accelerated
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two CUDA devices")
def test_two_gpus(tmp_path: Path) -> None:
    folder = save_family(tmp_path / "Llama", "Llama")
    (alone, _), (spread, said) = weights(folder), weights(folder, "--device", "auto")
    assert said["device"].startswith("cuda:0")
    np.testing.assert_allclose(spread, alone, atol=1e-5)


def test_without_accelerate_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_family(tmp_path / "Llama", "Llama")
    monkeypatch.setitem(sys.modules, "accelerate", None)
    said = error("heads", TEXT, "--model", str(folder), "--device", "auto", code=3)
    assert "--device auto is done by accelerate, which is not installed: pip install 'attnviz[hf]'" in said


@pytest.mark.parametrize("more", [(), ("--backend", "torch"), ("--model", "scratch", "--backend", "torch")])
def test_our_own_maths_is_not_spread(tmp_path: Path, more: tuple[str, ...]) -> None:
    assert "--device auto is for models that transformers runs" in error(
        "heads", "a", "--device", "auto", *more, code=2
    )
    with pytest.raises(RequestError, match="--device auto spreads models that transformers runs"):
        list(open_bundled(placing("torch", "auto")).prepare("a").maps([0]))
