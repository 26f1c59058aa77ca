"""The only file that knows array libraries: which one an array belongs to, its dtype, the way back to NumPy.

The maths is written in the names that NumPy 2, torch and the Python array API standard
(https://data-apis.org/array-api/latest/) spell alike; what they do not spell alike is here.
"""

import sys
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
"""An array of NumPy, torch or any array API library; docstrings give its shape."""

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
"""A NumPy array of float32 or float64: what everything after the maths works on."""


def namespace(x: Array) -> Any:
    """The module whose functions work on `x`.

    Raises:
        TypeError: `x` is no array of a known library.

    >>> namespace(np.ones(2)).__name__
    'numpy'
    """
    torch = sys.modules.get("torch")  # who holds a tensor has imported torch already
    if torch is not None and isinstance(x, torch.Tensor):
        return torch
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    raise TypeError(f"expected an array of NumPy, torch or an array API library, got {type(x).__name__}")


def is_bool(x: Array) -> bool:
    """Whether the elements of `x` are True and False.

    >>> is_bool(np.array([True])), is_bool(np.array([1]))
    (True, False)
    """
    return bool(x.dtype == namespace(x).bool)


def widened(x: Array) -> Array:
    """`x`, as float32 where it is NumPy's float16, which has neither BLAS nor exact sums; else itself.

    >>> widened(np.ones(2, np.float16)).dtype, widened(np.ones(2)).dtype
    (dtype('float32'), dtype('float64'))
    """
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float16 else x


def like(x: Array, other: Array) -> Array:
    """`x` in the dtype of `other`, an array of the same library.

    >>> like(np.ones(2), np.ones(1, np.float16)).dtype
    dtype('float16')
    """
    if x.dtype == other.dtype:
        return x
    xp = namespace(x)
    return x.to(other.dtype) if xp.__name__ == "torch" else xp.astype(x, other.dtype)


def quiet(xp: Any) -> AbstractContextManager[Any]:
    """For results alone: NumPy (and what is built on it) warns of no overflow or NaN, torch keeps no gradients."""
    if xp.__name__ == "torch":
        return xp.inference_mode()  # type: ignore[no-any-return]
    return np.errstate(over="ignore", invalid="ignore")


def to_numpy(x: Array) -> Floats:
    """`x` on the CPU as native NumPy float32, or float64 where it is float64 (half precision is widened).

    >>> to_numpy(np.ones(1, np.float16)).dtype
    dtype('float32')
    """
    if not isinstance(x, np.ndarray):
        xp = namespace(x)
        if xp.__name__ == "torch":
            x = x.detach().cpu()
            x = (x if x.dtype == xp.float64 else x.float()).numpy()
    array = np.asarray(x)
    wide = array.dtype.kind == "f" and array.dtype.itemsize >= 8  # of either byte order
    return array.astype(np.float64 if wide else np.float32, copy=False)
