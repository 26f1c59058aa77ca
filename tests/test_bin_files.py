"""Weights in .bin files: read where it is asked for, the weights and nothing else."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.cli import error, run
from tests.hub import save_family
from tests.models import make_bert
from tests.test_huggingface import eager, ids_of

TEXT = "The unwanted cat sat!"
NAME = "pytorch_model.bin"


class Canary:
    """Makes a folder where a pickle of it is read as any other pickle is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._path),)


def pickled(folder: Path) -> dict[str, torch.Tensor]:
    """The folder with its weights in a .bin file; and the weights."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / NAME)
    return weights


def shown(folder: Path, *more: str) -> np.ndarray:
    answer = run("heads", TEXT, "--model", str(folder), "--layer", "all", "--format", "json", "--allow-bin", *more)
    assert (answer.code, answer.err) == (0, "")
    return np.array(answer.json["weights"])


@pytest.mark.parametrize("name", ["GPT-2", "DistilBERT"])
def test_weights_are_read_where_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = save_family(tmp_path / name, name)
    theirs = np.stack([one[0].numpy() for one in eager(folder, input_ids=ids_of(TEXT)).attentions])
    pickled(folder)
    refused = error("heads", TEXT, "--model", str(folder), code=3)
    assert f"({NAME}: a pickle can run code); to read the weights in pytorch_model*.bin" in refused
    assert "add --allow-bin" in refused
    own, asked = torch.load, []

    def watched(*given: Any, **more: Any) -> Any:
        asked.append(more.get("weights_only"))
        return own(*given, **more)

    monkeypatch.setattr(torch, "load", watched)
    np.testing.assert_allclose(shown(folder), theirs, atol=1e-5)
    assert asked and set(asked) == {True}


def test_shards_are_read_too(tmp_path: Path) -> None:
    folder = save_family(tmp_path / "Llama", "Llama")
    theirs = np.stack([one[0].numpy() for one in eager(folder, input_ids=ids_of(TEXT)).attentions])
    weights = pickled(folder)
    (folder / NAME).unlink()
    places = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(weights)}
    for file in set(places.values()):
        torch.save({name: weight for name, weight in weights.items() if places[name] == file}, folder / file)
    (folder / f"{NAME}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}), "utf-8")
    np.testing.assert_allclose(shown(folder), theirs, atol=1e-5)


def test_a_bert_is_run_by_torch_then(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "bert")
    own = shown(folder)  # its safetensors file is there, and is read
    pickled(folder)
    assert "add --allow-bin" in error("heads", TEXT, "--model", str(folder), code=3)
    np.testing.assert_allclose(shown(folder), own, atol=1e-5)
    refused = error("heads", TEXT, "--model", str(folder), "--allow-bin", "--source", "own", code=2)
    assert "which --source own does not read" in refused


def test_what_the_weights_are_is_in_the_provenance(tmp_path: Path) -> None:
    folder = save_family(tmp_path / "GPT-2", "GPT-2")
    pickled(folder)
    torch.save({"lr": 1.0}, folder / "optimizer.bin")  # of the training: not of the model
    asked = ("heads", TEXT, "--model", str(folder), "--format", "json", "--allow-bin")
    before = run(*asked).json["provenance"]["model_sha256"]
    (folder / "optimizer.bin").unlink()
    assert run(*asked).json["provenance"]["model_sha256"] == before
    pickled_again = torch.load(folder / NAME)
    pickled_again[next(iter(pickled_again))] += 1
    torch.save(pickled_again, folder / NAME)
    assert run(*asked).json["provenance"]["model_sha256"] != before


@pytest.mark.parametrize("form", ["beside weights", "torch's older form", "a bare pickle"])
def test_what_would_run_is_not_run(tmp_path: Path, form: str) -> None:
    folder = save_family(tmp_path / "Llama", "Llama")
    weights = pickled(folder)
    ran, held = tmp_path / "ran", {**weights, "norm.bias": Canary(tmp_path / "ran")}
    if form == "a bare pickle":
        (folder / NAME).write_bytes(pickle.dumps(held["norm.bias"]))
    else:
        torch.save(held, folder / NAME, _use_new_zipfile_serialization=form == "beside weights")
    said = error("heads", TEXT, "--model", str(folder), "--allow-bin", code=3)
    assert "the weight file is damaged, or holds more than weights, none of which was run" in said
    assert not ran.exists()
    torch.load(folder / NAME, weights_only=False) if form != "a bare pickle" else pickle.loads(
        (folder / NAME).read_bytes()
    )
    assert ran.exists()  # it would have run


@pytest.mark.parametrize("content", [b"", b"abc", b"PK\x03\x04"])
def test_damaged_files_are_said_to_be(tmp_path: Path, content: bytes) -> None:
    folder = save_family(tmp_path / "Llama", "Llama")
    pickled(folder)
    (folder / NAME).write_bytes(content)
    assert "Llama" in error("heads", TEXT, "--model", str(folder), "--allow-bin", code=3)
