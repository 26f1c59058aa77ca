"""What each output gathers while the model runs, and how it is written afterwards."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from attnviz.cli.console import show
from attnviz.cli.messages import note
from attnviz.cli.outputs import Output
from attnviz.collect import Collector, HeatmapCollector, RecordCollector
from attnviz.heatmap import Heatmap
from attnviz.lazy import function
from attnviz.maps import Provenance
from attnviz.render.jsontext import json_bytes
from attnviz.render.panels import Board, Look, caption_of, describe

MUCH_JSON = 50_000_000
"""Bytes above which a leaner format is worth a word."""


@dataclass(frozen=True)
class Story:
    """What goes with the numbers of one run."""

    provenance: Provenance
    notes: tuple[str, ...]
    n_tokens: int


class Taker(Protocol):
    """An output together with the collector that gathers what it needs."""

    @property
    def collector(self) -> Collector:
        """What looks at the maps."""
        ...

    def write(self, story: Story) -> None:
        """Write what was gathered."""
        ...


@dataclass(frozen=True)
class NumbersTaker:
    """Every weight, for machines."""

    output: Output
    collector: RecordCollector

    def write(self, story: Story) -> None:
        """Write the record."""
        record = self.collector.result(story.provenance, story.notes)
        chosen = self.output.format
        if chosen is not None:
            if chosen.name == "json" and json_bytes(record) > MUCH_JSON:
                size = json_bytes(record) // 1_000_000
                note(f"about {size} MB of json: npz is a third of it, and --layer or --head choose less")
            with self.output.stream() as stream:
                function(chosen.writer)(record, stream)


@dataclass(frozen=True)
class BoardTaker:
    """Heatmaps at the size at which they are drawn, for people."""

    output: Output
    collector: HeatmapCollector
    board: Callable[[tuple[Heatmap, ...], str], Board]
    look: Look

    def write(self, story: Story) -> None:
        """Draw the board."""
        board = self.board(self.collector.result(), caption_of(story.provenance, story.n_tokens))
        description = describe(story.provenance)
        if self.output.format is None:
            show(board, self.look, description)
            sys.stdout.flush()
        else:
            with self.output.stream() as stream:
                function(self.output.format.writer)(board, replace(self.look, description=description), stream)
