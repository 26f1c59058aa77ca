from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.attention import Rule
from attnviz.collect import HeatmapCollector, collect
from attnviz.errors import RequestError
from attnviz.faults import RowFaults
from attnviz.maps import AttentionMap, ComputedWeights, StoredWeights, Weights
from attnviz.sources.saved import open_saved
from attnviz.tokens import Tokens
from tests.saved import weights_of

Array = npt.NDArray[Any]


def a_map(weights: Array | Weights, layer: int = 0, **more: Any) -> AttentionMap:
    stored = StoredWeights(weights) if isinstance(weights, np.ndarray) else weights
    heads, queries, keys = stored.shape
    names = more.pop("heads", tuple(range(heads)))
    query, key = (Tokens.of(map(str, range(n))) for n in (queries, keys))
    return AttentionMap(f"layer.{layer}", layer, names, stored, query, key, **more)


def notes_of(*maps: AttentionMap) -> tuple[str, ...]:
    faults = RowFaults()
    collect(maps, [faults])
    return faults.notes()


def changed(place: tuple[int, int, int], value: float, shape: tuple[int, int, int] = (2, 4, 4)) -> Array:
    weights = weights_of(*shape)
    weights[place] = value
    return weights


# sound attention


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 5), (3, 4, 7), (2, 600, 300)])
def test_sound_rows_have_no_notes(dtype: Any, shape: tuple[int, int, int]) -> None:
    weights = weights_of(*shape, dtype=dtype).astype(np.float64 if dtype == np.float64 else np.float32)
    assert notes_of(a_map(weights)) == ()


@given(seed=st.integers(0, 1000), n=st.integers(1, 40), scale=st.sampled_from([0.01, 1.0, 30.0]), causal=st.booleans())
def test_computed_attention_has_no_notes(seed: int, n: int, scale: float, causal: bool) -> None:
    q, k = np.random.default_rng(seed).standard_normal((2, 2, n, 4), np.float32)
    assert notes_of(a_map(ComputedWeights(q, k, Rule(causal=causal), scale=scale))) == ()


def test_bfloat16_rows_that_sum_to_about_1_have_no_notes() -> None:
    weights = weights_of(2, 64, 64).astype(np.float32)
    halved = (weights.view(np.uint32) & 0xFFFF0000).view(np.float32)  # cut off, not rounded: twice the usual error
    assert np.abs(halved.sum(axis=-1) - 1).max() > 0.001
    assert notes_of(a_map(halved)) == ()


def test_no_maps_and_maps_without_keys_have_no_notes() -> None:
    assert notes_of() == ()
    assert notes_of(a_map(weights_of(2, 3, 3)).pick(keys=[])) == ()


# one row


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.nan, "is not a number"),
        (np.inf, "holds an infinite value"),
        (-np.inf, "holds an infinite value"),
        (-0.005, "holds a negative weight"),
    ],
)
@pytest.mark.parametrize("place", [(1, 2, 0), (0, 0, 3), (1, 3, 3)])
def test_a_row_that_holds_no_weights_is_said_with_its_place(
    value: float, said: str, place: tuple[int, int, int]
) -> None:
    notes = notes_of(a_map(changed(place, value, (2, 4, 4)), layer=3))
    assert f"layer 3 head {place[0]} row {place[1]} {said} (1 of 8 rows)" in notes


@pytest.mark.parametrize("row", [0, 255, 256, 511, 599])
def test_places_are_right_in_every_block(row: int) -> None:
    weights = weights_of(2, 600, 8)
    weights[1, row] = np.nan
    assert notes_of(a_map(weights)) == (f"layer 0 head 1 row {row} is not a number (1 of 1200 rows)",)


def test_the_first_of_several_is_named_and_all_are_counted() -> None:
    sound, first, second = weights_of(2, 4, 4), weights_of(2, 4, 4), weights_of(2, 4, 4)
    first[1, 3] = np.nan
    second[0, 0] = second[1, 1] = np.nan
    notes = notes_of(a_map(sound, 0), a_map(first, 1), a_map(second, 4))
    assert notes == ("layer 1 head 1 row 3 is not a number (3 of 24 rows, this is the first)",)


