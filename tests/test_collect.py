import gc
import tracemalloc
import weakref
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz
from attnviz.arrays import Floats
from attnviz.blocks import Block
from attnviz.check import AttentionCheck
from attnviz.cli.progress import Progress
from attnviz.collect import Collector, HeatmapCollector, RecordCollector, collect
from attnviz.errors import RequestError
from attnviz.faults import RowFaults
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap, StoredWeights, Weights
from attnviz.measures.collector import MeasureCollector
from attnviz.pooling import tile_edges
from attnviz.reduce import RolloutCollector
from attnviz.tokens import Tokens

HEADS, QUERIES, KEYS = 3, 5, 7


def random_weights(heads: int = HEADS, queries: int = QUERIES, keys: int = KEYS, dtype: str = "float32") -> Floats:
    weights: Floats = np.random.default_rng([heads, queries, keys]).random((heads, queries, keys))
    weights /= weights.sum(-1, keepdims=True)
    return weights.astype(dtype)


def map_of(weights: Weights | Floats, layer: int = 0, **fields: Any) -> AttentionMap:
    held = StoredWeights(weights) if isinstance(weights, np.ndarray) else weights
    heads, queries, keys = held.shape
    query, key = (Tokens.of(f"{what}{i}" for i in range(size)) for what, size in (("q", queries), ("k", keys)))
    return AttentionMap(f"layer.{layer}", layer, tuple(range(heads)), held, query, key, **fields)


class Counted:
    """Stored weights that count how often each row is asked for."""

    def __init__(self, array: Floats) -> None:
        self.array = array
        self.shape = StoredWeights(array).shape
        self.asked = np.zeros(self.shape[1], int)

    def rows(self, start: int, stop: int) -> Floats:
        self.asked[start:stop] += 1
        return self.array[:, start:stop]


class Log(Collector[tuple[int, tuple[int, ...]]]):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def begin(self, one: AttentionMap) -> None:
        self.told.append(("begin", one.layer))

    def look(self, block: Block) -> tuple[int, tuple[int, ...]]:
        return block.start, block.values.shape

    def keep(self, part: tuple[int, tuple[int, ...]]) -> None:
        self.told.append(part)

    def finish(self) -> None:
        self.told.append("finish")


# one pass


def test_each_map_begins_is_folded_in_order_and_finishes() -> None:
    log = Log()
    collect([map_of(random_weights(queries=600)), map_of(random_weights(), 1)], [log])
    blocks = [(start, (3, 150, 7)) for start in (0, 150, 300, 450)]
    assert log.told == [("begin", 0), *blocks, "finish", ("begin", 1), (0, (3, 5, 7)), "finish"]


def test_adding_a_map_is_collecting_it() -> None:
    one, log, other = map_of(random_weights()), Log(), Log()
    log.add(one)
    collect([one], [other])
    assert log.told == other.told != []


def test_several_collectors_share_one_pass() -> None:
    weights = Counted(random_weights(queries=300))
    record, heatmaps, log = RecordCollector(), HeatmapCollector(4, 4), Log()
    collect([map_of(weights)], [record, heatmaps, log])
    assert weights.asked.tolist() == [1] * 300
    np.testing.assert_array_equal(record.result({}).maps[0].rows(0, 300), weights.array)
    assert len(heatmaps.result()) == 1
    assert log.told[-1] == "finish"


def test_a_map_that_nobody_wants_is_never_made() -> None:
    first, second = Counted(random_weights()), Counted(random_weights())
    wanting: list[Collector[Any]] = [RecordCollector(frozenset({1})), HeatmapCollector(9, 9, frozenset({1, 2}))]
    collect([map_of(first, 0), map_of(second, 1)], wanting)
    assert first.asked.max() == 0
    assert second.asked.tolist() == [1] * QUERIES


@pytest.mark.parametrize(("layers", "seen"), [(None, [0, 1, 2]), ({0, 2}, [0, 2]), ({1}, [1]), ({7}, []), ((), [])])
def test_collectors_see_the_layers_they_want(layers: Any, seen: list[int]) -> None:
    wanted = None if layers is None else frozenset(layers)
    record, heatmaps = RecordCollector(wanted), HeatmapCollector(2, 2, wanted)
    collect([map_of(random_weights(), layer) for layer in range(3)], [record, heatmaps])
    assert [one.layer for one in record.result({}).maps] == seen
    assert [one.map.layer for one in heatmaps.result()] == seen


# records


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_record_keeps_every_digit(dtype: str) -> None:
    array = random_weights(queries=300, dtype=dtype)
    collector = RecordCollector()
    collector.add(map_of(array, output=np.ones((300, 2))))
    record = collector.result({"model": "none"}, ["a note"])
    assert record.weights.dtype == dtype
    np.testing.assert_array_equal(record.weights[0], array)
    assert record.maps[0].output is not None
    assert record.provenance == {"model": "none"}
    assert record.notes == ("a note",)


