"""What is said beside results, on standard error."""

import sys
from contextlib import suppress

from attnviz.tokens import visible


def note(message: str) -> None:
    """Say something that the reader should know about the result."""
    _say("note", message)


def complain(message: str) -> None:
    """Say why there is no result."""
    _say("Error", message)


def _say(what: str, message: str) -> None:
    line = f"{what}: {visible(message)}\n"
    encoding = sys.stderr.encoding or "ascii"
    with suppress(OSError):  # where standard error is full or gone, there is no one left to tell
        sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
