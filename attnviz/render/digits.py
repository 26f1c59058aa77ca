"""Numbers as text: with how many digits, in how many characters."""

from dataclasses import dataclass
from math import floor, isfinite, log10

import numpy as np

from attnviz.arrays import Floats
from attnviz.render.ranges import Range

NO_VALUE = "?"
_MOST_AFTER, _MOST_BEFORE = 3, 6
"""Digits that small ranges have beyond the precision, and that large ones have before the point, at most; beyond
them numbers have an exponent."""


@dataclass(frozen=True)
class Digits:
    """How the numbers of one range are written: all with as many digits after the point, or all with an exponent."""

    after: int
    """Digits after the point."""
    exponent: bool = False
    minus: str = "−"

    @classmethod
    def of(cls, span: Range, precision: int, minus: str = "−") -> "Digits":
        """Digits for a range: `precision` after the point, fewer from 10 on, more where the first ones would be 0.

        >>> [Digits.of(Range(0, top), 2).after for top in (0.02, 0.5, 1.95, 17, 340, 5000)]
        [3, 2, 2, 1, 0, 0]
        """
        power = floor(log10(span.largest)) if span.largest > 0 else 0
        after = max(0, precision - max(0, power) + max(0, -power - 1))
        if after > precision + _MOST_AFTER or power >= _MOST_BEFORE:
            return cls(precision - 1, exponent=True, minus=minus)
        return cls(after, minus=minus)

    def text(self, value: float) -> str:
        """`value` without a 0 before the point; its sign stays where the digits are all 0, and 0 itself is 0.

        >>> [Digits(2).text(value) for value in (-0.421, 1.95, -0.001, 0.0, float("nan"))]
        ['−.42', '1.95', '−.00', '0', '?']
        >>> Digits(1, exponent=True).text(-0.0000123)
        '−1.2e−5'
        """
        if not isfinite(value):
            return NO_VALUE
        if value == 0:
            return "0"
        if self.exponent:
            figures, power = f"{abs(value):.{self.after}e}".split("e")
            text = f"{figures}e{int(power)}".replace("-", self.minus)
        else:
            text = f"{abs(value):.{self.after}f}"
            text = text.removeprefix("0") if self.after else text
        return (self.minus if value < 0 else "") + text

    def width(self, values: Floats) -> int:
        """The characters of the longest of the numbers; 1 where there is none.

        >>> Digits(2).width(np.array([0.1, -0.25, 12.0]))
        5
        """
        finite = values[np.isfinite(values) & (values != 0)]
        ends = (part for part in (finite[finite > 0], finite[finite < 0]) if part.size)
        return max((len(self.text(float(end))) for part in ends for end in (part.min(), part.max())), default=1)


def decimal(value: float, precision: int, width: int) -> str:
    """A weight with a point, without the 0 before it, and with as many digits after it as `width` has room for.

    >>> decimal(0.214, 2, 3), decimal(0.999, 2, 3), decimal(1.0, 2, 4), decimal(-0.21, 2, 3), decimal(1e9, 2, 3)
    ('.21', '1.0', '1.00', '-.2', '###')
    """
    if not isfinite(value):
        return NO_VALUE
    for digits in range(precision, -1, -1):
        text = f"{value:.{digits}f}"
        text = text.replace("-0.", "-.") if value < 0 else text.removeprefix("0") or "0"
        if len(text) <= width:
            return text
    return "#" * width


def shifted(value: float, precision: int, most: int) -> str:
    """A weight in units of its last digit, in at most `most` characters; nothing for 0.

    >>> shifted(0.214, 2, 2), shifted(0.001, 2, 2), shifted(0.0, 2, 2), shifted(1.0, 2, 2), shifted(1.2, 2, 3)
    ('21', '0', '', '1.', '120')
    """
    if not isfinite(value):
        return NO_VALUE
    if value == 0:
        return ""
    units = int(f"{value:.{precision}f}".replace(".", ""))
    text = str(units)
    if len(text) <= most:
        return text
    return one_of(precision) if units == 10**precision else "#" * most


def one_of(precision: int) -> str:
    """How 1 is written among weights of so many digits, where 10 or 100 is too long.

    >>> one_of(2), one_of(1)
    ('1.', 'X')
    """
    return "1." if precision > 1 else "X"


def shifted_digits(top: float, precision: int) -> int:
    """The digits of the largest weight; none more for a top of 1, which is written shorter.

    >>> shifted_digits(1.0, 2), shifted_digits(1.2, 2)
    (2, 3)
    """
    return precision if top <= 1 else len(shifted(top, precision, 99))
