"""A progress bar on standard error, while rows of long maps are made."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console

from attnviz.arrays import Floats
from attnviz.maps import AttentionMap, Weights

LONG = 300_000_000
"""Weights in one map from which on making them takes seconds."""


@dataclass(frozen=True)
class _Watched:
    """Weights that tell when rows of them are made."""

    base: Weights
    tick: Callable[[int], None]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return self.base.shape

    def rows(self, start: int, stop: int) -> Floats:
        """Rows `start` to `stop` of the base."""
        block = self.base.rows(start, stop)
        self.tick(stop - start)
        return block


def watched(maps: Iterable[AttentionMap]) -> Iterator[AttentionMap]:
    """The maps; where one is long and standard error is a terminal, a bar there follows its rows."""
    for one in maps:
        heads, queries, keys = one.weights.shape
        if heads * queries * keys < LONG or not sys.stderr.isatty():
            yield one
            continue
        from rich.progress import Progress  # noqa: PLC0415 (35 ms, for long work only)

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"layer {one.layer}", total=queries)
            yield replace(one, weights=_Watched(one.weights, partial(bar.advance, task)))
