"""What stands above the panels: the caption, the range of the values and how to read the cells."""

from collections.abc import Iterable, Sequence

import numpy as np
from rich.segment import Segment

from attnviz.render.labels import elide
from attnviz.render.panels import Board, Panel
from attnviz.render.scale import DEFAULT_SCALE, range_of, ticks, value_at
from attnviz.render.terminal_cells import color_bar, no_value_cell, one_of
from attnviz.render.terminal_lines import BOLD, Line, line_width, text_line, wrapped
from attnviz.render.terminal_panels import Mode, digits
from attnviz.render.terminal_style import TerminalStyle

_BAR = 32
_KEEP = "\N{NO-BREAK SPACE}"
"""Between words that stay on one line."""
_MEANING = {
    "linear": "",
    "sqrt": "sqrt scale: ",
    "log": "log scale: ",
    "row": "row scale, as shares of each row's maximum: ",
    "rank": "rank scale, as shares of the panel's weights in order: ",
}
"""What comes before the list of shades."""


def heading(board: Board, facts: Iterable[str], style: TerminalStyle) -> list[Line]:
    """The caption, cut where it is longer than two lines, the colour range and `facts`, and a blank line."""
    caption = prose(elide(style.own(board.caption), 2 * style.columns, style.signs.ellipsis), style, bold=True)
    missing = any(not np.isfinite(panel.values).all() for panel in board.panels)
    if style.color:
        scale = [] if board.scale == DEFAULT_SCALE else [range_of(board.scale, board.top)]
        return [*caption, *_bar_lines(board, style, missing=missing), *prose("; ".join([*scale, *facts]), style), []]
    first = [f"weight 0 to {board.top:g}"]
    last = [f"?{_KEEP}is not a number"] if missing else []
    return [*caption, *prose("; ".join([*first, *facts, *last]), style), []]


def _bar_lines(board: Board, style: TerminalStyle, *, missing: bool) -> list[Line]:
    (_, first), *_, (_, last) = ticks(board.scale, board.top)
    before, after = f"weight {first} ", f" {last}"
    cells = min(_BAR, style.columns - len(before) - len(after))
    bar: Line = [Segment(before), *color_bar(style, cells), Segment(after)]
    sign: Line = [no_value_cell(style), Segment(" not a number")]
    if not missing:
        return [bar]
    one: Line = [*bar, Segment("   "), *sign]
    return [one] if line_width(one) <= style.columns else [bar, sign]


def prose(text: str, style: TerminalStyle, *, bold: bool = False) -> list[Line]:
    """`text` on as many lines as it needs."""
    words = [word.replace(_KEEP, " ") for word in text.split(" ") if word]
    return [text_line(line, BOLD if bold and style.color else None) for line in wrapped(words, style.columns)]


def axes_fact(panel: Panel) -> str:
    """What the rows and columns are."""
    return f"rows:{_KEEP}{panel.rows.name}, columns:{_KEEP}{panel.columns.name}"


def pooled_facts(panels: Sequence[Panel], style: TerminalStyle) -> list[str]:
    """That cells stand for several tokens, where they do."""
    steps = sorted({(panel.rows.step, panel.columns.step) for panel in panels})
    if all(step == (1, 1) for step in steps):
        return []
    sizes = " or ".join(f"{rows} × {columns}" for rows, columns in steps)
    return [style.own(f"each cell is the mean of {sizes} tokens")]


def cell_facts(board: Board, mode: Mode, style: TerminalStyle) -> list[str]:
    """How to read the cells of a mode."""
    if mode is Mode.FINE or (mode is Mode.WIDE and style.color):
        return [] if style.color else [_shades_fact(board, style)]
    facts = [] if style.color else _digit_facts(board.panels, digits(mode, style), board.top, style)
    return [*facts, "blank is exactly 0"] if any((panel.values == 0).any() for panel in board.panels) else facts


def _digit_facts(panels: Sequence[Panel], precision: int, top: float, style: TerminalStyle) -> list[str]:
    half = 0.5 * 10.0**-precision  # of the last digit
    example = f"{0.2143:.{precision}f}"
    facts = [f"{example[2:]} means {example}"]
    if top <= 1 and any((panel.values >= 1 - half).any() for panel in panels):
        facts.append(f"{one_of(precision)} means 1")
    if any(((panel.values > 0) & (panel.values <= half)).any() for panel in panels):
        facts.append(f"{style.signs.speck} is below {half:g}")
    return [fact.replace(" ", _KEEP) for fact in facts]


def _shades_fact(board: Board, style: TerminalStyle) -> str:
    ends = [f"{value_at(end, board.top, board.scale):.4g}" for end in [*style.signs.steps, 1.0]]
    parts = [
        f"{sign}{_KEEP}to{_KEEP}{end}" if sign != " " else f"blank below{_KEEP}{end}"
        for sign, end in zip(style.signs.shades, ends, strict=True)
    ]
    return _MEANING[board.scale] + ", ".join(parts)
