"""One panel at a time as a table, such as the weights of a query: heads down, key tokens written out across."""

from collections.abc import Iterator, Sequence
from itertools import count

from rich.cells import cell_len
from rich.segment import Segment

from attnviz.arrays import Floats
from attnviz.render.digits import decimal
from attnviz.render.labels import distinct, justify, widest
from attnviz.render.panels import Panel
from attnviz.render.terminal_cells import Pen, background, levels
from attnviz.render.terminal_lines import Line, text_line
from attnviz.render.terminal_panels import LEAST_STEPS, label_texts

_MOST_KEY = 24
_MOST_LABEL = 12


def table_lines(panel: Panel, pen: Pen) -> list[Line]:
    """The table of one panel, in as many blocks as the width asks for, each with its row labels."""
    style = pen.style
    sign = style.signs.ellipsis
    rows = label_texts(panel.rows, style)
    rows = distinct(rows, _MOST_LABEL, sign) if any(rows) else rows
    label = widest(rows)
    most = min(_MOST_KEY, style.columns - label - 1)
    texts = list(map(style.own, panel.columns.labels)) if panel.columns.step > 1 else label_texts(panel.columns, style)
    keys = distinct(texts, most, sign, panel.columns.positions) if any(texts) else texts
    number = _precision(pen) + 2 if pen.span.of_weights else pen.digits.width(panel.values)
    widths = [min(most, max(cell_len(key), number)) for key in keys]
    shades = pen.shades(panel.values)
    lines: list[Line] = []
    for start, stop in _spans(widths, style.columns - label):
        header = "".join(" " + justify(keys[i], widths[i], 1) for i in range(start, stop))
        lines += [text_line(" " * label + header)] if any(texts) else []
        block = slice(start, stop)
        cells = _cells(panel.values[:, block], shades[:, block], widths[block], pen)
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


def _cells(values: Floats, shades: Floats, widths: Sequence[int], pen: Pen) -> Iterator[Line]:
    for row, steps in zip(values.tolist(), levels(shades, pen.tints.levels).tolist(), strict=True):
        line: Line = []
        for value, level, width in zip(row, steps, widths, strict=True):
            colors = background(pen.tints, level) if pen.style.color else None
            line += [Segment(" "), Segment(justify(_number(value, width, pen), width, 1), colors)]
        yield line


def _number(value: float, width: int, pen: Pen) -> str:
    if not pen.span.of_weights:
        return pen.digits.text(value)
    return "0" if value == 0 else decimal(value, _precision(pen), width)


def _precision(pen: Pen) -> int:
    """The digits of a weight after the point: as many as are asked for, and more where these would all be 0."""
    return next(n for n in count(pen.style.precision) if pen.span.top * 10**n >= LEAST_STEPS)
