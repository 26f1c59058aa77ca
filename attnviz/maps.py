"""AttentionMap, one layer's attention whose rows are made when asked for; AttentionRecord, the maps kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Array, Floats, namespace, to_numpy
from attnviz.attention import EVERYTHING, Rule, attention_weights, check_softmax
from attnviz.blocks import BLOCK_ROWS, Block, Piece, pieces
from attnviz.errors import AttnvizError
from attnviz.lazy import function
from attnviz.streaming import Exponentials
from attnviz.tokens import Tokens

HeadName: TypeAlias = Literal["single", "mean", "max", "rollout"]
"""What is no head of the model: the full-width head of the same projections, or what was made of several heads."""
Head: TypeAlias = int | HeadName
"""A head as the model counts it, or one with a name."""
HEAD_NAMES: Mapping[str, HeadName] = {name: name for name in get_args(HeadName)}

Stack: TypeAlias = Literal["encoder", "decoder"]
Kind: TypeAlias = Literal["self", "cross"]

Value: TypeAlias = bool | int | float | str | Sequence["Value"] | Mapping[str, "Value"] | None
Provenance: TypeAlias = Mapping[str, Value]
"""What made the numbers and is enough to make them again; no time, host or absolute path in it."""

RANGE_BYTES = 4 << 20
"""What the rows of one range of `block_ranges` take."""
MUCH_BYTES = 1 << 20
"""Weights above this size are made by `streaming`, which is faster; the others by `attention_weights` itself."""


class Weights(Protocol):
    """Attention weights of some heads, rows on demand."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        ...

    def rows(self, start: int, stop: int) -> Floats:
        """Weights [head, stop − start, key] of queries `start` to `stop`, in 0..1."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """Weights of which any part can be made by itself, by several threads at once."""

    @property
    def divisible(self) -> bool:
        """Whether that is so here."""
        ...

    def block(self, piece: Piece, *, logits: bool = False) -> Block:
        """The weights of some heads and queries, in memory that is lent until the thread asks for the next.

        Args:
            piece: which.
            logits: with what the exponentials are of, where they are made here.
        """
        ...


def divided(weights: Weights) -> Divisible | None:
    """The weights, if any part of them can be made by itself."""
    return weights if isinstance(weights, Divisible) and weights.divisible else None


@dataclass(frozen=True)
class StoredWeights:
    """Weights that are there."""

    array: Floats
    """[head, query, key]."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        heads, queries, keys = self.array.shape
        return heads, queries, keys

    def rows(self, start: int, stop: int) -> Floats:
        """A view of rows `start` to `stop`."""
        return self.array[:, start:stop]

    @property
    def divisible(self) -> bool:
        """They are there."""
        return True

    def block(self, piece: Piece, *, logits: bool = False) -> Block:
        """A view of the part."""
        head, last_head, start, stop = piece
        return Block(self.array[head:last_head, start:stop], head, start)