def test_heads_have_the_names_they_have() -> None:
    weights = changed((0, 1, 2), np.nan)
    (note,) = notes_of(a_map(weights, heads=("single", 7)))
    assert note.startswith("layer 0 head single row 1 ")
    (note,) = notes_of(a_map(weights, heads=(5, 7), kind="cross", stack="decoder"))
    assert note.startswith("cross layer 0 head 5 row 1 ")
    (note,) = notes_of(a_map(weights, heads=(5, 7), stack="decoder"))
    assert note.startswith("decoder layer 0 head 5 row 1 ")


def test_a_row_of_zeros_attends_to_nothing() -> None:
    weights = weights_of(2, 4, 4)
    weights[1, 2] = 0
    assert notes_of(a_map(weights)) == (
        "layer 0 head 1 row 2 is 0 throughout: it attends to nothing (1 of 8 rows)",
    )  # fmt: skip
    weights[1, 2] = [0.5, -0.5, 0, 0]
    (negative, below) = notes_of(a_map(weights))
    assert "negative" in negative
    assert "sums to less than 1" in below


# sums


def test_rows_below_1_are_said_once_as_sinks() -> None:
    weights = np.tril(weights_of(2, 4, 4)) * 0.9
    assert notes_of(a_map(weights)) == (
        "layer 0 head 0 row 0 sums to less than 1, as with a learned sink (8 of 8 rows, this is the first)",
    )


@pytest.mark.parametrize(("factor", "said"), [(0.989, "less"), (0.991, None), (1.009, None), (1.011, "more")])
def test_a_sum_may_be_off_by_one_in_a_hundred(factor: float, said: str | None) -> None:
    notes = notes_of(a_map(weights_of(1, 4, 4) * factor))
    assert [f"sums to {said} than 1" in note for note in notes] == ([] if said is None else [True])


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_is_named_as_the_usual_cause(p: float) -> None:
    kept = np.random.default_rng(0).random((2, 16, 16)) >= p
    notes = notes_of(a_map(weights_of(2, 16, 16) * kept / (1 - p)))
    assert any("dropout is the usual cause" in note for note in notes)
    assert any("sums to more than 1" in note for note in notes)
    assert not any("sink" in note for note in notes)


def test_rows_below_and_above_without_zeros_are_not_laid_on_dropout() -> None:
    weights = weights_of(1, 4, 4)
    weights[0, 0] *= 0.8
    weights[0, 1] *= 1.2
    assert not any("dropout" in note for note in notes_of(a_map(weights)))


def test_maps_whose_keys_were_left_out_are_not_summed() -> None:
    one = a_map(weights_of(2, 6, 6)).pick(keys=[0, 1, 2])
    assert one.cut
    assert notes_of(one) == ()
    weights = changed((1, 2, 0), np.nan, (2, 6, 6))
    assert notes_of(a_map(weights).pick(keys=[0, 1])) == ("layer 0 head 1 row 2 is not a number (1 of 12 rows)",)
    zeros = changed((0, 0, 0), 1.0, (1, 3, 3))
    zeros[0, 0] = [0, 0, 1]
    assert notes_of(a_map(zeros).pick(keys=[0, 1])) == ()


# columns


@pytest.mark.parametrize("n", [4, 300])
def test_columns_that_sum_to_1_where_rows_do_not_may_be_transposed(n: int) -> None:
    weights = np.ascontiguousarray(np.swapaxes(weights_of(2, n, n), 1, 2))
    assert notes_of(a_map(weights)) == (
        "layer 0 head 0 has columns that sum to 1 and rows that do not (2 of 2 heads, this is the first): it may be"
        " transposed; rows are queries",
    )


def test_one_head_that_is_transposed_is_named() -> None:
    weights = weights_of(3, 5, 5)
    weights[1] = weights[1].T.copy()
    (note,) = notes_of(a_map(weights))
    assert note.startswith("layer 0 head 1 has columns that sum to 1 and rows that do not (1 of 3 heads)")


