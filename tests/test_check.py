import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz
import attnviz.maps
from attnviz.attention import Rule
from attnviz.check import KINDS, AttentionCheck, Fault, fault_fields
from attnviz.collect import collect
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, ComputedWeights
from tests.saved import weights_of
from tests.test_measures import a_map

Array = npt.NDArray[Any]


def faults(*maps: AttentionMap, **options: Any) -> tuple[Fault, ...]:
    check = AttentionCheck(**options)
    collect(maps, [check])
    return check.faults()


def said(*maps: AttentionMap, **options: Any) -> list[tuple[str, int, Any, int | None, int]]:
    return [(one.kind, one.layer, one.head, one.row, one.count) for one in faults(*maps, **options)]


def causal_weights(*shape: int) -> Array:
    weights = np.tril(weights_of(*shape))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


# sound attention


@given(seed=st.integers(0, 99), n=st.integers(1, 40), causal=st.booleans())
def test_computed_attention_is_sound(seed: int, n: int, causal: bool) -> None:
    q, k = np.random.default_rng(seed).standard_normal((2, 3, n, 8), np.float32)
    assert faults(a_map(ComputedWeights(q, k, Rule(causal=causal))), causal=causal) == ()


@pytest.mark.parametrize("model", ["minilm", "scratch"])
@pytest.mark.parametrize("text", ["cat", "Orange is my favorite fruit", "the the the the", "the cat sat " * 50])
def test_models_are_sound(model: str, text: str) -> None:
    assert faults(*attnviz.attend(text, model=model).maps) == ()


def test_maps_without_rows_or_keys_are_sound() -> None:
    one = a_map(weights_of(2, 4, 4))
    assert faults(one.pick(queries=[]), one.pick(keys=[]), causal=True) == ()


# rows


@pytest.mark.parametrize(
    ("row", "kind", "text"),
    [
        ([0.5, np.nan, 0.3, 0.2], "nan", "is not a number"),
        ([0.5, np.inf, 0.3, 0.2], "infinite", "holds an infinite value"),
        ([1.005, -0.005, 0, 0], "negative", "holds a negative weight"),
        ([0, 0, 0, 0], "empty", "is 0 throughout: it attends to nothing"),
        ([0.5, 0.1, 0.1, 0.1], "below", "sums to less than 1, as with a learned sink"),
        ([0.5, 0.5, 0.1, 0.1], "above", "sums to more than 1"),
    ],
)
def test_rows_that_are_no_distributions_are_faults_of_each_head(row: list[float], kind: str, text: str) -> None:
    weights = weights_of(3, 5, 4)
    weights[1, 2] = weights[2, 3] = weights[2, 4] = row
    found = faults(a_map(weights, layer=4, kind="cross", stack="decoder"))
    assert [(one.kind, one.layer, one.head, one.row, one.count) for one in found] == [
        (kind, 4, 1, 2, 1),
        (kind, 4, 2, 3, 2),
    ]
    assert found[0].text == f"cross layer 4 head 1 row 2 {text} (1 of 5 rows)"
    assert found[1].text == f"cross layer 4 head 2 row 3 {text} (2 of 5 rows)"
    assert (found[0].stack, found[0].attention) == ("decoder", "cross")


def test_a_transposed_head_is_a_fault() -> None:
    weights = weights_of(3, 5, 5)
    weights[1] = weights[1].T.copy()
    (found,) = faults(a_map(weights))
    assert (found.kind, found.head, found.row) == ("transposed", 1, None)


def test_dropout_is_named_in_each_fault() -> None:
    kept = np.random.default_rng(0).random((2, 16, 16)) >= 0.1
    found = faults(a_map(weights_of(2, 16, 16) * kept / 0.9))
    assert {one.kind for one in found} == {"below", "above"}
    assert all("dropout is the usual cause" in one.text for one in found if one.kind == "below")


def test_scores_are_refused() -> None:
    with pytest.raises(RequestError, match="look like scores"):
        faults(a_map(np.random.default_rng(0).standard_normal((2, 6, 6)) * 5))


# the future


@pytest.mark.parametrize("block_rows", [1, 3, 256])
def test_weight_on_the_future_is_a_fault_where_causal_is_expected(
    block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnviz.maps, "BLOCK_ROWS", block_rows)
    weights = causal_weights(3, 7, 7)
    weights[1, 2] = [0.2, 0.2, 0.35, 0, 0.25, 0, 0]
    weights[1, 5] = [0.2, 0.2, 0.2, 0.2, 0.1, 0.05, 0.05]
    one = a_map(weights)
    assert said(one) == []
    (found,) = faults(one, causal=True)
    assert (found.kind, found.head, found.row, found.count) == ("future", 1, 2, 2)
    assert found.text == (
        "layer 0 head 1 row 2 gives weight to tokens after it, 0.25 of a row at most (2 of 7 rows)"
    )  # fmt: skip


@pytest.mark.parametrize(("leak", "found"), [(1e-7, []), (1e-5, [("future", 0, 0, 1, 1)])])
def test_rounding_is_no_leak(leak: float, found: Any) -> None:
    weights = causal_weights(1, 4, 4)
    weights[0, 1] = [0.5, 0.5 - leak, leak, 0]
    assert said(a_map(weights), causal=True) == found


def test_only_self_attention_has_a_future() -> None:
    assert said(a_map(weights_of(2, 4, 4), kind="cross"), causal=True) == []
    assert said(a_map(weights_of(2, 5, 5)).pick(queries=[0, 2]), causal=True) == []


