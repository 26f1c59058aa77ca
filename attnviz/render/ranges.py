"""Ranges of values: from where to where the colours go, and what the values are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.arrays import Floats

_WEIGHT = "weight"


@dataclass(frozen=True)
class Range:
    """The values that the first and the last colour stand for.

    A range is sequential, as 0 to 1 or 0 to 1.95, or signed, as −1 to 1: then 0 is in the middle and has a neutral
    colour.

    Raises:
        ValueError: the top is below the bottom, or 0 lies between them but not in the middle.

    >>> Range(0.0, 1.95, "entropy, nats").signed, Range(-1.0, 1.0, "difference").signed
    (False, True)
    """

    bottom: float
    top: float
    what: str = _WEIGHT
    """The quantity, as legends name it, with its unit where it has one."""

    def __post_init__(self) -> None:
        if not self.bottom <= self.top:
            raise ValueError(f"a range from {self.bottom} to {self.top}: its top is below its bottom")
        if self.bottom < 0 < self.top and self.bottom != -self.top:
            raise ValueError(f"a range from {self.bottom} to {self.top}: with both signs it must be symmetric")

    @property
    def signed(self) -> bool:
        """Whether the values have two signs."""
        return self.bottom < 0 < self.top

    @property
    def of_weights(self) -> bool:
        """Whether the values are weights: shares of 1, which can be written as hundredths."""
        return self.what == _WEIGHT and self.bottom == 0

    @property
    def largest(self) -> float:
        """The largest magnitude in the range."""
        return max(abs(self.bottom), abs(self.top))


_TOPS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)
_ROUNDING = 1 + 1e-6
"""float32's 0.2 is a little more than 0.2, and no reason to end at 1."""
_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Where ranges of other values end, times a power of ten."""


def weight_range(values: Sequence[Floats]) -> Range:
    """The range of weights: 0 to 1, or where no finite one exceeds 0.2 to the smallest round number that holds all.

    Weights lie in 0..1, and pictures on the same range can be compared. But over hundreds of tokens, or
    pooled, all of them can lie so near 0 that such a picture would be black.

    >>> [weight_range([np.array([largest])]).top for largest in (0.7, 0.07, 1.2)]
    [1.0, 0.1, 1.2]
    """
    largest = max(map(_largest, values), default=-np.inf)
    if largest <= 0:  # nothing finite, or nothing attended to
        return Range(0.0, 1.0)
    return Range(0.0, next((top for top in _TOPS if largest <= top * _ROUNDING), largest))


def range_holding(values: Sequence[Floats], what: str) -> Range:
    """A range with round ends for all finite values: signed where one of them is below 0, else from 0.

    >>> range_holding([np.array([0.3, -0.71])], "difference")
    Range(bottom=-0.8, top=0.8, what='difference')
    >>> range_holding([np.array([17.0, 2.0])], "score").top, range_holding([np.zeros(2)], "score").top
    (20.0, 1.0)
    """
    above, below = (max((_largest(sign * one) for one in values), default=0.0) for sign in (1, -1))
    largest = max(above, below, 0.0)
    power = 10.0 ** np.floor(np.log10(largest)) if largest > 0 else 1.0
    top = next((float(f"{step * power:.3g}") for step in _ROUND if largest <= step * power * _ROUNDING), largest)
    return Range(-top if below > 0 else 0.0, top, what)


def _largest(values: Floats) -> float:
    """The largest finite value, or -inf where there is none."""
    largest = float(values.max(initial=-np.inf))
    if np.isfinite(largest):
        return largest  # as good as always, and several times as fast
    return float(values[np.isfinite(values)].max(initial=-np.inf))
