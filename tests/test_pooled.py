"""Pooled maps: each tile is the mean or the largest of the weights in it, whatever the sizes, in every format."""

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from attnviz import RequestError, load
from attnviz.collect import HeatmapCollector, collect
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap, StoredWeights
from attnviz.pooled import pooled_fields, pooled_table
from attnviz.pooling import Pool
from attnviz.render.layout import tile_note
from attnviz.render.panels import heads_board
from attnviz.tokens import Tokens
from tests.cli import error, run

TEXT = " ".join(f"w{i}" for i in range(23))
"""Five tiles a side hold 5, 5, 5, 5 and 3 of its tokens."""
EDGES = [0, 5, 10, 15, 20, 23]
REDUCERS = {"mean": np.mean, "max": np.max}
Array = npt.NDArray[Any]


def tiles_of(weights: Array, rows: list[int], columns: list[int], pool: str) -> Array:
    """[…, query tile, key tile], tile by tile."""
    reduce: Any = REDUCERS[pool]
    tiles = [[reduce(weights[..., a:b, c:d], axis=(-2, -1)) for c, d in pairwise(columns)] for a, b in pairwise(rows)]
    return np.moveaxis(np.array(tiles), (0, 1), (-2, -1))


def map_of(weights: Array, layer: int = 0, **more: Any) -> AttentionMap:
    n_heads, n_queries, n_keys = weights.shape
    query, key = (Tokens.of(f"{axis}{i}" for i in range(n)) for axis, n in (("q", n_queries), ("k", n_keys)))
    return AttentionMap(f"m{layer}", layer, tuple(range(n_heads)), StoredWeights(weights), query, key, **more)


def pooled(pool: Pool, rows: int, columns: int, *maps: AttentionMap) -> tuple[Heatmap, ...]:
    collector = HeatmapCollector(rows, columns, pool=pool)
    collect(maps, [collector])
    return collector.result()


@pytest.mark.parametrize("pool", REDUCERS)
@given(st.data())
def test_tiles_are_those_of_the_whole_matrix(pool: Pool, data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, most)) for most in (3, 300, 40)]
    most_rows, most_columns = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 50))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    weights = np.random.default_rng(data.draw(st.integers(0, 99))).random(sizes).astype(dtype)
    (one,) = pooled(pool, most_rows, most_columns, map_of(weights))
    rows, columns = one.query_edges.tolist(), one.key_edges.tolist()
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (0, sizes[1], 0, sizes[2])
    assert len(rows) - 1 <= most_rows
    assert len(columns) - 1 <= most_columns
    np.testing.assert_allclose(one.values, tiles_of(weights.astype(np.float64), rows, columns, pool), rtol=1e-6)
    assert (one.values.dtype, one.pool) == (weights.dtype, pool)
    np.testing.assert_allclose(one.shown_mass, weights.sum(axis=2, dtype=np.float64).mean(axis=1), rtol=1e-6)


def test_the_largest_is_not_0_where_all_are_below_and_nothing_where_one_is_no_number() -> None:
    weights = np.full((1, 4, 6), -0.5, np.float32)
    weights[0, 3, 5] = np.nan
    (one,) = pooled("max", 2, 2, map_of(weights))
    np.testing.assert_array_equal(one.values, [[[-0.5, -0.5], [-0.5, np.nan]]])


@pytest.mark.parametrize(
    ("pool", "said"), [("mean", "the mean of 3 query × 2 key"), ("max", "the largest weight of 3 q")]
)
def test_pictures_say_what_a_tile_is(pool: Pool, said: str) -> None:
    (one,) = pooled(pool, 3, 4, map_of(np.ones((2, 9, 8), np.float32)))
    assert said in tile_note(heads_board([one], "").panels)


def test_fields_hold_what_a_record_holds_with_edges_in_the_whole_text() -> None:
    weights = np.random.default_rng(1).random((2, 9, 8)).astype(np.float32)
    part = map_of(weights, 4).pick(queries=range(2, 9), keys=[0, 3, 4, 6])
    fields = pooled_fields(pooled("max", 3, 2, part), {"model": "m"}, ["a note"])
    said = {"schema": "attnviz/1", "notes": ["a note"], "layers": [4], "heads": [0, 1], "names": ["m4"], "pool": "max"}
    assert said.items() <= fields.plain.items()
    assert (fields.plain["query_edges"], fields.plain["key_edges"]) == ([2, 5, 8, 9], [0, 4, 7])
    assert fields.plain["query_positions"] == list(range(2, 9))
    expected = tiles_of(weights[:, 2:][:, :, [0, 3, 4, 6]], [0, 3, 6, 7], [0, 2, 4], "max")
    np.testing.assert_array_equal(fields.arrays["pooled"], expected[None])


def test_maps_of_several_shapes_are_in_stacks() -> None:
    maps = [map_of(np.ones((2, 4, 4))), map_of(np.ones((2, 4, 3)), kind="cross", stack="decoder")]
    heatmaps = pooled("mean", 2, 2, *maps)
    fields = pooled_fields(heatmaps, {}, [])
    assert {name: (one.plain["places"], one.arrays["pooled"].shape) for name, one in fields.stacks.items()} == {
        "encoder": ([0], (1, 2, 2, 2)),
        "cross": ([1], (1, 2, 2, 2)),
    }
    table = pooled_table(heatmaps)
    assert table.columns[:3] == ("stack", "layer", "head")
    assert list(table.rows[-1]) == ["cross", 0, 1, 2, 4, 2, 3, 1.0]


def whole(*more: str) -> Array:
    return np.array(run("heads", TEXT, "--model", "scratch", "--format", "json", *more).json["weights"])


