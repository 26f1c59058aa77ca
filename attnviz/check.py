"""What is wrong with attention: faults of rows, and heads that do nothing, from one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.blocks import Block
from attnviz.collect import Collector
from attnviz.faults import FaultyRows, RowFaults, place_of
from attnviz.maps import AttentionMap, Head, Kind, Stack, block_ranges
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
    """A fold over the blocks of one map that looks for faults of one kind."""

    def look(self, block: Block) -> Any: ...

    def keep(self, part: Any) -> None: ...

    def faults(self) -> Sequence[Fault]: ...


class AttentionCheck(Collector[list[Any]]):
    """Looks for everything in `KINDS`, in O(heads² + heads · keys) memory.

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
        self._map = one
        self._inspectors = [_Shape(one)]
        if self._causal and one.kind == "self" and one.query == one.key:
            self._inspectors.append(_Future(one))
        elif self._causal:
            self._unordered.append(f"{'cross ' if one.kind == 'cross' else ''}layer {one.layer}")
        padding = is_padding(one) if self._padding is None else np.array(self._padding, np.bool_)
        if len(padding) != len(one.key):
            raise ValueError(f"padding is given for {len(padding)} keys, and there are {len(one.key)}")
        if padding.any():
            self._inspectors.append(_Padding(one, padding))

    def look(self, block: Block) -> list[Any]:
        """Look at the rows."""
        parts: list[Any] = [self._rows.look(block)]
        if block.values.size:
            parts += [inspector.look(block) for inspector in self._inspectors]
        return parts

    def keep(self, part: list[Any]) -> None:
        """Add what was seen."""
        rows, *others = part
        self._rows.keep(rows)
        for inspector, other in zip(self._inspectors, others, strict=False):
            inspector.keep(other)

    def finish(self) -> None:
        """Note what was found in the map.

        Raises:
            RequestError: most of its rows hold what can be no weight, so that it must be something else.
        """
        self._rows.finish()
        for inspector in self._inspectors:
            self._faults += inspector.faults()
        self._faults += _identical(self._map)
        del self._map

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
        self.map = one.without_weights()
        self.counts = np.zeros(n_heads, np.int64)
        self.firsts = np.zeros(n_heads, np.int64)
        self.most = np.zeros(n_heads)

    def add(self, heads: slice, start: int, leaked: Floats) -> None:
        """Fold in the weight [head, row] that went astray."""
        rows = leaked > LEAK
        new = (self.counts[heads] == 0) & rows.any(axis=1)
        self.firsts[heads][new] = start + rows.argmax(axis=1)[new]
        self.counts[heads] += rows.sum(axis=1)
        self.most[heads] = np.maximum(self.most[heads], np.where(rows, leaked, 0).max(axis=1))

    def faults(self, kind: str, what: str) -> list[Fault]:
        """One for each head with such rows."""
        return [
            _fault(
                kind, self.map, h, f"gives weight to {what}, {self.most[h]:.2g} of a row at most",
                int(self.firsts[h]), int(self.counts[h]),
            )
            for h in np.flatnonzero(self.counts).tolist()
        ]  # fmt: skip


Leaked: TypeAlias = tuple[slice, int, Floats]
"""The heads of a block, its first row, and the weight [head, row] that went astray."""


class _Future:
    """Weight on tokens after the query."""

    def __init__(self, one: AttentionMap) -> None:
        self._leaks = _Leaks(one)

    def look(self, block: Block) -> Leaked:
        keys, queries = (np.arange(some.start, some.stop) for some in (block.keys, block.queries))
        later = (keys > queries[:, None]).astype(block.values.dtype)
        return block.heads, block.start, np.vecdot(np.abs(block.weights), later)

    def keep(self, part: Leaked) -> None:
        self._leaks.add(*part)

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

    def look(self, block: Block) -> Leaked:
        leaked = np.abs(block.weights) @ self._padding[block.keys].astype(block.values.dtype)
        return block.heads, block.start, leaked * self._looked_at[block.queries]

    def keep(self, part: Leaked) -> None:
        self._leaks.add(*part)

    def faults(self) -> list[Fault]:
        return self._leaks.faults("padding", self._what)


class _Shape:
    """Heads whose rows all look alike: one key each, or all keys the same."""

    def __init__(self, one: AttentionMap) -> None:
        self._map = one.without_weights()
        n_heads = len(one.heads)
        self._saturated = np.full(n_heads, len(one.key) > 1)
        self._uniform = np.full(n_heads, True)
        self._seen = np.zeros((2, n_heads), np.bool_)

    def look(self, block: Block) -> tuple[slice, npt.NDArray[np.bool_]] | None:
        """[saturated or uniform, whether it still may be and whether rows tell, head]."""
        heads = block.heads
        perhaps = np.stack([self._saturated[heads], self._uniform[heads]])
        if not perhaps.any():
            return None
        sums, largest = block.sums, block.weights.max(axis=2)
        rows = np.isfinite(sums) & (sums > 0)
        saturated = (~rows | (largest > SATURATED * sums)).all(axis=1)
        seen = rows.any(axis=1)
        uniform = tell = np.zeros_like(saturated)
        if perhaps[1].any():
            keys = np.count_nonzero(block.weights, axis=2)
            rows &= keys >= _FEW
            tell = rows.any(axis=1)
            uniform = (~rows | (largest * keys <= UNIFORM * sums)).all(axis=1)
        return heads, np.array([[saturated, seen], [uniform, tell]])

    def keep(self, part: tuple[slice, npt.NDArray[np.bool_]] | None) -> None:
        if part is None:
            return
        heads, found = part
        self._saturated[heads] &= found[0, 0]
        self._uniform[heads] &= found[1, 0]
        self._seen[:, heads] |= found[:, 1]

    def faults(self) -> list[Fault]:
        saturated = "is saturated: every row gives all its weight to one key"
        uniform = "is uniform: every row gives the same weight to all its keys"
        found = (
            ("saturated", self._saturated & self._seen[0], saturated),
            ("uniform", self._uniform & self._seen[1], uniform),
        )
        return [_fault(kind, self._map, h, what) for kind, heads, what in found for h in np.flatnonzero(heads).tolist()]


def _identical(one: AttentionMap) -> list[Fault]:
    """Heads of a layer that are the same; what has no number is not compared."""
    own = [i for i, head in enumerate(one.heads) if isinstance(head, int)]
    more = len(one.key) > 1 and len(one.query) > 1
    pairs = [(i, j) for i in own for j in own if i < j] if more else []
    for start, stop in ((0, min(8, len(one.query))), *block_ranges(one.weights.shape)):
        if pairs:  # which few layers have after the first rows
            rows = one.rows(start, stop)
            with np.errstate(invalid="ignore", over="ignore"):
                pairs = [(i, j) for i, j in pairs if np.all(np.abs(rows[i] - rows[j]) <= SAME)]
    earlier: dict[int, int] = {}
    for i, j in pairs:
        earlier.setdefault(j, i)
    return [_fault("identical", one, j, f"is the same as head {one.heads[i]}") for j, i in sorted(earlier.items())]
