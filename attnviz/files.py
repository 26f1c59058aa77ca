"""What stands at a path; writing files whole or not at all, and what to say when one cannot be written."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, Literal

from attnviz.errors import AttnvizError, RequestError

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)


def kind_at(path: Path) -> Literal["nothing", "file", "folder", "stream"]:
    """What is at `path`, links followed; a stream is a pipe or a device.

    Raises:
        AttnvizError: that cannot be seen, as in a folder that may not be entered.

    >>> kind_at(Path("/no/such/path")), kind_at(Path("/"))
    ('nothing', 'folder')
    """
    try:
        mode = path.stat().st_mode
    except ValueError:  # a NUL in the name
        return "nothing"
    except OSError as error:
        if error.errno in _NOTHING:
            return "nothing"
        raise AttnvizError(f"{path} cannot be looked at: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "stream"


def check_output(path: Path) -> None:
    """See, before any work is done, that a file could be written at `path`.

    Raises:
        RequestError: it is a folder, or the folder it is to be in does not exist.
        AttnvizError: the folder, or a file that is there, may not be written to.
    """
    kind, folder = kind_at(path), path.parent
    if kind == "folder":
        raise RequestError(f"output {path} is a folder: name a file in it")
    if kind_at(folder) != "folder":
        raise RequestError(f"output {path}: folder {folder} does not exist; make it first")
    there = [] if kind == "nothing" else [path]
    for target in there if kind == "stream" else [folder, *there]:
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
        if kind_at(path) == "stream":
            with path.open("wb") as stream:
                yield stream
            return
        target = Path(os.path.realpath(path))
        with _temporary(target) as stream:
            yield stream
            stream.flush()
            _take_over(Path(stream.name), target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AttnvizError(f"output {path} cannot be written: {error.strerror or error}") from error


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
