from collections.abc import Callable
from decimal import Decimal
from math import cos, sin
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnviz.arrays import Floats, to_numpy
from attnviz.errors import RequestError
from attnviz.positions import position_table, sinusoidal, turned


def by_formula(positions: list[float], d_model: int, base: float = 10000.0) -> Floats:
    def one(position: float, column: int) -> float:
        angle = float(Decimal(position) / Decimal(base) ** (Decimal(column // 2 * 2) / d_model))
        return sin(angle) if column % 2 == 0 else cos(angle)

    return np.array([[one(position, column) for column in range(d_model)] for position in positions])


@pytest.mark.parametrize("d_model", [4, 5, 7, 512])
def test_sines_and_cosines_take_turns_and_an_odd_width_ends_with_a_sine(
    xp: Any, expected: Callable[[str], dict[str, Any]], d_model: int
) -> None:
    wanted = expected("sinusoidal.json")[str(d_model)]
    result = to_numpy(sinusoidal(xp.asarray(wanted["positions"], dtype=xp.float64), d_model))
    np.testing.assert_allclose(result, wanted["pe"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("d_model", [1, 2, 3, 9, 13, 32])
@pytest.mark.parametrize("positions", [[0.0, 1, 2, 3, 11], [1e6, 1234567, 5e6 + 1], [-3, 0.5, 49], [7]])
def test_any_width_and_any_positions(xp: Any, d_model: int, positions: list[float]) -> None:
    result = to_numpy(sinusoidal(xp.asarray(positions, dtype=xp.float64), d_model))
    np.testing.assert_allclose(result, by_formula(positions, d_model), rtol=0, atol=1e-8)
    assert result.shape == (len(positions), d_model)


def test_width_1_is_one_sine(xp: Any) -> None:
    result = to_numpy(sinusoidal(xp.asarray([0.0, 1.0, 2.0], dtype=xp.float64), 1))
    np.testing.assert_allclose(result, [[0.0], [sin(1)], [sin(2)]], rtol=0, atol=1e-12)


def test_another_base(xp: Any) -> None:
    positions = [0.0, 3, 40]
    result = to_numpy(sinusoidal(xp.asarray(positions, dtype=xp.float64), 6, base=100.0))
    np.testing.assert_allclose(result, by_formula(positions, 6, 100.0), rtol=0, atol=1e-12)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=5), st.integers(1, 20))
def test_values_stay_within_minus_1_and_1_and_a_pair_is_a_point_on_the_circle(positions: list[int], d: int) -> None:
    values = sinusoidal(np.array(positions, np.float64), d)
    assert np.abs(values).max() <= 1
    pairs = values[:, : d // 2 * 2].reshape(len(positions), -1, 2)
    np.testing.assert_allclose((pairs**2).sum(-1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", [50, 5000, 2_000_000])
def test_float32_is_as_right_as_float64_at_any_length(xp: Any, length: int) -> None:
    positions = [0.0, 1.0, length - 2, length - 1]
    result = sinusoidal(xp.asarray(positions, dtype=xp.float32), 10)
    assert result.dtype == xp.float32
    np.testing.assert_allclose(to_numpy(result), by_formula(positions, 10), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_kept(dtype: torch.dtype) -> None:
    result = sinusoidal(torch.arange(5, dtype=dtype), 3)
    assert result.dtype == dtype
    np.testing.assert_allclose(to_numpy(result), by_formula([0, 1, 2, 3, 4], 3), rtol=0, atol=1e-2)


def test_no_positions_give_no_rows(xp: Any) -> None:
    assert sinusoidal(xp.zeros((0,)), 5).shape == (0, 5)


@pytest.mark.parametrize("d_model", [0, -1])
def test_a_width_below_1_is_refused_by_its_number(xp: Any, d_model: int) -> None:
    with pytest.raises(RequestError, match=f"at least 1, got {d_model}"):
        sinusoidal(xp.zeros((2,)), d_model)


# tables


@pytest.mark.parametrize(("d_model", "length"), [(4, 2), (5, 7), (1, 3)])
def test_a_table_holds_every_position_below_the_length(d_model: int, length: int) -> None:
    table = position_table(d_model, length)
    assert table.positions == tuple(range(length))
    assert table.values.dtype == np.float64
    np.testing.assert_allclose(table.values, by_formula(list(range(length)), d_model), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("at", "position"), [(0, 0), (6, 6), (-1, 6), (-7, 0)])
def test_a_table_of_one_position(at: int, position: int) -> None:
    table = position_table(5, 7, at)
    assert table.positions == (position,)
    np.testing.assert_allclose(table.values, by_formula([position], 5), rtol=0, atol=1e-12)


def test_one_position_of_a_huge_length_takes_no_room() -> None:
    assert position_table(4, 10**12, 10**9).positions == (10**9,)


def test_columns_are_named_by_their_wave_and_their_pair() -> None:
    assert position_table(5, 1).columns == ("sin 0", "cos 0", "sin 1", "cos 1", "sin 2")


def test_a_column_comes_round_after_its_wavelength() -> None:
    table = position_table(6, 1)
    for column, wavelength in enumerate(table.wavelengths):
        values = sinusoidal(np.array([3.0, 3.0 + wavelength]), 6)[:, column]
        assert abs(values[0] - values[1]) < 1e-9
    assert table.wavelengths[0] == table.wavelengths[1] < table.wavelengths[2]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((0, 3), "--d-model must be at least 1, got 0"),
        ((4, 0), "--length must be at least 1, got 0"),
        ((4, 3, 3), "no position 3: --length 3 has positions 0 to 2"),
        ((4, 3, -4), "no position -4"),
        ((10**6, 10**9), "would take .* choose smaller sizes"),
    ],
)
def test_a_table_that_cannot_be_is_refused(sizes: tuple[int, ...], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        position_table(*sizes)


@pytest.mark.parametrize("by", [0, 1, 3, 100, -5])
def test_turning_encodings_gives_those_further_on(xp: Any, by: int) -> None:
    places = xp.asarray([0.0, 1.0, 7.0, 50.0], dtype=xp.float64)
    result = to_numpy(turned(sinusoidal(places, 6), by))
    np.testing.assert_allclose(result, by_formula([by, 1 + by, 7 + by, 50 + by], 6), rtol=0, atol=1e-12)


@given(st.integers(1, 8), st.floats(-1000, 1000), st.floats(-1000, 1000))
def test_turning_is_a_rotation_and_turning_twice_is_turning_by_the_sum(pairs: int, one: float, other: float) -> None:
    vectors = np.random.default_rng(pairs).standard_normal((3, 2 * pairs))
    there = turned(vectors, one)
    np.testing.assert_allclose(np.linalg.norm(there, axis=-1), np.linalg.norm(vectors, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(turned(there, other), turned(vectors, one + other), rtol=0, atol=1e-9)


def test_a_column_without_a_partner_cannot_be_turned(xp: Any) -> None:
    with pytest.raises(RequestError, match="5 columns are no pairs"):
        turned(xp.zeros((2, 5), dtype=xp.float64), 1.0)
