"""MeasureCollector: all measures of all heads in one pass, at any length."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from attnviz.blocks import Block
from attnviz.collect import Collector
from attnviz.maps import AttentionMap, Head, Kind, Stack, block_ranges
from attnviz.measures.divergence import compared_rows
from attnviz.measures.heads import HeadTable
from attnviz.measures.rows import Rows, Setting
from attnviz.measures.table import MEASURES, Measure, measure

Numbers = npt.NDArray[np.float64]

_Part: TypeAlias = tuple[slice, npt.NDArray[np.int64], dict[str, Numbers]]
"""The heads of a block, how many rows of each do not count, and by measure [2, head]: Σ value and Σ weight."""


@dataclass
class _Sums:
    """What the rows of one layer have added up to."""

    heads: tuple[Head, ...]
    values: dict[str, Numbers] = field(default_factory=dict)
    """By measure: [2, head], Σ value and Σ weight."""
    left_out: npt.NDArray[np.int64] = field(init=False)
    n_texts: int = 0
    n_rows: int = 0
    n_compared: int = 0

    def __post_init__(self) -> None:
        self.left_out = np.zeros(len(self.heads), np.int64)

    def add(self, name: str, heads: slice, part: Numbers) -> None:
        self.values.setdefault(name, np.zeros((2, len(self.heads))))[:, heads] += part


class MeasureCollector(Collector[_Part]):
    """Measures every head, in O(heads) memory beside a few rows at a time.

    Maps of the same layer, as of several texts, add up: a measure is then over all their rows.

    Args:
        names: keys of `MEASURES`; all unless given.
        every_row: whether divergence is of every row of a long text, and not of 32.

    Raises:
        RequestError: there is no measure of that name.
    """

    def __init__(self, names: Iterable[str] = tuple(MEASURES), *, every_row: bool = False) -> None:
        self._measures = tuple(measure(name) for name in dict.fromkeys(names))
        self._every_row = every_row
        self._layers: dict[tuple[Stack, Kind], dict[int, _Sums]] = {}
        self._reasons: dict[tuple[Stack, Kind], dict[str, str]] = {}

    def begin(self, one: AttentionMap) -> None:
        """See which measures the map has."""
        self._setting = Setting.of(one)
        place = one.stack, one.kind
        reasons = {which.name: which.lacks(self._setting) for which in self._measures}
        self._map = one
        chosen = [which for which in self._measures if reasons[which.name] is None]
        self._of_heads = [which for which in chosen if which.needs == "heads"]
        self._of_rows = [which for which in chosen if which.needs != "heads"]
        known = self._reasons.setdefault(place, {})
        known.update({name: reason for name, reason in reasons.items() if reason is not None and name not in known})
        layers = self._layers.setdefault(place, {})
        self._sums = layers.setdefault(one.layer, _Sums(one.heads))
        if self._sums.heads != one.heads:
            raise ValueError(f"layer {one.layer} has heads {one.heads} here, and {self._sums.heads} before")
        self._sums.n_texts += 1
        self._sums.n_rows += len(one.query)

    @property
    def logits(self) -> bool:
        """Whether entropies are among the measures."""
        return any(which.name in ("entropy", "span") for which in self._measures)

    def look(self, block: Block) -> _Part:
        """Measure the rows of some heads."""
        return self._measured(Rows(self._setting, block), self._of_rows)

    def keep(self, part: _Part) -> None:
        """Add what was measured."""
        heads, left_out, sums = part
        self._sums.left_out[heads] += left_out
        for name, pair in sums.items():
            self._sums.add(name, heads, pair)

    def _measured(self, rows: Rows, measures: Sequence[Measure]) -> _Part:
        """How many rows of each head do not count, and Σ value and Σ weight of the others."""
        sums = {}
        for which in measures:
            value, weight = which.rows(rows)
            pair = np.empty((2, *rows.counted.shape))
            pair[0], pair[1] = value, weight
            sums[which.name] = np.sum(pair, axis=2, where=rows.counted)
        return rows.block.heads, (~rows.counted).sum(axis=1), sums

    def finish(self) -> None:
        """Measure what takes all heads of a row at once, of the rows of which that is asked."""
        one = self._map
        del self._map
        if not self._of_heads:
            return
        compared = one.pick(queries=compared_rows(len(one.query), every=self._every_row))
        self._sums.n_compared += len(compared.query)
        for start, stop in block_ranges(compared.weights.shape):
            with np.errstate(invalid="ignore", over="ignore"):
                rows = Rows(self._setting, Block(compared.rows(start, stop)))
                heads, _, sums = self._measured(rows, self._of_heads)
            for name, pair in sums.items():
                self._sums.add(name, heads, pair)

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
            max(sums.n_compared for sums in layers.values()),
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
