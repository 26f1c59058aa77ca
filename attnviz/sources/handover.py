"""What long work makes on its way, one thing at a time: the work rests while one of them is looked at."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Stopped(BaseException):
    """Nobody wants what the work would make next: no error, and not to be caught on the way out."""


class Counter(Generic[Thing]):
    """Where a thread that works hands over, and another takes; one of the two rests while the other one runs."""

    def __init__(self) -> None:
        self._things: SimpleQueue[Thing | None] = SimpleQueue()
        """None: the work has ended."""
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._stop: Callable[[], None] = lambda: None
        self._left = False
        self._failure: BaseException | None = None

    def give(self, thing: Thing) -> None:
        """Hand over, and rest until the next one is asked for; what is given is kept by nobody here.

        Raises:
            Stopped: no other is wanted.
        """
        self._things.put(thing)
        del thing
        self._asked.get()
        if self._left:
            raise Stopped

    def on_leave(self, stop: Callable[[], None]) -> None:
        """Call `stop`, from the thread that takes, when no more is wanted: the work is to raise `Stopped` soon."""
        self._stop = stop
        if self._left:
            stop()

    def take(self) -> Iterator[Thing]:
        """Each thing that is handed over; then what the work raised, if it did."""
        while True:
            thing = self._things.get()
            if thing is None:
                break
            yield thing
            del thing
            self._asked.put(None)
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """Want no more."""
        self._left = True
        self._stop()
        self._asked.put(None)

    def run(self, work: Callable[["Counter[Thing]"], None]) -> None:
        """Do the work, in a thread of its own."""
        try:
            work(self)
        except Stopped:
            pass
        except BaseException as failure:  # it is raised again where the next thing is asked for
            self._failure = failure
        finally:
            self._things.put(None)


def handed_over(work: Callable[[Counter[Thing]], None]) -> Iterator[Thing]:
    """What `work` gives to its counter, one after the other.

    It runs in a thread of its own, which begins when the first one is asked for and rests while one is looked at. When
    no more are asked for, it is stopped and waited for; what it raises comes out here.

    >>> def work(counter: Counter[int]) -> None:
    ...     for i in range(3):
    ...         counter.give(i)
    >>> list(handed_over(work))
    [0, 1, 2]
    """
    counter: Counter[Thing] = Counter()
    # as a daemon: a program that ends while the work rests must not wait for it
    thread = threading.Thread(target=counter.run, args=(work,), name="attnviz", daemon=True)
    try:
        thread.start()
        yield from counter.take()
    finally:
        counter.leave()
        if thread.is_alive():
            thread.join()
