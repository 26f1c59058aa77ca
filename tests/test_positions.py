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
from attnviz.positions import sinusoidal


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
