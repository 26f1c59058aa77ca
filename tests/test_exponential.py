"""Powers of two in steps are the powers of two."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.lib import introspect

from attnviz.arrays import Floats
from attnviz.exponential import LEAST, UNIT, numpy_is_slow, scaled_powers


def powers(x: Floats) -> Floats:
    made = x.copy()
    scaled_powers(made, made)
    return made / np.float32(UNIT)


@pytest.mark.parametrize("middle", [0, 1, -1, 60, -60, 122, -120])
def test_they_are_within_what_is_promised(middle: int) -> None:
    x = np.linspace(middle - 1, middle + 1, 200_001, dtype=np.float32)
    scaled = x.copy()
    scaled_powers(scaled, scaled)
    wanted = UNIT * np.exp2(x.astype(float))
    assert np.abs(scaled / wanted - 1).max() <= 5.5e-7


def test_whole_powers_are_exact() -> None:
    x = np.arange(-120, 124, dtype=np.float32)
    scaled_powers(x, x)
    np.testing.assert_array_equal(x, np.float32(UNIT) * np.exp2(np.arange(-120, 124)))


@given(arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(-127, 122, width=32)))
def test_any_numbers(x: Floats) -> None:
    np.testing.assert_allclose(powers(x), np.exp2(x.astype(float)), rtol=6e-7, atol=1e-36)


@pytest.mark.parametrize("size", [1, 131_071, 131_072, 131_073, 400_003])
def test_stretches_make_no_difference(size: int) -> None:
    x = np.random.default_rng(size).uniform(-20, 20, size).astype(np.float32)
    np.testing.assert_array_equal(powers(x)[-3:], powers(x[-3:].copy()))
    np.testing.assert_allclose(powers(x), np.exp2(x.astype(float)), rtol=6e-7)


@pytest.mark.parametrize("size", [3, 140_000])
def test_they_may_go_elsewhere(size: int) -> None:
    x = np.linspace(-9, 9, size, dtype=np.float32)
    kept, out = x.copy(), np.empty_like(x)
    scaled_powers(x, out)
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(out / np.float32(UNIT), powers(x))


def test_several_axes_and_no_numbers() -> None:
    x = np.array([[[1, 2, 3]], [[-1, -2, -3]]], np.float32)
    np.testing.assert_allclose(powers(x), np.array([[[2, 4, 8]], [[0.5, 0.25, 0.125]]]))
    assert powers(np.zeros((2, 0, 3), np.float32)).shape == (2, 0, 3)


def test_the_least_is_nothing_and_what_is_no_number_stays() -> None:
    made = powers(np.array([LEAST, -126.6, -100, np.nan, 1], np.float32))
    assert made[:2].tolist() == [0, 0]
    assert made[2] > 0
    assert np.isnan(made[3])
    assert made[4] == pytest.approx(2)


KINDS = {
    "AVX512F": False, "AVX512_SKX": False, "X86_V4": False, "FMA3__AVX2": True, "X86_V3": True,
    "baseline(SSE SSE2 SSE3)": True, "baseline(NEON NEON_FP16 NEON_VFPV4 ASIMD)": True,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_is_fast_with_avx512_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(**_: Any) -> dict[str, dict[str, dict[str, str]]]:
        return {"exp": {"ff": {"current": kind, "available": "AVX512F FMA3__AVX2 baseline(SSE SSE2 SSE3)"}}}

    monkeypatch.setattr(introspect, "opt_func_info", told)
    numpy_is_slow.cache_clear()
    try:
        assert numpy_is_slow() is KINDS[kind]
    finally:
        numpy_is_slow.cache_clear()


def test_numpy_tells_of_its_exponential_of_float32() -> None:
    told = introspect.opt_func_info(func_name="^exp$", signature="^float32$")
    assert list(told["exp"]) == ["ff"]
