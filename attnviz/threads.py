"""The same work on many parts by a few threads: NumPy lets go of the interpreter while it computes."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

MOST = 4
"""More threads than this share the memory's bandwidth, not the work."""


def cores() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def each(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """The result of `work` for each part, in their order, whichever thread made it.

    >>> each(str.upper, ["a", "b", "c"])
    ['A', 'B', 'C']
    """
    n_threads = min(MOST, cores(), len(parts))
    if n_threads < 2:
        return [work(part) for part in parts]
    results: list[Result | None] = [None] * len(parts)
    failures: list[BaseException] = []

    def run(first: int) -> None:
        try:
            for i in range(first, len(parts), n_threads):
                results[i] = work(parts[i])
        except BaseException as failure:  # it is raised again where the result is waited for
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(1, n_threads)]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results  # type: ignore[return-value]  # each part has its result now
