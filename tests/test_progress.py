"""The bar is for people at a terminal who wait, and changes no number."""

import io
import sys

import numpy as np
import pytest

from attnviz.cli import progress
from attnviz.collect import RecordCollector, collect
from attnviz.maps import AttentionMap, StoredWeights
from attnviz.tokens import Tokens

WEIGHTS = np.random.default_rng(0).random((2, 5, 3), np.float32)
MAP = AttentionMap("a", 4, (0, 1), StoredWeights(WEIGHTS), Tokens.of("abcde"), Tokens.of("xyz"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    record = RecordCollector()
    with progress.Progress() as bar:
        collect([MAP], [record, bar])
    np.testing.assert_array_equal(record.result({}).weights[0], WEIGHTS)
    return stream.getvalue()


def test_long_work_at_a_terminal_shows_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONG", 1)
    monkeypatch.setenv("TERM", "xterm")
    assert "layer 4" in watched_on(Terminal(), monkeypatch)


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched_on(Terminal(), monkeypatch) == ""


def test_nothing_is_shown_where_no_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONG", 1)
    assert watched_on(io.StringIO(), monkeypatch) == ""


def test_the_bar_goes_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONG", 1)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with pytest.raises(KeyboardInterrupt), progress.Progress() as bar:
        bar.begin(MAP)
        raise KeyboardInterrupt
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert stream.getvalue().rfind(shown) > stream.getvalue().rfind(hidden) > -1
