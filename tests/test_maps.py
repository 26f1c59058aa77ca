from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.arrays import Floats, to_numpy
from attnviz.attention import Rule, attention_weights
from attnviz.blocks import BLOCK_ROWS, pieces
from attnviz.errors import AttnvizError
from attnviz.maps import (
    RANGE_BYTES,
    AttentionMap,
    AttentionRecord,
    ComputedWeights,
    PickedWeights,
    StackedHeads,
    StoredWeights,
    Weights,
    block_ranges,
    made_for,
    runs,
)
from attnviz.tokens import Tokens

HEADS, QUERIES, KEYS = 3, 5, 7


def random_weights(heads: int = HEADS, queries: int = QUERIES, keys: int = KEYS, seed: int = 0) -> Floats:
    weights = np.random.default_rng(seed).random((heads, queries, keys)).astype(np.float32)
    weights /= weights.sum(-1, keepdims=True)
    return weights


def numbered(what: str, size: int) -> Tokens:
    return Tokens.of(f"{what}{i}" for i in range(size))


def map_of(weights: Weights, **fields: Any) -> AttentionMap:
    heads, queries, keys = weights.shape
    return AttentionMap(
        "attention", 0, tuple(range(heads)), weights, numbered("q", queries), numbered("k", keys), **fields
    )


class Noted:
    """Weights of any size that are not there, and that note which rows were asked for."""

    def __init__(self, heads: int, queries: int, keys: int) -> None:
        self.shape = heads, queries, keys
        self.asked: list[tuple[int, int]] = []

    def rows(self, start: int, stop: int) -> Floats:
        self.asked.append((start, stop))
        heads, _, keys = self.shape
        return np.broadcast_to(np.float32(1 / max(1, keys)), (heads, stop - start, keys))


# weights


def test_stored_rows_are_a_view() -> None:
    array = random_weights()
    rows = StoredWeights(array).rows(1, 4)
    assert np.shares_memory(rows, array)
    np.testing.assert_array_equal(rows, array[:, 1:4])
    assert StoredWeights(array).shape == (HEADS, QUERIES, KEYS)


RULES = [Rule(), Rule(causal=True), Rule(window=2), Rule(mask=np.random.default_rng(1).random((6, 5, 7)) < 0.6)]


def computed(xp: Any, rule: Rule, dtype: str = "float64", n_kv: int = 2) -> ComputedWeights:
    rng = np.random.default_rng(2)
    q, k = rng.normal(size=(6, 5, 4)).astype(dtype), rng.normal(size=(n_kv, 7, 4)).astype(dtype)
    mask = None if rule.mask is None else xp.asarray(rule.mask)
    return ComputedWeights(xp.asarray(q), xp.asarray(k), Rule(rule.causal, rule.window, None, mask), 0.7)


@pytest.mark.parametrize("rule", RULES)
def test_computed_rows_are_those_of_the_whole(xp: Any, rule: Rule) -> None:
    weights = computed(xp, rule)
    whole = to_numpy(attention_weights(weights.q, weights.k, weights.rule, scale=0.7))
    assert weights.shape == whole.shape == (6, 5, 7)
    for start, stop in ((0, 5), (1, 3), (4, 5), (2, 2)):
        rows = weights.rows(start, stop)
        assert type(rows) is np.ndarray
        np.testing.assert_allclose(rows, whole[:, start:stop], rtol=0, atol=1e-15)


