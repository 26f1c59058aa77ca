"""Block: weights of a few heads and neighbouring queries, as collectors see them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attnviz.arrays import Floats

BLOCK_BYTES = 16 << 20
"""What one block takes that is looked at: less drowns in calls, more goes out of the cache."""
WRITTEN_BYTES = 2 << 20
"""What one block takes that is only written where it belongs, which is one call more."""
BLOCK_ROWS = 256
"""So many rows, unless they take more: the product of fewer is slower for each, as the keys are read anew for it."""


class Logarithms(NamedTuple):
    """Natural logarithms of exponentials: `array` × `step` + `offset`."""

    array: Floats
    """Finite, where the exponential is 0 as well."""
    step: float = 1.0
    offset: float = 0.0


@dataclass
class Block:
    """Weights of some heads and neighbouring queries, of the keys among which are all that are not 0; only lent.

    The weights are `values` × `factor`: exponentials are divided by their sums only where that is needed.
    """

    values: Floats
    """[head, row, key], from `key` on; weights of the keys before and after are 0."""
    head: int = 0
    """The index of the first head."""
    start: int = 0
    """The index of the first query."""
    key: int = 0
    """The index of the first key."""
    n_keys: int = -1
    """How many keys there are altogether; those of `values` unless given."""
    factor: Floats | None = None
    """[head, row], 0 for a row that attends to nothing; None for 1. With it, values are 0 or more, or no numbers."""
    logits: Logarithms | None = None
    """Of `values`, where they were asked for."""
    totals: Floats | None = None
    """[head, row]: the sums of `values`, where they are known."""

    def __post_init__(self) -> None:
        if self.n_keys < 0:
            self.n_keys = self.values.shape[2]

    @property
    def heads(self) -> slice:
        """The heads, by index."""
        return slice(self.head, self.head + self.values.shape[0])

    @property
    def queries(self) -> slice:
        """The queries, by index."""
        return slice(self.start, self.start + self.values.shape[1])

    @property
    def keys(self) -> slice:
        """The keys of `values`, by index."""
        return slice(self.key, self.key + self.values.shape[2])

    @cached_property
    def sums(self) -> Floats:
        """[head, row]: the sum of each row's weights."""
        if self.totals is not None and self.factor is not None:
            return self.totals * self.factor
        ones = np.ones(self.values.shape[2], self.values.dtype)
        return self.times(self.values @ ones)

    def times(self, sums: Floats) -> Floats:
        """Sums [head, row] over `values`, as those over weights are."""
        return sums if self.factor is None else sums * self.factor

    @property
    def weights(self) -> Floats:
        """[head, row, key] of the keys of `values`."""
        if self.factor is not None:
            self.values *= self.factor[:, :, None]
            self.factor = self.logits = self.totals = None
        return self.values

    def put_into(self, array: Floats) -> None:
        """Write the weights where they belong in [head, query, key] of all heads and queries."""
        place = array[self.heads, self.queries, self.keys]
        if self.factor is None:
            place[...] = self.values
        else:
            np.multiply(self.values, self.factor[:, :, None], out=place)

    def whole(self) -> Floats:
        """Weights [head, row, key] of all keys."""
        if self.values.shape[2] == self.n_keys:
            return self.weights
        whole = np.zeros((*self.values.shape[:2], self.n_keys), self.values.dtype)
        whole[:, :, self.keys] = self.weights
        return whole


class Piece(NamedTuple):
    """The place of a block: heads and queries, from the first to before the last."""

    head: int
    last_head: int
    start: int
    stop: int


def pieces(shape: tuple[int, int, int], *, written: bool = False) -> Iterator[Piece]:
    """Pieces that cover weights [head, query, key], each of bounded size.

    Args:
        shape: heads, queries, keys.
        written: whether the blocks are only written where they belong; they are smaller then.

    >>> list(pieces((2, 300, 4)))
    [Piece(head=0, last_head=2, start=0, stop=150), Piece(head=0, last_head=2, start=150, stop=300)]
    >>> len(list(pieces((2, 300, 1 << 20))))
    150
    """
    n_heads, n_queries, n_keys = shape
    row, n_bytes = 4 * max(1, n_keys), WRITTEN_BYTES if written else BLOCK_BYTES
    most = max(1, min(n_heads, n_bytes // (row * BLOCK_ROWS)))
    heads = -(-n_heads // -(-n_heads // most)) if n_heads else 1  # the same for all blocks, or one less
    rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // row))
    parts = -(-n_queries // rows)
    if parts > 1:  # alike, and an even number of them, as most machines have of cores
        rows = -(-n_queries // (parts + parts % 2))
    for head in range(0, n_heads, heads):
        for start in range(0, n_queries, rows):
            yield Piece(head, min(head + heads, n_heads), start, min(start + rows, n_queries))
