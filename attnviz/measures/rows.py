"""Rows of one attention map as measures look at them, with what several measures need made once."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
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
    words: npt.NDArray[np.int32]
    """[token]: one number for each piece, and one of its own for each special token; empty where not placed."""
    repeats: bool
    """Whether some piece is there twice."""
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
            words,
            len(numbers) < len(keys),
            np.array([head != "single" for head in one.heads], np.bool_),
        )


@dataclass(frozen=True)
class Rows:
    """Some rows of a map: [head, row, key], only lent.

    Rows that attend to nothing, or hold what is no number, count in no measure. Rows whose sum is not 1 are taken as
    they are: nothing is renormalised. Logarithms take a negative weight for 0.
    """

    setting: Setting
    start: int
    """The position of the first row."""
    weights: Floats

    @cached_property
    def sums(self) -> Floats:
        """[head, row]."""
        sums: Floats = self.weights @ np.ones(self.setting.n_keys, self.weights.dtype)
        return sums

    @cached_property
    def counted(self) -> npt.NDArray[np.bool_]:
        """[head, row]: whether the row is a distribution, or the part of one."""
        counted: npt.NDArray[np.bool_] = np.isfinite(self.sums) & (self.sums > 0)
        return counted

    @cached_property
    def positions(self) -> npt.NDArray[np.intp]:
        """[row]."""
        return np.arange(self.start, self.start + self.weights.shape[1])

    @cached_property
    def clipped(self) -> Floats:
        """The weights, those below 0 as 0."""
        return np.maximum(self.weights, 0) if self.weights.min() < 0 else self.weights

    @cached_property
    def negentropy(self) -> Floats:
        """[head, row]: Σⱼ A[i, j] ln A[i, j], in nats."""
        logs = raised(self.clipped)
        np.log(logs, out=logs)
        negentropy: Floats = np.vecdot(self.clipped, logs)
        return negentropy

    def at_offset(self, offset: int) -> Ratio:
        """A[i, i + offset], of the rows that have such a key."""
        keys = self.positions + offset
        there = (keys >= 0) & (keys < self.setting.n_keys)
        picked = self.weights[:, np.arange(len(keys)), np.where(there, keys, 0)]
        return Ratio(picked * there, there)

    @cached_property
    def earlier(self) -> Floats:
        """[row, key]: 1 where the key is before the query and the same piece, else 0; special tokens never are."""
        words = self.setting.words
        same = words[self.positions, None] == words
        same &= np.arange(self.setting.n_keys) < self.positions[:, None]
        earlier: Floats = same.astype(self.weights.dtype)
        return earlier

    @cached_property
    def again(self) -> npt.NDArray[np.bool_]:
        """[row]: whether the token was there before."""
        return np.asarray(self.earlier.any(axis=1))
