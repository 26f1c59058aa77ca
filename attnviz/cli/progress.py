"""A progress bar on standard error, while many weights are made."""

import sys
from typing import Any

from rich.console import Console

from attnviz.blocks import Block
from attnviz.collect import Collector
from attnviz.lazy import function
from attnviz.maps import AttentionMap

LONG = 100_000_000
"""Weights in one map from which on making them may take a second."""


class Progress(Collector[int]):
    """A bar that follows the weights of each long map, where standard error is a terminal; it goes with the block."""

    _bar: Any = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def wants(self, one: AttentionMap) -> bool:
        """Whether the map is long, and somebody looks."""
        heads, queries, keys = one.weights.shape
        return heads * queries * keys >= LONG and sys.stderr.isatty()

    def begin(self, one: AttentionMap) -> None:
        """Show the bar."""
        heads, queries, _ = one.weights.shape
        progress = function("rich.progress:Progress")  # 35 ms, for long work only
        self._bar = progress(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(f"layer {one.layer}", total=heads * queries)
        self._bar.start()

    def look(self, block: Block) -> int:
        """How many rows of heads there are."""
        heads, rows, _ = block.values.shape
        return int(heads) * int(rows)

    def keep(self, part: int) -> None:
        """Move on by so many."""
        self._bar.advance(self._task, part)

    def finish(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
