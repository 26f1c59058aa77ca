"""MeasureCollector: all measures of all heads in one pass, at any length."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.collect import Collector
from attnviz.maps import AttentionMap, Head, Kind, Stack
from attnviz.measures.heads import HeadTable
from attnviz.measures.rows import Rows, Setting
from attnviz.measures.table import MEASURES, measure
from attnviz.threads import each

Numbers = npt.NDArray[np.float64]

ROW_BYTES = 2 << 20
"""Rows are measured so many bytes at a time: what is made on the way stays in the cache."""


@dataclass
class _Sums:
    """What the rows of one layer have added up to."""

    heads: tuple[Head, ...]
    values: dict[str, Numbers] = field(default_factory=dict)
    """By measure: [2, head], Σ value and Σ weight."""
    left_out: npt.NDArray[np.int64] = field(init=False)
    n_texts: int = 0
    n_rows: int = 0

    def __post_init__(self) -> None:
        self.left_out = np.zeros(len(self.heads), np.int64)

    def add(self, name: str, part: Numbers) -> None:
        self.values[name] = self.values[name] + part if name in self.values else part


class MeasureCollector(Collector):
    """Measures every head, in O(heads) memory beside a few rows at a time.

    Maps of the same layer, as of several texts, add up: a measure is then over all their rows.

    Args:
        names: keys of `MEASURES`; all unless given.

    Raises:
        RequestError: there is no measure of that name.
    """

    def __init__(self, names: Iterable[str] = tuple(MEASURES)) -> None:
        self._measures = tuple(measure(name) for name in dict.fromkeys(names))
        self._layers: dict[tuple[Stack, Kind], dict[int, _Sums]] = {}
        self._reasons: dict[tuple[Stack, Kind], dict[str, str]] = {}

    def begin(self, one: AttentionMap) -> None:
        """See which measures the map has."""
        self._setting = Setting.of(one)
        place = one.stack, one.kind
        reasons = {which.name: which.lacks(self._setting) for which in self._measures}
        self._chosen = [which for which in self._measures if reasons[which.name] is None]
        known = self._reasons.setdefault(place, {})
        known.update({name: reason for name, reason in reasons.items() if reason is not None and name not in known})
        layers = self._layers.setdefault(place, {})
        self._sums = layers.setdefault(one.layer, _Sums(one.heads))
        if self._sums.heads != one.heads:
            raise ValueError(f"layer {one.layer} has heads {one.heads} here, and {self._sums.heads} before")
        self._sums.n_texts += 1
        self._sums.n_rows += len(one.query)

    def fold(self, start: int, block: Floats) -> None:
        """Measure the rows, a cache-full at a time."""
        n_rows = block.shape[1]
        if not block.size:
            self._sums.left_out += n_rows
            return
        n_parts = min(n_rows, -(-block.size * block.itemsize // ROW_BYTES))
        edges = [n_rows * i // n_parts for i in range(n_parts + 1)]
        parts = [Rows(self._setting, start + a, block[:, a:b]) for a, b in pairwise(edges)]
        for left_out, sums in each(self._measured, parts):
            self._sums.left_out += left_out
            for which, part in zip(self._chosen, sums, strict=True):
                self._sums.add(which.name, part)

    def _measured(self, rows: Rows) -> tuple[npt.NDArray[np.int64], Numbers]:
        """How many rows of each head do not count, and Σ value and Σ weight of the others: [measure, 2, head]."""
        with np.errstate(invalid="ignore", over="ignore"):
            added = np.empty((len(self._chosen), 2, *rows.counted.shape))
            for pair, which in zip(added, self._chosen, strict=True):
                pair[0], pair[1] = which.rows(rows)
            return (~rows.counted).sum(axis=1), np.sum(added, axis=3, where=rows.counted)

    def finish(self) -> None:
        """Nothing is left to do: a map's sums are whole when its rows are."""

    def result(self) -> tuple[HeadTable, ...]:
        """The measures of each stack and kind of attention seen, in the order in which they came."""
        return tuple(self._table(*place) for place in self._layers)

    def _table(self, stack: Stack, kind: Kind) -> HeadTable:
        layers = dict(sorted(self._layers[stack, kind].items()))
        heads = tuple(dict.fromkeys(head for sums in layers.values() for head in sums.heads))
        values = {
            which.name: np.stack([_means(sums, which.name, heads) for sums in layers.values()])
            for which in self._measures
            if any(which.name in sums.values for sums in layers.values())
        }
        left_out = np.stack([_spread(sums.left_out, sums.heads, heads, 0) for sums in layers.values()])
        return HeadTable(
            stack,
            kind,
            tuple(layers),
            heads,
            values,
            {name: reason for name, reason in self._reasons[stack, kind].items() if name not in values},
            max(sums.n_texts for sums in layers.values()),
            max(sums.n_rows for sums in layers.values()),
            left_out.astype(np.int64),
        )


def _means(sums: _Sums, name: str, heads: tuple[Head, ...]) -> Numbers:
    """[head] of all `heads`: NaN for those that the layer does not have or that have no rows of weight."""
    pair = sums.values.get(name, np.zeros((2, len(sums.heads))))
    with np.errstate(invalid="ignore"):
        return _spread(pair[0] / pair[1], sums.heads, heads, np.nan)


def _spread(values: npt.NDArray[np.generic], own: tuple[Head, ...], heads: tuple[Head, ...], fill: float) -> Numbers:
    """`values` of a layer's own heads, in the order of all `heads`."""
    spread = np.full(len(heads), fill)
    spread[[heads.index(head) for head in own]] = values
    return spread
