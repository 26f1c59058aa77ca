"""The streams of a command's outputs: opened once and closed when all is written, or one file at a time."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from attnviz.cli.outputs import STDOUT, Output
from attnviz.errors import AttnvizError
from attnviz.files import whole_file


class Sinks:
    """Where each output's bytes go.

    Files of one name stay open over all texts and appear, all of them or none, when the command is done;
    files of a name with places appear one by one.
    """

    def __init__(self, outputs: list[Output]) -> None:
        self._outputs = outputs
        self._open: dict[Output, BinaryIO] = {}

    def __enter__(self) -> "Sinks":
        with ExitStack() as stack:
            for output in self._outputs:
                if output.path != STDOUT and not output.places:
                    self._open[output] = stack.enter_context(whole_file(output.path))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    @contextmanager
    def stream(self, output: Output, values: Mapping[str, object]) -> Iterator[BinaryIO]:
        """The stream for one result; `values` are what goes into the places of the name."""
        if output.path == STDOUT:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif output.places:
            path = output.file_for(values)
            _make_folder(path.parent)
            with whole_file(path) as stream:
                yield stream
        else:
            yield self._open[output]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise AttnvizError(f"folder {folder} cannot be made: {error.strerror}") from error
