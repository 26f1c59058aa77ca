import json
import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz.blocks
import attnviz.maps
from attnviz import exponential
from attnviz.attention import Rule, attention_weights
from attnviz.collect import collect
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, ComputedWeights, StoredWeights, Weights, divided
from attnviz.measures.collector import MeasureCollector
from attnviz.measures.divergence import EXACT_ROWS, MOST_ROWS, js_divergence
from attnviz.measures.heads import HeadTable, head_rows, rank, sink_rate, table_fields
from attnviz.measures.table import MEASURES, measure
from attnviz.tokens import Tokens
from tests.saved import weights_of

Array = npt.NDArray[Any]

A = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.15, 0.5, 0.25]]
B = [[1, 0, 0, 0], [0.9, 0.1, 0, 0], [0.8, 0.1, 0.1, 0], [0.7, 0.1, 0.1, 0.1]]
"""The two matrices whose measures are worked out by hand."""

WORDS = ("[CLS]", "the", "cat", "saw", "the", "cat", "the", "[SEP]")


def tokens(pieces: tuple[str, ...]) -> Tokens:
    special = tuple(piece.startswith("[") for piece in pieces)
    return Tokens(pieces, pieces, ((0, 0),) * len(pieces), special)


def a_map(weights: Array | Weights, pieces: tuple[str, ...] | None = None, layer: int = 0, **more: Any) -> AttentionMap:
    stored = StoredWeights(weights) if isinstance(weights, np.ndarray) else weights
    heads, queries, keys = stored.shape
    query = tokens(pieces or tuple(map(str, range(queries))))
    key = more.pop("key", query if keys == queries else tokens(tuple(map(str, range(keys)))))
    names = more.pop("heads", tuple(range(heads)))
    return AttentionMap(f"layer.{layer}", layer, names, stored, query, key, **more)


def table_of(*maps: AttentionMap, names: tuple[str, ...] = tuple(MEASURES)) -> HeadTable:
    collector = MeasureCollector(names)
    collect(maps, [collector])
    (table,) = collector.result()
    return table


def value(name: str, *maps: AttentionMap) -> list[list[float]]:
    values: list[list[float]] = table_of(*maps, names=(name,)).values[name].tolist()
    return values


# independent answers: one head [query, key] in float64, the pieces, and the other heads, in plain loops

Head = list[list[float]]
Answer = Callable[[Head, tuple[str, ...], list[Head]], float]


