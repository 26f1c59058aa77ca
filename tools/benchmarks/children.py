"""Work in a process of its own: how long the work alone takes there, and how much memory it and the process take."""

import argparse
import importlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.benchmarks.rows import Figure, Row, compared
from tools.benchmarks.texts import ROOT


@dataclass(frozen=True)
class Cost:
    """What the work took."""

    seconds: float
    peak: int
    """Bytes: the most that the process held."""
    extra: int
    """Bytes: how much more that was than before the work began."""
    result: Any = None


@dataclass(frozen=True)
class Task:
    """A function that makes work ready, by its name, and its arguments."""

    target: str
    """`module:function`; what it returns is the work, whose result json can hold."""
    arguments: dict[str, Any] = field(default_factory=dict)

    def cost(self) -> Cost:
        """Do it, in a fresh process."""
        command = [sys.executable, "-m", "tools.benchmarks.children", self.target, json.dumps(self.arguments)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
        return Cost(**json.loads(told.splitlines()[-1]))


@dataclass(frozen=True)
class Budget:
    """What ours may take; nothing is said of what is None."""

    times: float
    """How many times as long as theirs."""
    peak: float | None = None
    """How many times as much memory as theirs the process may hold."""
    peak_bytes: float | None = None
    """How much it may hold."""
    extra_bytes: float | None = None
    """How much more it may hold than before the work began."""


def children(name: str, against: str, sides: tuple[Task, Task], budget: Budget, rounds: int) -> Row:
    """Two tasks in turns, ours and theirs, each in a fresh process."""

    def measured(asked: int) -> Iterator[Figure]:
        costs = [(sides[0].cost(), sides[1].cost()) for _ in range(min(rounds, asked))]
        us, them = ([turn[side] for turn in costs] for side in (0, 1))
        ours, theirs = (f"{statistics.median(one.seconds for one in side):.2f} s" for side in (us, them))
        yield compared(ours, theirs, statistics.median(a.seconds / b.seconds for a, b in costs), budget.times)
        held, held_by_them = max(one.peak for one in us), max(one.peak for one in them)
        if budget.peak is not None:
            yield compared(_mb(held), _mb(held_by_them), held / held_by_them, budget.peak)
        if budget.peak_bytes is not None:
            yield at_most("memory", held, budget.peak_bytes)
        if budget.extra_bytes is not None:
            yield at_most("extra memory", max(one.extra for one in us), budget.extra_bytes)

    return Row(name, against, measured)


def at_most(what: str, held: int, limit: float) -> Figure:
    """The figure of so many bytes."""
    return Figure(f"{what} {_mb(held)}", "", _mb(held), f"≤ {_mb(limit)}", held <= limit)


def _mb(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


def _peak() -> int:
    """Bytes: the most that this process held. On Linux `getrusage` also counts what began it, before it was itself."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text("utf-8").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="module:function that makes the work ready")
    parser.add_argument("arguments", help="its arguments, in json")
    chosen = parser.parse_args()
    module, _, name = chosen.target.partition(":")
    work: Callable[[], object] = getattr(importlib.import_module(module), name)(**json.loads(chosen.arguments))
    before, start = _peak(), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": _peak(), "extra": _peak() - before, "result": result}))


if __name__ == "__main__":
    main()
