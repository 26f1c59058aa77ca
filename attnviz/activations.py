"""Activation functions of trained models, by the names their configurations use.

NumPy has no error function, so it is here: rational functions on cache-sized runs of the array.
"""

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt
from types import MappingProxyType

import numpy as np

from attnviz.arrays import Array, Floats, like, namespace, quiet, to_numpy, widened

_RUN = 16384
"""Elements worked on at a time: their temporaries stay in the cache, and calls stay few."""

# Coefficients are listed from the lowest power up.
_SHORT_LIMIT = 4.0
_SHORT_TOP = (1.12837917, 0.192878835, 0.0557495674, 0.00422649439, 0.000411278572, 6.79138323e-6)
_SHORT_BOTTOM = (1.0, 0.50426785, 0.117495403, 0.0162951514, 0.00142120882, 7.25640415e-5, 2.60486608e-7)

_NEAR_LIMIT = 0.46875
_NEAR_TOP = (
    3209.37758913846947,
    377.485237685302021,
    113.864154151050156,
    3.16112374387056560,
    0.185777706184603153,
)
_NEAR_BOTTOM = (2844.23683343917062, 1282.61652607737228, 244.024637934444173, 23.6012909523441209, 1.0)

_FAR_LIMIT = 6.0  # 1 − erf(6) is 2e-17, less than float64 can tell from 0 beside 1
_FAR_TOP = (
    1230.33935479799725,
    2051.07837782607147,
    1712.04761263407058,
    881.952221241769090,
    298.635138197400131,
    66.1191906371416295,
    8.88314979438837594,
    0.564188496988670089,
    2.15311535474403846e-8,
)
_FAR_BOTTOM = (
    1230.33935480374942,
    3439.36767414372164,
    4362.61909014324716,
    3290.79923573345963,
    1621.38957456669019,
    537.181101862021859,
    117.693950891312499,
    15.7449261107098347,
    1.0,
)


def erf(x: Array) -> Array:
    """The error function 2/√π ∫₀ˣ exp(−t²) dt of each element.

    In NumPy, float64 is right to 1e-15 by the rational functions of W. J. Cody 1969, "Rational Chebyshev
    approximations for the error function", Mathematics of Computation 23. For float32, one shorter rational
    function does, fitted here to erf(x)/x over x² by reweighted least squares (C. L. Lawson's method) with a
    relative error of 3e-9, and evaluated in float64, so that float32 is right to its last digit.

    Args:
        x: any shape, any values; NaN stays NaN.

    Returns:
        In -1..1, in the shape and dtype of `x`.

    >>> erf(np.array([0.0, 0.5, -np.inf])).round(4)
    array([ 0.    ,  0.5205, -1.    ])
    """
    xp = namespace(x)
    return xp.erf(x) if xp.__name__ == "torch" else _by_runs(_erf, x)


def gelu(x: Array) -> Array:
    """x · Φ(x), Φ being the normal distribution: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".

    >>> gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    xp = namespace(x)
    return xp.nn.functional.gelu(x) if xp.__name__ == "torch" else _by_runs(_gelu, x)


def gelu_tanh(x: Array) -> Array:
    """x · Φ(x) with Φ(x) ≈ (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, from the same paper.

    >>> gelu_tanh(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1588,  0.    ,  0.8412])
    """
    xp = namespace(x)
    return xp.nn.functional.gelu(x, approximate="tanh") if xp.__name__ == "torch" else _by_runs(_gelu_tanh, x)


def silu(x: Array) -> Array:
    """x / (1 + exp(−x)), also called swish: Elfwing et al. 2017, "Sigmoid-Weighted Linear Units".

    >>> silu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.2689,  0.    ,  0.7311])
    """
    xp = namespace(x)
    return xp.nn.functional.silu(x) if xp.__name__ == "torch" else _by_runs(_silu, x)


def relu(x: Array) -> Array:
    """x where it is positive, else 0; NaN stays NaN.

    >>> relu(np.array([-1.0, 0.0, 2.0]))
    array([0., 0., 2.])
    """
    return namespace(x).clip(x, 0, None)


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "gelu": gelu,
        "gelu_new": gelu_tanh,
        "gelu_pytorch_tanh": gelu_tanh,
        "relu": relu,
        "silu": silu,
        "swish": silu,
    }
)
"""Activations under the names that model configurations have for them."""


def _by_runs(function: Callable[[Floats], Floats], x: Array) -> Array:
    """`function` of NumPy's x, run by run; other libraries' arrays go through NumPy."""
    if not isinstance(x, np.ndarray):
        return namespace(x).asarray(_by_runs(function, to_numpy(x)), device=x.device)
    flat = widened(x).reshape(-1)
    result = np.empty_like(flat)
    with quiet(np):  # a large number's exp may be inf: 1 / inf is the 0 wanted
        for start in range(0, flat.size, _RUN):
            result[start : start + _RUN] = function(flat[start : start + _RUN])
    return like(result.reshape(x.shape), x)


def _gelu(x: Floats) -> Floats:
    weights = _erf(x * sqrt(0.5))
    weights += 1
    weights *= x
    weights *= 0.5
    return weights


def _gelu_tanh(x: Floats) -> Floats:
    inner = x * x
    inner *= 0.044715
    inner += 1
    inner *= x
    inner *= sqrt(2 / pi)
    weights: Floats = np.tanh(inner, out=inner)
    weights += 1
    weights *= x
    weights *= 0.5
    return weights


def _silu(x: Floats) -> Floats:
    bottom: Floats = np.exp(-x)
    bottom += 1
    return np.divide(x, bottom, out=bottom)


def _erf(x: Floats) -> Floats:
    return _erf_float64(x) if x.dtype == np.float64 else _erf_float32(x)


def _erf_float32(x: Floats) -> Floats:
    y = np.clip(x.astype(np.float64), -_SHORT_LIMIT, _SHORT_LIMIT)
    square = y * y
    y *= _polynomial(_SHORT_TOP, square)
    y /= _polynomial(_SHORT_BOTTOM, square)
    return y.astype(np.float32)


def _erf_float64(x: Floats) -> Floats:
    size = np.minimum(np.abs(x), _FAR_LIMIT)
    square = size * size
    near = x * _polynomial(_NEAR_TOP, square) / _polynomial(_NEAR_BOTTOM, square)
    rest = np.exp(-square) * _polynomial(_FAR_TOP, size) / _polynomial(_FAR_BOTTOM, size)
    return np.where(size <= _NEAR_LIMIT, near, np.copysign(1 - rest, x))


def _polynomial(coefficients: Sequence[float], x: Floats) -> Floats:
    result = x * coefficients[-1]
    result += coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        result *= x
        result += coefficient
    return result
