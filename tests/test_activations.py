from collections.abc import Callable
from math import erf as exact_erf
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from attnviz.activations import ACTIVATIONS, erf, gelu, gelu_tanh, relu, silu
from attnviz.arrays import Floats, to_numpy

TORCH_OWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
}


def grid() -> Floats:
    edges = [0.46875, np.nextafter(0.46875, 1), 4.0, np.nextafter(4.0, 5), 5.9, 6.0, np.nextafter(6.0, 7)]
    half = np.concatenate([np.linspace(0, 7, 20011), np.logspace(-300, 0, 601), edges])
    return np.concatenate([-half, half])


def exact(x: Floats) -> Floats:
    return np.array([exact_erf(float(value)) for value in x])


def test_erf_in_float64_is_that_of_the_standard_library() -> None:
    np.testing.assert_allclose(erf(grid()), exact(grid()), rtol=1e-15, atol=1e-15)


def test_erf_in_float64_keeps_the_relative_precision_of_tiny_numbers() -> None:
    x = np.logspace(-300, -3, 199)
    np.testing.assert_allclose(erf(x), exact(x), rtol=1e-15, atol=0)


def test_erf_in_float32_is_right_to_its_last_digit() -> None:
    x = grid().astype(np.float32)
    np.testing.assert_allclose(erf(x), exact(x), rtol=1.2e-7, atol=6e-8)
    assert erf(x).dtype == np.float32
    x = x[np.abs(x) > 1e-37]
    np.testing.assert_allclose(erf(x), exact(x), rtol=1.2e-7, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_erf_rises_and_ends_at_exactly_one(dtype: str) -> None:
    values = erf(np.linspace(0, 8, 40001).astype(dtype))
    assert np.diff(values).min() >= -2e-16
    assert values[-1] == 1
    assert values.max() == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_erf_of_infinities_nan_and_zeros(dtype: str) -> None:
    result = erf(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], dtype))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, [1, -1, np.nan, 0, 0])
    assert np.signbit(result).tolist()[3:] == [False, True]


@given(st.floats(-7, 7), st.sampled_from(["float32", "float64"]))
def test_erf_is_odd(x: float, dtype: str) -> None:
    assert erf(np.array([-x], dtype))[0] == -erf(np.array([x], dtype))[0]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 5), (7, 5000)])
def test_shape_is_kept_across_any_number_of_runs(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape)
    assert erf(x).shape == shape
    np.testing.assert_allclose(erf(x).ravel(), exact(x.ravel()), rtol=0, atol=1e-15)


def test_the_input_is_left_as_it_was_in_any_memory_order() -> None:
    x = np.random.default_rng(2).normal(size=(5, 7))
    for function in (erf, *ACTIVATIONS.values()):
        turned = x.copy().T
        np.testing.assert_array_equal(function(turned), function(x).T)
        np.testing.assert_array_equal(turned, x.T)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 6e-7), ("float64", 1e-14)])
def test_each_name_is_what_torch_has_under_it(xp: Any, name: str, dtype: str, tolerance: float) -> None:
    x = np.linspace(-12, 12, 2 * 3 * 1001).reshape(2, 3, 1001).astype(dtype)
    result = ACTIVATIONS[name](xp.asarray(x))
    assert result.dtype == getattr(xp, dtype)
    assert result.shape == x.shape
    np.testing.assert_allclose(to_numpy(result), TORCH_OWN[name](torch.tensor(x)).numpy(), rtol=0, atol=tolerance)


def test_erf_in_every_library(xp: Any) -> None:
    x = np.linspace(-4, 4, 101)
    np.testing.assert_allclose(to_numpy(erf(xp.asarray(x))), exact(x), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_numpy_half_precision_is_worked_out_wider(name: str) -> None:
    x = np.linspace(-12, 12, 1001).astype(np.float16)
    result = ACTIVATIONS[name](x)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, ACTIVATIONS[name](x.astype(np.float64)), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_far_out_it_is_the_number_or_zero_without_a_warning_and_nan_stays(name: str) -> None:
    x = np.array([-1e30, -200.0, 200.0, 1e30, np.nan], np.float32)
    np.testing.assert_array_equal(ACTIVATIONS[name](x), np.array([0, 0, 200, 1e30, np.nan], np.float32))


def test_values_by_hand() -> None:
    x = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(gelu(x), [-0.158655254, 0, 0.841344746], atol=1e-9)  # Φ(1) of the normal distribution
    np.testing.assert_allclose(gelu_tanh(x), [-0.158808009, 0, 0.841191991], atol=1e-9)
    np.testing.assert_allclose(silu(x), [-0.268941421, 0, 0.731058579], atol=1e-9)
    np.testing.assert_array_equal(relu(x), [0, 0, 1])
