"""What is wrong with attention: faults of rows, and heads that do nothing, from one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.collect import Collector
from attnviz.faults import FaultyRows, RowFaults, place_of
from attnviz.maps import AttentionMap, Head, Kind, Stack
from attnviz.tokens import visible

LEAK = 1e-6
"""Weight up to this, of a row, is rounding: a mask of −10,000 in half precision leaves less."""
SATURATED = 0.9999
"""A head is saturated where the largest weight of every row is more than this share of the row; trained heads that
look at one position reach 0.9998."""
UNIFORM = 1.01
"""A head is uniform where no weight is more than this many times the mean of those of its row that are not 0."""
_FEW = 3
"""Rows with fewer weights above 0 say nothing of whether a head is uniform."""
SAME = 1e-6
"""Heads are identical where no weight differs by more."""
PADDING = frozenset({"[pad]", "<pad>", "<|pad|>", "<|padding|>", "<|pad_token|>", "<|finetune_right_pad_id|>"})
"""What padding is called, in lower case."""

KINDS: Mapping[str, str] = {
    "nan": "a row holds what is no number",
    "infinite": "a row holds an infinite value",
    "negative": "a row holds a negative weight",
    "empty": "a row is 0 throughout: it attends to nothing",
    "below": "a row sums to less than 1 by more than 0.01",
    "above": "a row sums to more than 1 by more than 0.01",
    "transposed": "columns sum to 1, and rows do not",
    "future": "a row gives weight to tokens after it, where that is not allowed",
    "padding": "a row gives weight to padding",
    "saturated": "every row gives all its weight to one key",
    "uniform": "every row gives the same weight to all its keys",
    "identical": "a head is the same as an earlier one of its layer",
}
"""Every kind of fault, in the order in which they are reported."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with one head."""

    kind: str
    """A key of `KINDS`."""
    stack: Stack
    attention: Kind
    layer: int
    head: Head
    row: int | None
    """The first row that has it; None where it is of the head."""
    count: int
    """How many rows have it; 1 where it is of the head."""
    text: str
    """The whole of it in words."""


class _Inspector(Protocol):
    """A fold over the rows of one map that looks for faults of one kind."""

    def fold(self, start: int, block: Floats) -> None: ...

    def faults(self) -> Sequence[Fault]: ...


class AttentionCheck(Collector):
    """Looks for everything in `KINDS`, in O(heads² + keys) memory.

    Args:
        causal: no query may attend to what comes after it.
        padding: True for each key that is padding; those with a name of `PADDING` unless given.
    """

    def __init__(self, *, causal: bool = False, padding: Sequence[bool] | None = None) -> None:
        self._causal = causal
        self._padding = padding
        self._rows = RowFaults()
        self._inspectors: list[_Inspector] = []
        self._faults: list[Fault] = []
        self._unordered: list[str] = []

    def begin(self, one: AttentionMap) -> None:
        """Choose what to look for in the map."""
        self._rows.begin(one)
        self._inspectors = [_Shape(one), _Identical(one)]
        if self._causal and one.kind == "self" and one.query == one.key:
            self._inspectors.append(_Future(one))
        elif self._causal:
            self._unordered.append(f"{'cross ' if one.kind == 'cross' else ''}layer {one.layer}")
        padding = is_padding(one) if self._padding is None else np.array(self._padding, np.bool_)
        if len(padding) != len(one.key):
            raise ValueError(f"padding is given for {len(padding)} keys, and there are {len(one.key)}")
        if padding.any():
            self._inspectors.append(_Padding(one, padding))

    def fold(self, start: int, block: Floats) -> None:
        """Look at the rows."""
        self._rows.fold(start, block)
        if block.size:
            with np.errstate(invalid="ignore", over="ignore"):
                for inspector in self._inspectors:
                    inspector.fold(start, block)

    def finish(self) -> None:
        """Note what was found in the map.

        Raises:
            RequestError: most of its rows hold what can be no weight, so that it must be something else.
        """
        self._rows.finish()
        for inspector in self._inspectors:
            self._faults += inspector.faults()

    def faults(self) -> tuple[Fault, ...]:
        """Everything found, kind by kind in the order of `KINDS`, layers and heads in the order they came."""
        order = list(KINDS)
        found = [*map(_of_rows, self._rows.found()), *self._faults]
        return tuple(sorted(found, key=lambda fault: order.index(fault.kind)))

    def notes(self) -> tuple[str, ...]:
        """What could not be looked at."""
        if not self._unordered:
            return ()
        places = ", ".join(self._unordered)
        return (f"not checked to be causal: {places}, where queries and keys are not the same tokens",)


def is_padding(one: AttentionMap) -> npt.NDArray[np.bool_]:
    """[key]: which keys are padding by their name."""
    return np.array([piece.casefold() in PADDING for piece in one.key.pieces], np.bool_)


def fault_fields(fault: Fault) -> dict[str, Any]:
    """The fault for JSON: `kind`, `stack`, `attention`, `layer`, `head`, `row`, `count`, `text`."""
    return asdict(fault)


def _fault(kind: str, one: AttentionMap, h: int, what: str, row: int | None = None, count: int = 1) -> Fault:
    head = one.heads[h]
    text = f"{place_of(one, head, row)} {what}" + (f" ({count} of {len(one.query)} rows)" if row is not None else "")
    return Fault(kind, one.stack, one.kind, one.layer, head, row, count, text)


