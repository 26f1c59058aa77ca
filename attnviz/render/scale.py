"""Colour scales: how far along the colours each value is."""

from collections.abc import Callable
from math import copysign

import numpy as np

from attnviz.arrays import Floats, quiet
from attnviz.errors import RequestError
from attnviz.near import meant
from attnviz.render.ranges import Range
from attnviz.translation import IN_ENGLISH, Say

DEFAULT_SCALE = "linear"
_DECADES = 3
"""How many powers of ten the log scale spans."""
MINUS = "−"


def shade(values: Floats, span: Range, scale: str = DEFAULT_SCALE) -> Floats:
    """How far along the colours each value is, from 0 to 1; what lies outside gets the nearer end, and NaN stays.

    In a sequential range the bottom is always 0, so that what is masked looks alike on every scale. v is the distance
    of a value from the bottom, t that of the top:

    - linear: v/t.
    - sqrt: √(v/t), so that small values can be told apart.
    - log: 1 + log₁₀(v/t)/3, three decades: t/1000 and all below it are 0.
    - row: v divided by the largest v of its row.
    - rank: the share of the panel's v above 0 that are no larger than v; equal values have one shade.

    In a signed range s is this for the value's magnitude, in 0..1 between 0 and the top; the shade is (1 + s)/2 for
    values above 0, (1 − s)/2 for those below it, and 1/2 for 0.

    Args:
        values: [row, column], a whole panel.
        span: the range, whose ends linear, sqrt and log have; row and rank have only its bottom, or its 0.
        scale: one of `SCALES`.

    Returns:
        [row, column] in 0..1 or NaN.

    Raises:
        RequestError: there is no such scale.

    >>> values = np.array([[0.0, 0.25], [0.5, 1.0]])
    >>> shade(values, Range(0, 1), "sqrt").round(2).tolist(), shade(values, Range(0, 1), "row").tolist()
    ([[0.0, 0.5], [0.71, 1.0]], [[0.0, 1.0], [0.5, 1.0]])
    >>> shade(np.array([[0.0, 0.01, 1.0]]), Range(0, 1), "log").round(2).tolist()
    [[0.0, 0.33, 1.0]]
    >>> shade(np.array([[-1.0, -0.25, 0.0, 0.25]]), Range(-1, 1), "sqrt").tolist()
    [[0.0, 0.25, 0.5, 0.75]]
    """
    check_scale(scale)
    with quiet(np):  # what is beyond float32 is beyond the top as well
        if span.signed:
            sizes = _SHADES[scale](np.abs(values), span.top)
            return np.asarray((1 + np.copysign(sizes, values)) / 2)
        return _SHADES[scale](values - span.bottom if span.bottom else values, span.top - span.bottom)


def check_scale(scale: str) -> None:
    """Refuse a scale that there is not.

    Raises:
        RequestError: it is none of `SCALES`.
    """
    if scale in SCALES:
        return
    raise RequestError(f"no colour scale {scale!r}: choose one of {', '.join(SCALES)}{meant(scale, SCALES)}")


def value_at(share: float, span: Range, scale: str) -> float:
    """The value that is `share` along the colours; for row and rank, which have no range of their own, the share.

    >>> value_at(0.5, Range(0, 1), "sqrt"), value_at(0.0, Range(0, 1), "log"), value_at(0.5, Range(0, 0.2), "row")
    (0.25, 0.001, 0.5)
    >>> value_at(0.25, Range(-2, 2), "linear"), value_at(0.75, Range(-2, 2), "sqrt"), value_at(0.5, Range(-2, 2), "log")
    (-1.0, 0.5, 0.0)
    """
    if span.signed:
        size = abs(2 * share - 1)
        return copysign(_value_at(size, span.top, scale), share - 0.5) if size else 0.0
    if scale in _WITHOUT_RANGE:
        return share
    return span.bottom + _value_at(share, span.top - span.bottom, scale)