def test_a_record_keeps_float64_whichever_block_comes_first() -> None:
    array = random_weights(queries=4, dtype="float64")
    narrow = array.astype(np.float32)
    for blocks in ((array[:, :2], narrow[:, 2:]), (narrow[:, :2], array[:, 2:])):
        collector = RecordCollector()
        collector.begin(map_of(array))
        collector.keep(collector.look(Block(blocks[0])))
        collector.keep(collector.look(Block(blocks[1], start=2)))
        collector.finish()
        kept = collector.result({}).weights[0]
        np.testing.assert_array_equal(kept, np.concatenate(blocks, axis=1))
        assert kept.dtype == np.float64


def test_what_is_kept_does_not_change_with_what_was_lent() -> None:
    array = random_weights()
    before = array.copy()
    record, heatmaps = RecordCollector(), HeatmapCollector(9, 9)
    collect([map_of(array)], [record, heatmaps])
    array[:] = 9
    np.testing.assert_array_equal(record.result({}).weights[0], before)
    np.testing.assert_array_equal(heatmaps.result()[0].values, before)


def test_parts_that_come_by_turns_are_kept_together() -> None:
    """A decoder's layers attend to themselves and to what was read, one after the other."""
    fields: list[dict[str, Any]] = [{}, {"stack": "decoder"}, {"stack": "decoder", "kind": "cross"}]
    maps = [
        map_of(random_weights(), 0, **fields[0]),
        *(map_of(random_weights(), i, **f) for i in (0, 1) for f in fields[1:]),
    ]
    record, pooled = RecordCollector(), HeatmapCollector(9, 9)
    collect(maps, [record, pooled])
    order = [("encoder", "self", 0)] + [("decoder", kind, i) for kind in ("self", "cross") for i in (0, 1)]
    assert [(one.stack, one.kind, one.layer) for one in record.result({}).maps] == order
    assert [(one.map.stack, one.map.kind, one.map.layer) for one in pooled.result()] == order


def test_what_is_made_of_a_map_does_not_keep_its_weights() -> None:
    class Weights(Counted):
        """What can be seen to be gone."""

    collected: list[Collector[Any]] = [RecordCollector(), HeatmapCollector(2, 2), RowFaults(), MeasureCollector()]
    broken = np.full((HEADS, QUERIES, KEYS), 0.5, np.float32)
    seen = []
    for layer in range(2):
        weights = Weights(broken)
        seen.append(weakref.ref(weights))
        collect([map_of(weights, layer)], collected)
        del weights
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


class Huge:
    """Weights that would not fit into any memory, and cannot be asked for."""

    shape = (1, 1 << 30, 1 << 30)

    def rows(self, start: int, stop: int) -> Floats:
        raise AssertionError("asked for")


def test_keeping_more_than_the_memory_holds_is_refused_before_it_begins() -> None:
    one = map_of(random_weights())
    object.__setattr__(one, "weights", Huge())
    with pytest.raises(RequestError, match="keeping every weight would take"):
        RecordCollector().add(one)


# heatmaps


def heatmap(array: Floats, rows: int, columns: int, **fields: Any) -> Heatmap:
    collector = HeatmapCollector(rows, columns)
    collector.add(map_of(array, **fields))
    (result,) = collector.result()
    return result


def by_hand(array: Floats, rows: list[int], columns: list[int]) -> Floats:
    values = np.empty((len(array), len(rows) - 1, len(columns) - 1))
    for head, i, j in np.ndindex(values.shape):
        values[head, i, j] = array[head, rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean(dtype=np.float64)
    return values


@given(st.integers(0, 5000), st.integers(1, 300))
def test_tiles_are_of_one_size_but_the_last_and_no_more_than_wanted(length: int, most: int) -> None:
    edges = tile_edges(length, most)
    sizes = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == length
    assert len(sizes) <= most
    assert len(sizes) == length if length <= most else len(sizes) > 0
    assert (sizes[:-1] == sizes[:1]).all()
    assert (sizes[-1:] <= sizes[:1]).all()
    assert (sizes > 0).all()


@given(st.integers(1, 3), st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(1, 12))
def test_a_heatmap_is_the_mean_of_each_tile(heads: int, queries: int, keys: int, rows: int, columns: int) -> None:
    array = random_weights(heads, queries, keys)
    result = heatmap(array, rows, columns)
    wanted = by_hand(array, result.query_edges.tolist(), result.key_edges.tolist())
    assert result.values.shape[1] <= rows
    assert result.values.shape[2] <= columns
    np.testing.assert_allclose(result.values, wanted, rtol=1e-6, atol=0)
    np.testing.assert_allclose(
        result.shown_mass, array.sum(-1, dtype=np.float64).mean(-1), rtol=1e-6, atol=0
    )  # sums of float32
    assert result.exact == (queries <= rows and keys <= columns)


@pytest.mark.parametrize(("queries", "rows"), [(700, 3), (513, 256), (257, 7), (600, 600), (256, 255)])
def test_tiles_go_on_across_blocks(queries: int, rows: int) -> None:
    array = random_weights(2, queries, 9)
    result = heatmap(array, rows, 4)
    wanted = by_hand(array, result.query_edges.tolist(), result.key_edges.tolist())
    np.testing.assert_allclose(result.values, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "columns"), [(QUERIES, KEYS), (256, 256)])
