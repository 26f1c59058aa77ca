"""A row of the table: two things that take turns, and what the ratio of their times may be."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Work = Callable[[], object]


@dataclass(frozen=True)
class Figure:
    """One line: what was measured, and whether it is within its budget."""

    ours: str
    theirs: str
    value: str
    budget: str
    kept: bool


@dataclass(frozen=True)
class Row:
    """What can be measured; nothing of it is made ready before."""

    name: str
    against: str
    measure: Callable[[int], Iterable[Figure]]
    """Figures of so many rounds."""

    def lines(self, rounds: int) -> Iterator[str]:
        for one in self.measure(rounds):
            theirs = f"{self.against}: {one.theirs}" if one.theirs else self.against
            mark = "yes" if one.kept else "NO"
            yield f"| {self.name} | {one.ours} | {theirs} | {one.value} | {one.budget} | {mark} |"


def pair(
    name: str,
    against: str,
    sides: Callable[[], tuple[Work, Work]],
    *,
    most: float | None = None,
    least: float | None = None,
    rounds: int | None = None,
) -> Row:
    """Two works in turns: the median of the ratios of each turn, and the medians of both.

    Args:
        name, against: what is ours, and what it is compared with.
        sides: makes both ready: ours, theirs.
        most: how many times as long as theirs ours may take.
        least: or how many times as fast ours must be.
        rounds: how many turns, where it is not as many as of other rows.
    """

    def measured(asked: int) -> Iterator[Figure]:
        works = sides()
        for work in works:
            work()  # warm caches
        times = [tuple(map(timed, works)) for _ in range(min(rounds or asked, asked))]
        ours, theirs = (f"{statistics.median(column) * 1e3:.1f} ms" for column in zip(*times, strict=True))
        yield compared(ours, theirs, statistics.median(a / b for a, b in times), most, least)

    return Row(name, against, measured)


def compared(ours: str, theirs: str, ratio: float, most: float | None = None, least: float | None = None) -> Figure:
    """The figure of a ratio that may be at most so much, or whose inverse must be at least so much."""
    if least is not None:
        return Figure(ours, theirs, f"{1 / ratio:.1f} × faster", f"≥ {least:g} × faster", 1 / ratio >= least)
    limit = float("inf") if most is None else most
    return Figure(ours, theirs, f"{ratio:.2f} ×", f"≤ {limit:g} ×", ratio <= limit)


def timed(work: Work) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fastest(works: Iterable[Work]) -> Work:
    """The work that takes the shortest time of all, each at its best of three."""
    return min(works, key=lambda work: min(timed(work) for _ in range(3)))


def within(name: str, make: Callable[[], Work], seconds: float) -> Row:
    """A work alone, whose median time may be at most so many seconds."""

    def measured(rounds: int) -> Iterator[Figure]:
        work = make()
        work()
        took = statistics.median(timed(work) for _ in range(rounds))
        yield Figure(f"{took * 1e3:.1f} ms", "", f"{took:.2f} s", f"≤ {seconds:g} s", took <= seconds)

    return Row(name, "", measured)


def process(*command: str, env: dict[str, str] | None = None, folder: Path | None = None) -> Work:
    """A whole process, with variables of the environment set, in a folder."""
    environment = {**os.environ, **(env or {})}

    def run() -> None:
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder
        )

    return run
