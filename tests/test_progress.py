"""The bar is for people at a terminal who wait, and changes no number."""

import io
import sys

import numpy as np
import pytest

from attnviz.cli import progress
from attnviz.maps import AttentionMap, StoredWeights
from attnviz.tokens import Tokens

WEIGHTS = np.random.default_rng(0).random((2, 5, 3), np.float32)
MAP = AttentionMap("a", 4, (0, 1), StoredWeights(WEIGHTS), Tokens.of("abcde"), Tokens.of("xyz"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    for one in progress.watched([MAP]):
        np.testing.assert_array_equal(np.concatenate([one.rows(0, 3), one.rows(3, 5)], axis=1), WEIGHTS)
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