def held(path: Path) -> dict[str, Any]:
    """The arrays and edges of a file, read without attnviz."""
    if path.suffix == ".npz":
        return dict(np.load(path))
    if path.suffix == ".safetensors":
        with safe_open(path, "np") as file:
            return {**json.loads(file.metadata()["attnviz"]), "pooled": file.get_tensor("pooled")}
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("pool", REDUCERS)
@pytest.mark.parametrize("suffix", ["json", "jsonl", "npz", "safetensors"])
def test_files_hold_the_tiles_and_where_they_are(tmp_path: Path, suffix: str, pool: str) -> None:
    file = tmp_path / f"tiles.{suffix}"
    asked = ["heads", TEXT, "--model", "scratch", "--causal", "--tiles", "5", "--pool", pool, "-o", str(file)]
    answer = run(*asked)
    assert (answer.code, answer.out, answer.err) == (0, b"", "")
    found = held(file)
    assert (list(found["query_edges"]), list(found["key_edges"]), str(found["pool"])) == (EDGES, EDGES, pool)
    np.testing.assert_allclose(found["pooled"], tiles_of(whole("--causal"), EDGES, EDGES, pool), atol=1e-7)
    assert "weights" not in found
    assert "output" not in found
    message = error("heads", "--attention", str(file), code=2)
    assert "holds tiles of --tiles, and not every weight" in message
    with pytest.raises(RequestError, match="holds tiles"):
        load(file)


def test_csv_has_a_line_for_each_tile(tmp_path: Path) -> None:
    file = tmp_path / "tiles.csv"
    assert run("heads", TEXT, "--model", "scratch", "--tiles", "5", "-o", str(file)).code == 0
    rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))
    tiles = tiles_of(whole(), EDGES, EDGES, "mean")
    assert len(rows) == tiles.size
    for row in rows:
        place = int(row["head"]), EDGES.index(int(row["query_from"])), EDGES.index(int(row["key_from"]))
        assert float(row["weight"]) == pytest.approx(tiles[0][place], rel=1e-6)
        assert [int(row[name]) for name in ("query_to", "key_to")] == [EDGES[i + 1] for i in place[1:]]
    assert "holds tiles" in error("heads", "--attention", str(file), code=2)


def test_rows_of_a_query_are_not_pooled() -> None:
    found = run("heads", TEXT, "--model", "scratch", "--tiles", "5", "--query", "7", "--format", "json").json
    assert (found["query_edges"], found["key_edges"]) == ([7, 8], EDGES)
    np.testing.assert_allclose(found["pooled"], tiles_of(whole()[:, :, 7:8], [0, 1], EDGES, "mean"), atol=1e-7)


def test_cross_attention_is_pooled_too() -> None:
    asked = ["cross", "a b c d e f g", "u v w x y", "--format", "json"]
    found, weights = run(*asked, "--tiles", "3").json, np.array(run(*asked).json["weights"])
    assert (found["query_edges"], found["key_edges"]) == ([0, 2, 4, 5], [0, 3, 6, 7])
    np.testing.assert_allclose(found["pooled"], tiles_of(weights, [0, 2, 4, 5], [0, 3, 6, 7], "mean"), atol=1e-7)


def test_a_file_for_each_head(tmp_path: Path) -> None:
    file = str(tmp_path / "{head}.npz")
    assert run("heads", TEXT, "--model", "scratch", "--tiles", "5", "-o", file).code == 0
    for head in range(4):
        found = np.load(tmp_path / f"{head}.npz")
        assert found["heads"].tolist() == [head]
        np.testing.assert_allclose(found["pooled"], tiles_of(whole()[:, [head]], EDGES, EDGES, "mean"), atol=1e-7)


def test_text_is_pooled_to_what_is_asked_for_and_what_has_room() -> None:
    few = run("heads", TEXT, "--model", "scratch", "--tiles", "5", "--width", "80", "--pool", "max").text
    assert "each cell is the largest weight of 5 × 5 tokens" in " ".join(few.split())
    for label in ("0–4", "20–22"):
        assert label in few
    one = ["heads", " ".join(["a", "b"] * 300), "--model", "scratch", "--head", "0", "--width", "80"]
    plain, many = (run(*one, *more).text.partition("attnviz")[0] for more in ([], ["--tiles", "400"]))
    assert many == plain


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tiles", "0"], "greater than or equal to 1"),
        (["--tiles", "9", "-o", "FOLDER/a.html"], "html holds every weight: leave out --tiles"),
        (["--pool", "max", "-o", "FOLDER/a.npz"], "add --tiles N"),
        (["--pool", "median"], "'median' is not one of"),
    ],
)
def test_what_has_no_tiles_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    typed = [one.replace("FOLDER", str(tmp_path)) for one in arguments]
    assert words in error("heads", TEXT, "--model", "scratch", *typed, code=2)
    assert list(tmp_path.iterdir()) == []


def test_too_many_tiles_are_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a " * 100_000, encoding="utf-8")
    asked = ["heads", "-f", str(tmp_path / "long.txt"), "--model", "scratch", "--format", "npz"]
    assert "keeping the tiles would take" in error(*asked, "--tiles", "90000", code=2)
    assert "--tiles 256" in error(*asked, code=2)


def test_the_range_closes_in_and_the_scale_shows_small_weights() -> None:
    asked = ["heads", " ".join(["a", "b"] * 600), "--model", "scratch", "--tiles", "8", "--head", "0"]
    assert "weight 0 to 0.002" in run(*asked).text
    assert "sqrt scale: blank below" in run(*asked).text
    assert "sqrt" not in run(*asked, "--color-scale", "linear").text
    picture = run(*asked, "--format", "svg").text
    assert "log scale, 2e-06 or less to 0.002" in picture
    assert "each cell is the mean of 150 × 150 tokens" in picture
