import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import attnviz.threads
from attnviz.threads import in_order


@pytest.fixture(params=[1, 2, 3, 64])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(attnviz.threads, "cores", lambda: request.param)
    return int(request.param)


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("n_parts", [0, 1, 2, 7, 40])
def test_results_are_taken_in_the_order_of_the_parts(n_parts: int) -> None:
    taken: list[int] = []
    in_order(range(n_parts), lambda i: i * i, taken.append)
    assert taken == [i * i for i in range(n_parts)]


def test_a_part_that_is_late_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.threads, "cores", lambda: 2)
    others, taken = threading.Event(), list[int]()

    def work(i: int) -> int:
        if i == 0:
            assert others.wait(timeout=30)  # until the other thread has done all the rest
        elif i == 5:
            others.set()
        return i

    in_order(range(6), work, taken.append)
    assert taken == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("bad", [0, 1, 4])
def test_what_fails_in_a_thread_fails_where_it_was_asked_for(bad: int) -> None:
    def work(i: int) -> int:
        if i == bad:
            raise ValueError(f"part {i}")
        return i

    with pytest.raises(ValueError, match=f"part {bad}"):
        in_order(range(5), work, lambda _: None)
    assert threading.active_count() == 1 or all(thread.daemon for thread in threading.enumerate()[1:])


@pytest.mark.usefixtures("cores")
def test_what_cannot_be_taken_fails_too() -> None:
    def take(i: int) -> None:
        if i == 2:
            raise ValueError("full")

    with pytest.raises(ValueError, match="full"):
        in_order(range(5), int, take)


def test_nothing_is_begun_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.threads, "cores", lambda: 2)
    begun: list[int] = []
    lock = threading.Lock()

    def work(i: int) -> None:
        with lock:
            begun.append(i)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_order(range(1000), work, lambda _: None)
    assert len(begun) <= 2


def test_parts_are_shared_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.threads, "cores", lambda: 2)
    barrier = threading.Barrier(2, timeout=30)  # passed only if two threads are there at once
    in_order(range(2), lambda _: barrier.wait(), lambda _: None)


def test_a_process_has_a_core() -> None:
    assert attnviz.threads.cores() >= 1


@pytest.mark.parametrize(("said", "most"), [(None, 1), ("2", 1), ("1", None)])
def test_matrix_products_of_several_threads_take_one_each(
    said: str | None, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    @contextmanager
    def limited(threads: int, user_api: str) -> Iterator[None]:
        assert user_api == "blas"
        limits.append(threads)
        yield
        limits.append(0)

    monkeypatch.setattr("threadpoolctl.threadpool_limits", limited)
    monkeypatch.setattr(attnviz.threads, "cores", lambda: 2)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if said is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", said)
    seen: list[int] = []
    in_order(range(4), lambda _: seen.extend(limits), lambda _: None)
    assert limits == ([] if most is None else [most, 0])
    assert set(seen) == set(limits[:1])
