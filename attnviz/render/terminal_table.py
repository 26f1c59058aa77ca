"""The weights of one query at a time, as a table: heads down, key tokens written out across."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.segment import Segment

from attnviz.arrays import Floats
from attnviz.render.labels import distinct, justify, widest
from attnviz.render.panels import Board, Panel
from attnviz.render.terminal_cells import background, decimal, levels, panel_shades
from attnviz.render.terminal_lines import Line, text_line
from attnviz.render.terminal_style import TerminalStyle

_MOST_KEY = 24
_MOST_LABEL = 12


def table_lines(panel: Panel, board: Board, style: TerminalStyle) -> list[Line]:
    """The table of one query of the board, in as many blocks as the width asks for, each with its row labels."""
    sign = style.signs.ellipsis
    rows = distinct([style.token(text) for text in panel.rows.labels], _MOST_LABEL, sign)
    label = widest(rows)
    most = min(_MOST_KEY, style.columns - label - 1)
    texts = [style.own(text) if panel.columns.step > 1 else style.token(text) for text in panel.columns.labels]
    keys = distinct(texts, most, sign)
    widths = [min(most, max(cell_len(key), style.precision + 2)) for key in keys]
    shades = panel_shades(panel.values, board)
    lines: list[Line] = []
    for start, stop in _spans(widths, style.columns - label):
        header = "".join(" " + justify(keys[i], widths[i], 1) for i in range(start, stop))
        lines.append(text_line(" " * label + header))
        block = slice(start, stop)
        cells = _cells(panel.values[:, block], shades[:, block], widths[block], style)
        lines += [[Segment(justify(row, label, 0)), *line] for row, line in zip(rows, cells, strict=True)]
        lines.append([])
    return lines


def _spans(widths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Runs of columns that fit in `room`, with a blank before each column."""
    start = used = 0
    for i, width in enumerate(widths):
        if used + width + 1 > room and i > start:
            yield start, i
            start, used = i, 0
        used += width + 1
    if widths:
        yield start, len(widths)


def _cells(values: Floats, shades: Floats, widths: Sequence[int], style: TerminalStyle) -> Iterator[Line]:
    for row, steps in zip(values.tolist(), levels(shades).tolist(), strict=True):
        line: Line = []
        for value, level, width in zip(row, steps, widths, strict=True):
            text = "0" if value == 0 else decimal(value, style.precision, width)
            colors = background(style.cmap, level) if style.color else None
            line += [Segment(" "), Segment(justify(text, width, 1), colors)]
        yield line
