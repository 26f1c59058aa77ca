"""Collectors: each sees every attention map once, block by block, and folds it into its result."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.blocks import Block, pieces
from attnviz.heatmap import Heatmap
from attnviz.maps import (
    AttentionMap,
    AttentionRecord,
    Kind,
    Provenance,
    Stack,
    StoredWeights,
    Weights,
    divided,
    made_for,
)
from attnviz.memory import check_room
from attnviz.pooling import Pool, Tiles, pooled, tile_edges
from attnviz.threads import in_order

Part = TypeVar("Part")
"""What a collector makes of one block."""

Thing = TypeVar("Thing")
"""What was made of a map."""


class Collector(ABC, Generic[Part]):
    """A fold over the blocks of attention maps: what is made of each block is added up."""

    @property
    def logits(self) -> bool:
        """Whether it makes use of what the weights are the exponentials of."""
        return False

    def wants(self, one: AttentionMap) -> bool:
        """Whether this map is to be added."""
        return True

    def add(self, one: AttentionMap) -> None:
        """Fold in one whole map."""
        collect([one], [self])

    @abstractmethod
    def begin(self, one: AttentionMap) -> None:
        """A map begins."""

    @abstractmethod
    def look(self, block: Block) -> Part:
        """What is to be kept of a block, which is only lent. Several threads look at blocks at the same time."""

    @abstractmethod
    def keep(self, part: Part) -> None:
        """Add what was made of a block: one at a time, always in the same order."""

    @abstractmethod
    def finish(self) -> None:
        """The map that began has been folded whole."""


def collect(maps: Iterable[AttentionMap], collectors: Sequence[Collector[Any]]) -> None:
    """Show each map to every collector that wants it, making each weight once."""
    for one in maps:
        takers = [collector for collector in collectors if collector.wants(one)]
        for taker in takers:
            taker.begin(one)
        if takers:
            _fold(one, takers)
        for taker in takers:
            taker.finish()
        del one  # it is gone before the next is made


def _fold(one: AttentionMap, takers: Sequence[Collector[Any]]) -> None:
    """Fold the blocks of a map into the collectors, in several threads where its weights can be divided."""

    def look(block: Block) -> list[Any]:
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values, and what is no number, are data
            return [taker.look(block) for taker in takers]

    def keep(parts: list[Any]) -> None:
        for taker, part in zip(takers, parts, strict=True):
            taker.keep(part)

    weights = one.weights
    if (parts := divided(weights)) is not None:
        logits = any(taker.logits for taker in takers)
        in_order(list(pieces(_looked_at(weights))), lambda piece: look(parts.block(piece, logits=logits)), keep)
        return
    for start, rows in one.blocks():
        keep(look(Block(rows, start=start)))


def _looked_at(weights: Weights) -> tuple[int, int, int]:
    """Heads and queries, and the keys that are made for them."""
    _, queries, keys = made_for(weights)
    return weights.shape[0], queries, keys


def parts_of(things: Iterable[Thing], map_of: Callable[[Thing], AttentionMap]) -> dict[tuple[Stack, Kind], list[Thing]]:
    """What was made of maps, those of one stack and kind together; parts, and maps in them, as they came.

    A decoder's layers attend to themselves and to what was read by turns.
    """
    parts: dict[tuple[Stack, Kind], list[Thing]] = {}
    for thing in things:
        one = map_of(thing)
        parts.setdefault((one.stack, one.kind), []).append(thing)
    return parts


def part_by_part(things: Iterable[Thing], map_of: Callable[[Thing], AttentionMap]) -> tuple[Thing, ...]:
    """The same, one part after the other."""
    return tuple(chain.from_iterable(parts_of(things, map_of).values()))


Copy: TypeAlias = tuple[slice, slice, slice, Floats]


class RecordCollector(Collector[Copy | None]):
    """Keeps every weight."""

    def __init__(self, layers: frozenset[int] | None = None) -> None:
        self._layers = layers
        self._maps: list[AttentionMap] = []

    def wants(self, one: AttentionMap) -> bool:
        """Whether the map's layer is one of those asked for."""
        return self._layers is None or one.layer in self._layers

    def begin(self, one: AttentionMap) -> None:
        """Make room for the map.

        Raises:
            RequestError: this map and those before it are more than the memory holds.
        """
        shapes = [one.weights.shape, *(kept.weights.shape for kept in self._maps)]
        check_room(4 * sum(math.prod(shape) for shape in shapes), "keeping every weight")
        self._map = one
        self._array: Floats = np.zeros(one.weights.shape, np.float32)

    def look(self, block: Block) -> Copy | None:
        """Copy the weights into their place, or where they are too wide for it, to be put there later."""
        if block.values.dtype == np.float64 != self._array.dtype:
            return block.heads, block.queries, block.keys, block.weights.copy()
        block.put_into(self._array)
        return None

    def keep(self, part: Copy | None) -> None:
        """Put weights of float64 into their place, in a map that is all of float64 from then on."""
        if part is None:
            return
        *place, weights = part
        self._array = self._array.astype(np.float64, copy=False)
        self._array[tuple(place)] = weights

    def finish(self) -> None:
        """Keep the map with its weights."""
        self._maps.append(replace(self._map, weights=StoredWeights(self._array)))
        del self._map, self._array

    def result(self, provenance: Provenance, notes: Sequence[str] = ()) -> AttentionRecord:
        """The record of the maps seen."""
        return AttentionRecord(part_by_part(self._maps, lambda one: one), provenance, tuple(notes))


