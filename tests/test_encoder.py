import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import numpy.typing as npt
import pytest
import torch

from attnviz.backend import NUMPY, Placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionMap, ComputedWeights, StoredWeights
from attnviz.sources import projected
from attnviz.sources.encoder import BUNDLED, MINILM_SHA256, Encoder, open_bundled, open_folder
from tests.models import CONFIG, Eager, Tensors, make_bert, random_tensors, wordpiece

TEXT = "The cat sat on my favorite unwanted mat, unwantable!"
PUBLISHED = os.environ.get("ATTNVIZ_PUBLISHED_MINILM")
PARAGRAPH = (
    "Orange is my favorite fruit — isn't it? A well-known e-mail costs $3.14, ok… O gato não comeu a maçã porque "
    "estava frio; à noite, dormiu. 東京は日本の首都です。注意力机制 😀👍🏽 👨\u200d👩\u200d👧 café naïve Straße "
    "שלום नमस्ते ไทย, antidisestablishmentarianism (really)! "
)
TEXTS = ("Hi there!", "O gato não comeu a maçã.", "「注意」、東京 😀👍🏽 — ok?", PARAGRAPH)


def run(encoder: Encoder, text: str, **options: Any) -> list[AttentionMap]:
    return list(encoder.prepare(text).maps(range(encoder.n_layers), **options))


def weights_of(maps: list[AttentionMap]) -> npt.NDArray[Any]:
    return np.stack([one.rows(0, len(one.query)) for one in maps])


def outputs_of(maps: list[AttentionMap]) -> npt.NDArray[Any]:
    return np.stack([one.output for one in maps if one.output is not None])


def ids_of(encoder: Encoder, text: str) -> tuple[int, ...]:
    return encoder.prepare(text).encoded.ids


def off(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max())


# against transformers


def prefixed(tensors: Tensors) -> Tensors:
    return {f"bert.{name}": tensor for name, tensor in tensors.items()}


def with_old_norms(tensors: Tensors) -> Tensors:
    old = {"weight": "gamma", "bias": "beta"}
    return {
        re.sub(r"LayerNorm\.(\w+)$", lambda match: f"LayerNorm.{old[match[1]]}", name): tensor
        for name, tensor in tensors.items()
    }


def as_is(tensors: Tensors) -> Tensors:
    return tensors


@pytest.mark.parametrize(
    ("changes", "renamed"),
    [
        ({}, as_is),
        ({}, prefixed),
        ({}, with_old_norms),
        ({}, lambda tensors: prefixed(with_old_norms(tensors))),
        ({"hidden_act": "gelu_new"}, as_is),
        ({"hidden_act": "relu"}, as_is),
        ({"hidden_act": "silu"}, as_is),
        ({"is_decoder": True}, as_is),
        ({"layer_norm_eps": 0.5}, as_is),
        ({"num_hidden_layers": 2, "num_attention_heads": 1, "hidden_size": 6, "intermediate_size": 7}, as_is),
        ({"num_hidden_layers": 1, "num_attention_heads": 9, "hidden_size": 9, "type_vocab_size": 1}, as_is),
    ],
)
def test_a_checkpoint_gives_what_transformers_gives(
    tmp_path: Path, changes: Mapping[str, Any], renamed: Callable[[Tensors], Tensors]
) -> None:
    config = {**CONFIG, **changes}
    tensors = random_tensors(config, seed=len(changes))
    encoder = open_folder(make_bert(tmp_path, renamed(tensors), config))
    maps = run(encoder, TEXT, output=True)
    weights, outputs = Eager((config, tensors)).run(ids_of(encoder, TEXT))
    assert weights.shape == (config["num_hidden_layers"], config["num_attention_heads"], 17, 17)
    assert float(weights.max() - weights.min()) > 0.15
    assert off(weights_of(maps), weights) < 1e-5
    assert off(outputs_of(maps), outputs) < 1e-4 * float(np.abs(outputs).max())


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_tensors_stored_in_another_precision_are_run_in_float32(tmp_path: Path, dtype: type[Any]) -> None:
    tensors = {name: tensor.astype(dtype) for name, tensor in random_tensors().items()}
    encoder = open_folder(make_bert(tmp_path, tensors))
    maps = run(encoder, TEXT, output=True)
    weights, outputs = Eager((CONFIG, tensors)).run(ids_of(encoder, TEXT))
    assert off(weights_of(maps), weights) < 1e-5
    assert off(outputs_of(maps), outputs) < 1e-4 * float(np.abs(outputs).max())
    assert weights_of(maps).dtype == outputs_of(maps).dtype == np.float32
    assert encoder.provenance["dtype"] == "float32"


