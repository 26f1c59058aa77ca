"""2ˣ of many numbers in few steps of NumPy, where its own exponential is slow.

NumPy's float32 `exp` is fast with AVX-512. Without it, ten plain steps over a stretch of numbers that stays in the
processor's cache take two thirds of the time.

x is split into the nearest integer n and the rest f, from -½ to ½. The power of n is made of its bits; that of f by

    2ᶠ ≈ 1 + f / (A f² - f/2 + C),

which is 1 at 0, and whose relative error, with A and C that make the largest the least, is at most 4.4 · 10⁻⁷: the
first of the quotients 1 + 2f P(f²) / (Q(f²) - f P(f²)) by which the Cephes library makes exponentials (Moshier, exp.c).
With h = 1/(4A) it takes a step less:

    A · 2ᶠ ≈ A + f / ((f - h)² + C/A - h²),

where the factor is left to who uses the numbers: a softmax divides it out.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import introspect

from attnviz.arrays import Floats
from attnviz.scratch import lent

_A, _C = 0.05761803, 1.44270406
_H = 1 / (4 * _A)
_REST = _C / _A - _H**2
UNIT = float(np.float32(_A))
"""What `scaled_powers` makes of 0."""
LEAST = -127.0
"""Of this and of half a bit less, it makes 0; smaller numbers have to be raised to it."""
_STRETCH = 1 << 17
"""So many numbers, and twice as many that are made on the way, take 1.5 MB."""
_INTEGERS = 1.5 * 2**23 + 127
"""Added to an integer, the last bits of the sum are those of the integer's power of two before its 23 of fraction."""


class Exponential(NamedTuple):
    """A way to make a factor times the exponentials of scores."""

    make: Callable[[Floats, Floats], object]
    """Of scores in its own unit, into other memory or in their place."""
    per_nat: float = 1.0
    """How many of its units one of the natural logarithm is."""
    of_zero: float = 1.0
    """The factor."""
    nothing: float = -1e4
    """A score of which it makes 0."""
    bounded: bool = False
    """Whether no smaller score may be given."""


def exponential(dtype: npt.DTypeLike) -> Exponential:
    """The fastest way for numbers of that type on this machine."""
    return BY_POWERS if np.dtype(dtype) == np.float32 and numpy_is_slow() else BY_NUMPY


@cache
def numpy_is_slow() -> bool:
    """Whether NumPy's float32 `exp` on this machine takes longer than `scaled_powers`."""
    kinds = introspect.opt_func_info(func_name="^exp$", signature="^float32$").get("exp", {})
    return not any("AVX512" in kind["current"] or "X86_V4" in kind["current"] for kind in kinds.values())


def scaled_powers(x: Floats, out: Floats) -> None:
    """Put `UNIT` · 2ˣ into `out`, within 5.5 · 10⁻⁷ of it.

    Args:
        x: float32, contiguous, from `LEAST` to 127; NaN stays.
        out: as large, and contiguous; it may be x.

    >>> x = np.array([-1, 0, 3, LEAST], np.float32)
    >>> scaled_powers(x, x)
    >>> (x / UNIT).tolist()
    [0.5, 1.0, 8.0, 0.0]
    """
    x, out = x.reshape(-1), out.reshape(-1)
    size = min(_STRETCH, x.size)
    integer, bottom = lent("integer", (size,), np.float32), lent("bottom", (size,), np.float32)
    for start in range(0, x.size, _STRETCH):
        stretch = x[start : start + _STRETCH]
        n = stretch.size
        _stretch(stretch, out[start : start + n], integer[:n], bottom[:n])


BY_NUMPY = Exponential(np.exp)
BY_POWERS = Exponential(scaled_powers, float(np.log2(np.e)), UNIT, LEAST, bounded=True)

_SHIFT = np.array(23, np.int32)
_INTEGERS_32, _H_32, _REST_32, _UNIT_32 = (np.array(x, np.float32) for x in (_INTEGERS, _H, _REST, UNIT))
"""Arrays of no axis, which a step takes up faster than numbers."""


def _stretch(x: Floats, out: Floats, integer: Floats, bottom: Floats) -> None:
    np.rint(x, integer)
    np.subtract(x, integer, out)
    np.subtract(out, _H_32, bottom)
    np.square(bottom, bottom)
    np.add(bottom, _REST_32, bottom)
    np.divide(out, bottom, out)
    np.add(out, _UNIT_32, out)
    np.add(integer, _INTEGERS_32, integer)
    bits = integer.view(np.int32)
    np.left_shift(bits, _SHIFT, bits)
    np.multiply(out, integer, out)