def test_a_heatmap_is_the_weights_themselves_where_they_fit(dtype: str, rows: int, columns: int) -> None:
    array = random_weights(dtype=dtype)
    result = heatmap(array, rows, columns)
    assert result.exact
    assert result.values.dtype == dtype
    np.testing.assert_array_equal(result.values, array)


def test_a_single_token_keeps_all_its_axes() -> None:
    result = heatmap(np.ones((2, 1, 1), np.float32), 9, 9)
    assert result.values.tolist() == [[[1]], [[1]]]
    assert result.shown_mass.tolist() == [1, 1]
    assert result.exact


def test_no_tokens_give_no_tiles() -> None:
    assert heatmap(np.ones((2, 0, 3), np.float32), 9, 9).values.shape == (2, 0, 3)
    assert heatmap(np.ones((2, 3, 0), np.float32), 9, 9).values.shape == (2, 3, 0)


@pytest.mark.parametrize(("query", "key"), [(0, 0), (4, 6), (2, 3), (3, 2)])
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (5, 3), (2, 7), (5, 7)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_stays_within_its_tile_and_head(query: int, key: int, rows: int, columns: int, bad: float) -> None:
    array = random_weights()
    clean = heatmap(array, rows, columns).values
    array[1, query, key] = bad
    result = heatmap(array, rows, columns)
    i = np.searchsorted(result.query_edges, query, side="right") - 1
    j = np.searchsorted(result.key_edges, key, side="right") - 1
    assert np.argwhere(~np.isfinite(result.values)).tolist() == [[1, i, j]]
    assert np.isfinite(result.shown_mass).tolist() == [True, False, True]
    rest = np.isfinite(result.values)
    np.testing.assert_array_equal(result.values[rest], clean[rest])


def test_shown_mass_is_what_is_left_of_the_rows() -> None:
    weights = np.array([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]], np.float32)
    collector = HeatmapCollector(9, 9)
    collector.add(map_of(weights).pick(keys=[0, 1]))
    (result,) = collector.result()
    np.testing.assert_allclose(result.shown_mass, [(0.75 + 0.3) / 2], rtol=1e-6)


# length

LONG = 32_768


class Long:
    """The weights of a long text, that can only be had a few rows at a time."""

    shape = (1, LONG, LONG)

    def __init__(self) -> None:
        self.block = np.full((1, 256, LONG), 1 / LONG, np.float32)

    def rows(self, start: int, stop: int) -> Floats:
        if stop - start > 256:
            raise MemoryError(f"{stop - start} rows at once")
        return self.block[:, : stop - start]


TILED: dict[type[Collector[Any]], Callable[[], Collector[Any]]] = {
    HeatmapCollector: lambda: HeatmapCollector(256, 256),
    RowFaults: RowFaults,
    AttentionCheck: AttentionCheck,
    RolloutCollector: lambda: RolloutCollector(512),
    MeasureCollector: lambda: MeasureCollector(["previous", "largest"]),  # every measure at length has its own test
}
WHOLE = {RecordCollector, Log, Progress}
"""Collectors whose result is as large as the attention itself, or nothing."""


def collectors(kind: type[Collector[Any]] = Collector) -> set[type[Collector[Any]]]:
    direct = set(kind.__subclasses__())
    return direct.union(*map(collectors, direct))


def test_every_collector_is_tried_at_length() -> None:
    package = Path(attnviz.__file__).parent
    for path in package.rglob("*.py"):
        if "(Collector[" in path.read_text("utf-8"):
            import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    known = {kind for kind in collectors() if kind.__module__.startswith(("attnviz", __name__))}
    assert known == set(TILED) | WHOLE


@pytest.mark.parametrize("kind", TILED, ids=lambda kind: kind.__name__)
def test_a_long_text_goes_through_in_blocks_and_little_memory(kind: type[Collector[Any]]) -> None:
    one = map_of(Long())
    collector = TILED[kind]()
    tracemalloc.start()
    try:
        collector.add(one)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100e6
    if isinstance(collector, HeatmapCollector):
        (result,) = collector.result()
        np.testing.assert_allclose(result.values, np.full((1, 256, 256), 1 / LONG), rtol=1e-6)
        np.testing.assert_allclose(result.shown_mass, 1, rtol=1e-6)
