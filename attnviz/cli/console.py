"""Standard output as people see it: colours or none, how wide, in which characters."""

import os
import sys

from rich.console import Console
from rich.text import Text

from attnviz.render import Format
from attnviz.render.panels import Board, Look
from attnviz.render.plaintext import described, text_style
from attnviz.render.terminal import TerminalStyle, view

UNKNOWN_WIDTH = 80


class _Console(Console):
    """A console whose reader may leave: that is for the command to handle, as with every other output."""

    def on_broken_pipe(self) -> None:
        """Let the error go on, instead of leaving at once with exit code 1."""
        raise BrokenPipeError


def stdout_console(width: int | None) -> Console:
    """A console on standard output that honours NO_COLOR, FORCE_COLOR, TERM and COLUMNS.

    Tokens are data: nothing in them is taken for markup, emoji names or things to highlight.
    """
    plain = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True, "width": width}
    console = _Console(file=sys.stdout, **plain)  # type: ignore[arg-type]
    if os.environ.get("FORCE_COLOR") and not console.no_color and console.color_system is None:
        console = _Console(file=sys.stdout, color_system="truecolor", **plain)  # type: ignore[arg-type]
    if console.width < 1:  # COLUMNS=0 says nothing
        console.width = UNKNOWN_WIDTH
    return console


def has_color(console: Console) -> bool:
    """Whether colours reach the reader."""
    return console.color_system is not None and not console.no_color


def terminal_style(look: Look, file_format: Format | None) -> TerminalStyle:
    """How text is laid out: for standard output as it is, for a text file without colours."""
    if file_format is not None:
        return text_style(look)
    console = stdout_console(look.width)
    encoding = sys.stdout.encoding or "ascii"
    color = has_color(console)
    return TerminalStyle(console.width, color, encoding, look.precision, look.cmap, look.diverging, look.say)


def show(board: Board, look: Look, description: str) -> None:
    """Draw a board on standard output, and below it what made the numbers."""
    console = stdout_console(look.width)
    style = terminal_style(look, None)
    console.print(view(board, style), end="")
    console.print(Text(described(description, style), style="dim" if style.color else ""))
