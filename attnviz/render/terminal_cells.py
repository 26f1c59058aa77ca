"""The cells of a panel as lines of text: numbers, coloured blocks, half blocks or shades."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from attnviz.arrays import Floats
from attnviz.render.colors import colormap
from attnviz.render.digits import NO_VALUE, Digits, decimal, shifted, shifted_digits
from attnviz.render.labels import justify
from attnviz.render.ranges import Range
from attnviz.render.scale import shade
from attnviz.render.terminal_lines import Line
from attnviz.render.terminal_style import TerminalStyle

Levels = npt.NDArray[np.intp]
"""Steps of the colour scale; NOT_A_NUMBER where there is none."""

LEVELS = 64
"""Steps of the colour scale: more cannot be told apart, and each pair of them is a style that is kept."""
NOT_A_NUMBER = -1
_PINK = (255, 0, 255)
"""Not a number; in none of the colour maps."""


@dataclass(frozen=True)
class Tints:
    """The colours of a range."""

    cmap: str
    signed: bool = False

    @property
    def levels(self) -> int:
        """The steps; an odd number where one of them is the middle."""
        return LEVELS - 1 if self.signed else LEVELS


@dataclass(frozen=True)
class Pen:
    """How the values of one range are drawn."""

    style: TerminalStyle
    span: Range
    scale: str

    @cached_property
    def tints(self) -> Tints:
        """Its colours."""
        return Tints(self.style.diverging if self.span.signed else self.style.cmap, self.span.signed)

    @cached_property
    def digits(self) -> Digits:
        """How its numbers are written, where they are not weights."""
        return Digits.of(self.span, self.style.precision, self.style.signs.minus)

    def shades(self, values: Floats) -> Floats:
        """How far along the colours each value of a whole panel is, from 0 to 1; NaN for what is not finite."""
        return shade(np.where(np.isfinite(values), values, np.nan), self.span, self.scale)


def levels(shades: Floats, n: int = LEVELS) -> Levels:
    """The step of the colour scale for each shade of 0..1 or NaN.

    >>> levels(np.array([0.0, 0.5, 1.0, np.nan])).tolist()
    [0, 32, 63, -1]
    """
    known = ~np.isnan(shades)
    return np.where(known, np.rint(np.where(known, shades, 0) * (n - 1)).astype(np.intp), NOT_A_NUMBER)


def signs(shades: Floats, pen: Pen) -> list[Line]:
    """A character for each shade, the darker the nearer to 0, of another kind for values below 0; a row is a line."""
    kinds = pen.style.signs
    sizes, below = (np.abs(2 * shades - 1), shades < 0.5) if pen.span.signed else (shades, np.zeros(shades.shape, bool))
    above, starts = (kinds.above, kinds.sizes) if pen.span.signed else (kinds.shades, kinds.steps)
    characters = np.array([*above, *kinds.below, NO_VALUE])
    steps = np.searchsorted(np.array(starts, shades.dtype), sizes, side="right")
    steps[below] += len(above)
    steps[np.isnan(shades)] = len(characters) - 1
    return [[Segment("".join(row))] for row in characters[steps].tolist()]


def blocks(shades: Floats, pen: Pen, cell: int) -> list[Line]:
    """`cell` coloured blanks for each shade; a row is a line."""
    return [
        [Segment(" " * (cell * n), painted(pen.tints, None, level)) for level, n in _runs(row)]
        for row in levels(shades, pen.tints.levels)
    ]


def half_blocks(shades: Floats, pen: Pen) -> list[Line]:
    """A coloured half of a cell for each shade; two rows are a line."""
    steps, half = levels(shades, pen.tints.levels), pen.style.signs.half
    lines = []
    for upper, lower in zip(steps[0::2], steps[1::2], strict=False):
        pairs = _runs((upper + 1) * (LEVELS + 1) + lower + 1)
        lines.append([_halves(pen, *divmod(pair, LEVELS + 1), n) for pair, n in pairs])
    if len(steps) % 2:
        last = [Segment(half * n, painted(pen.tints, level, None)) for level, n in _runs(steps[-1])]
        lines.append(last)
    return lines


def _halves(pen: Pen, upper: int, lower: int, n: int) -> Segment:
    return Segment(pen.style.signs.half * n, painted(pen.tints, upper - 1, lower - 1))


def _runs(row: Levels) -> list[tuple[int, int]]:
    """Each stretch of one value, as the value and its length."""
    starts = np.flatnonzero(np.diff(row, prepend=-2))
    lengths = np.diff(np.append(starts, len(row)))
    return list(zip(row[starts].tolist(), lengths.tolist(), strict=True))


def colored_numbers(values: Floats, shades: Floats, pen: Pen, cell: int, precision: int) -> list[Line]:
    """A number such as `.21` in each cell, on the colour of its shade; of weights nothing for 0 itself."""
    return [
        [_colored_number(v, i, pen, cell, precision) for v, i in zip(row, steps, strict=True)]
        for row, steps in zip(values.tolist(), levels(shades, pen.tints.levels).tolist(), strict=True)
    ]


def _colored_number(value: float, level: int, pen: Pen, cell: int, precision: int) -> Segment:
    if pen.span.of_weights:
        text = justify("" if value == 0 else decimal(value, precision, cell), cell, 0.5)
    else:
        text = pen.digits.text(value).rjust(cell)
    return Segment(text, background(pen.tints, level))


def plain_numbers(values: Floats, pen: Pen, cell: int, precision: int) -> list[Line]:
    """A number in each cell; of weights 21 for 0.21, a speck for less than a hundredth, nothing for 0 itself."""
    if not pen.span.of_weights:
        return [[Segment("".join(pen.digits.text(v).rjust(cell) for v in row))] for row in values.tolist()]
    most = shifted_digits(pen.span.top, precision)
    rows = ([shifted(v, precision, most).rjust(cell) for v in row] for row in values.tolist())
    zero, speck = "0".rjust(cell), pen.style.signs.speck.rjust(cell)
    return [[Segment("".join(speck if text == zero else text for text in row))] for row in rows]


def _color(tints: Tints, level: int) -> tuple[int, int, int]:
    if level == NOT_A_NUMBER:
        return _PINK
    colors = colormap(tints.cmap, diverging=tints.signed)
    red, green, blue = colors[round(level * 255 / (tints.levels - 1))].tolist()
    return red, green, blue


@lru_cache(maxsize=1024)
def background(tints: Tints, level: int) -> Style:
    """The colour of a level behind text in black or white, whichever stands out more."""
    linear = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in _color(tints, level)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # WCAG 2, relative luminance
    ink = (0, 0, 0) if luminance > 0.179 else (255, 255, 255)
    return Style.from_color(Color.from_rgb(*ink), Color.from_rgb(*_color(tints, level)))


@lru_cache(maxsize=8192)
def painted(tints: Tints, ink: int | None, ground: int | None) -> Style:
    """The colours of two levels, for a character and behind it."""
    colors = [None if level is None else Color.from_rgb(*_color(tints, level)) for level in (ink, ground)]
    return Style.from_color(*colors)


def color_bar(tints: Tints, cells: int) -> Line:
    """The colours from the lowest to the highest."""
    steps = np.rint(np.linspace(0, tints.levels - 1, cells)).astype(int).tolist()
    return [Segment(" ", painted(tints, None, level)) for level in steps]


def no_value_cell(tints: Tints) -> Segment:
    """How a value that is not a number looks where it has no room for a sign."""
    return Segment(" ", painted(tints, None, NOT_A_NUMBER))