def test_the_small_checkpoint_is_one_that_transformers_reads(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    ids = (2, 5, 6, 3)
    weights, _ = Eager(folder).run(ids)
    assert np.array_equal(weights, Eager((CONFIG, random_tensors())).run(ids)[0])


def test_a_causal_checkpoint_gives_no_weight_to_what_comes_later(tmp_path: Path) -> None:
    weights = weights_of(run(open_folder(make_bert(tmp_path, config={**CONFIG, "is_decoder": True})), TEXT))
    assert not np.triu(weights, 1).any()
    assert np.tril(weights).any(axis=-1).all()


def test_the_bundled_model_gives_what_transformers_gives_with_it() -> None:
    encoder, eager = open_bundled(), Eager(BUNDLED / "minilm")
    for text in (*TEXTS, long_text(500)):
        ids = ids_of(encoder, text)
        maps = run(encoder, text, output=True)
        weights, outputs = eager.run(ids)
        assert off(weights_of(maps), weights) < 1e-5
        assert off(outputs_of(maps), outputs) < 1e-5
        assert np.abs(weights_of(maps).sum(axis=-1) - 1).max() < 1e-5


def long_text(n_tokens: int) -> str:
    """`PARAGRAPH` again and again, cut to about so many tokens."""
    encoder = open_bundled()
    encoded = encoder.prepare(PARAGRAPH * 20, truncate=True).encoded
    return (PARAGRAPH * 20)[: encoded.tokens.spans[n_tokens - 2][1]]


def test_the_bundled_model_stays_near_the_published_one() -> None:
    encoder = open_bundled()
    published = np.load(Path(__file__).parent / "data" / "published_minilm.npz")
    lengths = []
    for i in range(4):
        text = str(published[f"text_{i}"])
        assert ids_of(encoder, text) == tuple(published[f"ids_{i}"].tolist())
        assert off(weights_of(run(encoder, text)), published[f"weights_{i}"]) < 2e-3
        lengths.append(len(published[f"ids_{i}"]))
    assert lengths == [5, 7, 20, 27]


@pytest.mark.skipif(not PUBLISHED, reason="ATTNVIZ_PUBLISHED_MINILM does not name the published checkpoint's folder")
def test_the_whole_published_checkpoint_gives_the_same() -> None:
    folder = Path(str(PUBLISHED))
    bundled, ours, eager = open_bundled(), open_folder(folder), Eager(folder)
    for text in (*TEXTS, long_text(200), long_text(500)):
        ids = ids_of(ours, text)
        assert ids == ids_of(bundled, text)
        weights, _ = eager.run(ids)
        apart, rounded = off(weights_of(run(ours, text)), weights), off(weights_of(run(bundled, text)), weights)
        assert apart < 1e-5
        assert rounded < 2e-3


def test_the_bundled_file_is_the_one_that_is_named() -> None:
    content = (BUNDLED / "minilm" / "model.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == MINILM_SHA256
    assert open_bundled().provenance["model_sha256"] == MINILM_SHA256


# single head, tokens, provenance


def test_the_single_head_comes_first_and_is_scaled_by_its_own_width(tmp_path: Path) -> None:
    tensors = random_tensors()
    encoder = open_folder(make_bert(tmp_path, tensors))
    first = run(encoder, TEXT, single=True)[0]
    assert first.heads == ("single", 0, 1, 2, 3, 4)

    ids = list(ids_of(encoder, TEXT))
    t = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + t["embeddings.token_type_embeddings.weight"][0]
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    x = x * t["embeddings.LayerNorm.weight"] + t["embeddings.LayerNorm.bias"]
    part = "encoder.layer.0.attention.self"
    q, k = (x @ t[f"{part}.{which}.weight"].T + t[f"{part}.{which}.bias"] for which in ("query", "key"))
    for head, width, columns in [(0, 35, slice(None)), (2, 7, slice(7, 14))]:
        scores = q[:, columns] @ k[:, columns].T / width**0.5
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        assert off(first.rows(0, len(ids))[head], weights) < 1e-5


def test_tokens_are_the_tokenizers(tmp_path: Path) -> None:
    encoder = open_folder(make_bert(tmp_path))
    expected = wordpiece().encode(TEXT)
    prepared = encoder.prepare(TEXT)
    assert list(prepared.tokens.pieces) == expected.tokens
    assert list(prepared.encoded.ids) == expected.ids
    for one in prepared.maps([1, 2]):
        assert one.query == one.key == prepared.tokens


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_maps_say_which_module_they_are_of(tmp_path: Path, prefix: str) -> None:
    tensors = prefixed(random_tensors()) if prefix else random_tensors()
    maps = list(open_folder(make_bert(tmp_path, tensors)).prepare("the cat").maps([0, 2]))
    assert [one.name for one in maps] == [f"{prefix}encoder.layer.{i}.attention.self" for i in (0, 2)]
    assert [one.layer for one in maps] == [0, 2]
    assert {(one.stack, one.kind, one.cut) for one in maps} == {("encoder", "self", False)}


def test_provenance_names_the_model_by_its_folder_and_hash_and_holds_no_path(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "my bert")
    provenance = open_folder(folder).provenance
    assert provenance["model"] == "my bert"
    assert provenance["model_sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert str(tmp_path) not in json.dumps(provenance)


# what is run and what is kept


def test_runs_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    first, second = (weights_of(run(open_folder(folder), TEXT)) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    encoder = open_folder(folder)
    run(encoder, "the dog is on the bird")
    assert weights_of(run(encoder, TEXT)).tobytes() == first.tobytes()


@pytest.mark.parametrize("single", [False, True])
def test_rows_made_when_asked_for_equal_those_that_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, single: bool
) -> None:
    encoder = open_folder(make_bert(tmp_path))
    small = run(encoder, TEXT, single=single, output=True)
    monkeypatch.setattr(projected, "STORED_BYTES", 100)
    large = run(encoder, TEXT, single=single, output=True)
    assert single or (isinstance(small[0].weights, StoredWeights) and isinstance(large[0].weights, ComputedWeights))
    assert off(weights_of(large), weights_of(small)) < 1e-6
    assert off(outputs_of(large), outputs_of(small)) < 1e-5
    for a, b in zip(large, small, strict=True):
        assert off(a.rows(3, 8), b.rows(3, 8)) < 1e-6
        assert off(a.pick(heads=[1, 0], queries=[5, 2]).rows(0, 2), b.rows(0, 17)[[1, 0]][:, [5, 2]]) < 1e-6


@pytest.mark.parametrize("place", [torch.from_numpy, array_api_strict.asarray], ids=["torch", "array_api_strict"])
@pytest.mark.parametrize("stored_bytes", [100, 1 << 20])
def test_other_array_libraries_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Callable[[npt.NDArray[Any]], Any], stored_bytes: int
) -> None:
    monkeypatch.setattr(projected, "STORED_BYTES", stored_bytes)
    folder = make_bert(tmp_path, config={**CONFIG, "is_decoder": True})
    elsewhere = Placing("other", "cpu", None, place)
    ours, theirs = (run(open_folder(folder, where), TEXT, single=True, output=True) for where in (NUMPY, elsewhere))
    assert off(weights_of(ours), weights_of(theirs)) < 1e-5
    assert off(outputs_of(ours), outputs_of(theirs)) < 1e-4


def test_layers_not_asked_for_are_left_out_and_change_nothing(tmp_path: Path) -> None:
    encoder = open_folder(make_bert(tmp_path))
    every = weights_of(run(encoder, TEXT, output=True))
    some = list(encoder.prepare(TEXT).maps({2, 0}))
    assert [one.layer for one in some] == [0, 2]
    assert weights_of(some).tobytes() == every[[0, 2]].tobytes()
    assert all(one.output is None for one in some)


POISONED = "encoder.layer.1.intermediate.dense.weight"


def poisoned(folder: Path, name: str, value: float, dtype: type[Any] = np.float32) -> Encoder:
    tensors = {key: tensor.astype(dtype) for key, tensor in random_tensors().items()}
    tensors[name].reshape(-1)[-2] = value
    return open_folder(make_bert(folder, tensors))


@pytest.mark.parametrize("name", [POISONED, "encoder.layer.2.attention.self.query.weight"])
def test_nothing_after_the_last_layer_asked_for_is_run(tmp_path: Path, name: str) -> None:
    prepared = poisoned(tmp_path, name, np.nan).prepare(TEXT)
    assert np.isfinite(weights_of(list(prepared.maps([0, 1], output=True)))).all()
    with pytest.raises(AttnvizError):
        list(prepared.maps([2]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "index"),
    [
        (POISONED, "47, 33"),
        ("encoder.layer.0.attention.self.query.weight", "34, 33"),
        ("encoder.layer.1.attention.self.key.bias", "33"),
        ("encoder.layer.1.attention.self.value.weight", "34, 33"),
        ("encoder.layer.0.attention.output.dense.weight", "34, 33"),
        ("encoder.layer.0.output.LayerNorm.bias", "33"),
        ("embeddings.LayerNorm.weight", "33"),
        ("embeddings.token_type_embeddings.weight", "0, 1"),
    ],
)
def test_a_tensor_with_what_is_no_number_is_named(
    tmp_path: Path, name: str, index: str, value: float, dtype: type[Any]
) -> None:
    if name.endswith("token_type_embeddings.weight"):
        tensors = {key: tensor.astype(dtype) for key, tensor in random_tensors().items()}
        tensors[name][0, 1] = value
        encoder = open_folder(make_bert(tmp_path, tensors))
    else:
        encoder = poisoned(tmp_path, name, value, dtype)
    with pytest.raises(AttnvizError) as error:
        run(encoder, TEXT)
    assert f"{name}[{index}] is not a finite number (1 such value in this tensor)" in str(error.value)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    "name", ["encoder.layer.2.attention.output.dense.bias", "encoder.layer.2.attention.self.value.bias"]
)
def test_a_last_layer_whose_output_is_no_number_is_refused_when_it_is_asked_for(tmp_path: Path, name: str) -> None:
    encoder = poisoned(tmp_path, name, np.nan)
    assert np.isfinite(weights_of(run(encoder, TEXT))).all()
    with pytest.raises(AttnvizError, match=re.escape(f"{name}[33] is not a finite number")):
        run(encoder, TEXT, output=True)


@pytest.mark.parametrize(
    ("part", "size"),
    [
        ("attention.self.query.weight", 1e30),
        ("attention.self.value.weight", 1e38),
        ("intermediate.dense.weight", 1e38),
    ],
)
def test_numbers_that_overflow_are_refused(tmp_path: Path, part: str, size: float) -> None:
    tensors = random_tensors()
    for name in tensors:
        if name.endswith(part) or (size == 1e30 and name.endswith("self.key.weight")):
            tensors[name] *= np.float32(size)
    with pytest.raises(AttnvizError, match="overflow"):
        run(open_folder(make_bert(tmp_path, tensors)), TEXT)


def test_scores_that_overflow_are_refused_where_nothing_follows_them(tmp_path: Path) -> None:
    tensors = random_tensors()
    for which in ("query", "key"):
        tensors[f"encoder.layer.0.attention.self.{which}.weight"] *= np.float32(1e30)
    with pytest.raises(AttnvizError, match=r"overflow .*in encoder\.layer\.0\.attention\.self"):
        list(open_folder(make_bert(tmp_path, tensors)).prepare(TEXT).maps([0]))


# tensors and settings that do not go together


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.word_embeddings.weight",
        "embeddings.LayerNorm.bias",
        "encoder.layer.0.attention.self.query.weight",
        "encoder.layer.1.output.dense.bias",
        "encoder.layer.2.attention.self.key.bias",
    ],
)
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    tensors = random_tensors()
    del tensors[name]
    with pytest.raises(AttnvizError, match=f"has no tensor {re.escape(name)}") as error:
        run(open_folder(make_bert(tmp_path, tensors)), TEXT)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("embeddings.word_embeddings.weight", (41, 34), "41 × 34, where config.json asks for 41 × 35"),
        ("embeddings.position_embeddings.weight", (28, 35), "28 × 35, where config.json asks for 29 × 35"),
        ("embeddings.token_type_embeddings.weight", (2, 36), "2 × 36, where config.json asks for 2 × 35"),
        ("embeddings.LayerNorm.weight", (1,), "1, where config.json asks for 35"),
        ("encoder.layer.0.attention.self.query.weight", (36, 35), "36 × 35, where config.json asks for 35 × 35"),
        ("encoder.layer.1.attention.self.key.bias", (1,), "1, where config.json asks for 35"),
        ("encoder.layer.0.attention.self.value.weight", (35,), "35, where config.json asks for 35 × 35"),
        ("encoder.layer.1.intermediate.dense.weight", (48, 34), "48 × 34, where config.json asks for 48 × 35"),
        ("encoder.layer.0.output.dense.weight", (35, 47), "35 × 47, where config.json asks for 35 × 48"),
    ],
)
def test_a_tensor_of_another_size_is_named(tmp_path: Path, name: str, shape: tuple[int, ...], wanted: str) -> None:
    tensors = random_tensors()
    tensors[name] = np.ones(shape, np.float32)
    with pytest.raises(AttnvizError) as error:
        run(open_folder(make_bert(tmp_path, tensors)), TEXT)
    assert f"tensor {name} in " in str(error.value)
    assert f" has shape {wanted}" in str(error.value)
    assert error.value.exit_code == 3