@dataclass(frozen=True)
class ComputedWeights:
    """Weights made from queries and keys, a block of rows at a time."""

    q: Array
    """[head, query, d_head]."""
    k: Array
    """[kv_head, key, d_head]."""
    rule: Rule = EVERYTHING
    scale: float | None = None
    """1/√d_head unless given."""
    softcap: float | None = None
    """As in `attention_weights`."""
    sink: Array | None = None
    """[head], as in `attention_weights`."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return self.q.shape[0], self.q.shape[1], self.k.shape[1]

    @cached_property
    def divisible(self) -> bool:
        """Whether they are many, and NumPy makes them."""
        heads, queries, keys = self.shape
        if 4 * heads * queries * keys <= MUCH_BYTES:
            return False
        if not all(isinstance(x, np.ndarray) for x in (self.q, self.k, self.sink) if x is not None):
            return False
        dtype = self.q.dtype
        return bool(dtype == self.k.dtype and dtype in (np.float32, np.float64) and dtype.isnative)

    @cached_property
    def _exponentials(self) -> Exponentials:
        self.rule.check(self.q.shape[1], self.k.shape[1], self.q.shape[0])
        check_softmax(self.softcap, self.sink, self.q.shape[0])
        return Exponentials(self.q, self.k, self.rule, self.scale, self.softcap, self.sink)

    def block(self, piece: Piece, *, logits: bool = False) -> Block:
        """The part, as exponentials and what divides them."""
        return self._exponentials.block(piece, logits=logits)

    def made(self, start: int, stop: int) -> Array:
        """softmax(q kᵀ · scale) of rows `start` to `stop`, in the library and on the device of q and k."""
        if not self.divisible:
            told: dict[str, Any] = {"scale": self.scale, "softcap": self.softcap, "sink": self.sink}
            return attention_weights(self.q, self.k, self.rule, **told, start=start, stop=stop)
        heads, _, keys = self.shape
        made = np.empty((heads, stop - start, keys), self.q.dtype)
        self.write(start, made)
        return made

    def write(self, start: int, into: Floats) -> None:
        """Put the weights of as many queries as there is room for into [head, query, key], where they are divisible.

        Args:
            start: the first query.
            into: where they are put, all of it.
        """
        for piece in pieces((len(into), into.shape[1], into.shape[2]), written=True):
            block = self.block(piece._replace(start=start + piece.start, stop=start + piece.stop))
            block.start = piece.start
            block.put_into(into)
            if block.values.shape[2] < into.shape[2]:
                rows = into[block.heads, block.queries]
                rows[:, :, : block.keys.start] = rows[:, :, block.keys.stop :] = 0

    def rows(self, start: int, stop: int) -> Floats:
        """The same rows in NumPy."""
        return to_numpy(self.made(start, stop))

    def of(self, heads: Sequence[int]) -> "ComputedWeights":
        """These heads alone, each with the keys of its group, so that the others are never computed."""
        group = self.q.shape[0] // self.k.shape[0]
        mask = self.rule.mask
        rule = self.rule
        if mask is not None and mask.ndim == 3 and mask.shape[0] > 1:
            rule = replace(rule, mask=_at(mask, heads))
        sink = None if self.sink is None else _at(self.sink, heads)
        return replace(self, q=_at(self.q, heads), k=_at(self.k, [h // group for h in heads]), rule=rule, sink=sink)


def _at(x: Array, indices: Sequence[int]) -> Array:
    return namespace(x).stack([x[i, ...] for i in indices])


@dataclass(frozen=True)
class StackedHeads:
    """Weights of several sources over the same tokens, their heads one after the other."""

    parts: tuple[Weights, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        _, queries, keys = self.parts[0].shape
        return sum(part.shape[0] for part in self.parts), queries, keys

    def rows(self, start: int, stop: int) -> Floats:
        """Rows `start` to `stop` of every part."""
        return np.concatenate([part.rows(start, stop) for part in self.parts])


@dataclass(frozen=True)
class PickedWeights:
    """Some heads, queries and keys of other weights."""

    base: Weights
    heads: tuple[int, ...]
    queries: tuple[int, ...]
    keys: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return len(self.heads), len(self.queries), len(self.keys)

    def rows(self, start: int, stop: int) -> Floats:
        """The picked part of rows `start` to `stop`, a run of neighbouring queries at a time."""
        blocks = [self.base.rows(first, last) for first, last in runs(self.queries[start:stop])]
        blocks = blocks or [self.base.rows(0, 0)]
        block = np.concatenate(blocks, axis=1) if len(blocks) != 1 else blocks[0]
        if len(self.heads) != block.shape[0] or self.heads != tuple(range(block.shape[0])):
            block = block[list(self.heads)]
        return block if self._places is None else block[:, :, self._places]

    @cached_property
    def _places(self) -> npt.NDArray[np.intp] | None:
        """The keys; None where they are all in order."""
        _, _, n_keys = self.base.shape
        return None if self.keys == tuple(range(n_keys)) else np.array(self.keys, np.intp)

    @cached_property
    def divisible(self) -> bool:
        """Whether the base is, and heads, queries and keys are neighbours in it."""
        neighbours = all(len(list(runs(some))) == 1 for some in (self.heads, self.queries, self.keys))
        return neighbours and divided(self.base) is not None

    def block(self, piece: Piece, *, logits: bool = False) -> Block:
        """The part, cut out of that of the base."""
        base = divided(self.base)
        if base is None:
            raise TypeError("only some of the rows can be made")
        head, query, key = self.heads[0], self.queries[0], self.keys[0]
        place = Piece(head + piece.head, head + piece.last_head, query + piece.start, query + piece.stop)
        block = base.block(place, logits=logits)
        first, last = max(block.key, key), min(block.keys.stop, key + len(self.keys))
        some = slice(first - block.key, max(first, last) - block.key)
        return Block(
            block.values[:, :, some],
            piece.head,
            piece.start,
            min(first - key, len(self.keys)),
            len(self.keys),
            block.factor,
            None if block.logits is None else block.logits._replace(array=block.logits.array[:, :, some]),
        )


@dataclass(frozen=True)
class ForgottenWeights:
    """The place of weights that have been looked at and are gone."""

    shape: tuple[int, int, int]
    """Heads, queries, keys."""

    def rows(self, start: int, stop: int) -> Floats:
        """There are none any more.

        Raises:
            LookupError: always.
        """
        raise LookupError("the weights of this map have been looked at and are gone")


def made_for(weights: Weights) -> tuple[int, int, int]:
    """Heads, queries, keys of what is really made for rows of `weights`: picking makes more than it keeps."""
    _, queries, _ = weights.shape
    made = weights
    while isinstance(made, PickedWeights):
        made = made.base
    heads, _, keys = made.shape
    return heads, queries, keys


def block_ranges(shape: tuple[int, int, int]) -> Iterator[tuple[int, int]]:
    """Ranges of rows that cover weights [head, query, key] in blocks of bounded size.

    >>> list(block_ranges((2, 600, 4)))
    [(0, 256), (256, 512), (512, 600)]
    """
    heads, queries, keys = shape
    size = max(1, min(BLOCK_ROWS, RANGE_BYTES // (4 * max(1, heads * keys))))
    for start in range(0, queries, size):
        yield start, min(start + size, queries)


def runs(indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The stretches of neighbours in `indices`, each from its first to before its last.

    >>> list(runs([1, 2, 3, 7, 9, 10]))
    [(1, 4), (7, 8), (9, 11)]
    """
    first = 0
    for i in range(1, len(indices) + 1):
        if i == len(indices) or indices[i] != indices[i - 1] + 1:
            yield indices[first], indices[i - 1] + 1
            first = i