def _of_rows(found: FaultyRows) -> Fault:
    one = found.map
    return _fault(found.kind, one, one.heads.index(found.head), found.what, found.row, found.count)


class _Leaks:
    """Counts rows that give weight where they may not."""

    def __init__(self, one: AttentionMap) -> None:
        n_heads = len(one.heads)
        self.map = one
        self.counts = np.zeros(n_heads, np.int64)
        self.firsts = np.zeros(n_heads, np.int64)
        self.most = np.zeros(n_heads)

    def add(self, start: int, leaked: Floats) -> None:
        """Fold in the weight [head, row] that went astray."""
        rows = leaked > LEAK
        new = (self.counts == 0) & rows.any(axis=1)
        self.firsts[new] = start + rows.argmax(axis=1)[new]
        self.counts += rows.sum(axis=1)
        self.most = np.maximum(self.most, np.where(rows, leaked, 0).max(axis=1))

    def faults(self, kind: str, what: str) -> list[Fault]:
        """One for each head with such rows."""
        return [
            _fault(
                kind, self.map, h, f"gives weight to {what}, {self.most[h]:.2g} of a row at most",
                int(self.firsts[h]), int(self.counts[h]),
            )
            for h in np.flatnonzero(self.counts).tolist()
        ]  # fmt: skip


class _Future:
    """Weight on tokens after the query."""

    def __init__(self, one: AttentionMap) -> None:
        self._leaks = _Leaks(one)

    def fold(self, start: int, block: Floats) -> None:
        later = np.arange(block.shape[2]) > np.arange(start, start + block.shape[1])[:, None]
        self._leaks.add(start, np.vecdot(np.abs(block), later.astype(block.dtype)))

    def faults(self) -> list[Fault]:
        return self._leaks.faults("future", "tokens after it")


class _Padding:
    """Weight on padding, from rows that are none themselves."""

    def __init__(self, one: AttentionMap, padding: npt.NDArray[np.bool_]) -> None:
        self._leaks = _Leaks(one)
        self._padding = padding
        own = padding if one.query == one.key else np.zeros(len(one.query), np.bool_)
        self._looked_at = ~own
        names = dict.fromkeys(visible(one.key.text[i]) for i in np.flatnonzero(padding)[:1].tolist())
        self._what = f"the padding {', '.join(names)}"

    def fold(self, start: int, block: Floats) -> None:
        leaked = np.abs(block) @ self._padding.astype(block.dtype)
        self._leaks.add(start, leaked * self._looked_at[start : start + block.shape[1]])

    def faults(self) -> list[Fault]:
        return self._leaks.faults("padding", self._what)


class _Shape:
    """Heads whose rows all look alike: one key each, or all keys the same."""

    def __init__(self, one: AttentionMap) -> None:
        self._map = one
        n_heads = len(one.heads)
        self._saturated = np.full(n_heads, len(one.key) > 1)
        self._uniform = np.full(n_heads, True)
        self._seen = np.zeros((2, n_heads), np.bool_)

    def fold(self, start: int, block: Floats) -> None:
        if not (self._saturated.any() or self._uniform.any()):
            return
        sums, largest = block.sum(axis=2), block.max(axis=2)
        rows = np.isfinite(sums) & (sums > 0)
        self._seen[0] |= rows.any(axis=1)
        self._saturated &= (~rows | (largest > SATURATED * sums)).all(axis=1)
        if self._uniform.any():
            keys = np.count_nonzero(block, axis=2)
            rows &= keys >= _FEW
            self._seen[1] |= rows.any(axis=1)
            self._uniform &= (~rows | (largest * keys <= UNIFORM * sums)).all(axis=1)

    def faults(self) -> list[Fault]:
        saturated = "is saturated: every row gives all its weight to one key"
        uniform = "is uniform: every row gives the same weight to all its keys"
        found = (
            ("saturated", self._saturated & self._seen[0], saturated),
            ("uniform", self._uniform & self._seen[1], uniform),
        )
        return [_fault(kind, self._map, h, what) for kind, heads, what in found for h in np.flatnonzero(heads).tolist()]


class _Identical:
    """Heads of a layer that are the same; what has no number is not compared."""

    def __init__(self, one: AttentionMap) -> None:
        self._map = one
        own = [i for i, head in enumerate(one.heads) if isinstance(head, int)]
        more = len(one.key) > 1 and len(one.query) > 1
        self._pairs = [(i, j) for i in own for j in own if i < j] if more else []

    def fold(self, start: int, block: Floats) -> None:
        """Keep the pairs that are still the same: most are gone after the first rows."""
        for rows in (slice(0, 8), slice(8, None)):
            self._pairs = [(i, j) for i, j in self._pairs if np.all(np.abs(block[i, rows] - block[j, rows]) <= SAME)]

    def faults(self) -> list[Fault]:
        earlier: dict[int, int] = {}
        for i, j in self._pairs:
            earlier.setdefault(j, i)
        heads = self._map.heads
        return [
            _fault("identical", self._map, j, f"is the same as head {heads[i]}") for j, i in sorted(earlier.items())
        ]
