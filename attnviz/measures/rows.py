"""Rows of one attention map as measures look at them, with what several measures need made once."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.blocks import Block
from attnviz.maps import AttentionMap

TINY = 4e-38
"""The logarithm of a weight below this is that of this, so that 0 · ln 0 is 0 and no other weight is changed."""


def raised(x: Floats) -> Floats:
    """A copy of `x` that has a logarithm everywhere."""
    return np.asarray(np.maximum(x, x.dtype.type(TINY)))


class Ratio(NamedTuple):
    """What rows add to a measure, which is Σ value / Σ weight over the rows that are counted."""

    value: Floats
    """[head, row]; 0 where the weight is."""
    weight: npt.NDArray[Any] | float = 1.0
    """[head, row], [row], or one for all: 1 for a mean over rows, 0 where a row has no part in the measure."""


Indices = npt.NDArray[np.intp]
_SPARSE = 16
"""Copies are picked one by one where so many times their number is less than what there is to pick from."""


@dataclass(frozen=True)
class Copies:
    """Which tokens of a text are the same piece."""

    words: npt.NDArray[np.int32]
    """[token]: one number for each piece, and one of its own for each special token."""
    order: Indices
    """The positions, those of the same number together and in order."""
    begins: Indices
    """[token]: where in `order` those of its number begin."""
    ranks: Indices
    """[token]: how many copies of it came before."""

    @classmethod
    def of(cls, words: npt.NDArray[np.int32]) -> "Copies":
        """Those with the same number.

        >>> Copies.of(np.array([7, 8, 7, 7], np.int32)).ranks.tolist()
        [0, 0, 1, 2]
        """
        order = np.argsort(words, kind="stable")
        ordered = words[order]
        begins, ranks = np.empty(len(words), np.intp), np.empty(len(words), np.intp)
        begins[order] = np.searchsorted(ordered, ordered)
        ranks[order] = np.arange(len(words)) - begins[order]
        return cls(words, order, begins, ranks)

    def number(self, positions: Indices) -> int:
        """How many pairs of a token of `positions` and an earlier copy there are."""
        return int(self.ranks[positions].sum())

    def pairs(self, positions: Indices) -> tuple[Indices, Indices]:
        """The pairs: indices into `positions`, in order, and the positions of the copies.

        >>> [part.tolist() for part in Copies.of(np.array([7, 8, 7, 7], np.int32)).pairs(np.array([1, 2, 3]))]
        [[1, 2, 2], [0, 0, 2]]
        """
        ranks = self.ranks[positions]
        rows = np.repeat(np.arange(len(positions)), ranks)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(ranks) - ranks, ranks)
        return rows, self.order[self.begins[positions][rows] + within]


@dataclass(frozen=True)
class Setting:
    """What measures know of a map beside its weights."""

    n_heads: int
    n_queries: int
    n_keys: int
    placed: bool
    """Queries and keys are the same tokens in the same order, so that positions can be compared."""
    special: npt.NDArray[np.float32]
    """[key]: 1 for special tokens, else 0."""
    copies: Copies
    """Which tokens are the same piece; none where not placed."""
    ordinary: npt.NDArray[np.bool_]
    """[head]: False for the full-width head of the same projections, which is no head among the others."""

    @classmethod
    def of(cls, one: AttentionMap) -> "Setting":
        """The setting of a map."""
        placed = one.kind == "self" and (one.query is one.key or one.query == one.key)
        numbers: dict[tuple[str, int], int] = {}
        keys = [(piece, i if one.key.special[i] else -1) for i, piece in enumerate(one.key.pieces if placed else ())]
        words = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int32)
        return cls(
            len(one.heads),
            len(one.query),
            len(one.key),
            placed,
            np.array(one.key.special, np.float32),
            Copies.of(words),
            np.array([head != "single" for head in one.heads], np.bool_),
        )


@dataclass(frozen=True)
class Rows:
    """Some rows of a map, of some of its heads, only lent.

    Rows that attend to nothing, or hold what is no number, count in no measure. Rows whose sum is not 1 are taken as
    they are: nothing is renormalised. Logarithms take a negative weight for 0.
    """

    setting: Setting
    block: Block

    @cached_property
    def sums(self) -> Floats:
        """[head, row]."""
        return self.block.sums

    @cached_property
    def counted(self) -> npt.NDArray[np.bool_]:
        """[head, row]: whether the row is a distribution, or the part of one."""
        counted: npt.NDArray[np.bool_] = np.isfinite(self.sums) & (self.sums > 0)
        return counted

    @cached_property
    def positions(self) -> npt.NDArray[np.intp]:
        """[row]."""
        return np.arange(self.block.queries.start, self.block.queries.stop)

    @cached_property
    def clipped(self) -> Floats:
        """The weights, those below 0 as 0."""
        weights = self.block.weights
        return np.maximum(weights, 0) if weights.min(initial=0) < 0 else weights

    @cached_property
    def negentropy(self) -> Floats:
        """[head, row]: Σⱼ A[i, j] ln A[i, j], in nats.

        Of weights exp(sⱼ) f it is f Σⱼ exp(sⱼ) sⱼ + ln f Σⱼ A[i, j], without a logarithm for each.
        """
        block, logits = self.block, self.block.logits
        if logits is not None and block.factor is not None:
            logs = np.log(np.where(block.factor == 0, 1, block.factor))  # one of float64 may be far below `TINY`
            whole = block.times(np.vecdot(block.values, logits.array)) * logits.step
            return np.asarray(np.minimum(whole + self.sums * (logs + logits.offset), 0))  # as no weight is above 1
        logs = raised(self.clipped)
        np.log(logs, out=logs)
        negentropy: Floats = np.vecdot(self.clipped, logs)
        return negentropy

    def sum_over(self, x: npt.NDArray[Any]) -> Floats:
        """[head, row]: Σⱼ A[i, j] x[j], or x[i, j], over the keys of the block."""
        values = self.block.values
        return self.block.times(values @ x if x.ndim == 1 else np.vecdot(values, x))

    def at_key(self, key: int) -> Floats:
        """[head, row]: A[i, key]."""
        block = self.block
        if not block.keys.start <= key < block.keys.stop:
            return np.zeros(self.sums.shape, self.sums.dtype)
        return block.times(block.values[:, :, key - block.key])

    def at_offset(self, offset: int) -> Ratio:
        """A[i, i + offset], of the rows that have such a key."""
        keys = self.positions + offset
        there = (keys >= 0) & (keys < self.setting.n_keys)
        block, places = self.block, keys - self.block.key
        held = there & (places >= 0) & (places < block.values.shape[2])
        if not block.values.size:
            return Ratio(np.zeros(self.sums.shape, self.sums.dtype), there)
        picked = block.times(block.values[:, np.arange(len(keys)), np.where(held, places, 0)])
        return Ratio(np.where(held, picked, 0), there)

    @cached_property
    def apart(self) -> npt.NDArray[Any]:
        """[row, key]: |i − j| for the keys of the block; a view of one row of distances."""
        rows, keys = self.block.values.shape[1:]
        first = self.positions[0] - self.block.key if rows else 0
        line = np.abs(np.arange(-first - rows + 1, keys - first)).astype(self.block.values.dtype)
        # row i begins one before row i − 1, at the distance of the first key from query i
        return np.lib.stride_tricks.sliding_window_view(line, keys)[::-1] if keys else np.zeros((rows, 0), line.dtype)

    def sum_over_copies(self, shift: int) -> Floats:
        """[head, row]: Σ A[i, j + shift] over the earlier copies j of token i; special tokens have none."""
        if self.setting.copies.number(self.positions) * _SPARSE < self.block.values[0].size:
            return self._sum_over_few(shift)
        block = self.block
        first, last = block.keys.start - shift, block.keys.stop - shift
        words = self.setting.copies.words
        keys = np.arange(max(first, 0), min(last, len(words)))
        same = words[self.positions, None] == words[keys]
        same &= keys < self.positions[:, None]
        values = block.values[:, :, keys[0] - first : keys[-1] - first + 1] if len(keys) else block.values[:, :, :0]
        return block.times(np.vecdot(values, same.astype(values.dtype)))

    def _sum_over_few(self, shift: int) -> Floats:
        block = self.block
        rows, keys = self.setting.copies.pairs(self.positions)
        places = keys + shift - block.key
        held = (places >= 0) & (places < block.values.shape[2])
        rows, places = rows[held], places[held]
        sums = np.zeros(self.sums.shape, block.values.dtype)
        if len(rows):
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            sums[:, rows[starts]] = np.add.reduceat(block.values[:, rows, places], starts, axis=1)
        return block.times(sums)

    @cached_property
    def again(self) -> npt.NDArray[np.bool_]:
        """[row]: whether the token was there before."""
        return self.setting.copies.ranks[self.positions] > 0
