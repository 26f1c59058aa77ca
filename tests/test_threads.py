import threading

import pytest

import attnviz.threads
from attnviz.threads import each


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
@pytest.mark.parametrize("n_parts", [0, 1, 2, 7, 40])
def test_results_come_in_the_order_of_the_parts(cores: int, n_parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.threads, "cores", lambda: cores)
    assert each(lambda i: i * i, range(n_parts)) == [i * i for i in range(n_parts)]


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("bad", [0, 1, 4])
def test_what_fails_in_a_thread_fails_where_it_was_asked_for(
    cores: int, bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnviz.threads, "cores", lambda: cores)

    def work(i: int) -> int:
        if i == bad:
            raise ValueError(f"part {i}")
        return i

    with pytest.raises(ValueError, match=f"part {bad}"):
        each(work, range(5))
    assert threading.active_count() == 1 or all(thread.daemon for thread in threading.enumerate()[1:])


def test_parts_are_shared_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.threads, "cores", lambda: 2)
    barrier = threading.Barrier(2, timeout=30)  # passed only if two threads are there at once
    each(lambda _: barrier.wait(), range(2))


def test_a_process_has_a_core() -> None:
    assert attnviz.threads.cores() >= 1
