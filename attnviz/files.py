"""Writing files whole or not at all, and what to say when one cannot be written."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO

from attnviz.errors import AttnvizError, RequestError


def check_output(path: Path) -> None:
    """See, before any work is done, that a file could be written at `path`.

    Raises:
        RequestError: it is a folder, or the folder it is to be in does not exist.
        AttnvizError: the folder may not be written to.
    """
    if path.is_dir():
        raise RequestError(f"output {path} is a folder: name a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise RequestError(f"output {path}: folder {folder} does not exist; make it first")
    target = path if _is_stream(path) else folder
    if not os.access(target, os.W_OK):
        raise AttnvizError(f"output {path} cannot be written: no permission to write to {target}")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content appears at `path` whole when all went well, and else not at all.

    It is written beside and then renamed. A link is followed; pipes and devices are written straight.

    Raises:
        AttnvizError: it cannot be written.
    """
    try:
        if _is_stream(path):
            with path.open("wb") as stream:
                yield stream
            return
        target = path.resolve()
        with _temporary(target) as stream:
            yield stream
            stream.flush()
            _take_over(Path(stream.name), target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AttnvizError(f"output {path} cannot be written: {error.strerror or error}") from error


def _is_stream(path: Path) -> bool:
    return path.exists() and not stat.S_ISREG(path.stat().st_mode)


@contextmanager
def _temporary(target: Path) -> Iterator[BinaryIO]:
    with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:40]}.", delete=False) as stream:
        try:
            yield stream  # type: ignore[misc]  # a wrapper that has every method of BinaryIO
        finally:
            with suppress(FileNotFoundError):  # it is gone when all went well
                Path(stream.name).unlink()


def _take_over(written: Path, target: Path) -> None:
    """Give the new file the place and the rights of the old one, or those of any new file."""
    if target.exists():
        mode = stat.S_IMODE(target.stat().st_mode)
    else:
        umask = os.umask(0)
        os.umask(umask)
        mode = 0o666 & ~umask
    written.chmod(mode)
    written.replace(target)
