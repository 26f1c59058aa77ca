"""What is wrong with rows of attention: a collector that says so, one line for each kind, and where it is first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.blocks import Block
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


_KINDS = {
    _NAN: "nan",
    _INFINITE: "infinite",
    _NEGATIVE: "negative",
    _EMPTY: "empty",
    _BELOW: "below",
    _ABOVE: "above",
}
TRANSPOSED = "transposed"


@dataclass(frozen=True)
class FaultyRows:
    """Rows of one head that have a fault."""

    kind: str
    """`nan`, `infinite`, `negative`, `empty`, `below` or `above` 1; `transposed` for a head whose columns sum to 1."""
    map: AttentionMap
    head: Head
    row: int | None
    """The first; None for a whole head."""
    count: int
    """How many rows, or heads."""
    what: str
    """What is said of it."""

    @property
    def place(self) -> str:
        """Layer, head and row."""
        return place_of(self.map, self.head, self.row)


@dataclass
class _Seen:
    """What the rows of one block have."""

    block: tuple[slice, int]
    """Its heads, and its first row."""
    rows: dict[int, npt.NDArray[np.bool_]]
    """By fault: [head, row]."""
    sound: npt.NDArray[np.bool_]
    """[head]: whether all rows sum to 1."""
    columns: npt.NDArray[np.float64] | None
    """[head, key]: the sums of the columns, where they are of use."""
    outside: int = 0
    """How many rows hold what can be no weight."""
    zeros: bool = False
    """Whether rows that do not sum to 1 have zeros, and some of them sum to more."""


class RowFaults(Collector[_Seen]):
    """Counts rows that are no distribution over the keys, in O(heads + keys) memory.

    Where keys have been left out of a map, sums say nothing and are not looked at.
    """

    def __init__(self) -> None:
        self._found: dict[int, list[FaultyRows]] = {fault: [] for fault in _SAID}
        self._transposed: list[FaultyRows] = []
        self._n_rows = self._n_heads = 0
        self._zeros = False

    def begin(self, one: AttentionMap) -> None:
        """Make room for the counts of the map's heads."""
        self._map = one.without_weights()
        n_heads, n_queries, n_keys = one.weights.shape
        self._n_rows += n_heads * n_queries
        self._n_heads += n_heads
        self._counts = np.zeros((len(_SAID), n_heads), np.int64)
        self._firsts = np.zeros((len(_SAID), n_heads), np.int64)
        self._outside = 0
        self._columns = np.zeros((n_heads, 0 if one.cut else n_keys))
        self._perhaps_transposed = np.full(n_heads, not one.cut)

    def look(self, block: Block) -> _Seen:
        """Look at the rows; all that healthy ones cost is a sum, and a minimum where they were not made here."""
        n_heads, n_rows, n_keys = block.values.shape
        seen = _Seen((block.heads, block.start), {}, np.ones(n_heads, np.bool_), None)
        if not n_heads * n_rows * block.n_keys:
            return seen
        sums = block.sums
        if n_keys and block.factor is None and not block.values.min() >= 0:  # or it is no number
            _see_negative(block.values, seen)
        off = ~(np.abs(sums - 1) <= SUM_TOLERANCE)
        if off.any():
            self._see_off(block, sums, off, seen)
            seen.sound = np.asarray(~off.any(axis=1))
            if self._perhaps_transposed[block.heads].any():
                seen.columns = block.whole().sum(axis=1, dtype=np.float64)
        return seen

    def _see_off(self, block: Block, sums: Floats, off: npt.NDArray[np.bool_], seen: _Seen) -> None:
        """See what rows are that do not sum to 1."""
        weights, finite = block.weights, np.isfinite(sums)
        if not finite.all():
            seen.rows[_INFINITE] = ~finite & np.any(np.isinf(weights), axis=2)
            if _NAN not in seen.rows:
                seen.rows[_NAN] = ~finite & np.any(np.isnan(weights), axis=2)
        above = finite & (sums > 1 + SUM_TOLERANCE)
        if above.any():
            rows = weights[above]
            high = rows.max(axis=1) > _DROPOUT_TOP * (1 + SUM_TOLERANCE)
            seen.outside += int((high & (rows.min(axis=1) >= -SUM_TOLERANCE)).sum())
            seen.zeros = weights.shape[2] < block.n_keys or not weights[off].all()
        if self._map.cut:
            return
        empty = (sums == 0) & off
        if empty.any():
            empty[empty] = ~weights[empty].any(axis=1)
        seen.rows |= {_EMPTY: empty, _BELOW: finite & off & ~above & ~empty, _ABOVE: above}

    def keep(self, part: _Seen) -> None:
        """Count what was seen."""
        heads, start = part.block
        self._outside += part.outside
        self._zeros |= part.zeros
        for fault, rows in part.rows.items():
            counts = rows.sum(axis=1)
            new = (self._counts[fault, heads] == 0) & (counts > 0)
            self._firsts[fault, heads][new] = start + rows.argmax(axis=1)[new]
            self._counts[fault, heads] += counts
        perhaps = self._perhaps_transposed[heads]
        if start == 0:
            perhaps &= ~part.sound  # a transposed map has rows that do not sum to 1 from the beginning
        if part.columns is not None and perhaps.any():
            columns = self._columns[heads]
            columns += part.columns
            perhaps &= ~(columns > 1 + SUM_TOLERANCE).any(axis=1)

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
        for fault, found in self._found.items():
            for h in np.flatnonzero(self._counts[fault]).tolist():
                first, count = int(self._firsts[fault][h]), int(self._counts[fault][h])
                found.append(FaultyRows(_KINDS[fault], one, one.heads[h], first, count, _SAID[fault]))

    def _drop_transposed(self) -> None:
        """Say of heads whose columns sum to 1 just that."""
        if not self._perhaps_transposed.any():
            return
        off = self._counts[[_BELOW, _ABOVE]].sum(axis=0) > 0
        transposed = self._perhaps_transposed & off & np.all(np.abs(self._columns - 1) <= SUM_TOLERANCE, axis=1)
        what = "has columns that sum to 1 and rows that do not: it may be transposed; rows are queries"
        for h in np.flatnonzero(transposed).tolist():
            self._transposed.append(FaultyRows(TRANSPOSED, self._map, self._map.heads[h], None, 1, what))
        self._counts[[_EMPTY, _BELOW, _ABOVE]] *= ~transposed

    def found(self) -> tuple[FaultyRows, ...]:
        """Every head with rows that have a fault, one fault after the other."""
        rows = (replace(one, what=what) for found, what in self._said() for one in found)
        return (*rows, *self._transposed)

    def notes(self) -> tuple[str, ...]:
        """A line for each kind of fault; none where all rows are sound."""
        lines = [f"{found[0].place} {what}{_share(found, self._n_rows, 'rows')}" for found, what in self._said()]
        if self._transposed:
            share = _share(self._transposed, self._n_heads, "heads")
            lines.append(
                f"{self._transposed[0].place} has columns that sum to 1 and rows that do not{share}: it may be"
                " transposed; rows are queries"
            )
        return tuple(lines)

    def _said(self) -> Sequence[tuple[list[FaultyRows], str]]:
        said = {fault: (found, _SAID[fault]) for fault, found in self._found.items() if found}
        if _BELOW in said and _ABOVE in said and self._zeros:
            below = "sums to less than 1, and others to more: dropout is the usual cause"
            said[_BELOW] = self._found[_BELOW], below
        return list(said.values())


def _see_negative(weights: Floats, seen: _Seen) -> None:
    """See which rows hold negative weights, and which what is no number."""
    seen.rows[_NEGATIVE] = np.any(weights < 0, axis=2)
    seen.rows[_NAN] = np.any(np.isnan(weights), axis=2)
    seen.outside += int((weights < -SUM_TOLERANCE).any(axis=2).sum())


def _share(found: Sequence[FaultyRows], total: int, what: str) -> str:
    count = sum(one.count for one in found)
    first = ", this is the first" if count > 1 else ""
    return f" ({count} of {total} {what}{first})"


def place_of(one: AttentionMap, head: Head, row: int | None = None) -> str:
    """Where in the map: layer, head and row.

    >>> from attnviz.maps import StoredWeights
    >>> from attnviz.tokens import Tokens
    >>> one = AttentionMap("m", 3, (0,), StoredWeights(np.ones((1, 1, 1))), Tokens.of("a"), Tokens.of("a"))
    >>> place_of(one, 0, 2)
    'layer 3 head 0 row 2'
    """
    stack = "cross " if one.kind == "cross" else "decoder " if one.stack == "decoder" else ""
    return f"{stack}layer {one.layer} head {head}" + ("" if row is None else f" row {row}")
