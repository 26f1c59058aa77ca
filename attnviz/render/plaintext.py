"""A board as text without colours: what the terminal shows, for a file."""

import io
from typing import BinaryIO

from rich.console import Console

from attnviz.render.panels import Board, Look
from attnviz.render.terminal import TerminalStyle, view
from attnviz.render.terminal_lines import wrapped
from attnviz.tokens import visible

DEFAULT_WIDTH = 100


def text_style(look: Look) -> TerminalStyle:
    """How text in a file looks: no colours, any character."""
    return TerminalStyle(look.width or DEFAULT_WIDTH, color=False, precision=look.precision, say=look.say)


def write_text(board: Board, look: Look, stream: BinaryIO) -> None:
    """Write `board` to `stream` as UTF-8 text, and below it what made the numbers."""
    style = text_style(look)
    sheet = io.StringIO()
    console = Console(file=sheet, width=style.width, color_system=None, legacy_windows=False)
    console.print(view(board, style), end="")
    stream.write(f"{sheet.getvalue()}{described(look.description, style)}\n".encode())


def described(description: str, style: TerminalStyle) -> str:
    """What made the numbers, on lines that fit."""
    return "\n".join(wrapped(style.own(visible(description)).split(" "), style.columns))