def test_columns_and_rows_that_both_sum_to_1_are_sound() -> None:
    assert notes_of(a_map(np.eye(4)[None]), a_map(np.full((1, 4, 4), 0.25))) == ()


# what is no weights at all


@pytest.mark.parametrize(
    "scores",
    [
        np.random.default_rng(0).standard_normal((2, 6, 6)),
        np.random.default_rng(1).standard_normal((2, 6, 6)).astype(np.float32) * 8,
        np.log(weights_of(2, 6, 6)),
        np.where(np.tri(6, dtype=bool), 3.0, -1e9)[None],
        np.where(np.tri(6, dtype=bool), 0.5, -np.inf)[None],
        np.random.default_rng(0).integers(0, 9, (1, 6, 6)).astype(np.float32),
    ],
    ids=["normal", "logits", "logarithms", "masked", "infinitely masked", "counts"],
)
def test_scores_are_not_shown_as_weights(scores: Array) -> None:
    with pytest.raises(RequestError, match="the numbers of layer 2 look like scores, not weights: ") as error:
        notes_of(a_map(scores, layer=2))
    assert "take the softmax over the keys first" in str(error.value)
    assert error.value.exit_code == 2


def test_a_few_rows_out_of_range_are_weights_with_faults() -> None:
    weights = changed((0, 0, 0), 7.0)
    weights[1, 1] = [1.2, -0.2, 0, 0]
    notes = notes_of(a_map(weights))
    assert any("sums to more than 1" in note for note in notes)
    assert any("negative" in note for note in notes)


def test_a_row_out_of_range_on_both_sides_counts_once() -> None:
    weights = weights_of(1, 4, 4)
    weights[0, :2] = [9, -1, 0, 0]
    assert any("(2 of 4 rows" in note for note in notes_of(a_map(weights)))


def test_one_hot_weights_under_dropout_are_weights() -> None:
    assert notes_of(a_map(2 * np.eye(4)[None])) == (
        "layer 0 head 0 row 0 sums to more than 1 (4 of 4 rows, this is the first)",
    )


def test_negative_rounding_errors_are_said_and_not_refused() -> None:
    weights = weights_of(1, 4, 4)
    weights[0, :, 0] = -0.001
    weights[0, :, 1:] /= weights[0, :, 1:].sum(axis=1, keepdims=True)
    assert notes_of(a_map(weights)) == (
        "layer 0 head 0 row 0 holds a negative weight (4 of 4 rows, this is the first)",
    )  # fmt: skip


# any attention


@given(
    n_heads=st.integers(1, 3),
    n=st.integers(1, 6),
    faults=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 5), st.sampled_from([np.nan, np.inf, 0.0])), max_size=3
    ),
)
def test_counts_agree_with_counting_by_hand(n_heads: int, n: int, faults: list[tuple[int, int, float]]) -> None:
    weights = weights_of(n_heads, n, n + 1)
    for head, row, value in faults:
        weights[head % n_heads, row % n, : 1 if value else None] = value
    notes = notes_of(a_map(weights))
    said: Sequence[tuple[str, Array]] = [
        ("is not a number", np.any(np.isnan(weights), axis=2)),
        ("holds an infinite value", np.any(np.isinf(weights), axis=2)),
        ("is 0 throughout: it attends to nothing", np.all(weights == 0, axis=2)),
    ]
    wanted = []
    for what, rows in said:
        if rows.any():
            head, row = np.argwhere(rows)[0]
            first = ", this is the first" if rows.sum() > 1 else ""
            wanted.append(f"layer 0 head {head} row {row} {what} ({rows.sum()} of {n_heads * n} rows{first})")
    assert list(notes) == wanted


def test_a_collector_beside_others_changes_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", weights_of(2, 300, 300))
    saved = open_saved(tmp_path / "a.npy")
    alone, beside, faults = HeatmapCollector(9, 9), HeatmapCollector(9, 9), RowFaults()
    collect(saved.maps([0]), [alone])
    collect(saved.maps([0]), [faults, beside])
    assert np.array_equal(alone.result()[0].values, beside.result()[0].values)
    assert faults.notes() == ()
