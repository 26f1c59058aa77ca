"""Collectors: each sees every attention map once, row block by row block, and folds it into its result."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.heatmap import Heatmap, tile_edges
from attnviz.maps import AttentionMap, AttentionRecord, Kind, Provenance, StoredWeights
from attnviz.memory import check_room


class Collector(ABC):
    """A fold over the row blocks of attention maps."""

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
    def fold(self, start: int, block: Floats) -> None:
        """Rows from `start` on of the map that began: [head, row, key]. The block is only lent."""

    @abstractmethod
    def finish(self) -> None:
        """The map that began has been folded whole."""


def collect(maps: Iterable[AttentionMap], collectors: Sequence[Collector]) -> None:
    """Show each map to every collector that wants it, making each row once."""
    for one in maps:
        takers = [collector for collector in collectors if collector.wants(one)]
        for taker in takers:
            taker.begin(one)
        if takers:
            for start, block in one.blocks():
                for taker in takers:
                    taker.fold(start, block)
        for taker in takers:
            taker.finish()


class RecordCollector(Collector):
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
        self._array: Floats = np.empty(one.weights.shape, np.float32)

    def fold(self, start: int, block: Floats) -> None:
        """Copy the rows; float64 ones make the whole map float64."""
        if block.dtype == np.float64 != self._array.dtype:
            wide = np.empty(self._array.shape, np.float64)
            wide[:, :start] = self._array[:, :start]  # what lies after it is not filled, and may not be a number
            self._array = wide
        self._array[:, start : start + block.shape[1]] = block

    def finish(self) -> None:
        """Keep the map with its weights."""
        self._maps.append(replace(self._map, weights=StoredWeights(self._array)))

    def result(self, provenance: Provenance, notes: Sequence[str] = ()) -> AttentionRecord:
        """The record of the maps seen."""
        return AttentionRecord(tuple(self._maps), provenance, tuple(notes))


class HeatmapCollector(Collector):
    """Pools each map to at most so many tiles a side, by the mean, in O(tiles) memory at any length."""

    def __init__(
        self, max_rows: int, max_columns: int, layers: frozenset[int] | None = None, kind: Kind | None = None
    ) -> None:
        self._limits = max_rows, max_columns
        self._layers, self._kind = layers, kind
        self._heatmaps: list[Heatmap] = []

    def wants(self, one: AttentionMap) -> bool:
        """Whether the map's layer and kind are among those asked for."""
        return (self._layers is None or one.layer in self._layers) and self._kind in (None, one.kind)

    def begin(self, one: AttentionMap) -> None:
        """Make room for the tiles."""
        self._map = one
        n_heads, n_queries, n_keys = one.weights.shape
        self._rows, self._columns = tile_edges(n_queries, self._limits[0]), tile_edges(n_keys, self._limits[1])
        self._sums = np.zeros((n_heads, len(self._rows) - 1, len(self._columns) - 1))
        self._mass = np.zeros(n_heads)
        self._dtype: npt.DTypeLike = np.float32

    def fold(self, start: int, block: Floats) -> None:
        """Add the rows to their tiles; float64 ones make the whole heatmap float64."""
        if block.dtype == np.float64:
            self._dtype = np.float64
        exact = len(self._columns) - 1 == block.shape[2]
        sums = block if exact else np.add.reduceat(block, self._columns[:-1], axis=2, dtype=np.float64)
        self._mass += sums.sum(axis=(1, 2), dtype=np.float64)
        tiles = np.searchsorted(self._rows, np.arange(start, start + block.shape[1]), side="right") - 1
        firsts = np.flatnonzero(np.diff(tiles, prepend=-1))
        self._sums[:, tiles[firsts]] += np.add.reduceat(sums, firsts, axis=1, dtype=np.float64)

    def finish(self) -> None:
        """Turn sums into means."""
        counts = np.diff(self._rows)[:, None] * np.diff(self._columns)[None, :]
        values = (self._sums / counts).astype(self._dtype)
        mass = self._mass / max(1, len(self._map.query))
        self._heatmaps.append(Heatmap(self._map, values, self._rows, self._columns, mass))

    def result(self) -> tuple[Heatmap, ...]:
        """The heatmaps of the maps seen."""
        return tuple(self._heatmaps)