Tiled: TypeAlias = tuple[Tiles, Floats, npt.DTypeLike]


class HeatmapCollector(Collector[Tiled]):
    """Pools each map to at most so many tiles a side, in O(tiles) memory at any length.

    Args:
        max_rows, max_columns: how many tiles.
        layers, kind: which maps; all unless given.
        pool: what a tile is of its weights.
    """

    def __init__(
        self,
        max_rows: int,
        max_columns: int,
        layers: frozenset[int] | None = None,
        kind: Kind | None = None,
        pool: Pool = "mean",
    ) -> None:
        self._limits = max_rows, max_columns
        self._layers, self._kind, self._pool = layers, kind, pool
        self._heatmaps: list[Heatmap] = []

    def wants(self, one: AttentionMap) -> bool:
        """Whether the map's layer and kind are among those asked for."""
        return (self._layers is None or one.layer in self._layers) and self._kind in (None, one.kind)

    def begin(self, one: AttentionMap) -> None:
        """Make room for the tiles."""
        self._map = one.without_weights()
        n_heads, n_queries, n_keys = one.weights.shape
        self._rows, self._columns = tile_edges(n_queries, self._limits[0]), tile_edges(n_keys, self._limits[1])
        self._exact = (len(self._rows) - 1, len(self._columns) - 1) == (n_queries, n_keys)
        shape = n_heads, len(self._rows) - 1, len(self._columns) - 1
        self._tiles = np.full(shape, 0.0 if self._pool == "mean" else -np.inf)
        self._mass = np.zeros(n_heads)
        self._dtype: npt.DTypeLike = np.float32

    def look(self, block: Block) -> Tiled:
        """The tiles of the block, the mass of its heads, and its dtype."""
        sums = block.sums.sum(axis=1, dtype=np.float64)
        return pooled(block, self._rows, self._columns, self._pool), sums, block.values.dtype

    def keep(self, part: Tiled) -> None:
        """Add the tiles to those of blocks before; float64 ones make the whole heatmap float64."""
        tiles, sums, dtype = part
        if dtype == np.float64:
            self._dtype = dtype
        self._mass[tiles.heads] += sums
        place = self._tiles[tiles.heads, tiles.rows, tiles.columns]
        if self._pool == "mean":
            place += tiles.values
        else:
            np.maximum(place, tiles.values, out=place)

    def finish(self) -> None:
        """Turn sums into means; a tile that no block has touched is 0."""
        values = self._tiles
        if self._pool == "max":
            values[np.isneginf(values)] = 0
        elif not self._exact:
            values /= np.diff(self._rows)[:, None] * np.diff(self._columns)[None, :]
        mass = self._mass / max(1, len(self._map.query))
        values = values.astype(self._dtype)
        self._heatmaps.append(Heatmap(self._map, values, self._rows, self._columns, mass, self._pool))

    def result(self) -> tuple[Heatmap, ...]:
        """The heatmaps of the maps seen."""
        return part_by_part(self._heatmaps, lambda one: one.map)
