"""What the terminal can show: how wide, in colour or not, and with which signs."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from attnviz.render.colors import DEFAULT_COLORMAP, DEFAULT_DIVERGING
from attnviz.render.labels import can_write, guarded, written, written_prose, written_token
from attnviz.translation import IN_ENGLISH, Say

NARROWEST = 20
"""A terminal with fewer cells a line is drawn for as if it had these."""


@dataclass(frozen=True)
class Signs:
    """The characters that a picture is made of."""

    shades: str
    """From the lowest value to the highest."""
    steps: tuple[float, ...]
    """Where each shade but the first begins, as a share of the range; closer where most weights are."""
    ellipsis: str
    speck: str
    """A number too small for its digits."""
    edge: str
    """Left and right of shades, which can be blank."""
    half: str
    """The upper half of a cell, or nothing where there is no such character."""
    above: str
    """In signed ranges: from 0 to the highest value."""
    below: str
    """From 0 to the lowest value: lines, so that the sign shows without colours."""
    minus: str
    sizes: tuple[float, ...] = (0.03, 0.1, 0.25, 0.5, 0.75)
    """Where each of those but the first begins, as a share of the largest magnitude."""


_UNICODE = Signs(" ·░▒▓█", (0.03, 0.1, 0.25, 0.5, 0.75), "…", "·", "│", "▀", " ·░▒▓█", " ╌─━═≡", "−")
_ASCII = Signs(
    " .:-=+*#%@", (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9), "..", ".", "|", "", " .:+*#", " _-~=%", "-"
)


@dataclass(frozen=True)
class TerminalStyle:
    """How a board is drawn as text."""

    width: int
    """Cells a line."""
    color: bool
    encoding: str = "utf-8"
    """What cannot be written in it is shown by other signs, or by escapes such as \\u65e5."""
    precision: int = 2
    """Digits after the point."""
    cmap: str = DEFAULT_COLORMAP
    diverging: str = DEFAULT_DIVERGING
    say: Say = IN_ENGLISH
    """The language of legends."""

    @property
    def columns(self) -> int:
        """The cells of a line that are used, at least 20.

        >>> TerminalStyle(8, color=False).columns
        20
        """
        return max(NARROWEST, self.width)

    @cached_property
    def signs(self) -> Signs:
        """The characters to draw with.

        >>> TerminalStyle(80, color=False, encoding="cp1252").signs.shades
        ' .:-=+*#%@'
        """
        return _UNICODE if can_write("▀░▒▓█…·–│╌─━═≡−", self.encoding) else _ASCII

    @property
    def halves(self) -> bool:
        """Whether a line can hold two rows of cells: coloured half blocks."""
        return self.color and bool(self.signs.half)

    def token(self, text: str) -> str:
        """A token's text as it is shown."""
        return _token(text, self.encoding)

    def own(self, text: str) -> str:
        """A title or a note as it is shown; nothing where there is none."""
        return written(text, self.encoding) if text else ""

    def prose(self, text: str) -> str:
        """A line of prose, which may hold formulas, as it is shown; nothing where there is none."""
        return written_prose(text, self.encoding) if text else ""


@lru_cache(maxsize=4096)
def _token(text: str, encoding: str) -> str:
    return guarded(written_token(text, encoding), encoding)