@dataclass(frozen=True)
class AttentionMap:
    """The attention of one layer, or of one attention module."""

    name: str
    """The module's path in the model, such as `encoder.layer.0.attention.self`."""
    layer: int
    """Counted from 0, as the model counts."""
    heads: tuple[Head, ...]
    weights: Weights
    query: Tokens
    key: Tokens
    stack: Stack = "encoder"
    kind: Kind = "self"
    output: Floats | None = None
    """[query, d_model]: the heads' outputs joined, projected where the model does that."""
    cut: bool = False
    """Keys have been left out, so that rows sum to less than they did."""
    title: str = ""
    """What it is called, where that is not its layer: several layers put together."""

    def __post_init__(self) -> None:
        wanted = len(self.heads), len(self.query), len(self.key)
        if self.weights.shape != wanted:
            raise ValueError(f"weights are {self.weights.shape}, but heads, queries and keys are {wanted}")

    def rows(self, start: int, stop: int) -> Floats:
        """Weights [head, stop − start, key] of queries `start` to `stop`."""
        if not 0 <= start <= stop <= len(self.query):
            raise IndexError(f"rows {start} to {stop} of {len(self.query)}")
        return self.weights.rows(start, stop)

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """All rows, in blocks of bounded size: the first row of each, and its weights [head, row, key]."""
        for start, stop in block_ranges(made_for(self.weights)):
            yield start, self.rows(start, stop)

    def without_weights(self) -> "AttentionMap":
        """What the map is of, when its weights need no longer be kept."""
        return replace(self, weights=ForgottenWeights(self.weights.shape), output=None)

    def pick(
        self,
        heads: Sequence[int] | None = None,
        queries: Sequence[int] | None = None,
        keys: Sequence[int] | None = None,
    ) -> "AttentionMap":
        """The map of some heads, queries and keys, by index; None keeps all of an axis.

        Raises:
            IndexError: an index is not there; it does not count from the end.
        """
        if heads is queries is keys is None:
            return self
        n_heads, n_queries, n_keys = self.weights.shape
        heads, queries, keys = _chosen(heads, n_heads), _chosen(queries, n_queries), _chosen(keys, n_keys)
        weights, kept = self.weights, heads
        if isinstance(weights, ComputedWeights) and heads and heads != tuple(range(n_heads)):
            weights, kept = weights.of(heads), tuple(range(len(heads)))
        return replace(
            self,
            heads=tuple(self.heads[i] for i in heads),
            weights=PickedWeights(weights, kept, queries, keys),
            query=self.query.pick(queries),
            key=self.key.pick(keys),
            output=None if self.output is None else self.output[list(queries)],
            cut=self.cut or len(set(keys)) < n_keys,
        )


def _chosen(indices: Sequence[int] | None, size: int) -> tuple[int, ...]:
    chosen = tuple(range(size) if indices is None else indices)
    for index in chosen:
        if not 0 <= index < size:
            raise IndexError(f"no index {index} of {size}")
    return chosen


@dataclass(frozen=True)
class AttentionRecord:
    """Collected attention maps with their weights, and what made them."""

    maps: tuple[AttentionMap, ...]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @cached_property
    def weights(self) -> Floats:
        """[layer, head, query, key].

        Raises:
            AttnvizError: the maps differ in shape.
        """
        shapes = {one.weights.shape for one in self.maps}
        if len(shapes) != 1:
            raise AttnvizError(f"the maps have no one shape: {sorted(shapes)}")
        return np.stack([one.rows(0, len(one.query)) for one in self.maps])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the record to `path`, in the format that its suffix names.

        Raises:
            RequestError: no format has that suffix.
            AttnvizError: the file cannot be written.
        """
        function("attnviz.api:save")(self, path)  # a record is below the formats that write it

    def _repr_html_(self) -> str:
        """The interactive page in a frame, as notebooks show it; no network."""
        return str(function("attnviz.render.page:embedded")(self))
