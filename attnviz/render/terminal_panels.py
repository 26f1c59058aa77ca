"""One panel for each head in the terminal: how large its cells can be, its labels, its lines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rich.cells import cell_len
from rich.segment import Segment

from attnviz.arrays import Floats
from attnviz.render.digits import shifted_digits
from attnviz.render.labels import distinct, elide, justify, widest
from attnviz.render.panels import Axis, Group, Panel
from attnviz.render.terminal_cells import Pen, blocks, colored_numbers, half_blocks, plain_numbers, signs
from attnviz.render.terminal_lines import BOLD, Line, text_line
from attnviz.render.terminal_style import TerminalStyle

GAP = 2
"""Blanks between panels."""
LEAST_LABEL = 7
"""Row labels are cut to this where more panels then fit on a line."""
MOST_LABEL = 20
_MOST_CELL = 12
LEAST_STEPS = 5
"""The steps of the last digit that the range of the values has at least, where they are shown as digits."""
_MOST_BLOCKS = 4
"""Into so many blocks of columns a panel is cut for the sake of its numbers, where they are not weights."""
_SMALL, _MEDIUM = 12, 16
"""Rows of panels whose numbers are worth their lines with one panel on them, or whose digits are with two."""


class Mode(Enum):
    """How the cells of a panel are drawn."""

    NUMBERS = "numbers"
    WIDE = "wide"
    """Two characters wide: coloured, or with one digit."""
    FINE = "fine"
    """One character wide: half blocks, or shades."""


@dataclass(frozen=True)
class Layout:
    """Where things stand in the panels of a group."""

    mode: Mode
    cell: int
    """Characters across a cell."""
    label: int
    """Characters of the row labels."""
    width: int
    abreast: int
    """Panels on a line; 0 where not even one fits."""
    titled: bool
    """Whether any of the panels has a title."""


@dataclass(frozen=True)
class Part:
    """A panel, or some of its columns where a line cannot hold them all."""

    panel: Panel
    shades: Floats
    """How far along the colours each value is [row, column]."""


def parts(group: Group, pen: Pen) -> list[Part]:
    """The panels of a group, each at most as wide as a line."""
    return [part for panel in group.panels for part in _parts(panel, pen)]


def _parts(panel: Panel, pen: Pen) -> list[Part]:
    shades, labels = pen.shades(panel.values), panel.columns.labels
    most = _columns_of_part(panel, pen)
    if len(labels) <= most:
        return [Part(panel, shades)]
    found = []
    for start in range(0, len(labels), most):
        stop = min(start + most, len(labels))
        positions = tuple(map(panel.columns.position, range(start, stop)))
        columns = replace(panel.columns, labels=labels[start:stop], positions=positions)
        title = f"{panel.title}, columns {positions[0]} to {positions[-1] + columns.step - 1}".removeprefix(", ")
        one = replace(panel, title=title, values=panel.values[:, start:stop], columns=columns)
        found.append(Part(one, shades[:, start:stop]))
    return found


def _columns_of_part(panel: Panel, pen: Pen) -> int:
    """How many columns stand on a line: those of the smallest cells, but of few rows of numbers as many as can be read.

    Weights have colours and shades that say as much as their numbers; of other values the numbers are what counts.
    """
    style, n = pen.style, len(panel.columns.labels)
    most = style.columns - LEAST_LABEL - (1 if style.color else 2)
    if pen.span.of_weights or len(panel.rows.labels) > _SMALL:
        return most
    numbers = max(1, (style.columns - LEAST_LABEL - 1) // (1 + pen.digits.width(panel.values)))
    n_blocks = -(-n // numbers)
    return -(-n // n_blocks) if 1 < n_blocks <= _MOST_BLOCKS else most


def choose(panels: Sequence[Panel], pen: Pen) -> Layout:
    """The layout with the largest cells that leaves enough panels side by side."""
    n, style = len(panels), pen.style
    rows = max(len(panel.rows.labels) for panel in panels)
    wanted = {Mode.NUMBERS: 1 if rows <= _SMALL else 2, Mode.WIDE: 2 if rows <= _MEDIUM and not style.color else 3}
    for mode, least in wanted.items():
        cell = cell_width(mode, panels, pen)
        if cell is not None:
            layout = _arranged(panels, mode, cell, style)
            if layout.abreast >= min(least, n):
                return layout
    return _arranged(panels, Mode.FINE, 1, style)


def digits(mode: Mode, style: TerminalStyle) -> int:
    """The digits after the point in the cells of a mode that has weights as numbers."""
    return style.precision if mode is Mode.NUMBERS else 1


def cell_width(mode: Mode, panels: Sequence[Panel], pen: Pen) -> int | None:
    """The characters that a cell needs; None where its digits would say nothing."""
    style = pen.style
    if mode is Mode.WIDE and style.color:
        return 2
    if not pen.span.of_weights:
        return 1 + max(pen.digits.width(panel.values) for panel in panels) if mode is Mode.NUMBERS else None
    precision, top = digits(mode, style), pen.span.top
    if top * 10**precision < LEAST_STEPS:
        return None
    return 1 + (precision if style.color else shifted_digits(top, precision))


def _arranged(panels: Sequence[Panel], mode: Mode, cell: int, style: TerminalStyle) -> Layout:
    """As many panels on a line as the width allows; what room is left goes to labels and numbers."""
    columns = max(len(panel.columns.labels) for panel in panels)
    title = min(style.columns, widest(style.own(panel.title) for panel in panels))
    rows = dict.fromkeys(panel.rows for panel in panels)
    natural = max(widest(row_labels(axis, mode, style, MOST_LABEL)) for axis in rows)
    body = columns * cell + (2 if mode is Mode.FINE and not style.color else 1)
    least = max(min(natural, LEAST_LABEL) + body, title)
    abreast = min((style.columns + GAP) // (least + GAP), len(panels))
    if abreast == 0:
        return Layout(mode, cell, 0, least, 0, title > 0)
    room = (style.columns - GAP * (abreast - 1)) // abreast
    label = min(natural, room - body)
    if mode is Mode.NUMBERS and abreast == len(panels):
        keys = max(widest(label_texts(axis, style)) for axis in {panel.columns for panel in panels})
        cell = max(cell, min(keys + 1, _MOST_CELL, (room - 1 - label) // columns))
        body = 1 + columns * cell
    return Layout(mode, cell, label, max(label + body, title), abreast, title > 0)


def row_labels(axis: Axis, mode: Mode, style: TerminalStyle, width: int) -> list[str]:
    """What stands before each line of cells, in at most `width` characters.

    Labels; those of tokens with their positions where the columns have only these; two where a line holds two rows.
    """
    sign = style.signs.ellipsis
    per_line = 2 if mode is Mode.FINE and style.halves else 1
    if axis.step > 1:
        spans = [axis.labels[i : i + per_line] for i in range(0, len(axis.labels), per_line)]
        labels = [style.own(_span(span)) for span in spans]
        if widest(labels) > width:  # where each begins says more than half of two numbers
            labels = [span[0].split("–")[0] for span in spans]
        return [elide(label, width, sign) for label in labels]
    tokens = label_texts(axis, style)
    if mode is Mode.NUMBERS:
        alike = distinct(tokens, width, sign, axis.positions)
        return alike if axis.of_tokens else [elide(text, width, sign) for text in tokens]
    if not axis.of_tokens:
        return [elide(" ".join(tokens[i : i + per_line]), width, sign) for i in range(0, len(tokens), per_line)]
    figures = len(str(axis.position(len(tokens) - 1))) if tokens else 1
    numbered = []
    for i in range(0, len(tokens), per_line):
        text = elide(" ".join(tokens[i : i + per_line]), width - figures - 1, sign)
        numbered.append(f"{axis.position(i):>{figures}} {text}")
    return numbered


def label_texts(axis: Axis, style: TerminalStyle) -> list[str]:
    """The labels of an axis in full; nothing for one that is empty and no token."""
    return [style.token(text) if text or axis.of_tokens else "" for text in axis.labels]


def rows_name_columns(panel: Panel, layout: Layout, style: TerminalStyle) -> bool:
    """Whether the row labels name the columns too, each in full."""
    whole = row_labels(panel.rows, layout.mode, style, style.columns) == row_labels(
        panel.rows, layout.mode, style, layout.label
    )
    return panel.columns.labels == panel.rows.labels and (whole or layout.mode is Mode.NUMBERS)


def _span(labels: Sequence[str]) -> str:
    """The positions of neighbouring tiles as one.

    >>> _span(("0–20", "21–41")), _span(("5",))
    ('0–41', '5')
    """
    first, last = labels[0].split("–")[0], labels[-1].split("–")[-1]
    return first if first == last else f"{first}–{last}"


def panel_lines(part: Part, layout: Layout, pen: Pen) -> list[Line]:
    """The title, the columns, and the cells with their row labels."""
    panel, style = part.panel, pen.style
    title = elide(style.own(panel.title), layout.width, style.signs.ellipsis)
    indent = " " * (layout.label + 1)
    lines = [text_line(title, BOLD if style.color else None)] if layout.titled else []
    if any(panel.columns.labels) or panel.columns.of_tokens:
        lines.append(text_line(indent + _columns_line(part, layout, pen)))
    before = 1 if layout.mode is Mode.NUMBERS or panel.rows.step > 1 else 0
    labels = row_labels(panel.rows, layout.mode, style, layout.label)
    edge = style.signs.edge if layout.mode is Mode.FINE and not style.color else ""
    for label, cells in zip(labels, _cells(part, layout, pen), strict=True):
        lines.append([Segment(justify(label, layout.label, before) + (edge or " ")), *cells, Segment(edge)])
    return lines


def _cells(part: Part, layout: Layout, pen: Pen) -> list[Line]:
    style = pen.style
    if layout.mode is Mode.FINE:
        return fine_cells(part.shades, pen)
    if layout.mode is Mode.WIDE and style.color:
        return blocks(part.shades, pen, layout.cell)
    values, precision = part.panel.values, digits(layout.mode, style)
    if style.color:
        return colored_numbers(values, part.shades, pen, layout.cell, precision)
    return plain_numbers(values, pen, layout.cell, precision)


def fine_cells(shades: Floats, pen: Pen) -> list[Line]:
    """Cells one character wide."""
    if pen.style.halves:
        return half_blocks(shades, pen)
    return blocks(shades, pen, 1) if pen.style.color else signs(shades, pen)


def _columns_line(part: Part, layout: Layout, pen: Pen) -> str:
    axis, style = part.panel.columns, pen.style
    labels = label_texts(axis, style)
    if axis.step > 1 and widest(labels) >= layout.cell:
        return ticks(axis, layout.cell)
    if layout.mode is not Mode.NUMBERS:
        if axis.of_tokens or axis.step > 1:
            return ticks(axis, layout.cell)
        return _placed([elide(label, MOST_LABEL, style.signs.ellipsis) for label in labels], layout.cell)
    sign = style.signs.ellipsis if layout.cell > LEAST_LABEL else ""
    before = 0.5 if style.color and pen.span.of_weights else 1
    return "".join(justify(elide(label, layout.cell - 1, sign), layout.cell, before) for label in labels)


def ticks(axis: Axis, cell: int) -> str:
    """Positions above the columns where they begin, as many as have room.

    >>> ticks(Axis("key", ("",) * 12), 1), ticks(Axis("key", ("",) * 4, 30), 2)
    ('0    5    10', '0   60')
    """
    return _placed([str(axis.position(i)) for i in range(len(axis.labels))], cell)


def _placed(marks: Sequence[str], cell: int) -> str:
    """Marks above the columns where they begin, as many as have room."""
    longest = widest(marks)
    every = next(i for i in (1, 2, 5, 10, 20, 50, 100) if i * cell > longest)
    line = ""
    for i in range(0, len(marks), every):
        if i * cell + cell_len(marks[i]) <= len(marks) * cell:
            line = justify(line, i * cell, 0) + marks[i]
    return line