def mean(values: Iterator[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def h(row: list[float]) -> float:
    return -sum(p * float(np.log(p)) for p in row if p > 0)


def js(a: list[float], b: list[float]) -> float:
    m = [(p + q) / 2 for p, q in zip(a, b, strict=True)]
    return h(m) - h(a) / 2 - h(b) / 2


def copies(pieces: tuple[str, ...], i: int) -> list[int]:
    return [j for j in range(i) if pieces[j] == pieces[i] and not pieces[i].startswith("[")]


def repeated(pieces: tuple[str, ...]) -> list[int]:
    return [i for i in range(len(pieces)) if copies(pieces, i)]


def distance(a: Head, _pieces: tuple[str, ...], _others: list[Head]) -> float:
    above = sum(p * abs(i - j) for i, row in enumerate(a) for j, p in enumerate(row))
    return above / sum(map(sum, a))


ANSWERS: dict[str, Answer] = {
    "entropy": lambda a, _, __: mean(h(row) for row in a),
    "span": lambda a, _, __: mean(float(np.exp(h(row))) for row in a),
    "distance": distance,
    "self": lambda a, _, __: mean(a[i][i] for i in range(len(a))),
    "previous": lambda a, _, __: mean(a[i][i - 1] for i in range(1, len(a))),
    "next": lambda a, _, __: mean(a[i][i + 1] for i in range(len(a) - 1)),
    "first": lambda a, _, __: mean(a[i][0] for i in range(1, len(a))),
    "sink": lambda a, _, __: mean(row[0] for row in a),
    "special": lambda a, pieces, _: mean(
        sum(p for p, piece in zip(row, pieces, strict=True) if piece.startswith("[")) for row in a
    ),
    "duplicate": lambda a, pieces, _: mean(sum(a[i][j] for j in copies(pieces, i)) for i in repeated(pieces)),
    "induction": lambda a, pieces, _: mean(sum(a[i][j + 1] for j in copies(pieces, i)) for i in repeated(pieces)),
    "largest": lambda a, _, __: mean(max(row) for row in a),
    "divergence": lambda a, _, others: mean(
        mean(js(row, other[i]) for other in others) for i, row in enumerate(a)
    ),
}  # fmt: skip


def answer(name: str, weights: Array, pieces: tuple[str, ...]) -> list[float]:
    heads = [[list(map(float, row)) for row in head] for head in weights]
    return [ANSWERS[name](head, pieces, heads[:i] + heads[i + 1 :]) for i, head in enumerate(heads)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_is_what_loops_make_of_it(name: str, dtype: Any) -> None:
    weights = weights_of(3, 8, 8).astype(dtype)
    weights[1] = np.tril(weights[1])  # a causal head
    weights[1] /= weights[1].sum(axis=-1, keepdims=True)
    weights[2] *= dtype(0.9)  # and one with a learned sink
    ((*found,),) = value(name, a_map(weights, WORDS))
    assert found == pytest.approx(answer(name, weights, WORDS), rel=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(
    ("name", "expected_a"),
    [
        ("entropy", 0.732693),
        ("distance", 0.575),
        ("previous", 1.3 / 3),
        ("first", 0.266667),
        ("sink", 0.45),
        ("self", 2.25 / 4),
        ("next", 0.0),
        ("largest", 0.625),
        ("span", (1 + 2 + np.exp(1.029653) + np.exp(1.207974)) / 4),
        ("divergence", 0.515507 / 4),
    ],
)
def test_measures_of_the_matrix_worked_out_by_hand(name: str, expected_a: float) -> None:
    assert value(name, a_map(np.array([A, B])))[0][0] == pytest.approx(expected_a, abs=1e-6)


def test_known_rows_have_their_known_entropy_and_distance() -> None:
    eye, uniform, causal = np.eye(4), np.full((4, 4), 0.25), np.tril(np.ones((4, 4)))
    causal /= causal.sum(axis=1, keepdims=True)
    previous = np.eye(4, k=-1)
    previous[0, 0] = 1
    maps = [a_map(np.array([eye, uniform])), a_map(np.array([causal, previous]), layer=1)]
    table = table_of(*maps)
    assert table.values["entropy"] == pytest.approx(np.array([[0, 1.386294361], [0.794513458, 0]]), abs=1e-9)
    assert table.values["distance"] == pytest.approx(np.array([[0, 1.25], [0.75, 0.75]]), abs=1e-12)
    assert table.values["divergence"] == pytest.approx(np.array([[0.380395666] * 2, [0.228603576] * 2]), abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_hot_rows_have_an_entropy_of_exactly_0_that_is_not_negative(dtype: Any) -> None:
    ((entropy,),) = value("entropy", a_map(np.eye(5, dtype=dtype)[None]))
    assert str(entropy) == "0.0"
    assert value("span", a_map(np.eye(5, dtype=dtype)[None])) == [[1.0]]


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_many_rows_that_may_attend_to_one_key_have_no_negative_entropy(scale: float) -> None:
    q, k = np.random.default_rng(4).standard_normal((2, 3, 400, 4), np.float32)
    computed = ComputedWeights(q, k, Rule(window=1), scale)
    assert computed.divisible
    table = table_of(a_map(computed))
    for name, least in (("entropy", 0), ("span", 1)):
        assert (table.values[name] >= least).all()
        assert table.values[name] == pytest.approx(least, abs=1e-6)


@given(n=st.integers(1, 300), dtype=st.sampled_from([np.float32, np.float64]))
def test_uniform_rows_have_an_entropy_of_ln_n_and_a_span_of_n(n: int, dtype: Any) -> None:
    one = a_map(np.full((1, 3, n), 1 / n, dtype))
    assert value("entropy", one)[0][0] == pytest.approx(np.log(n), abs=1e-5)
    assert value("span", one)[0][0] == pytest.approx(n, rel=1e-5)


def test_a_single_token_has_its_measures_or_a_reason() -> None:
    table = table_of(a_map(np.ones((2, 1, 1)), ("cat",)))
    for name, expected in {"entropy": 0, "span": 1, "distance": 0, "self": 1, "sink": 1, "largest": 1}.items():
        assert table.values[name].tolist() == [[expected, expected]]
    for name in ("previous", "next", "first"):
        assert np.isnan(table.values[name]).all()
    assert set(table.lacking) == {"special", "duplicate", "induction"}


# invariants


@given(seed=st.integers(0, 99), order=st.permutations(range(4)), name=st.sampled_from(list(MEASURES)))
def test_permuting_heads_permutes_their_measures(seed: int, order: list[int], name: str) -> None:
    weights = weights_of(4, 8, 8, seed=seed)
    ((*before,),), ((*after,),) = value(name, a_map(weights, WORDS)), value(name, a_map(weights[order], WORDS))
    assert after == pytest.approx([before[i] for i in order], rel=1e-12)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize(("block_rows", "block_bytes"), [(1, 1 << 20), (3, 1), (7, 2 * 7 * 31 * 4), (256, 1)])
def test_blocks_of_any_size_give_the_same(
    name: str, block_rows: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = tuple("[a" if i == 0 else "abcde"[i % 5] for i in range(31))
    weights = weights_of(3, 31, 31)
    expected = answer(name, weights, pieces)
    monkeypatch.setattr(attnviz.maps, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(attnviz.blocks, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(attnviz.blocks, "BLOCK_BYTES", block_bytes)
    assert value(name, a_map(weights, pieces))[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("softcap", [None, 1.5, 70.0])
@pytest.mark.parametrize("sinks", [[-3.0, 0.0, 2.0], [-90.0, 70.0, 5.0]])  # the large one has its maximum taken off
def test_measures_of_caps_and_sinks_are_those_of_their_weights(softcap: float | None, sinks: list[float]) -> None:
    q, k = np.random.default_rng(5).standard_normal((2, 3, 400, 4))
    pieces = ("[CLS]", *("abc"[i % 3] for i in range(399)))
    computed = ComputedWeights(q, k, Rule(causal=True), 3.0, softcap, np.array(sinks))
    assert computed.divisible
    stored = attention_weights(q, k, Rule(causal=True), scale=3.0, softcap=softcap, sink=np.array(sinks))
    found, expected = (table_of(a_map(one, pieces)).values for one in (computed, StoredWeights(stored)))
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("score", [59.0, 120.0, 590.0])
def test_entropy_of_large_scores_is_that_of_their_weights(dtype: Any, score: float) -> None:
    rng = np.random.default_rng(8)
    q, k = np.full((2, 400, 1), score, dtype), rng.uniform(0.98, 1.0, (2, 400, 1)).astype(dtype)
    computed = ComputedWeights(q, k, scale=1.0)
    assert computed.divisible
    weights = attention_weights(q.astype(float), k.astype(float), scale=1.0)
    expected = (-(weights * np.log(weights)).sum(axis=2).mean(axis=1)).tolist()
    assert value("entropy", a_map(computed))[0] == pytest.approx(expected, rel=1e-4 if dtype is np.float32 else 1e-9)


@given(seed=st.integers(0, 99), n=st.integers(2, 30), scale=st.sampled_from([0.1, 1.0, 40.0]), causal=st.booleans())
def test_measures_stay_in_their_range(seed: int, n: int, scale: float, causal: bool) -> None:
    q, k = np.random.default_rng(seed).standard_normal((2, 3, n, 4), np.float32)
    pieces = ("[CLS]", *("abc"[i % 3] for i in range(n - 1)))
    table = table_of(a_map(ComputedWeights(q, k, Rule(causal=causal), scale=scale), pieces))
    for name, values in table.values.items():
        top = MEASURES[name].high
        there = values[np.isfinite(values)]
        assert (there >= MEASURES[name].low - 1e-6).all(), name
        assert top is None or (there <= top + 1e-5).all(), name


# rows that are no distributions


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, -np.inf])
def test_rows_without_weights_are_left_out_and_counted(name: str, bad: float) -> None:
    weights = weights_of(3, 8, 8)
    weights[:, 3] = 0 if bad == 0 else weights[:, 3]
    weights[:, 3, 2] = bad
    table = table_of(a_map(weights, WORDS), names=(name,))
    assert np.isfinite(table.values[name]).all()
    assert table.left_out.tolist() == [[1, 1, 1]]
    assert table.notes() == (
        "3 of 24 rows attend to nothing or hold what is no number: they count in no measure",
    )  # fmt: skip


def test_a_mean_is_over_the_rows_that_are_left() -> None:
    weights = np.array([A])
    weights[0, 2] = 0
    assert value("entropy", a_map(weights))[0][0] == pytest.approx((0 + 0.693147 + 1.207974) / 3, abs=1e-6)
    assert value("previous", a_map(weights))[0][0] == pytest.approx((0.5 + 0.5) / 2)


def test_a_row_missing_in_one_head_is_compared_in_no_pair_of_it() -> None:
    weights = weights_of(3, 5, 5)
    weights[1, 2] = np.nan
    found = value("divergence", a_map(weights))[0]
    rows = weights.tolist()
    first = [mean(js(rows[0][i], rows[k][i]) for k in ((2,) if i == 2 else (1, 2))) for i in range(5)]
    second = [mean(js(rows[1][i], rows[k][i]) for k in (0, 2)) for i in (0, 1, 3, 4)]
    assert found[:2] == pytest.approx([sum(first) / 5, sum(second) / 4], rel=1e-9)


def test_heads_without_any_row_have_no_value() -> None:
    weights = weights_of(2, 4, 4)
    weights[1] = 0
    table = table_of(a_map(weights))
    assert np.isfinite(table.values["entropy"][0, 0])
    assert np.isnan(table.values["entropy"][0, 1])
    assert np.isnan(table.values["divergence"]).all()
    assert head_rows(table)[1]["entropy"] is None
    json.dumps(table_fields(table), allow_nan=False)


def test_small_negative_weights_have_no_entropy_of_their_own() -> None:
    weights = np.array([[[1.001, -0.001], [0.5, 0.5]]])
    assert value("entropy", a_map(weights))[0][0] == pytest.approx((np.log(2) - 1.001 * np.log(1.001)) / 2)


# divergence


def test_heads_that_are_the_same_diverge_by_exactly_nothing() -> None:
    weights = np.repeat(weights_of(1, 50, 61).astype(np.float32), 5, axis=0)
    assert value("divergence", a_map(weights)) == [[0.0] * 5]


def test_of_long_texts_evenly_spaced_rows_are_compared() -> None:
    n = 9 * MOST_ROWS - 5
    assert n > EXACT_ROWS
    weights = weights_of(2, n, n)
    rows = range(4, n, 9)
    expected = np.mean([js(weights[0, i], weights[1, i]) for i in rows])
    assert value("divergence", a_map(weights))[0] == pytest.approx([expected, expected])


def test_of_long_texts_every_row_is_compared_where_that_is_asked() -> None:
    n = EXACT_ROWS + 41
    weights = weights_of(2, n, n)
    expected = np.mean([js(weights[0, i], weights[1, i]) for i in range(n)])
    collector = MeasureCollector(["divergence"], every_row=True)
    collector.add(a_map(weights))
    (table,) = collector.result()
    assert table.values["divergence"][0] == pytest.approx([expected, expected], rel=1e-12)
    assert (table.n_compared, table.notes()) == (n, ())


def test_how_many_rows_were_compared_is_said() -> None:
    collector = MeasureCollector(["divergence", "previous"])
    collector.add(a_map(weights_of(2, 3, 3)))
    collector.add(a_map(weights_of(2, EXACT_ROWS + 1, EXACT_ROWS + 1)))
    (table,) = collector.result()
    assert table.notes() == ("divergence is of 32 of 260 rows: --every-row compares them all",)
    assert table_fields(table)["rows_compared"] == 32


@pytest.mark.parametrize("n", [MOST_ROWS + 1, EXACT_ROWS])
def test_up_to_so_many_tokens_every_row_is_compared(n: int) -> None:
    weights = weights_of(2, n, n)
    expected = np.mean([js(weights[0, i], weights[1, i]) for i in range(n)])
    assert value("divergence", a_map(weights))[0] == pytest.approx([expected, expected], rel=1e-12)


def test_the_single_head_is_no_other_head() -> None:
    weights = weights_of(3, 5, 5)
    with_single = value("divergence", a_map(weights, heads=("single", 0, 1)))[0]
    assert with_single[1:] == pytest.approx(value("divergence", a_map(weights[1:]))[0])
    both = [np.mean([js(weights[0, i], weights[j, i]) for i in range(5)]) for j in (1, 2)]
    assert with_single[0] == pytest.approx(np.mean(both))


@pytest.mark.parametrize("tiny", [1e-17, 1e-30, 1e-300, 5e-324])
def test_a_weight_next_to_nothing_does_not_hide_a_divergence(tiny: float) -> None:
    a, b = np.array([tiny, 1.0, 0.0]), np.array([0.5, 0.0, 0.5])
    assert js_divergence(a, b) == pytest.approx(math.log(2), rel=1e-12)
    assert js_divergence(b, a) == js_divergence(a, b)
    assert js_divergence(a, a) == 0


def test_divergence_of_rows_worked_out_by_hand() -> None:
    rows = js_divergence(np.array(A), np.array(B))
    assert rows == pytest.approx([0, 0.101749, 0.195311, 0.218447], abs=1e-6)
    assert rows.sum() == pytest.approx(0.515507, abs=1e-6)


def test_divergence_of_nearly_equal_rows_is_small_and_not_negative() -> None:
    p, q = np.array([0.027501475, 0.055202297], np.float32), np.array([0.027537677, 0.055334348], np.float32)
    p, q = p / p.sum(), q / q.sum()
    exact_p, exact_q = p.astype(np.longdouble), q.astype(np.longdouble)
    m = (exact_p + exact_q) / 2
    exact = ((exact_p * np.log(exact_p / m)).sum() + (exact_q * np.log(exact_q / m)).sum()) / 2
    found = js_divergence(p, q)
    assert 0 <= found < 1e-6
    assert float(found) == pytest.approx(float(exact), abs=1e-12)
    assert js_divergence(p, p) == 0
    assert 0 <= value("divergence", a_map(np.stack([p, q])[:, None]))[0][0] < 1e-6


@given(seed=st.integers(0, 999), n=st.integers(1, 20))
def test_divergence_is_symmetric_and_at_most_ln_2(seed: int, n: int) -> None:
    a, b = weights_of(2, n, seed=seed)
    assert js_divergence(a, b) == pytest.approx(js_divergence(b, a), abs=1e-15)
    assert 0 <= js_divergence(a, b) <= np.log(2)
    assert js_divergence(a, b) == pytest.approx(js(a.tolist(), b.tolist()), abs=1e-12)


def test_divergence_of_what_is_no_number_is_none() -> None:
    a = np.array([[0.5, np.nan], [np.inf, 0], [1, 0], [0, 0]])
    assert np.isnan(js_divergence(a, np.array([0.5, 0.5]))).tolist() == [True, True, False, False]
    assert js_divergence(a[3], np.array([0.5, 0.5])) == pytest.approx(np.log(2) / 2)


# which maps have which measures


def test_cross_attention_has_no_measures_of_position_and_says_so() -> None:
    one = a_map(weights_of(2, 3, 5), kind="cross", stack="decoder")
    table = table_of(one)
    assert set(table.values) == {"entropy", "span", "sink", "largest", "divergence"}
    assert (table.stack, table.kind) == ("decoder", "cross")
    assert table.notes()[0] == (
        "without distance, self, previous, next, first, duplicate, induction: queries and keys are not the same tokens"
    )


def test_picked_queries_have_no_positions_but_hiding_the_same_tokens_keeps_them() -> None:
    one = a_map(weights_of(2, 5, 5))
    assert "previous" not in table_of(one.pick(queries=[1, 2, 3])).values
    assert "previous" in table_of(one.pick(queries=[1, 2, 3], keys=[1, 2, 3])).values


def test_special_tokens_are_no_copies_of_each_other() -> None:
    table = table_of(a_map(weights_of(2, 4, 4), ("[PAD]", "a", "[PAD]", "[PAD]")))
    assert table.lacking["induction"] == "no token is repeated"


def test_one_head_has_no_others() -> None:
    assert table_of(a_map(weights_of(1, 4, 4))).lacking["divergence"] == "one head has no other to differ from"


def test_layers_of_one_stack_that_differ_in_heads_share_a_table() -> None:
    table = table_of(a_map(weights_of(2, 4, 4), layer=3), a_map(weights_of(1, 4, 4), layer=1, heads=(5,)))
    assert (table.layers, table.heads) == ((1, 3), (5, 0, 1))
    assert np.isnan(table.values["entropy"]).tolist() == [[False, True, True], [True, False, False]]
    assert [(row["layer"], row["head"]) for row in head_rows(table)] == [(1, 5), (3, 0), (3, 1)]


def test_each_stack_has_a_table() -> None:
    collector = MeasureCollector(["entropy"])
    kinds: list[dict[str, Any]] = [{"stack": "decoder", "kind": "cross"}, {}]
    collect([a_map(weights_of(2, 4, 4), **kind) for kind in kinds], [collector])
    assert [(one.stack, one.kind) for one in collector.result()] == [("decoder", "cross"), ("encoder", "self")]
    assert MeasureCollector().result() == ()


def test_maps_without_keys_or_rows_have_no_measures() -> None:
    one = a_map(weights_of(2, 4, 4))
    for nothing in (one.pick(keys=[]), one.pick(queries=[])):
        table = table_of(nothing)
        assert table.values == {}
        assert set(table.lacking.values()) == {"there are no queries or no keys"}
        assert all(row.keys() == {"stack", "kind", "layer", "head"} for row in head_rows(table))


# several texts


def test_a_measure_of_several_texts_is_over_all_their_rows() -> None:
    short, long = weights_of(2, 3, 3), weights_of(2, 6, 6, seed=1)
    table = table_of(a_map(short), a_map(long))
    assert (table.n_texts, table.n_rows) == (2, 9)
    rows = [h(row) for row in (*short[1].tolist(), *long[1].tolist())]
    assert table.values["entropy"][0, 1] == pytest.approx(np.mean(rows))
    above = sum(
        float((x[1] * np.abs(np.subtract.outer(range(len(x[1])), range(len(x[1]))))).sum()) for x in (short, long)
    )
    assert table.values["distance"][0, 1] == pytest.approx(above / 9)


def test_texts_without_repeats_do_not_dilute_those_with() -> None:
    with_repeat, without = weights_of(2, 3, 3), weights_of(2, 4, 4)
    table = table_of(a_map(without), a_map(with_repeat, ("a", "b", "a")))
    assert table.values["duplicate"][0].tolist() == with_repeat[:, 2, 0].tolist()
    assert table.lacking == {"special": "there are no special tokens"}


# length


class Long:
    """Weights of a long text that are made a few rows at a time."""

    shape = (2, 6000, 6000)

    def rows(self, start: int, stop: int) -> Array:
        block = np.full((2, stop - start, 6000), 0.5 / 6000, np.float32)
        block[:, np.arange(stop - start), np.arange(start, stop)] += np.float32(0.5)
        return block


def test_long_texts_are_measured_in_little_memory() -> None:
    one = a_map(Long(), tuple(f"t{i % 1000}" for i in range(6000)))
    tracemalloc.start()
    table = table_of(one)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6  # all weights are 288 MB
    assert table.values["self"][0] == pytest.approx([0.5 + 0.5 / 6000] * 2, rel=1e-5)
    assert table.values["divergence"][0] == pytest.approx([0, 0], abs=1e-12)


# ranking


def ranked(values: list[list[float]], **options: Any) -> list[tuple[int, Any]]:
    array = np.array(values)
    layers, heads = array.shape
    table = HeadTable(
        "encoder", "self", tuple(range(layers)), tuple(range(heads)), {"entropy": array}, {"special": "none there"},
        1, 4, np.zeros(array.shape, np.int64), 0,
    )  # fmt: skip
    return [(one.layer, one.head) for one in rank(table, options.pop("by", "entropy"), **options)]


def test_heads_are_ranked_and_those_without_a_value_left_out() -> None:
    values = [[1.0, 3.0, np.nan], [3.0, 0.5, 2.0]]
    assert ranked(values) == [(0, 1), (1, 0), (1, 2), (0, 0), (1, 1)]
    assert ranked(values, top=2) == [(0, 1), (1, 0)]
    assert ranked(values, ascending=True, top=3) == [(1, 1), (0, 0), (1, 2)]
    assert ranked([[np.nan]]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "entrpy"}, "no measure 'entrpy': there are entropy, span, .*; did you mean entropy?"),
        ({"by": "special"}, "no special here: none there; there is entropy"),
        ({"by": "self"}, "no self here: it was not measured; there is entropy"),
        ({"top": 0}, "--top must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_ranked_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match="^" + message.replace("?", r"\?")):
        ranked([[1.0]], **options)


def test_unknown_measures_are_refused_before_anything_runs() -> None:
    with pytest.raises(RequestError, match="no measure 'x'"):
        MeasureCollector(["entropy", "x"])


def test_the_sink_rate_is_the_share_of_heads_above_the_threshold() -> None:
    table = table_of(a_map(np.array([A, B, np.full((4, 4), 0.25)])))
    assert table.values["sink"][0] == pytest.approx([0.45, 0.85, 0.25])
    assert sink_rate(table) == pytest.approx(2 / 3)
    assert sink_rate(table, 0.5) == pytest.approx(1 / 3)
    assert table_fields(table)["sink_rate"] == sink_rate(table)


# the table itself


def test_every_measure_says_what_it_is() -> None:
    assert set(ANSWERS) == set(MEASURES)
    for name, one in MEASURES.items():
        assert one.name == name == measure(name).name
        assert all((one.title, one.unit, one.meaning, one.formula, one.source))
    assert len({one.title for one in MEASURES.values()}) == len(MEASURES)


def test_fields_are_strict_json_under_names_that_stay(tmp_path: Path) -> None:
    table = table_of(a_map(weights_of(2, 8, 8), WORDS), names=("entropy", "self"))
    fields = json.loads(json.dumps(table_fields(table), allow_nan=False))
    assert list(fields) == [
        "stack", "kind", "layers", "heads", "n_texts", "n_rows", "measures", "lacking", "rows_left_out",
        "rows_compared", "sink_rate",
    ]  # fmt: skip
    assert (fields["rows_compared"], fields["sink_rate"]) == (0, None)
    assert fields["measures"]["entropy"] == {"unit": "nats", "values": table.values["entropy"].tolist()}
    assert list(head_rows(table)[0]) == ["stack", "kind", "layer", "head", "entropy", "self"]


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("rule", [Rule(causal=True), Rule(causal=True, window=40), Rule(window=70)], ids=repr)
def test_blocks_of_some_keys_are_measured_as_the_whole_matrix(
    name: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks begin with the first key that their rows may attend to, which is not the first of the text."""
    monkeypatch.setattr(attnviz.blocks, "BLOCK_ROWS", 32)
    n, rng = 420, np.random.default_rng(4)
    q, k = (rng.standard_normal((3, n, 8), np.float32) for _ in range(2))
    pieces = tuple("[a" if i == 0 else f"w{i % 37}" for i in range(n))
    weights = ComputedWeights(q, k, rule)
    assert weights.divisible
    whole = attention_weights(q.astype(np.float64), k.astype(np.float64), rule)
    expected = value(name, a_map(StoredWeights(whole), pieces))
    np.testing.assert_allclose(value(name, a_map(weights, pieces)), expected, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_measures_of_picked_neighbours_are_those_of_their_weights(
    monkeypatch: pytest.MonkeyPatch, slow: bool, scale: float
) -> None:
    monkeypatch.setattr(exponential, "numpy_is_slow", lambda: slow)
    q, k = np.random.default_rng(6).standard_normal((2, 4, 400, 4), np.float32)
    one = a_map(ComputedWeights(q, k, Rule(causal=True), scale)).pick(range(1, 3), range(100, 250), range(40, 290))
    assert divided(one.weights) is not None
    weights = attention_weights(q.astype(float), k.astype(float), Rule(causal=True), scale=scale)[1:3, 100:250, 40:290]
    found, expected = (table_of(one).values, table_of(replace(one, weights=StoredWeights(weights))).values)
    assert {"entropy", "span", "sink", "largest", "divergence"} == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-5, atol=2e-6, err_msg=name)
