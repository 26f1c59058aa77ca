"""Where results go: which outputs were asked for, in which format, and writing them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from attnviz.errors import RequestError
from attnviz.files import check_output, whole_file
from attnviz.render import FORMATS, Format, format_of

STDOUT = Path("-")
TERMINAL = "terminal"


@dataclass(frozen=True)
class Output:
    """One output: a format, and the file it goes to."""

    format: Format | None
    """None for the terminal's own view."""
    path: Path
    """`-` for standard output."""

    @property
    def holds_numbers(self) -> bool:
        """Whether machines read it, rather than people."""
        return self.format is not None and self.format.holds == "numbers"

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """Where its bytes go; a file appears whole or not at all."""
        if self.path != STDOUT:
            with whole_file(self.path) as stream:
                yield stream
        else:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()


def parse_outputs(paths: Sequence[Path], format_name: str | None, source: Path | None) -> list[Output]:
    """The outputs asked for; the terminal where none are.

    Args:
        paths: what came with -o.
        format_name: what came with --format, for standard output and for files whose suffix says nothing.
        source: the file that is read, which no output may be.

    Raises:
        RequestError: a format is unknown or has no use, or a path will not do.
        AttnvizError: a path cannot be written to.
    """
    wanted = list(paths) or [STDOUT]
    if len(set(wanted)) < len(wanted):
        raise RequestError("the same output is asked for twice")
    by_name = [path for path in wanted if path == STDOUT or path.suffix.lstrip(".").lower() not in FORMATS]
    if format_name is not None and not by_name:
        raise RequestError(f"--format {format_name} has no use here: each output has its format by its suffix")
    outputs = [Output(_format(path, format_name if path in by_name else None), path) for path in wanted]
    for output in outputs:
        _check(output, source)
    return outputs


def _format(path: Path, format_name: str | None) -> Format | None:
    if path == STDOUT:
        return FORMATS.get(format_name or TERMINAL)
    if format_name == TERMINAL:
        raise RequestError(f"--format {TERMINAL} is for standard output only, not for {path}: use txt")
    return FORMATS[format_name] if format_name else format_of(path)


def _check(output: Output, source: Path | None) -> None:
    if output.path == STDOUT:
        if output.format is not None and output.format.binary and sys.stdout.isatty():
            raise RequestError(f"{output.format.name} is not written to a terminal: name a file with -o")
        return
    check_output(output.path)
    if source is not None and source.exists() and output.path.exists() and output.path.samefile(source):
        raise RequestError(f"output {output.path} is also the input: name another file")


def write(output: Output, writer: Callable[[BinaryIO], None]) -> None:
    """Let `writer` write to the output's stream."""
    with output.stream() as stream:
        writer(stream)
