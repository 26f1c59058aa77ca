"""What each output gathers while the model runs, and how it is written afterwards."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from attnviz.cli.console import show
from attnviz.cli.outputs import Output
from attnviz.cli.sinks import Sinks
from attnviz.collect import Collector, HeatmapCollector, RecordCollector
from attnviz.heatmap import Heatmap
from attnviz.lazy import function
from attnviz.maps import AttentionMap, Provenance
from attnviz.pooled import pooled_fields, pooled_table
from attnviz.render import Format
from attnviz.render.jsontext import json_bytes
from attnviz.render.panels import Board, Look, caption_of, describe

MUCH_JSON = 50_000_000
"""Bytes above which a leaner format is worth a word."""
MOST_SHOWN = 12
"""Characters that a note lists."""


@dataclass(frozen=True)
class Story:
    """What goes with the numbers of one run."""

    provenance: Provenance
    notes: tuple[str, ...]
    n_tokens: int
    number: int
    """Which text it is, from 1."""


class Taker(Protocol):
    """An output together with the collector that gathers what it needs."""

    @property
    def collector(self) -> Collector[Any]:
        """What looks at the maps."""
        ...

    def write(self, story: Story, sinks: Sinks) -> Sequence[str]:
        """Write what was gathered; returned is what the reader should know about it."""
        ...


@dataclass(frozen=True)
class NumbersTaker:
    """Every weight, for machines."""

    output: Output
    format: Format
    collector: RecordCollector
    page_bits: Literal[8, 16] | None = None
    """In how many bits a page keeps a weight; None for what its number of weights asks for."""

    def write(self, story: Story, sinks: Sinks) -> Sequence[str]:
        """Write the record, or where the output's name asks for it one for each layer or head."""
        record = self.collector.result(story.provenance, story.notes)
        writer = function(self.format.writer)
        if self.format.name == "html":
            writer = partial(writer, bits=self.page_bits)
        for values, maps in parts(record.maps, self.output.places, lambda one, i: one.pick(heads=[i])):
            with sinks.stream(self.output, {"n": story.number, **values}) as stream:
                writer(replace(record, maps=tuple(maps)), stream)
        if self.format.name != "json" or json_bytes(record) <= MUCH_JSON:
            return ()
        size = json_bytes(record) // 1_000_000
        return (f"about {size} MB of json: npz is a third of it, and --layer or --head choose less",)


@dataclass(frozen=True)
class TilesTaker:
    """Pooled maps, for machines."""

    output: Output
    format: Format
    collector: HeatmapCollector

    def write(self, story: Story, sinks: Sinks) -> Sequence[str]:
        """Write the tiles, or where the output's name asks for it those of one layer or head each."""
        of_csv = self.format.name == "csv"
        for values, some in parts(self.collector.result(), self.output.places, Heatmap.head):
            result = pooled_table(some) if of_csv else pooled_fields(some, story.provenance, story.notes)
            with sinks.stream(self.output, {"n": story.number, **values}) as stream:
                function(self.format.result_writer)(result, stream)
        return ()


@dataclass(frozen=True)
class BoardTaker:
    """Heatmaps at the size at which they are drawn, for people."""

    output: Output
    collector: HeatmapCollector
    board: Callable[[Sequence[Heatmap], str], Board]
    look: Look

    def write(self, story: Story, sinks: Sinks) -> Sequence[str]:
        """Draw the board, or where the output's name asks for it one for each layer or head, in one range."""
        heatmaps, caption = self.collector.result(), caption_of(story.provenance, story.n_tokens)
        description = describe(story.provenance)
        whole = self.board(heatmaps, caption)
        if self.output.format is None:
            show(whole, self.look, description)
            sys.stdout.flush()
            return ()
        look = replace(self.look, description=description)
        for values, some in parts(heatmaps, self.output.places, Heatmap.head):
            board = self.board(some, caption) if values else whole
            with sinks.stream(self.output, {"n": story.number, **values}) as stream:
                function(self.output.format.writer)(replace(board, range=whole.range), look, stream)
        return standins(whole, look) if self.output.format.holds == "picture" else ()


def standins(board: Board, look: Look) -> Sequence[str]:
    """A note on the characters that pictures of the board show as codes; none where fonts have them all."""
    missing = function("attnviz.render.standins:missing_glyphs")(board, look.font)
    if not missing:
        return ()
    shown = missing if len(missing) <= MOST_SHOWN else f"{missing[:MOST_SHOWN]}…"
    return (f"no font at hand has {shown}: pictures show codes instead; name a font that has them with --font FILE",)


Layered = TypeVar("Layered", AttentionMap, Heatmap)


def parts(
    items: Sequence[Layered], places: Collection[str], head: Callable[[Layered, int], Layered]
) -> Iterator[tuple[dict[str, object], list[Layered]]]:
    """What goes into one file each: the values for its name, and its maps.

    Args:
        items: one for each layer.
        places: which of layer and head the name holds.
        head: one head of an item, by its index.
    """
    if not {"layer", "head"} & set(places):
        yield {}, list(items)
        return
    found: dict[tuple[object, ...], list[Layered]] = {}
    for item in items:
        one = item.map if isinstance(item, Heatmap) else item
        layer: tuple[object, ...] = (one.layer,) if "layer" in places else ()
        if "head" not in places:
            found.setdefault(layer, []).append(item)
            continue
        for i, name in enumerate(one.heads):
            found.setdefault((*layer, name), []).append(head(item, i))
    names = [place for place in ("layer", "head") if place in places]
    for key, some in found.items():
        yield dict(zip(names, key, strict=True)), some