@pytest.mark.parametrize("size", [1, 90], ids=["few", "many"])  # by the plain maths, and by blocks where NumPy's
@pytest.mark.parametrize(("softcap", "sunk"), [(0.5, False), (None, True), (0.5, True)])
def test_caps_and_sinks_go_with_their_heads(xp: Any, size: int, softcap: float | None, sunk: bool) -> None:
    rng = np.random.default_rng(2)
    q, k, sink = rng.normal(size=(6, 5 * size, 4)), rng.normal(size=(2, 7 * size, 4)), np.arange(6) - 2.0
    told: dict[str, Any] = {"scale": 0.7, "softcap": softcap, "sink": sink if sunk else None}
    here = told | {"sink": xp.asarray(sink) if sunk else None}
    weights = ComputedWeights(xp.asarray(q), xp.asarray(k), Rule(causal=True), **here)
    assert weights.divisible == (size > 1 and xp is np)
    whole = attention_weights(q, k, Rule(causal=True), **told)
    np.testing.assert_allclose(weights.rows(1, 5), whole[:, 1:5], rtol=0, atol=1e-12)
    some = weights.of([4, 1])
    assert some.shape == (2, 5 * size, 7 * size)
    np.testing.assert_allclose(some.rows(0, 5 * size), whole[[4, 1]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", [Rule(), Rule(causal=True), Rule(window=40), Rule(causal=True, window=40)])
def test_weights_of_many_rows_are_written_over_what_was_there(rule: Rule) -> None:
    rng = np.random.default_rng(2)
    q, k = rng.normal(size=(6, 700, 4)), rng.normal(size=(2, 900, 4))
    weights = ComputedWeights(q, k, rule)
    into = np.full((6, 600, 900), np.nan)
    assert len(list(pieces(into.shape, written=True))) > 2
    weights.write(50, into)
    np.testing.assert_allclose(into, attention_weights(q, k, rule)[:, 50:650], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_computed_rows_have_the_precision_of_the_queries(xp: Any, dtype: str) -> None:
    assert computed(xp, Rule(), dtype).rows(0, 2).dtype == dtype


@pytest.mark.parametrize("rule", [*RULES, Rule(mask=np.random.default_rng(3).normal(size=(1, 5, 7)))])
@pytest.mark.parametrize("heads", [[0], [5], [4, 1], [2, 2, 3], [5, 4, 3, 2, 1, 0]])
def test_computed_weights_of_some_heads_are_those_heads_with_the_keys_of_their_group(
    xp: Any, rule: Rule, heads: list[int]
) -> None:
    weights = computed(xp, rule)
    some = weights.of(heads)
    assert some.shape == (len(heads), 5, 7)
    np.testing.assert_allclose(some.rows(1, 4), weights.rows(1, 4)[heads], rtol=0, atol=1e-15)


def test_stacked_heads_come_in_the_order_of_the_parts() -> None:
    first, second = random_weights(1, seed=1), random_weights(4, seed=2)
    stacked = StackedHeads((StoredWeights(first), StoredWeights(second)))
    assert stacked.shape == (5, QUERIES, KEYS)
    np.testing.assert_array_equal(stacked.rows(1, 4), np.concatenate([first, second])[:, 1:4])


@given(st.data())
def test_picked_weights_are_what_numpy_picks(data: st.DataObject) -> None:
    array = random_weights()
    heads, queries, keys = (
        tuple(data.draw(st.lists(st.integers(0, size - 1), max_size=size + 3), label=f"of {size}"))
        for size in array.shape
    )
    start = data.draw(st.integers(0, len(queries)))
    stop = data.draw(st.integers(start, len(queries)))
    picked = PickedWeights(StoredWeights(array), heads, queries, keys)
    wanted = array[np.ix_(heads, queries, keys)] if heads and queries and keys else np.zeros(picked.shape)
    assert picked.shape == wanted.shape
    np.testing.assert_array_equal(picked.rows(start, stop), wanted[:, start:stop])


@pytest.mark.parametrize("heads", [(0, 1, 2), (2, 1, 0), (0, 0, 1)])
@pytest.mark.parametrize("queries", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (0, 1, 3, 4, 2)])
@pytest.mark.parametrize("keys", [(0, 1, 2, 3, 4, 5, 6), (1, 0, 2, 3, 4, 5, 6)])
def test_picking_as_many_as_there_are_still_picks(
    heads: tuple[int, ...], queries: tuple[int, ...], keys: tuple[int, ...]
) -> None:
    array = random_weights()
    picked = PickedWeights(StoredWeights(array), heads, queries, keys)
    np.testing.assert_array_equal(picked.rows(0, QUERIES), array[np.ix_(heads, queries, keys)])


@given(st.lists(st.integers(0, 9), max_size=12))
def test_runs_put_together_are_the_indices(indices: list[int]) -> None:
    stretches = list(runs(indices))
    assert [i for first, last in stretches for i in range(first, last)] == indices
    assert all(last != first for (_, last), (first, _) in pairwise(stretches))


# blocks


@given(st.integers(1, 40), st.integers(0, 3000), st.integers(0, 40_000))
def test_blocks_cover_each_row_once_and_stay_small(heads: int, queries: int, keys: int) -> None:
    ranges = list(block_ranges((heads, queries, keys)))
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(queries))
    for start, stop in ranges:
        assert 1 <= stop - start <= BLOCK_ROWS == 256
        assert stop - start == 1 or 4 * heads * keys * (stop - start) <= RANGE_BYTES == 4 << 20


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 600, 4), (12, 3000, 2048), (1, 700, 32768)])
def test_a_map_asks_for_each_row_once_and_says_where_its_blocks_start(shape: tuple[int, int, int]) -> None:
    weights = Noted(*shape)
    blocks = [(start, start + block.shape[1]) for start, block in map_of(weights).blocks()]
    assert blocks == weights.asked == list(block_ranges(shape))


@pytest.mark.parametrize("twice", [False, True])
def test_picking_a_little_of_a_large_map_still_makes_small_blocks(twice: bool) -> None:
    weights = Noted(32, 300, 8192)
    picked = map_of(weights).pick(heads=[3], keys=[0, 1])
    if twice:
        picked = picked.pick(keys=[1])
    assert sum(block.shape[1] for _, block in picked.blocks()) == 300
    assert max(stop - start for start, stop in weights.asked) * 32 * 8192 * 4 <= RANGE_BYTES
    assert made_for(picked.weights) == (32, 300, 8192)


