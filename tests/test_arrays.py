from typing import Any

import numpy as np
import pytest
import torch

from attnviz.arrays import is_bool, like, namespace, quiet, to_numpy, widened


def test_an_array_names_its_library(xp: Any) -> None:
    assert namespace(xp.asarray([1.0, 2.0])).__name__ == xp.__name__


@pytest.mark.parametrize("x", [[1.0, 2.0], "text", None])
def test_what_is_no_array_is_refused_by_its_type(x: Any) -> None:
    with pytest.raises(TypeError, match=type(x).__name__):
        namespace(x)


def test_only_booleans_are_bool(xp: Any) -> None:
    assert is_bool(xp.asarray([True, False]))
    assert not is_bool(xp.asarray([1, 0]))
    assert not is_bool(xp.asarray([1.0, 0.0]))


def test_like_gives_the_dtype_of_the_other_and_no_copy_where_it_has_it(xp: Any) -> None:
    x = xp.asarray([0.5, 2.0], dtype=xp.float64)
    assert like(x, xp.asarray([1.0], dtype=xp.float32)).dtype == xp.float32
    assert like(x, xp.asarray([1.0], dtype=xp.float64)) is x


@pytest.mark.parametrize(("dtype", "wanted"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_numpy_half_precision_is_widened_and_nothing_else(dtype: str, wanted: str) -> None:
    assert widened(np.ones(2, dtype)).dtype == wanted


def test_torch_half_precision_stays() -> None:
    assert widened(torch.ones(2, dtype=torch.float16)).dtype == torch.float16


@pytest.mark.parametrize(("dtype", "wanted"), [("float32", np.float32), ("float64", np.float64)])
def test_to_numpy_keeps_values_and_precision(xp: Any, dtype: str, wanted: type) -> None:
    result = to_numpy(xp.asarray([[0.1, 0.2, -3.0]], dtype=getattr(xp, dtype)))
    assert type(result) is np.ndarray
    assert result.dtype == wanted
    np.testing.assert_array_equal(result, np.array([[0.1, 0.2, -3.0]], wanted))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_to_numpy_widens_half_precision_of_torch(dtype: torch.dtype) -> None:
    result = to_numpy(torch.tensor([0.5, 1.25], dtype=dtype, requires_grad=True))
    assert result.dtype == np.float32
    assert result.tolist() == [0.5, 1.25]


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(">f8", np.float64), (">f4", np.float32), ("f2", np.float32), ("longdouble", np.float64), ("i8", np.float32)],
)
def test_to_numpy_gives_native_float32_or_float64_whatever_the_file_had(dtype: str, wanted: type) -> None:
    result = to_numpy(np.array([1, 2, 3], dtype))
    assert result.dtype == wanted
    assert result.dtype.isnative
    assert result.tolist() == [1, 2, 3]


def test_to_numpy_keeps_the_digits_of_big_endian_float64() -> None:
    assert to_numpy(np.array([0.1], ">f8"))[0] == 0.1


def test_within_quiet_numpy_does_not_warn_and_outside_it_does() -> None:
    large = np.array([3e38], np.float32)
    with quiet(np):
        assert np.isinf(large * large)
    with pytest.warns(RuntimeWarning, match="overflow"):
        large * large