def _value_at(share: float, top: float, scale: str) -> float:
    if scale == "sqrt":
        return share * share * top
    if scale == "log":
        return float(top * 10.0 ** (_DECADES * (share - 1)))
    return share * top if scale == "linear" else share


def quantity(span: Range, say: Say = IN_ENGLISH) -> str:
    """What the values of a range are.

    >>> quantity(Range(0, 1)), quantity(Range(0, 1.95, "entropy, nats"))
    ('weight', 'entropy, nats')
    """
    return say("weight") if span.of_weights else span.what


def ends_of(span: Range, say: Say = IN_ENGLISH) -> str:
    """The range in words.

    >>> ends_of(Range(-0.5, 0.5)), ends_of(Range(0, 1.95))
    ('−0.5 to 0.5', '0 to 1.95')
    """
    return say("{first} to {last}", first=brief(span.bottom, 4), last=brief(span.top, 4))


def brief(value: float, figures: int) -> str:
    """`value` with so many significant figures, and where it is below 0 a minus sign as long as a plus.

    >>> brief(-0.12345, 3), brief(-0.0, 3)
    ('−0.123', '0')
    """
    text = f"{value or 0.0:.{figures}g}"
    return f"{MINUS}{text[1:]}" if text.startswith("-") else text


def range_of(scale: str, span: Range, say: Say = IN_ENGLISH) -> str:
    """The scale and its range in words.

    >>> range_of("sqrt", Range(0, 1)), range_of("log", Range(0, 0.2))
    ('sqrt scale, 0 to 1', 'log scale, 0.0002 or less to 0.2')
    >>> range_of("log", Range(-1, 1))
    'log scale, −1 to 1, with −0.001 to 0.001 in the middle'
    """
    if scale == "row":
        either = say("row scale: each row to its own maximum of either sign")
        return either if span.signed else say("row scale: each row to its own maximum")
    if scale == "rank":
        return _in_order(span, say)
    if scale != "log":
        return say("{scale} scale, {range}", scale=scale, range=ends_of(span, say))
    if span.signed:
        least = _value_at(0, span.top, scale)
        middle = {"first": brief(-least, 3), "last": brief(least, 3)}
        return say("log scale, {range}, with {first} to {last} in the middle", range=ends_of(span, say), **middle)
    first, last = brief(value_at(0, span, scale), 3), brief(span.top, 4)
    return say("log scale, {first} or less to {last}", first=first, last=last)


def _in_order(span: Range, say: Say) -> str:
    if span.signed:
        return say("rank scale: each panel's magnitudes in order")
    weights = say("rank scale: each panel's weights in order")
    return weights if span.of_weights else say("rank scale: each panel's values in order")


def ticks(scale: str, span: Range, say: Say = IN_ENGLISH) -> tuple[tuple[float, str], ...]:
    """A few places along the colours from 0 to 1, and what is there, the first and the last among them.

    >>> ticks("sqrt", Range(0, 1))
    ((0.0, '0'), (0.5, '0.25'), (1.0, '1'))
    >>> ticks("sqrt", Range(-1, 1))
    ((0.0, '−1'), (0.25, '−0.25'), (0.5, '0'), (0.75, '0.25'), (1.0, '1'))
    """
    if scale in _WITHOUT_RANGE:
        middle, last = (say("half"), say("maximum")) if scale == "row" else (say("median"), say("largest"))
        first, middle = (MINUS + last, "0") if span.signed else ("0", middle)
        return (0.0, first), (0.5, middle), (1.0, last)
    parts = 4 if span.signed else _DECADES if scale == "log" else 2
    inner = tuple((i / parts, brief(value_at(i / parts, span, scale), 3)) for i in range(1, parts))
    first = brief(value_at(0, span, scale), 4 if span.signed else 3)
    return (0.0, first), *inner, (1.0, brief(span.top, 4))


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
_WITHOUT_RANGE = ("row", "rank")
SCALES: tuple[str, ...] = tuple(_SHADES)
