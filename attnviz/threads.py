"""The same work on many parts by a few threads: NumPy lets go of the interpreter while it computes."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from attnviz.lazy import function

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


def in_order(parts: Sequence[Part], work: Callable[[Part], Result], take: Callable[[Result], None]) -> None:
    """Do `work` on each part, in several threads, and `take` its results one at a time in the order of the parts.

    Few results wait at any time. After a failure, which is raised here, no further part is begun.

    Args:
        parts: what is worked on.
        work: what is done, by any thread.
        take: what is done with each result, by any thread, but by one at a time.

    >>> in_order(["a", "b", "c"], str.upper, print)
    A
    B
    C
    """
    n_threads = min(MOST, cores(), len(parts))
    if n_threads < 2:
        for part in parts:
            take(work(part))
        return
    queue = _Queue(parts, work, take)
    threads = [threading.Thread(target=queue.run, daemon=True) for _ in range(n_threads - 1)]
    with _one_thread_each():
        for thread in threads:
            thread.start()
        queue.run()
        for thread in threads:
            thread.join()
    if queue.failures:
        raise queue.failures[0]


def _one_thread_each() -> AbstractContextManager[Any]:
    """While this lasts, matrix products take one thread: more would wait for each other."""
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":  # as the command line sets it
        return nullcontext()
    limits: AbstractContextManager[Any] = function("threadpoolctl:threadpool_limits")(1, user_api="blas")
    return limits


class _Queue(Generic[Part, Result]):
    """Parts that are worked on by several threads, and results that wait for those before them."""

    def __init__(self, parts: Sequence[Part], work: Callable[[Part], Result], take: Callable[[Result], None]) -> None:
        self.failures: list[BaseException] = []
        self._parts, self._work, self._take = parts, work, take
        self._begun = self._taken = 0
        self._waiting: dict[int, Result] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Work until no part is left, or one has failed."""
        try:
            while (i := self._next()) is not None:
                result = self._work(self._parts[i])
                with self._lock:
                    self._waiting[i] = result
                    while self._taken in self._waiting and not self.failures:
                        self._take(self._waiting.pop(self._taken))
                        self._taken += 1
        except BaseException as failure:  # raised again where the work was asked for
            self.failures.append(failure)

    def _next(self) -> int | None:
        with self._lock:
            if self.failures or self._begun == len(self._parts):
                return None
            self._begun += 1
            return self._begun - 1
