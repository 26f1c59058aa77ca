"""What a thread makes is handed over one by one, and the thread is gone when nobody wants more."""

import gc
import signal
import sys
import threading
import weakref

import pytest

from attnviz.sources.handover import Counter, Stopped, handed_over


class Thing:
    """Something that can be seen to be gone."""


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "attnviz"]  # others have theirs


def test_the_work_rests_while_a_thing_is_looked_at() -> None:
    said: list[str] = []

    def work(counter: Counter[int]) -> None:
        for i in range(3):
            said.append(f"made {i}")
            counter.give(i)

    things = handed_over(work)
    assert said == []
    said.extend(f"seen {i}" for i in things)
    assert said == ["made 0", "seen 0", "made 1", "seen 1", "made 2", "seen 2"]
    assert threads() == []


def test_a_thing_is_gone_before_the_next_is_made() -> None:
    made: list[weakref.ref[Thing]] = []
    alive: list[int] = []

    def work(counter: Counter[Thing]) -> None:
        for _ in range(3):
            alive.append(sum(ref() is not None for ref in made))
            thing = Thing()
            made.append(weakref.ref(thing))
            counter.give(thing)
            del thing

    things = handed_over(work)
    while next(things, None) is not None:
        pass
    assert alive == [0, 0, 0]


def test_what_the_work_raises_comes_out() -> None:
    def work(counter: Counter[int]) -> None:
        counter.give(1)
        raise ArithmeticError("its own")

    things = handed_over(work)
    assert next(things) == 1
    with pytest.raises(ArithmeticError, match="its own"):
        next(things)
    assert threads() == []
    with pytest.raises(StopIteration):
        next(things)


@pytest.mark.parametrize("how", ["close", "forget", "raise", "interrupt"])
def test_when_no_more_is_wanted_the_work_is_stopped(how: str) -> None:
    ended: list[type[BaseException]] = []

    def work(counter: Counter[int]) -> None:
        try:
            for i in range(3):
                counter.give(i)
        except BaseException as error:
            ended.append(type(error))
            raise

    def look() -> None:
        for _ in handed_over(work):
            raise {"raise": ArithmeticError, "interrupt": KeyboardInterrupt}[how]

    if how in ("close", "forget"):
        things = handed_over(work)
        assert next(things) == 0
        if how == "close":
            things.close()  # type: ignore[attr-defined]
        del things
    else:
        with pytest.raises((ArithmeticError, KeyboardInterrupt)):
            look()
    gc.collect()
    assert ended == [Stopped]
    assert threads() == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals go to the process there")
def test_an_interrupt_while_the_work_goes_on_stops_it() -> None:
    """Ctrl-C reaches the thread that waits; the other one is told."""
    told = threading.Event()

    def work(counter: Counter[int]) -> None:
        counter.on_leave(told.set)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        assert told.wait(30)
        raise Stopped

    with pytest.raises(KeyboardInterrupt):
        next(handed_over(work))
    assert told.is_set()
    assert threads() == []


def test_who_left_before_the_work_knew_how_to_stop_is_heard() -> None:
    counter: Counter[int] = Counter()
    counter.leave()
    told: list[bool] = []
    counter.on_leave(lambda: told.append(True))
    assert told == [True]
    with pytest.raises(Stopped):
        counter.give(1)


def test_nothing_begins_that_is_not_asked_for() -> None:
    def work(_: Counter[int]) -> None:
        raise AssertionError

    handed_over(work)
    assert threads() == []
