"""What runs as `attnviz` and as `python -m attnviz`."""

import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType

INTERRUPTED, SIGNALLED = 130, 128


def _ended(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(SIGNALLED + number)  # unlike the default, this lets a half-written file be taken away


def _open_closed_streams() -> None:
    """Where the shell closed a standard stream, let it be empty, so that what is not about it still works."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)


def main() -> None:
    """Run the command line and leave with its exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for short texts two threads take twice as long as one
    gc.set_threshold(50_000)  # most of what is made at the start stays: looking for rubbish there costs 5 %
    code = INTERRUPTED
    try:
        code = _run()
    except SystemExit as ended:  # by a signal
        code = _number(ended)
    except KeyboardInterrupt:
        pass
    os._exit(code)  # all is written; taking the interpreter apart would cost the first command a fifth of its time


def _run() -> int:
    """The exit code of the command line, once everything it had to say is out."""
    for ending in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, ending):  # not every system has both
            signal.signal(getattr(signal, ending), _ended)
    _open_closed_streams()
    from attnviz.cli.app import app, leave_stdout  # noqa: PLC0415 (an interrupt while importing is one too)

    try:
        try:
            app(prog_name="attnviz")
        except SystemExit as leaving:
            code = _number(leaving)
        sys.stdout.flush()
    except OSError as error:  # --help writes before any command does
        code = leave_stdout(error)
    return code


def _number(leaving: SystemExit) -> int:
    return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)


if __name__ == "__main__":
    main()
