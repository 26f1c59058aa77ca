"""Models of transformers from the command line: small random ones of several families, in folders."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from attnviz.backend import placing
from attnviz.sources.registry import open_model
from tests.cli import error, run
from tests.hub import save_family
from tests.models import make_bert
from tests.test_huggingface import eager, ids_of

TEXT = "The unwanted cat sat!"
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder of a family's small model, written once."""
    return cache(lambda name: save_family(tmp_path_factory.mktemp("models") / name, name))


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "DistilBERT"])
def test_heads_of_any_family(folder: Folder, name: str) -> None:
    answer = run("heads", TEXT, "--model", str(folder(name)), "--layer", "all", "--format", "json")
    assert (answer.code, answer.err) == (0, "")
    weights = np.array(answer.json["weights"])
    expected = np.stack([layer[0].numpy() for layer in eager(folder(name), input_ids=ids_of(TEXT)).attentions])
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert answer.json["provenance"]["model"] == name
    assert "layer 0" in run("heads", TEXT, "--model", str(folder(name))).text


@pytest.mark.parametrize(
    ("text", "model"), [(TEXT, "minilm"), ("a cat\nsat", "minilm"), (TEXT, "folder"), ("on the mat", "folder")]
)
def test_our_own_maths_and_captured_attention_agree(tmp_path: Path, text: str, model: str) -> None:
    name = str(make_bert(tmp_path / "bert")) if model == "folder" else model
    own, captured = (open_model(name, {}, runner=runner).prepare(text) for runner in ("own", "pytorch"))
    assert own.tokens == captured.tokens
    for one, other in zip(own.maps(range(3)), captured.maps(range(3)), strict=True):
        assert (one.layer, one.heads) == (other.layer, other.heads)
        n = len(one.query)
        np.testing.assert_allclose(one.rows(0, n), other.rows(0, n), atol=1e-5)


def test_the_option_says_what_runs_a_model(tmp_path: Path) -> None:
    name = str(make_bert(tmp_path / "bert"))
    found = [
        run("heads", TEXT, "--model", name, "--format", "json", *more).json for more in ((), ("--source", "pytorch"))
    ]
    assert [one["provenance"]["source"] for one in found] == ["encoder", "huggingface"]
    np.testing.assert_allclose(found[0]["weights"], found[1]["weights"], atol=1e-5)
    assert "'gpu' is not one of" in error("heads", TEXT, "--source", "gpu", code=2)


@pytest.mark.parametrize("option", ["--causal", "--window=2", "--single", "--with-output"])
def test_what_only_our_own_models_give_is_refused(folder: Folder, option: str) -> None:
    said = error("heads", TEXT, "--model", str(folder("GPT-2")), option, "--format", "json", code=2)
    assert "only for models that attnviz runs itself, not for GPT-2: leave it out" in said
    assert option.partition("=")[0] in said


def test_the_backend_is_always_torch(folder: Folder) -> None:
    told = run("heads", TEXT, "--model", str(folder("Llama")), "--backend", "numpy", "--dtype", "bfloat16")
    assert told.code == 0
    assert "the model is run by torch: --backend numpy changes nothing" in told.err
    assert "torch bfloat16 on cpu" in told.text
    silent = run("heads", TEXT, "--model", str(folder("Llama")), "--backend", "torch", "--dtype", "float64")
    assert (silent.code, silent.err) == (0, "")
    assert "numpy runs on the cpu" in error("heads", TEXT, "--device", "cuda", code=2)


def test_attention_that_is_captured_is_expected_to_be_causal(folder: Folder) -> None:
    ignored = ("--ignore", "saturated,uniform,identical")
    assert run("check", TEXT, "--model", str(folder("GPT-2")), "--causal", *ignored).code == 0
    faulty = run("check", TEXT, "--model", str(folder("DistilBERT")), "--causal", *ignored)
    assert faulty.code == 1
    assert "causal" in faulty.text or "future" in faulty.text


@pytest.mark.parametrize("name", ["Llama", "BERT"])
def test_measures_and_the_probe(folder: Folder, name: str) -> None:
    by = ("--by", "previous,induction", "--format", "json")
    found = run("metrics", "--probe", "repeat", "--probe-words", "5", "--model", str(folder(name)), *by)
    assert found.code == 0
    assert np.array(found.json["induction"]).shape == (3, 4)
    words = open_model(str(folder(name)), {}, placing("torch")).words
    assert "cat" in words and "##ed" not in words and "[CLS]" not in words


def test_the_file_of_a_model_is_not_written_over(folder: Folder) -> None:
    name = folder("GPT-2")
    said = error("heads", TEXT, "--model", str(name), "-o", str(name / "config.json"), code=2)
    assert "is also the input" in said
