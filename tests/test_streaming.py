"""Blocks of rows made fast are what the plain maths gives, whatever the rule, the scores and the block."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz import exponential
from attnviz.arrays import Floats
from attnviz.attention import Rule
from attnviz.blocks import Block, Piece
from attnviz.scratch import lent
from attnviz.streaming import Exponentials, key_range

HEADS, GROUPS, N, D = 6, 3, 23, 5


@pytest.fixture(params=["by powers", "by NumPy"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways, whichever is the faster on this machine."""
    monkeypatch.setattr(exponential, "numpy_is_slow", lambda: request.param == "by powers")


def reference(
    q: Any, k: Any, rule: Rule, scale: float | None = None, softcap: float | None = None, sink: Floats | None = None
) -> Floats:
    """softmax in float64, written out: [head, query, key]."""
    n_heads, n_queries, width = q.shape
    result = np.zeros((n_heads, n_queries, k.shape[1]))
    for head, i in np.ndindex(n_heads, n_queries):
        keys = k[head // (n_heads // k.shape[0])].astype(float)
        row = keys @ q[head, i].astype(float) * (width**-0.5 if scale is None else scale)
        row = row if softcap is None else softcap * np.tanh(row / softcap)
        allowed = np.ones(len(row), bool)
        for j in range(len(row)):
            allowed[j] &= not rule.causal or j <= i
            allowed[j] &= rule.window is None or abs(i - j) < rule.window
        if rule.keys is not None:
            allowed &= rule.keys
        if rule.mask is not None:
            mask = np.broadcast_to(rule.mask, (n_heads, n_queries, len(row)))[head, i]
            if mask.dtype == bool:
                allowed &= mask
            else:
                allowed &= mask > -1e9
                row = row + np.where(allowed, mask, 0)
        if allowed.any():
            last = -np.inf if sink is None else float(sink[head])
            largest = max(row[allowed].max(), last)
            weights = np.where(allowed, np.exp(row - largest, where=allowed, out=np.zeros_like(row)), 0)
            result[head, i] = weights / (weights.sum() + np.exp(last - largest))
    return result


def vectors(scale: float = 1.0, dtype: str = "float32", queries: int = N) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(3)
    return (rng.normal(0, scale, (HEADS, queries, D)).astype(dtype), rng.normal(0, 1, (GROUPS, N, D)).astype(dtype))


def random_mask(*shape: int) -> Any:
    return np.random.default_rng(5).random(shape) > 0.4


def assert_exponentials(block: Block) -> None:
    assert block.logits is not None
    logs, step, offset = block.logits
    assert np.isfinite(logs).all()
    tolerance = 1e-6 if logs.dtype == np.float32 else 1e-12
    wanted = np.exp(logs.astype(float) * step + offset)
    np.testing.assert_allclose(block.values, wanted, rtol=tolerance, atol=1e-37)  # below, float32 has no 24 bits


ALL = Piece(0, HEADS, 0, N)

RULES = {
    "everything": Rule(),
    "causal": Rule(causal=True),
    "window": Rule(window=4),
    "causal window": Rule(causal=True, window=4),
    "window of one": Rule(window=1),
    "padding": Rule(keys=np.arange(N) < 17),
    "causal padding": Rule(causal=True, keys=np.arange(N) >= 6),
    "mask": Rule(mask=random_mask(N, N)),
    "mask of one row": Rule(mask=random_mask(1, N)),
    "mask by head": Rule(causal=True, mask=random_mask(HEADS, N, N)),
    "bias": Rule(mask=np.random.default_rng(6).normal(0, 2, (N, N)).astype(np.float32)),
    "bias that masks": Rule(window=9, mask=np.where(random_mask(N, N), 1.5, -np.inf).astype(np.float32)),
    "dead rows": Rule(mask=np.arange(N)[:, None] * np.ones(N) % 3 > 0),
    "nothing": Rule(mask=np.zeros((N, N), bool)),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("scale", [1.0, 300.0])  # small scores, and those that need their maximum taken off
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_block_is_what_the_plain_maths_gives(name: str, scale: float, dtype: str) -> None:
    q, k = vectors(scale, dtype)
    rule = RULES[name]
    made = Exponentials(q, k, rule)
    assert made.safe(ALL) == (scale == 1.0 and "bias" not in name)
    wanted = reference(q, k, rule)
    tolerance = {"float32": 2e-6 if scale == 1.0 else 1e-4, "float64": 1e-12}[dtype]
    for piece in (Piece(0, HEADS, 0, N), Piece(1, 4, 7, 12), Piece(5, 6, N - 1, N)):
        block = made.block(piece)
        assert block.values.dtype == dtype
        rows = wanted[piece.head : piece.last_head, piece.start : piece.stop]
        np.testing.assert_allclose(block.sums, rows.sum(axis=2), atol=tolerance)
        np.testing.assert_allclose(block.whole(), rows, atol=tolerance)


SINKS = np.array([-80.0, -2.0, 0.0, 1.5, 3.0, 5.0])
CAPS_AND_SINKS = {
    "cap": (2.5, None), "large cap": (90.0, None), "sinks": (None, SINKS), "both": (2.5, SINKS),
    "large sinks": (3.0, 61 * SINKS), "sinks that take all": (None, SINKS + 1e4), "none at all": (None, SINKS - 1e6),
}  # fmt: skip


@pytest.mark.parametrize("name", ["everything", "causal window", "mask by head", "bias that masks", "dead rows"])
@pytest.mark.parametrize("more", CAPS_AND_SINKS)
@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_caps_and_sinks_are_in_the_sums(name: str, more: str, scale: float, dtype: str) -> None:
    (q, k), rule, (softcap, sink) = vectors(scale, dtype), RULES[name], CAPS_AND_SINKS[more]
    made = Exponentials(q, k, rule, 0.3, softcap, None if sink is None else sink.astype(dtype))
    wanted = reference(q, k, rule, 0.3, softcap, sink)
    tolerance = {"float32": 2e-6 if scale == 1.0 else 1e-4, "float64": 1e-12}[dtype]
    for piece in (Piece(0, HEADS, 0, N), Piece(2, 5, 7, 12)):
        block = made.block(piece, logits=True)
        assert_exponentials(block)
        rows = wanted[piece.head : piece.last_head, piece.start : piece.stop]
        np.testing.assert_allclose(block.sums, rows.sum(axis=2), atol=tolerance)
        np.testing.assert_allclose(block.whole(), rows, atol=tolerance)


@pytest.mark.parametrize(
    ("scale", "softcap", "largest", "safe"),
    [
        (1.0, None, 69.0, True), (1.0, None, 71.0, False), (1.0, None, -1e6, True), (1.0, None, np.nan, False),
        (300.0, None, 0.0, False), (300.0, 69.0, 0.0, True), (300.0, 71.0, 0.0, False), (1.0, 71.0, 0.0, True),
        (300.0, 69.0, 71.0, False),
    ],
)  # fmt: skip
def test_caps_bound_the_scores_and_large_sinks_are_taken_off(
    scale: float, softcap: float | None, largest: float, safe: bool
) -> None:
    sink = np.array([largest, *[-100.0] * (HEADS - 1)], np.float32)
    assert Exponentials(*vectors(scale), softcap=softcap, sink=sink).safe(ALL) is safe


@given(
    n=st.integers(1, 20), m=st.integers(1, 20), start=st.integers(0, 19), rows=st.integers(1, 8),
    causal=st.booleans(), window=st.one_of(st.none(), st.integers(1, 25)),
)  # fmt: skip
def test_any_rows_of_any_rule(n: int, m: int, start: int, rows: int, causal: bool, window: int | None) -> None:
    start = min(start, n - 1)
    stop = min(n, start + rows)
    rng = np.random.default_rng(n * 100 + m)
    q, k = rng.normal(size=(2, n, 3)), rng.normal(size=(2, m, 3))
    rule = Rule(causal=causal, window=window)
    block = Exponentials(q, k, rule).block(Piece(0, 2, start, stop))
    wanted = reference(q, k, rule)[:, start:stop]
    np.testing.assert_allclose(block.whole(), wanted, atol=1e-12)
    outside = np.ones(m, bool)
    outside[slice(*key_range(rule, start, stop, m))] = False
    assert not wanted[:, :, outside].any()


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("name", ["everything", "causal", "mask", "bias that masks", "dead rows"])
def test_values_are_the_exponentials_of_the_logits(name: str, scale: float) -> None:
    q, k = vectors(scale)
    block = Exponentials(q, k, RULES[name]).block(Piece(0, HEADS, 0, N), logits=True)
    assert_exponentials(block)


def test_memory_is_lent_until_the_next_block() -> None:
    q, k = vectors()
    made = Exponentials(q, k)
    lent, again = made.block(Piece(0, 1, 0, 4)), made.block(Piece(2, 3, 5, 9))
    assert np.shares_memory(lent.values, again.values)


@pytest.mark.parametrize("size", [1, 5 << 18, 3 << 20, 9 << 20, 7])
def test_memory_grows_and_none_is_lent_under_two_names(size: int) -> None:
    shape = 1, size
    one, other, wide = lent("one", shape, "f4"), lent("other", shape, "f4"), lent("wide", shape, "f8")
    assert [x.shape for x in (one, other, wide)] == [shape] * 3
    assert not any(np.shares_memory(a, b) for a, b in ((one, other), (one, wide), (other, wide)))
    assert np.shares_memory(one, lent("one", (1,), "f8"))


def test_each_thread_has_memory_of_its_own() -> None:
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(lent, "one", (5,), "f4").result()
    assert not np.shares_memory(theirs, lent("one", (5,), "f4"))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_row(bad: float) -> None:
    q, k = vectors()
    q[1, 3, 0] = bad
    block = Exponentials(q, k, RULES["causal"]).block(Piece(0, HEADS, 0, N))
    rows = np.asarray(np.isnan(block.weights).any(axis=2))
    assert rows.sum() == 1
    assert rows[1, 3]


@pytest.mark.parametrize(("dtype", "most"), [("float32", 70), ("float64", 600)])
@pytest.mark.parametrize("more", [-1.0, 1.0, 1e4])
def test_large_scores_neither_overflow_nor_vanish(dtype: str, most: float, more: float) -> None:
    scale = most + more
    q = np.array([[[scale], [-scale]]], dtype)
    k = np.array([[[1.0], [-1.0], [0.5]]], dtype)
    made = Exponentials(q, k, scale=1.0)
    assert made.safe(Piece(0, 1, 0, 2)) == (more < 0)
    np.testing.assert_allclose(made.block(Piece(0, 1, 0, 2)).weights, reference(q, k, Rule(), 1.0), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_of_a_piece_is_what_counts(dtype: str) -> None:
    q, k = vectors(1.0, dtype)
    q[4, 9], k[1, 15] = 500, 400  # a query, and a key of heads 2 and 3
    made = Exponentials(q, k, Rule(causal=True))
    pieces = {
        Piece(0, 2, 0, N): True, Piece(4, 5, 0, 9): True, Piece(4, 5, 9, 12): False, Piece(5, 6, 9, 12): True,
        Piece(2, 4, 0, 15): True, Piece(2, 4, 12, 16): False, Piece(3, 4, 16, N): False, Piece(4, 6, 10, N): True,
        Piece(0, 6, 0, 9): True, ALL: False,
    }  # fmt: skip
    assert {piece: made.safe(piece) for piece in pieces} == pieces
    wanted = reference(q, k, Rule(causal=True))
    for piece in pieces:
        rows = wanted[piece.head : piece.last_head, piece.start : piece.stop]
        np.testing.assert_allclose(made.block(piece).whole(), rows, atol=1e-4 if dtype == "float32" else 1e-12)


def test_rows_far_below_0_are_as_exact_as_others() -> None:
    q, k = np.ones((1, 1, 1), np.float32), np.array([[[-69.0], [-69.5], [-50.0], [-69.75]]], np.float32)
    for keys in ([0, 1, 3], [0, 1, 2, 3]):
        made = Exponentials(q, k[:, keys], scale=1.0)
        assert made.safe(Piece(0, 1, 0, 1))
        wanted = reference(q, k[:, keys], Rule(), 1.0)
        np.testing.assert_allclose(made.block(Piece(0, 1, 0, 1)).weights, wanted, rtol=8e-6)  # 100 bits, to 2⁻¹⁸


def test_a_sink_far_above_all_scores_takes_nearly_everything() -> None:
    q, k = (np.ones((2, 3, 1), np.float32) for _ in range(2))
    block = Exponentials(q, k, sink=np.array([1e4, 101.0], np.float32), scale=100.0).block(Piece(0, 2, 0, 3))
    assert block.sums[0].tolist() == [0, 0, 0]
    np.testing.assert_allclose(block.sums[1], 3 / (3 + np.e), rtol=4e-6)  # 100 is 144.3 bits, known to 2⁻¹⁷


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("logits", [False, True])
def test_what_is_masked_is_nothing_at_all(scale: float, logits: bool) -> None:
    q, k = vectors(scale)
    for rule in (RULES["causal"], RULES["mask by head"], RULES["dead rows"], RULES["bias that masks"]):
        weights = Exponentials(q, k, rule).block(Piece(0, HEADS, 0, N), logits=logits).whole()
        allowed = np.broadcast_to(reference(q * 0, k, rule) > 0, weights.shape)
        assert not weights[~allowed].any()


def test_a_bias_as_large_as_a_number_can_be_takes_everything() -> None:
    q, k = vectors()
    mask = np.zeros((N, N), np.float32)
    mask[:, 7], mask[:, 8] = np.finfo(np.float32).max, np.finfo(np.float32).min
    weights = Exponentials(q, k, Rule(mask=mask)).block(Piece(0, HEADS, 0, N)).whole()
    np.testing.assert_array_equal(weights, np.broadcast_to(np.arange(N) == 7, weights.shape))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_a_score_of_minus_infinity_are_numbers(dtype: str) -> None:
    q, k = np.ones((1, 2, 1), dtype), np.array([[[1.0], [-np.inf], [2.0]]], dtype)
    block = Exponentials(q, k).block(Piece(0, 1, 0, 2), logits=True)
    assert block.logits is not None
    assert np.isfinite(block.logits.array).all()
    np.testing.assert_allclose(block.weights[0, 0], np.array([1, 0, np.e]) / (1 + np.e), rtol=1e-6)


def test_norms_are_not_lost_where_their_squares_are() -> None:
    q, k = np.full((1, 2, 1), 1e-23, np.float32), np.array([[[1e18], [0.0], [1e17]]], np.float32)
    made = Exponentials(q, k, scale=1e8)
    assert not made.safe(Piece(0, 1, 0, 2))
    np.testing.assert_allclose(made.block(Piece(0, 1, 0, 2)).weights, np.array([[[1, 0, 0]] * 2]), atol=1e-30)
