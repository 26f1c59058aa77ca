"""The cells of a panel as lines of text: numbers, coloured blocks, half blocks or shades."""

from functools import lru_cache
from math import isfinite

import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from attnviz.arrays import Floats
from attnviz.render.colors import colormap
from attnviz.render.labels import justify
from attnviz.render.panels import Board
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
_NO_VALUE = "?"


def panel_shades(values: Floats, board: Board) -> Floats:
    """How far along the colours each value of a whole panel is, from 0 to 1; NaN for what is not finite."""
    return shade(np.where(np.isfinite(values), values, np.nan), board.top, board.scale)


def levels(shades: Floats) -> Levels:
    """The step of the colour scale for each shade of 0..1 or NaN.

    >>> levels(np.array([0.0, 0.5, 1.0, np.nan])).tolist()
    [0, 32, 63, -1]
    """
    known = ~np.isnan(shades)
    return np.where(known, np.rint(np.where(known, shades, 0) * (LEVELS - 1)).astype(np.intp), NOT_A_NUMBER)


def signs(shades: Floats, style: TerminalStyle) -> list[Line]:
    """A character for each shade, the darker the nearer to 0; a row is a line."""
    characters = np.array([*style.signs.shades, _NO_VALUE])
    steps = np.searchsorted(np.array(style.signs.steps, shades.dtype), shades, side="right")
    steps[np.isnan(shades)] = len(characters) - 1
    return [[Segment("".join(row))] for row in characters[steps].tolist()]


def blocks(shades: Floats, style: TerminalStyle, cell: int) -> list[Line]:
    """`cell` coloured blanks for each shade; a row is a line."""
    return [
        [Segment(" " * (cell * n), painted(style.cmap, None, level)) for level, n in _runs(row)]
        for row in levels(shades)
    ]


def half_blocks(shades: Floats, style: TerminalStyle) -> list[Line]:
    """A coloured half of a cell for each shade; two rows are a line."""
    steps = levels(shades)
    lines = []
    for upper, lower in zip(steps[0::2], steps[1::2], strict=False):
        pairs = _runs((upper + 1) * (LEVELS + 1) + lower + 1)
        lines.append([_halves(style, *divmod(pair, LEVELS + 1), n) for pair, n in pairs])
    if len(steps) % 2:
        last = [Segment(style.signs.half * n, painted(style.cmap, level, None)) for level, n in _runs(steps[-1])]
        lines.append(last)
    return lines


def _halves(style: TerminalStyle, upper: int, lower: int, n: int) -> Segment:
    return Segment(style.signs.half * n, painted(style.cmap, upper - 1, lower - 1))


def _runs(row: Levels) -> list[tuple[int, int]]:
    """Each stretch of one value, as the value and its length."""
    starts = np.flatnonzero(np.diff(row, prepend=-2))
    lengths = np.diff(np.append(starts, len(row)))
    return list(zip(row[starts].tolist(), lengths.tolist(), strict=True))


def colored_numbers(values: Floats, shades: Floats, style: TerminalStyle, cell: int, precision: int) -> list[Line]:
    """A number such as `.21` in each cell, on the colour of its shade; nothing for 0 itself."""
    return [
        [_colored_number(v, i, style.cmap, cell, precision) for v, i in zip(row, steps, strict=True)]
        for row, steps in zip(values.tolist(), levels(shades).tolist(), strict=True)
    ]


def plain_numbers(values: Floats, top: float, style: TerminalStyle, cell: int, precision: int) -> list[Line]:
    """A number in each cell, 21 for 0.21; a speck for less, nothing for 0 itself."""
    most = shifted_digits(top, precision)
    rows = ([shifted(v, precision, most).rjust(cell) for v in row] for row in values.tolist())
    zero, speck = "0".rjust(cell), style.signs.speck.rjust(cell)
    return [[Segment("".join(speck if text == zero else text for text in row))] for row in rows]


def _colored_number(value: float, level: int, cmap: str, cell: int, precision: int) -> Segment:
    text = "" if value == 0 else decimal(value, precision, cell)
    return Segment(justify(text, cell, 0.5), background(cmap, level))


def decimal(value: float, precision: int, width: int) -> str:
    """`value` with a point, without the 0 before it, and with as many digits after it as `width` has room for.

    >>> decimal(0.214, 2, 3), decimal(0.999, 2, 3), decimal(1.0, 2, 4), decimal(-0.21, 2, 3), decimal(1e9, 2, 3)
    ('.21', '1.0', '1.00', '-.2', '###')
    """
    if not isfinite(value):
        return _NO_VALUE
    for digits in range(precision, -1, -1):
        text = f"{value:.{digits}f}"
        text = text.replace("-0.", "-.") if value < 0 else text.removeprefix("0") or "0"
        if len(text) <= width:
            return text
    return "#" * width


def shifted(value: float, precision: int, most: int) -> str:
    """`value` in units of its last digit, in at most `most` characters; nothing for 0.

    >>> shifted(0.214, 2, 2), shifted(0.001, 2, 2), shifted(0.0, 2, 2), shifted(1.0, 2, 2), shifted(1.2, 2, 3)
    ('21', '0', '', '1.', '120')
    """
    if not isfinite(value):
        return _NO_VALUE
    if value == 0:
        return ""
    units = int(f"{value:.{precision}f}".replace(".", ""))
    text = str(units)
    if len(text) <= most:
        return text
    return one_of(precision) if units == 10**precision else "#" * most


def one_of(precision: int) -> str:
    """How 1 is written among numbers of so many digits, where 10 or 100 is too long.

    >>> one_of(2), one_of(1)
    ('1.', 'X')
    """
    return "1." if precision > 1 else "X"


def shifted_digits(top: float, precision: int) -> int:
    """The digits of the largest number; none more for a top of 1, which is written shorter.

    >>> shifted_digits(1.0, 2), shifted_digits(1.2, 2)
    (2, 3)
    """
    return precision if top <= 1 else len(shifted(top, precision, 99))


def _color(cmap: str, level: int) -> tuple[int, int, int]:
    if level == NOT_A_NUMBER:
        return _PINK
    red, green, blue = colormap(cmap)[round(level * 255 / (LEVELS - 1))].tolist()
    return red, green, blue


@lru_cache(maxsize=1024)
def background(cmap: str, level: int) -> Style:
    """The colour of a level behind text in black or white, whichever stands out more."""
    linear = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in _color(cmap, level)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # WCAG 2, relative luminance
    ink = (0, 0, 0) if luminance > 0.179 else (255, 255, 255)
    return Style.from_color(Color.from_rgb(*ink), Color.from_rgb(*_color(cmap, level)))


@lru_cache(maxsize=8192)
def painted(cmap: str, ink: int | None, ground: int | None) -> Style:
    """The colours of two levels, for a character and behind it."""
    colors = [None if level is None else Color.from_rgb(*_color(cmap, level)) for level in (ink, ground)]
    return Style.from_color(*colors)


def color_bar(style: TerminalStyle, cells: int) -> Line:
    """The colours from the lowest to the highest."""
    steps = np.rint(np.linspace(0, LEVELS - 1, cells)).astype(int).tolist()
    return [Segment(" ", painted(style.cmap, None, level)) for level in steps]


def no_value_cell(style: TerminalStyle) -> Segment:
    """How a value that is not a number looks where it has no room for a sign."""
    return Segment(" ", painted(style.cmap, None, NOT_A_NUMBER))
