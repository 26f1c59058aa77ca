"""What runs as `attnviz` and as `python -m attnviz`."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)  # unlike the default, this lets a half-written file be taken away


def main() -> None:
    """Run the command line and leave with its exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for short texts two threads take twice as long as one
    signal.signal(signal.SIGTERM, _terminated)
    try:
        from attnviz.cli.app import app  # noqa: PLC0415 (an interrupt while importing is one too)

        app(prog_name="attnviz")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