# padding


PADDED = ("[CLS]", "a", "b", "[SEP]", "[PAD]", "[PAD]")


def unpadded(heads: int) -> Array:
    weights = weights_of(heads, 6, 6)
    weights[..., 4:] = 0
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("name", ["[PAD]", "<pad>", "<PAD>", "<|finetune_right_pad_id|>"])
def test_weight_on_padding_is_a_fault_but_not_that_of_padding_itself(name: str) -> None:
    weights = unpadded(2)
    pieces = tuple(name if piece == "[PAD]" else piece for piece in PADDED)
    assert said(a_map(weights, pieces)) == []
    weights[1, 4] = weights[1, 5] = [0, 0, 0, 0, 0.6, 0.4]  # what padding attends to is nobody's business
    assert said(a_map(weights, pieces)) == []
    weights[1, 1] = [0.25, 0.25, 0.2, 0, 0.2, 0.1]
    (found,) = faults(a_map(weights, pieces))
    assert (found.kind, found.head, found.row, found.count) == ("padding", 1, 1, 1)
    assert found.text == (
        f"layer 0 head 1 row 1 gives weight to the padding {name}, 0.3 of a row at most (1 of 6 rows)"
    )  # fmt: skip


def test_padding_may_be_given_by_a_mask() -> None:
    weights = weights_of(2, 4, 4)
    weights[0, :, 3] = 0
    weights[0] /= weights[0].sum(axis=-1, keepdims=True)
    assert said(a_map(weights)) == []
    assert said(a_map(weights), padding=[False, False, False, True]) == [("padding", 0, 1, 0, 3)]
    with pytest.raises(ValueError, match="padding is given for 2 keys, and there are 4"):
        said(a_map(weights), padding=[True, False])


def test_the_word_pad_is_no_padding() -> None:
    assert said(a_map(weights_of(1, 3, 3), ("pad", "a", "b"))) == []


# heads


def test_a_saturated_head_is_a_fault_however_it_is_spread() -> None:
    weights = weights_of(3, 6, 6)
    weights[1] = np.eye(6)[[0, 0, 3, 3, 5, 1]]
    assert said(a_map(weights)) == [("saturated", 0, 1, None, 1)]
    weights[1, 4] = [0.001, 0, 0, 0, 0, 0.999]
    assert said(a_map(weights)) == []


def test_a_uniform_head_is_a_fault_with_and_without_a_mask() -> None:
    weights = weights_of(3, 6, 6)
    weights[0] = 1 / 6
    weights[2] = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    assert said(a_map(weights)) == [("uniform", 0, 0, None, 1), ("uniform", 0, 2, None, 1)]
    weights[2, 5, 0] *= 1.1
    weights[2, 5] /= weights[2, 5].sum()
    assert said(a_map(weights)) == [("uniform", 0, 0, None, 1)]


def test_rows_that_attend_to_nothing_hide_no_dead_head() -> None:
    weights = weights_of(2, 6, 6)
    weights[0] = 1 / 6
    weights[:, 0] = 0
    assert [one[0] for one in said(a_map(weights))] == ["empty", "empty", "uniform"]


def test_one_key_saturates_no_head_and_makes_none_uniform_or_identical() -> None:
    assert said(a_map(np.ones((3, 1, 1)))) == []
    assert said(a_map(np.ones((3, 4, 1)))) == []


def test_identical_heads_are_named_by_the_first() -> None:
    weights = weights_of(5, 6, 6)
    weights[3] = weights[4] = weights[1]
    found = faults(a_map(weights, layer=2))
    assert [(one.kind, one.head) for one in found] == [("identical", 3), ("identical", 4)]
    assert found[0].text == "layer 2 head 3 is the same as head 1"
    assert found[1].text == "layer 2 head 4 is the same as head 1"


@pytest.mark.parametrize("block_rows", [1, 4, 256])
def test_heads_that_differ_in_one_weight_are_not_identical(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.maps, "BLOCK_ROWS", block_rows)
    for row in (0, 3, 9, 19):
        weights = np.repeat(weights_of(1, 20, 20), 2, axis=0)
        assert [one[0] for one in said(a_map(weights))] == ["identical"]
        weights[1, row, 3] += 1e-5
        assert said(a_map(weights)) == []


def test_shared_projections_make_identical_heads() -> None:
    record = attnviz.attend("a b c d", model="scratch", shared_projections=True, single=True)
    assert [(one.kind, one.head) for one in faults(*record.maps)] == [("identical", h) for h in (1, 2, 3)]


# all together


def test_faults_come_kind_by_kind_and_are_strict_json() -> None:
    weights = causal_weights(3, 6, 6)
    weights[0, 3] = np.nan
    weights[2, 4] = [0.2, 0.2, 0.2, 0.1, 0.1, 0.2]
    other = causal_weights(2, 6, 6)
    other[1] = other[0]
    other[0, 5, 5] = np.nan
    found = faults(a_map(weights), a_map(other, layer=1), causal=True)
    assert [(one.kind, one.layer, one.head) for one in found] == [("nan", 0, 0), ("nan", 1, 0), ("future", 0, 2)]
    order = list(KINDS)
    assert [order.index(one.kind) for one in found] == sorted(order.index(one.kind) for one in found)
    fields = json.loads(json.dumps([fault_fields(one) for one in found], allow_nan=False))
    assert list(fields[0]) == ["kind", "stack", "attention", "layer", "head", "row", "count", "text"]
