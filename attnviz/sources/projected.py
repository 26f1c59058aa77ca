"""From projected queries, keys and values to one layer's attention: what sources with their own maths share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt

from attnviz.arrays import Array, namespace, to_numpy
from attnviz.attention import EVERYTHING, Rule, attend, merge_heads, split_heads
from attnviz.maps import BLOCK_BYTES, ComputedWeights, Head, StackedHeads, StoredWeights, Weights, block_ranges

Place: TypeAlias = Callable[[npt.NDArray[Any]], Array]
"""Puts a NumPy array where the maths is to run: another library, a device, a dtype."""

STORED_BYTES = 4 * BLOCK_BYTES
"""Weights up to this size are made once and kept while their layer is looked at; larger ones when asked for."""


@dataclass(frozen=True)
class Projected:
    """A layer's queries, keys and values before they are split into heads."""

    q: Array
    """[query, n_heads · d_head]."""
    k: Array
    """[key, n_heads · d_head]."""
    n_heads: int
    rule: Rule = EVERYTHING
    scale: float | None = None
    """1/√d_head, and 1/√d_model for the single head, unless given."""

    def weights(self, *, single: bool = False) -> Weights:
        """The weights of the heads, after those of the full-width head where `single` asks for it."""
        heads = self._heads()
        stored = StoredWeights(heads.rows(0, heads.shape[1])) if _is_small(heads.shape) else heads
        return self._with_single(stored) if single else stored

    def weights_and_output(self, v: Array, *, single: bool = False) -> tuple[Weights, Array]:
        """The weights, and the heads' outputs joined: [query, n_heads · d_head], with nothing made twice.

        Args:
            v: [key, n_heads · d_head], not split.
            single: put the weights of the full-width head first; it has no part in the output.
        """
        heads, values = self._heads(), split_heads(v, self.n_heads)
        if _is_small(heads.shape):
            block = heads.block(0, heads.shape[1])
            stored: Weights = StoredWeights(to_numpy(block))
            return (self._with_single(stored) if single else stored), merge_heads(attend(block, values))
        outputs = [merge_heads(attend(heads.block(*rows), values)) for rows in block_ranges(heads.shape)]
        output = namespace(v).concat(outputs, axis=0)
        return (self._with_single(heads) if single else heads), output

    def _heads(self) -> ComputedWeights:
        q, k = split_heads(self.q, self.n_heads), split_heads(self.k, self.n_heads)
        return ComputedWeights(q, k, self.rule, self.scale)

    def _with_single(self, heads: Weights) -> Weights:
        return StackedHeads((ComputedWeights(self.q[None, ...], self.k[None, ...], self.rule, self.scale), heads))


def _is_small(shape: tuple[int, int, int]) -> bool:
    heads, queries, keys = shape
    return 4 * heads * queries * keys <= STORED_BYTES


def head_names(n_heads: int, *, single: bool) -> tuple[Head, ...]:
    """The heads in the order in which `Projected` has their weights.

    >>> head_names(2, single=True)
    ('single', 0, 1)
    """
    return (*(("single",) if single else ()), *range(n_heads))
