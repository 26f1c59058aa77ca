"""Weights as codes of 8 or 16 bits, each row in a range of its own: what a page holds of them, and how near that is."""

import base64
import math
import zlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats, quiet

Bits: TypeAlias = Literal[8, 16]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

_LARGEST = float(np.finfo(np.float32).max)
_LEVEL = 6
"""Of deflate: 9 takes longer and saves nothing."""


@dataclass(frozen=True)
class Coded:
    """Rows of weights as codes: a weight is low + (top − low) · (code / last)², last being 2^bits − 2.

    Squares make the steps fine where weights are small, as most are among many tokens. The highest code,
    2^bits − 1, stands for what is no finite number.
    """

    codes: Codes
    """[row, column]."""
    lows: npt.NDArray[np.float32]
    """[row]: 0 unless the row has something below it."""
    tops: npt.NDArray[np.float32]
    """[row]: the row's largest weight."""

    def decoded(self) -> npt.NDArray[np.float32]:
        """The weights [row, column] that a page shows, NaN where there is no finite number."""
        missing = np.iinfo(self.codes.dtype).max
        low = self.lows.astype(np.float64)[:, None]
        span = self.tops.astype(np.float64)[:, None] - low
        with quiet(np):
            values = (low + span * (self.codes / (missing - 1)) ** 2).astype(np.float32)
        values[self.codes == missing] = np.nan
        return values

    def packed(self, *, triangle: bool = False) -> str:
        """Everything as text: tops, lows, then the codes, a byte plane after the other, deflated, in base64.

        Args:
            triangle: of row i only the first i + 1 codes, where the others are 0.
        """
        codes = self.codes[np.tri(*self.codes.shape, dtype=np.bool_)] if triangle else self.codes.ravel()
        planes = [(codes >> shift).astype(np.uint8) for shift in range(8 * codes.itemsize - 8, -1, -8)]
        parts = (self.tops.astype("<f4"), self.lows.astype("<f4"), *planes)
        return base64.b64encode(zlib.compress(b"".join(part.tobytes() for part in parts), _LEVEL)).decode()


def encode(weights: Floats, bits: Bits) -> Coded:
    """The codes of weights [row, column], each the nearest that there is.

    >>> coded = encode(np.array([[0.0, 0.25, 1.0], [0.0, 0.0, np.nan]]), 8)
    >>> coded.codes.tolist(), coded.tops.tolist()
    ([[0, 127, 254], [0, 0, 255]], [1.0, 0.0])
    >>> coded.decoded().tolist()
    [[0.0, 0.25, 1.0], [0.0, 0.0, nan]]
    """
    kind = np.uint8 if bits == 8 else np.uint16
    missing = int(np.iinfo(kind).max)
    finite = np.abs(weights) <= _LARGEST
    lows = weights.min(axis=1, initial=0, where=finite).astype(np.float32)
    tops = weights.max(axis=1, initial=0, where=finite).astype(np.float32)
    low = lows.astype(np.float64)[:, None]
    span = tops.astype(np.float64)[:, None] - low
    shares = np.where(finite, weights, low) - low
    shares /= np.where(span > 0, span, 1)
    codes = _nearest(np.clip(shares, 0, 1), missing - 1)
    codes[~finite] = missing
    return Coded(codes.astype(kind), lows, tops)


def _nearest(shares: npt.NDArray[np.float64], last: int) -> npt.NDArray[np.float64]:
    """The codes whose squares are nearest to shares of 0..1: between two squares the middle is not at the half."""
    codes = np.floor(np.sqrt(shares) * last)
    middles = (codes**2 + (codes + 1) ** 2) / 2
    return np.asarray(codes + (shares * last**2 > middles))


def largest_error(weights: Floats, coded: Coded) -> float:
    """How far the farthest of the decoded weights is from what it stands for; 0 where nothing is finite."""
    with quiet(np):
        errors = np.abs(weights - coded.decoded().astype(np.float64))
    return float(errors.max(initial=0, where=np.isfinite(errors)))


def rounded_up(bound: float) -> float:
    """A bound at two digits, never less than it is.

    >>> rounded_up(0.00191), rounded_up(0.0)
    (0.002, 0.0)
    """
    if bound == 0:
        return 0.0
    digits = 1 - math.floor(math.log10(bound))
    return float(f"{math.ceil(bound * 10**digits) / 10**digits:.1e}") if digits < 300 else bound
