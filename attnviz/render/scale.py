"""Colour scales: how far along the colours each value is."""

from collections.abc import Callable
from difflib import get_close_matches

import numpy as np

from attnviz.arrays import Floats, quiet
from attnviz.errors import RequestError

DEFAULT_SCALE = "linear"
_DECADES = 3
"""How many powers of ten the log scale spans."""


def shade(values: Floats, top: float, scale: str = DEFAULT_SCALE) -> Floats:
    """How far along the colours each value is, from 0 to 1; what lies outside gets the nearer end, and NaN stays.

    0 is always 0, so that what is masked looks alike on every scale. v is a value, t the top:

    - linear: v/t.
    - sqrt: √(v/t), so that small values can be told apart.
    - log: 1 + log₁₀(v/t)/3, three decades: t/1000 and all below it are 0.
    - row: v divided by the largest value of its row.
    - rank: the share of the panel's values above 0 that are no larger than v; equal values have one shade.

    Args:
        values: [row, column], a whole panel.
        top: the end of the range, which linear, sqrt and log have.
        scale: one of `SCALES`.

    Returns:
        [row, column] in 0..1 or NaN.

    Raises:
        RequestError: there is no such scale.

    >>> values = np.array([[0.0, 0.25], [0.5, 1.0]])
    >>> shade(values, 1.0, "sqrt").round(2).tolist(), shade(values, 1.0, "row").tolist()
    ([[0.0, 0.5], [0.71, 1.0]], [[0.0, 1.0], [0.5, 1.0]])
    >>> shade(np.array([[0.0, 0.01, 1.0]]), 1.0, "log").round(2).tolist()
    [[0.0, 0.33, 1.0]]
    """
    check_scale(scale)
    with quiet(np):  # what is beyond float32 is beyond the top as well
        return _SHADES[scale](values, top)


def check_scale(scale: str) -> None:
    """Refuse a scale that there is not.

    Raises:
        RequestError: it is none of `SCALES`.
    """
    if scale in SCALES:
        return
    near = get_close_matches(scale, SCALES, n=1)
    guess = f"; did you mean {near[0]}?" if near else ""
    raise RequestError(f"no colour scale {scale!r}: choose one of {', '.join(SCALES)}{guess}")


def value_at(share: float, top: float, scale: str) -> float:
    """The value that is `share` along the colours; for row and rank, which have no range of their own, the share.

    >>> value_at(0.5, 1.0, "sqrt"), value_at(0.0, 1.0, "log"), value_at(0.5, 0.2, "row")
    (0.25, 0.001, 0.5)
    """
    if scale == "sqrt":
        return share * share * top
    if scale == "log":
        return float(top * 10.0 ** (_DECADES * (share - 1)))
    return share * top if scale == "linear" else share


def range_of(scale: str, top: float) -> str:
    """The scale and its range in words.

    >>> range_of("sqrt", 1.0), range_of("log", 0.2)
    ('sqrt scale, 0 to 1', 'log scale, 0.0002 or less to 0.2')
    """
    if scale == "row":
        return "row scale: each row to its own maximum"
    if scale == "rank":
        return "rank scale: each panel's weights in order"
    first = f"{value_at(0, top, scale):.3g}" + (" or less" if scale == "log" else "")
    return f"{scale} scale, {first} to {top:.4g}"


def ticks(scale: str, top: float) -> tuple[tuple[float, str], ...]:
    """A few places along the colours from 0 to 1, and what is there, the first and the last among them.

    >>> ticks("sqrt", 1.0)
    ((0.0, '0'), (0.5, '0.25'), (1.0, '1'))
    """
    if scale == "row":
        return (0.0, "0"), (0.5, "half"), (1.0, "maximum")
    if scale == "rank":
        return (0.0, "0"), (0.5, "median"), (1.0, "largest")
    parts = _DECADES if scale == "log" else 2
    inner = tuple((i / parts, f"{value_at(i / parts, top, scale):.3g}") for i in range(parts))
    return *inner, (1.0, f"{top:.4g}")


def _linear(values: Floats, top: float) -> Floats:
    if top <= 0:
        return np.where(np.isnan(values), values, values.dtype.type(0))
    shares = np.asarray(values / top)
    np.clip(shares, 0, 1, out=shares)
    return shares


def _sqrt(values: Floats, top: float) -> Floats:
    shares = _linear(values, top)
    return np.sqrt(shares, out=shares)


def _log(values: Floats, top: float) -> Floats:
    shares = _linear(values, top)
    with np.errstate(divide="ignore"):  # 0 becomes -inf, and so 0 again
        np.log10(shares, out=shares)
    shares /= _DECADES
    shares += 1
    np.clip(shares, 0, 1, out=shares)
    return shares


def _row(values: Floats, top: float) -> Floats:
    largest = values.max(axis=-1, keepdims=True, initial=0, where=np.isfinite(values))
    shares = np.asarray(values / np.where(largest > 0, largest, 1))
    np.clip(shares, 0, 1, out=shares)
    return shares


def _rank(values: Floats, top: float) -> Floats:
    above = np.sort(values[values > 0])
    shares = np.searchsorted(above, values, side="right") / max(1, len(above))
    return np.where(np.isnan(values), np.nan, shares).astype(values.dtype)


_SHADES: dict[str, Callable[[Floats, float], Floats]] = {
    "linear": _linear,
    "sqrt": _sqrt,
    "log": _log,
    "row": _row,
    "rank": _rank,
}
SCALES: tuple[str, ...] = tuple(_SHADES)