def test_a_head_picked_from_computed_ones_is_all_that_is_made() -> None:
    picked = map_of(computed(np, Rule(causal=True))).pick(heads=[4, 1])
    assert made_for(picked.weights) == (2, 5, 7)
    np.testing.assert_allclose(picked.rows(0, 5), computed(np, Rule(causal=True)).rows(0, 5)[[4, 1]], atol=1e-15)


# maps


def test_a_map_whose_sizes_differ_from_its_tokens_or_heads_is_refused_by_them() -> None:
    weights = StoredWeights(random_weights())
    heads, q, k = (0, 1, 2), numbered("q", QUERIES), numbered("k", KEYS)
    assert AttentionMap("a", 0, heads, weights, q, k).heads == heads
    for some_heads, query, key in (((0, 1), q, k), (heads, k, k), (heads, q, q), (heads, k, q)):
        with pytest.raises(ValueError, match=r"weights are \(3, 5, 7\), but heads, queries and keys are"):
            AttentionMap("a", 0, some_heads, weights, query, key)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 6), (6, 6)])
def test_rows_that_are_not_there_are_refused_by_their_numbers(start: int, stop: int) -> None:
    with pytest.raises(IndexError, match=f"rows {start} to {stop} of 5"):
        map_of(StoredWeights(random_weights())).rows(start, stop)


def test_picking_takes_tokens_heads_and_output_along() -> None:
    array, output = random_weights(), np.arange(QUERIES * 2.0).reshape(QUERIES, 2)
    one = map_of(StoredWeights(array), output=output, stack="decoder", kind="cross")
    picked = one.pick(heads=[2, 0], queries=[4, 1, 1], keys=[6, 0])
    assert picked.heads == (2, 0)
    assert picked.query.text == ("q4", "q1", "q1")
    assert picked.key.text == ("k6", "k0")
    assert (picked.stack, picked.kind, picked.name) == ("decoder", "cross", "attention")
    assert picked.output is not None
    assert picked.output.tolist() == [[8, 9], [2, 3], [2, 3]]
    np.testing.assert_array_equal(picked.rows(0, 3), array[np.ix_([2, 0], [4, 1, 1], [6, 0])])


def test_picking_nothing_in_particular_is_the_same_map() -> None:
    one = map_of(StoredWeights(random_weights()))
    assert one.pick() is one


@pytest.mark.parametrize(
    ("picked", "cut"),
    [({"queries": [0]}, False), ({"heads": [1]}, False), ({"keys": [6, 5, 4, 3, 2, 1, 0]}, False)]
    + [({"keys": keys}, True) for keys in ([0], [], [0] * 7)],
)
def test_a_map_is_cut_where_keys_are_missing(picked: dict[str, list[int]], cut: bool) -> None:
    one = map_of(StoredWeights(random_weights())).pick(**picked)
    assert one.cut == cut
    assert one.pick(heads=[0]).cut == cut


@pytest.mark.parametrize("picked", [{"heads": [3]}, {"queries": [0, 5]}, {"keys": [-1]}, {"queries": [-1]}])
def test_picking_what_is_not_there_is_refused(picked: dict[str, list[int]]) -> None:
    (indices,) = picked.values()
    with pytest.raises(IndexError, match=f"no index {indices[-1]} of"):
        map_of(StoredWeights(random_weights())).pick(**picked)


def test_picking_no_queries_leaves_a_map_without_rows() -> None:
    empty = map_of(StoredWeights(random_weights())).pick(queries=[])
    assert list(empty.blocks()) == []
    assert empty.rows(0, 0).shape == (HEADS, 0, KEYS)


# records


def test_a_record_stacks_the_layers_of_one_shape() -> None:
    arrays = [random_weights(seed=seed) for seed in range(2)]
    record = AttentionRecord(tuple(map_of(StoredWeights(array)) for array in arrays), {"model": "none"})
    assert record.weights.shape == (2, HEADS, QUERIES, KEYS)
    np.testing.assert_array_equal(record.weights, arrays)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ([(3, 5, 7), (3, 5, 5)], r"\[\(3, 5, 5\), \(3, 5, 7\)\]"),
        ([(1, 2, 2), (2, 2, 2)], r"\(1, 2, 2\)"),
        ([], r"\[\]"),
    ],
)
def test_a_record_of_several_shapes_or_of_none_says_so(shapes: list[tuple[int, int, int]], said: str) -> None:
    record = AttentionRecord(tuple(map_of(StoredWeights(random_weights(*shape))) for shape in shapes), {})
    with pytest.raises(AttnvizError, match=f"the maps have no one shape: .*{said}"):
        _ = record.weights