def test_a_tokenizer_of_more_pieces_than_the_model_has_is_refused(tmp_path: Path) -> None:
    config = {**CONFIG, "vocab_size": 12}
    encoder = open_folder(make_bert(tmp_path, random_tensors(config), config))
    assert len(run(encoder, "the cat un")) == 3
    with pytest.raises(AttnvizError, match="gives token 40, but the model has embeddings for 12") as error:
        run(encoder, "the b cat")
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": None}, "num_attention_heads must be a whole number of at least 1, got None"),
        ({"num_attention_heads": 0}, "num_attention_heads must be a whole number of at least 1, got 0"),
        ({"num_attention_heads": -5}, "num_attention_heads must be a whole number of at least 1, got -5"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers must be a whole number of at least 1, got '3'"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a whole number of at least 1, got True"),
        ({"hidden_size": 35.0}, "hidden_size must be a whole number of at least 1, got 35.0"),
        ({"intermediate_size": None}, "intermediate_size must be a whole number of at least 1, got None"),
        ({"max_position_embeddings": [29]}, "max_position_embeddings must be a whole number"),
        ({"num_attention_heads": 4}, "d_model 35 cannot be split into 4 heads: the number of heads must divide it"),
        ({"num_attention_heads": 36}, "d_model 35 cannot be split into 36 heads"),
        ({"hidden_act": "mish"}, "hidden_act 'mish': attnviz knows gelu, gelu_new"),
        ({"hidden_act": ["gelu"]}, "hidden_act ['gelu']: attnviz knows gelu, gelu_new"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key': only 'absolute'"),
        ({"position_embedding_type": "relative_key_query"}, "'relative_key_query': only 'absolute'"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps must be a number above 0, got 'small'"),
        ({"layer_norm_eps": -1.0}, "layer_norm_eps must be a number above 0, got -1.0"),
        ({"layer_norm_eps": None}, "layer_norm_eps must be a number above 0, got None"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps must be a number above 0, got nan"),
        ({"num_hidden_layers": 4}, "num_hidden_layers is 4, but model.safetensors holds 3 layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, but model.safetensors holds 3 layers"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(tmp_path: Path, changes: Mapping[str, Any], words: str) -> None:
    folder = make_bert(tmp_path, random_tensors())
    config = {
        key: value for key, value in {**CONFIG, **changes}.items() if value is not None or key == "layer_norm_eps"
    }
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(AttnvizError) as error:
        open_folder(folder)
    assert words in str(error.value)
    assert "config.json" in str(error.value)
    assert error.value.exit_code == 3


def test_a_checkpoint_of_more_layers_than_config_says_is_run_as_far_as_it_says(tmp_path: Path) -> None:
    folder = make_bert(tmp_path, random_tensors(), {**CONFIG, "num_hidden_layers": 2})
    assert len(run(open_folder(folder), TEXT)) == 2


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "gpt2", "llama", None, 5])
def test_another_kind_of_model_names_the_extra(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(AttnvizError) as error:
        open_folder(make_bert(tmp_path, config={**CONFIG, "model_type": kind}))
    assert f"model_type {kind!r}" in str(error.value)
    assert "pip install 'attnviz[hf]'" in str(error.value)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    "auto_map", [{"AutoModel": "canary.Model"}, {"AutoConfig": "canary.C", "AutoTokenizer": [None]}]
)
def test_custom_code_is_never_run(tmp_path: Path, auto_map: Any) -> None:
    folder = make_bert(tmp_path / "model", config={**CONFIG, "auto_map": auto_map})
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w').close()\n"
    for name in ("canary.py", "configuration_canary.py", "__init__.py"):
        (folder / name).write_text(code)
    with pytest.raises(AttnvizError, match="custom code is never run") as error:
        open_folder(folder)
    assert error.value.exit_code == 3
    assert not canary.exists()


# texts


def test_a_text_that_is_too_long_names_both_lengths(tmp_path: Path) -> None:
    encoder = open_folder(make_bert(tmp_path))
    assert len(encoder.prepare("the " * 27).tokens) == 29
    with pytest.raises(RequestError) as error:
        encoder.prepare("the " * 28)
    assert "30 tokens, special ones included, and the model takes at most 29" in str(error.value)
    assert "--truncate" in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["the " * 28, "unwanted café " * 40])
def test_a_truncated_text_keeps_its_special_tokens_and_says_so(tmp_path: Path, text: str) -> None:
    encoder = open_folder(make_bert(tmp_path))
    prepared = encoder.prepare(text, truncate=True)
    whole = wordpiece().encode(text)
    assert list(prepared.tokens.pieces) == ["[CLS]", *whole.tokens[1:28], "[SEP]"]
    assert prepared.tokens.special == (True, *[False] * 27, True)
    assert prepared.notes == (f"the text has {len(whole)} tokens; only the first 29 are used",)
    assert weights_of(list(prepared.maps([0]))).shape == (1, 5, 29, 29)
    with pytest.raises(RequestError, match="takes at most 29"):  # nothing of it stays for the next text
        encoder.prepare(text)


def test_one_token_of_text_has_its_three_by_three_weights(tmp_path: Path) -> None:
    weights = weights_of(run(open_folder(make_bert(tmp_path)), "cat"))
    assert weights.shape == (3, 5, 3, 3)
    assert np.abs(weights.sum(-1) - 1).max() < 1e-6


def test_a_model_that_has_room_for_one_token_of_text(tmp_path: Path) -> None:
    config = {**CONFIG, "max_position_embeddings": 3}
    encoder = open_folder(make_bert(tmp_path, config=config))
    assert encoder.prepare("the cat sat", truncate=True).tokens.pieces == ("[CLS]", "the", "[SEP]")


@pytest.mark.parametrize("n_positions", [1, 2])
def test_a_model_without_room_for_text_is_refused(tmp_path: Path, n_positions: int) -> None:
    config = {**CONFIG, "max_position_embeddings": n_positions}
    encoder = open_folder(make_bert(tmp_path, config=config))
    with pytest.raises(RequestError, match=f"takes at most {n_positions}"):
        encoder.prepare("the cat", truncate=True)
