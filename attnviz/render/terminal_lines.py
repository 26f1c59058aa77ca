"""Lines of styled text: side by side, wrapped, and joined to what rich prints."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeAlias

from rich.cells import cell_len
from rich.segment import Segment, Segments
from rich.style import Style

from attnviz.render.labels import graphemes

Line: TypeAlias = list[Segment]

BOLD = Style(bold=True)


def text_line(text: str, style: Style | None = None) -> Line:
    """A line of one text."""
    return [Segment(text, style)]


def line_width(line: Line) -> int:
    """The cells of a line.

    >>> line_width(text_line("日本"))
    4
    """
    return sum(cell_len(part.text) for part in line)


def padded(line: Line, width: int) -> Line:
    """`line`, with blanks after it up to `width` cells."""
    blanks = width - line_width(line)
    return [*line, Segment(" " * blanks)] if blanks > 0 else line


def beside(blocks: Sequence[Sequence[Line]], width: int, gap: str) -> list[Line]:
    """Blocks of lines side by side, each `width` cells wide, with `gap` between them.

    >>> [[part.text for part in line] for line in beside([[text_line("a")], [text_line("b")]], 2, "  ")]
    [['a', ' ', '  ', 'b', ' ']]
    """
    lines = []
    for row in zip_longest(*blocks, fillvalue=[]):
        line: Line = []
        for i, part in enumerate(row):
            line += [*([Segment(gap)] if i else []), *padded(part, width)]
        lines.append(line)
    return lines


def wrapped(items: Iterable[str], width: int, separator: str = " ") -> list[str]:
    """`items` one after the other on lines of at most `width` cells; an item that is longer is broken.

    >>> wrapped(["a", "bc", "defgh"], 4)
    ['a bc', 'defg', 'h']
    """
    lines: list[str] = []
    for item in items:
        longer = f"{lines[-1]}{separator}{item}" if lines else ""
        if lines and cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines += broken(item, width)
    return lines


def broken(text: str, width: int) -> list[str]:
    """`text` in pieces of at most `width` cells.

    >>> broken("日本語", 5)
    ['日本', '語']
    """
    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for piece in graphemes(text):
        if lines[-1] and cell_len(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def joined(lines: Iterable[Line]) -> Segments:
    """The lines for rich to print, none of them with blanks at its end."""
    segments: list[Segment] = []
    for line in lines:
        segments += _trimmed(line)
        segments.append(Segment.line())
    return Segments(segments)


def _trimmed(line: Line) -> Line:
    for i in range(len(line) - 1, -1, -1):
        text, style, _ = line[i]
        if style is not None and style.bgcolor is not None:
            return line[: i + 1]
        if shortened := text.rstrip(" "):
            return [*line[:i], Segment(shortened, style)]
    return []
