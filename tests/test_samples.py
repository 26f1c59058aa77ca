"""The sample inputs are what the script makes, and can be used."""

from pathlib import Path

import numpy as np
import pytest

from attnviz.sources.embeddings import open_embeddings
from attnviz.sources.modules import open_module
from tools import make_samples

SAMPLES = make_samples.SAMPLES


@pytest.mark.parametrize("name", ["palavras.pt.txt", "embeddings.npz", "module.safetensors"])
def test_the_samples_are_made_by_the_script(name: str, tmp_path: Path) -> None:
    make_samples.main(tmp_path)
    assert (SAMPLES / name).read_bytes() == (tmp_path / name).read_bytes()


def test_words_of_one_kind_have_vectors_that_are_close() -> None:
    own = open_embeddings(SAMPLES / "palavras.pt.txt")
    vectors = dict(zip(own.tokens.text, own.x / np.linalg.norm(own.x, axis=-1, keepdims=True), strict=True))
    within = [float(vectors[a] @ vectors[b]) for words in make_samples.KINDS.values() for a in words for b in words]
    kinds = list(make_samples.KINDS.values())
    between = [float(vectors[a] @ vectors[b]) for i in range(4) for j in range(i) for a in kinds[i] for b in kinds[j]]
    assert min(within) > max(between)


def test_the_sentence_has_projections_of_its_own() -> None:
    own = open_embeddings(SAMPLES / "embeddings.npz", n_heads=2)
    assert own.tokens.text == tuple(make_samples.SENTENCE)
    assert own.provenance["projections"] == "file"
    assert own.projections.w_o is not None


def test_the_module_is_one_as_it_is_taught() -> None:
    module = open_module(SAMPLES / "module.safetensors", n_heads=2)
    assert (module.d_model, module.n_heads) == (8, 2)
    assert module.projections.b_q is None
    assert module.projections.b_o is not None
