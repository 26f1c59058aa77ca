"""Blocks pooled to tiles: sums and largest weights, judged by NumPy over the whole matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.attention import Rule, attention_weights
from attnviz.blocks import Block
from attnviz.collect import HeatmapCollector
from attnviz.maps import AttentionMap, ComputedWeights, PickedWeights, StoredWeights
from attnviz.pooling import Pool, pooled, tile_edges
from attnviz.tokens import Tokens


@given(
    heads=st.integers(1, 3), rows=st.integers(1, 12), keys=st.integers(1, 15), first=st.integers(0, 7),
    key=st.integers(0, 5), tiles=st.integers(1, 9), pool=st.sampled_from(["mean", "max"]), factors=st.booleans(),
)  # fmt: skip
def test_a_block_adds_what_its_weights_are_in_each_tile(
    heads: int, rows: int, keys: int, first: int, key: int, tiles: int, pool: Pool, factors: bool
) -> None:
    rng = np.random.default_rng(heads * 1000 + rows * 10 + keys)
    values, factor = rng.random((heads, rows, keys)), rng.random((heads, rows))
    block = Block(values.copy(), 2, first, key, 20, factor.copy() if factors else None)
    weights = np.zeros((heads, 19, 20))
    weights[:, first : first + rows, key : key + keys] = values * (factor[:, :, None] if factors else 1)
    row_edges, key_edges = tile_edges(19, tiles), tile_edges(20, tiles + 2)
    found = np.zeros((heads, len(row_edges) - 1, len(key_edges) - 1))
    part = pooled(block, row_edges, key_edges, pool)
    assert part.heads == slice(2, 2 + heads)
    found[:, part.rows, part.columns] = part.values
    for h, i, j in np.ndindex(found.shape):
        tile = weights[h, row_edges[i] : row_edges[i + 1], key_edges[j] : key_edges[j + 1]]
        assert found[h, i, j] == pytest.approx(tile.sum() if pool == "mean" else tile.max(), abs=1e-12)


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("rule", [Rule(), Rule(causal=True), Rule(causal=True, window=150), Rule(window=90)])
def test_a_long_map_is_pooled_as_its_whole_matrix_would_be(rule: Rule, pool: Pool) -> None:
    heads, n, width = 3, 701, 8
    rng = np.random.default_rng(1)
    q, k = (rng.normal(size=(heads, n, width)).astype(np.float32) for _ in range(2))
    weights = ComputedWeights(q, k, rule)
    assert weights.divisible
    tokens = Tokens.of(map(str, range(n)))
    collector = HeatmapCollector(40, 33, pool=pool)
    collector.add(AttentionMap("a", 0, (0, 1, 2), weights, tokens, tokens))
    (heatmap,) = collector.result()
    whole = attention_weights(q.astype(np.float64), k.astype(np.float64), rule)
    for h, i, j in np.ndindex(heatmap.values.shape):
        tile = whole[
            h,
            heatmap.query_edges[i] : heatmap.query_edges[i + 1],
            heatmap.key_edges[j] : heatmap.key_edges[j + 1],
        ]
        wanted = tile.mean() if pool == "mean" else tile.max()
        assert heatmap.values[h, i, j] == pytest.approx(wanted, rel=1e-5, abs=1e-9)
    assert heatmap.pool == pool
    np.testing.assert_allclose(heatmap.shown_mass, 1, rtol=1e-6)


def test_a_picture_keeps_no_weights() -> None:
    array, tokens = np.full((1, 4, 4), 0.25, np.float32), Tokens.of("abcd")
    collector = HeatmapCollector(2, 2)
    collector.add(AttentionMap("a", 0, (0,), StoredWeights(array), tokens, tokens))
    (heatmap,) = collector.result()
    assert heatmap.head(0).map.weights.shape == (1, 4, 4)
    with pytest.raises(LookupError, match="are gone"):
        heatmap.map.rows(0, 1)


@pytest.mark.parametrize("rule", [Rule(), Rule(causal=True), Rule(causal=True, window=60)])
def test_a_part_that_is_cut_out_is_divided_too(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.blocks.BLOCK_ROWS", 32)  # so that windows begin after the first key that is kept
    heads, n, width = 4, 600, 8
    rng = np.random.default_rng(2)
    q, k = (rng.normal(size=(heads, n, width)).astype(np.float32) for _ in range(2))
    base = ComputedWeights(q, k, rule)
    cut = PickedWeights(base, (1, 2), tuple(range(100, 320)), tuple(range(90, 300)))
    assert cut.divisible
    assert not PickedWeights(base, (1, 3), (5, 6), (5, 6)).divisible
    tokens = Tokens.of(map(str, range(n)))
    one = AttentionMap("a", 0, (0, 1), cut, tokens.pick(range(100, 320)), tokens.pick(range(90, 300)), cut=True)
    collector = HeatmapCollector(999, 999)
    collector.add(one)
    whole = attention_weights(q.astype(np.float64), k.astype(np.float64), rule)[1:3, 100:320, 90:300]
    np.testing.assert_allclose(collector.result()[0].values, whole, atol=1e-6)
    np.testing.assert_allclose(collector.result()[0].shown_mass, whole.sum(axis=2).mean(axis=1), rtol=1e-5)
