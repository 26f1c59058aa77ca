"""What is wrong with rows of attention: a collector that says so, one line for each kind, and where it is first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.collect import Collector
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, Head

SUM_TOLERANCE = 0.01
"""How far from 1 the sum of a row may be: half precision, and two decimals in a text, come near it."""
_DROPOUT_TOP = 2.0
"""Dropout of one half doubles what it keeps; what is larger still is no weight that was scaled."""

_NAN, _INFINITE, _NEGATIVE, _EMPTY, _BELOW, _ABOVE = range(6)
_SAID = {
    _NAN: "is not a number",
    _INFINITE: "holds an infinite value",
    _NEGATIVE: "holds a negative weight",
    _EMPTY: "is 0 throughout: it attends to nothing",
    _BELOW: "sums to less than 1, as with a learned sink",
    _ABOVE: "sums to more than 1",
}


@dataclass
class _Tally:
    """How many rows have a fault, and where the first one is."""

    count: int = 0
    place: str = ""

    def add(self, count: int, place: str) -> None:
        self.place = self.place or place
        self.count += count


class RowFaults(Collector):
    """Counts rows that are no distribution over the keys, in O(heads + keys) memory.

    Where keys have been left out of a map, sums say nothing and are not looked at.
    """

    def __init__(self) -> None:
        self._tallies = {fault: _Tally() for fault in _SAID}
        self._transposed = _Tally()
        self._n_rows = self._n_heads = 0
        self._zeros = False

    def begin(self, one: AttentionMap) -> None:
        """Make room for the counts of the map's heads."""
        self._map = one
        n_heads, n_queries, n_keys = one.weights.shape
        self._n_rows += n_heads * n_queries
        self._n_heads += n_heads
        self._counts = np.zeros((len(_SAID), n_heads), np.int64)
        self._firsts = np.zeros((len(_SAID), n_heads), np.int64)
        self._outside = 0
        self._columns: npt.NDArray[np.float64] | None = None if one.cut else np.zeros((n_heads, n_keys))

    def fold(self, start: int, block: Floats) -> None:
        """Look at the rows; all that healthy ones cost is a sum and a minimum."""
        if not block.size:
            return
        with np.errstate(invalid="ignore", over="ignore"):
            sums = block.sum(axis=2)
            if not block.min() >= 0:  # or it is no number
                self._fold_negative(start, block)
            off = ~(np.abs(sums - 1) <= SUM_TOLERANCE)
            if off.any():
                self._fold_off(start, block, sums, off)
            elif start == 0:
                self._columns = None  # a transposed map has rows that do not sum to 1 from the beginning
            if self._columns is not None:
                self._columns += block.sum(axis=1, dtype=np.float64)
                if (self._columns > 1 + SUM_TOLERANCE).any(axis=1).all():
                    self._columns = None

    def _fold_negative(self, start: int, block: Floats) -> None:
        self._count(_NEGATIVE, start, np.any(block < 0, axis=2))
        self._count(_NAN, start, np.any(np.isnan(block), axis=2))
        self._outside += int((block < -SUM_TOLERANCE).any(axis=2).sum())

    def _fold_off(self, start: int, block: Floats, sums: Floats, off: npt.NDArray[np.bool_]) -> None:
        finite = np.isfinite(sums)
        if not finite.all():
            self._count(_INFINITE, start, ~finite & np.any(np.isinf(block), axis=2))
        above = finite & (sums > 1 + SUM_TOLERANCE)
        if above.any():
            rows = block[above]
            high = rows.max(axis=1) > _DROPOUT_TOP * (1 + SUM_TOLERANCE)
            self._outside += int((high & (rows.min(axis=1) >= -SUM_TOLERANCE)).sum())
            self._zeros = self._zeros or not block[off].all()
        if self._map.cut:
            return
        empty = (sums == 0) & off
        if empty.any():
            empty[empty] = ~block[empty].any(axis=1)
        self._count(_EMPTY, start, empty)
        self._count(_BELOW, start, finite & off & ~above & ~empty)
        self._count(_ABOVE, start, above)

    def _count(self, fault: int, start: int, rows: npt.NDArray[np.bool_]) -> None:
        counts = rows.sum(axis=1)
        new = (self._counts[fault] == 0) & (counts > 0)
        self._firsts[fault][new] = start + rows.argmax(axis=1)[new]
        self._counts[fault] += counts

    def finish(self) -> None:
        """Add the map's counts to those before it.

        Raises:
            RequestError: most of its rows hold what can be no weight, so that it must be something else.
        """
        one = self._map
        n_rows = len(one.heads) * len(one.query)
        if 2 * self._outside > n_rows:
            raise RequestError(
                f"the numbers of layer {one.layer} look like scores, not weights: {self._outside} of {n_rows} rows go"
                " out of the range 0 to 1; take the softmax over the keys first"
            )
        self._drop_transposed()
        for fault, tally in self._tallies.items():
            for h in np.flatnonzero(self._counts[fault])[:1].tolist():
                place = _place(one, one.heads[h], int(self._firsts[fault][h]))
                tally.add(int(self._counts[fault].sum()), place)

    def _drop_transposed(self) -> None:
        """Say of heads whose columns sum to 1 just that."""
        if self._columns is None:
            return
        off = self._counts[[_BELOW, _ABOVE]].sum(axis=0) > 0
        transposed = off & np.all(np.abs(self._columns - 1) <= SUM_TOLERANCE, axis=1)
        for h in np.flatnonzero(transposed)[:1].tolist():
            self._transposed.add(int(transposed.sum()), _place(self._map, self._map.heads[h]))
        self._counts[[_EMPTY, _BELOW, _ABOVE]] *= ~transposed

    def notes(self) -> tuple[str, ...]:
        """A line for each kind of fault; none where all rows are sound."""
        lines = [f"{tally.place} {what}{self._share(tally, self._n_rows, 'rows')}" for tally, what in self._said()]
        if self._transposed.count:
            share = self._share(self._transposed, self._n_heads, "heads")
            lines.append(
                f"{self._transposed.place} has columns that sum to 1 and rows that do not{share}: it may be transposed;"
                " rows are queries"
            )
        return tuple(lines)

    def _said(self) -> Sequence[tuple[_Tally, str]]:
        said = {fault: (tally, _SAID[fault]) for fault, tally in self._tallies.items() if tally.count}
        if _BELOW in said and _ABOVE in said and self._zeros:
            below = "sums to less than 1, and others to more: dropout is the usual cause"
            said[_BELOW] = self._tallies[_BELOW], below
        return list(said.values())

    @staticmethod
    def _share(tally: _Tally, total: int, what: str) -> str:
        first = ", this is the first" if tally.count > 1 else ""
        return f" ({tally.count} of {total} {what}{first})"


def _place(one: AttentionMap, head: Head, row: int | None = None) -> str:
    """Where in the map: layer, head and row.

    >>> from attnviz.maps import StoredWeights
    >>> from attnviz.tokens import Tokens
    >>> one = AttentionMap("m", 3, (0,), StoredWeights(np.ones((1, 1, 1))), Tokens.of("a"), Tokens.of("a"))
    >>> _place(one, 0, 2)
    'layer 3 head 0 row 2'
    """
    stack = "cross " if one.kind == "cross" else "decoder " if one.stack == "decoder" else ""
    return f"{stack}layer {one.layer} head {head}" + ("" if row is None else f" row {row}")
