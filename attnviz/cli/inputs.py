"""Where the text comes from: an argument, a file, or standard input."""

import os
import sys
from pathlib import Path

from attnviz.cli.messages import note
from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at

STDIN = "-"


def read_texts(text: str | None, file: Path | None) -> list[str]:
    """The texts to run: one, or from standard input one for each line that is not blank.

    Raises:
        RequestError: there is none, there are two, or it is not UTF-8.
        AttnvizError: the file cannot be read.
    """
    if text is not None and file is not None:
        raise RequestError("the text is given twice, as an argument and with -f: give one")
    if file is not None:
        return [_read_file(file)]
    if text is None:
        raise RequestError("no text: type it in quotes, name a file with -f, or - for standard input")
    if text != STDIN:
        if os.path.isfile(text):  # noqa: PTH113 (what cannot be a path is a text, and no error)
            note(f"the text is the words {text}; what the file of that name holds is read with -f or --attention")
        return [argument(text)]
    lines = [line for line in _decoded(sys.stdin.buffer.read(), "standard input").splitlines() if line.strip()]
    if not lines:
        raise RequestError("standard input is empty: it gives no tokens")
    return lines


def typed(text: str, what: str) -> str:
    """A text that can only be typed, for commands that take several.

    Raises:
        RequestError: standard input is asked for.
    """
    if text == STDIN:
        raise RequestError(f"{what} is typed, and not read from standard input: a text is needed in place of {STDIN}")
    return argument(text)


def argument(text: str) -> str:
    """A text that was typed, read as UTF-8 whatever the locale."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text  # its check names the byte


def _read_file(file: Path) -> str:
    if str(file) == STDIN:
        return _decoded(sys.stdin.buffer.read(), "standard input").removesuffix("\n")
    kind = kind_at(file)
    if kind in ("nothing", "folder"):
        what = "does not exist" if kind == "nothing" else "is a folder: name a file in it"
        raise RequestError(f"text file {file} {what}")
    try:
        return _decoded(file.read_bytes(), f"text file {file}").removesuffix("\n")
    except OSError as error:
        raise AttnvizError(f"text file {file} cannot be read: {error.strerror}") from error


def _decoded(content: bytes, what: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte, line = content[error.start], content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{what} is not UTF-8: byte 0x{byte:02X} in line {line}; convert it first") from None
