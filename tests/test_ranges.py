import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.arrays import Floats
from attnviz.render.ranges import Range, range_holding, weight_range


@pytest.mark.parametrize(
    ("largest", "top"),
    [
        (1.0, 1.0),
        (0.7, 1.0),
        (0.5001, 1.0),
        (0.5, 1.0),
        (0.3, 1.0),
        (0.2, 0.2),
        (0.11, 0.2),
        (0.1, 0.1),
        (0.06, 0.1),
        (0.05, 0.05),
        (0.03, 0.05),
        (0.004, 0.005),
        (0.001, 0.001),
        (3e-5, 5e-5),
        (1e-6, 1e-6),
        (1e-9, 1e-6),
        (0.0, 1.0),
        (1.25, 1.25),
        (17.0, 17.0),
    ],
)
def test_the_range_ends_at_the_smallest_round_number_that_holds_all(largest: float, top: float) -> None:
    assert weight_range([np.array([[0.0, largest], [0.0, 0.0]])]).top == top


@pytest.mark.parametrize("top", [0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 1.0])
def test_a_round_number_in_float32_is_that_number(top: float) -> None:
    assert weight_range([np.array([top], np.float32)]).top == top
    assert weight_range([np.nextafter(np.array([top], np.float32), np.float32(2))]).top == top


def test_the_range_is_one_for_all_panels() -> None:
    assert weight_range([np.array([0.01]), np.array([[0.3]]), np.array([0.001])]).top == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_part_in_the_range(bad: float) -> None:
    assert weight_range([np.array([bad, 0.15])]).top == 0.2
    assert weight_range([np.array([bad, bad]), np.array([0.15])]).top == 0.2


@pytest.mark.parametrize("values", [[], [np.zeros((0, 3))], [np.array([np.nan])], [np.array([np.inf])]])
def test_the_range_of_no_numbers_ends_at_1(values: list[Floats]) -> None:
    assert weight_range(values).top == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_no_weight_is_over_the_top_nor_the_top_over_1(values: list[float]) -> None:
    top = weight_range([np.array(values)]).top
    assert max(values) <= top * (1 + 1e-6)
    assert 1e-6 <= top <= 1


@pytest.mark.parametrize("ends", [(1.0, 0.0), (-1.0, 2.0), (-2.0, 1.0), (np.nan, 1.0), (0.0, np.nan)])
def test_a_range_that_colours_cannot_show_is_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"a range from"):
        Range(*ends)


@pytest.mark.parametrize(
    ("ends", "signed"), [((0, 1), False), ((-1, 1), True), ((-3, -1), False), ((-1, 0), False), ((2, 5), False)]
)
def test_a_range_is_signed_where_0_is_inside(ends: tuple[float, float], signed: bool) -> None:
    assert Range(*ends).signed == signed


def test_only_what_is_called_a_weight_is_one() -> None:
    assert Range(0, 1).of_weights
    assert not Range(0, 1, "difference").of_weights
    assert not Range(-1, 1).of_weights


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-9), max_size=5))
def test_a_range_that_holds_values_holds_all_and_no_more_than_it_must(values: list[float]) -> None:
    span = range_holding([np.array(values), np.array([np.nan, np.inf, -np.inf])], "score")
    sizes = [abs(v) for v in values if v] or [1.0]
    assert span.what == "score"
    assert max(sizes) <= span.top * (1 + 1e-6)
    assert span.top <= max(sizes) * 4 / 3 * (1 + 1e-6)
    assert span.bottom == (-span.top if any(v < 0 for v in values) else 0)


@pytest.mark.parametrize(("largest", "top"), [(0.71, 0.8), (1.0, 1.0), (1.01, 1.2), (0.0021, 0.0025), (9.0, 10.0)])
def test_ranges_end_at_round_numbers(largest: float, top: float) -> None:
    assert range_holding([np.array([-largest, 0.1 * largest])], "score") == Range(-top, top, "score")
