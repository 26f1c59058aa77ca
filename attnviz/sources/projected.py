"""From projected queries, keys and values to one layer's attention: what sources with their own maths share."""

from dataclasses import dataclass

from attnviz.arrays import Array, namespace, quiet, to_numpy
from attnviz.attention import EVERYTHING, Projections, Rule, attend, merge_heads, projected, split_heads
from attnviz.errors import RequestError
from attnviz.maps import (
    AttentionMap,
    ComputedWeights,
    Head,
    StackedHeads,
    StoredWeights,
    Weights,
    block_ranges,
)
from attnviz.tokens import Tokens

STORED_BYTES = 16 << 20
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

    def overflows(self) -> bool:
        """Whether a score could be too large for the dtype, or the queries or keys hold what is no finite number."""
        xp, width = namespace(self.q), self.q.shape[-1]
        factor = width**-0.5 if self.scale is None else self.scale
        largest = float(xp.max(xp.abs(self.q))) * float(xp.max(xp.abs(self.k))) * width * factor
        return not largest <= float(xp.finfo(self.q.dtype).max)

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
            block = heads.made(0, heads.shape[1])
            stored: Weights = StoredWeights(to_numpy(block))
            return (self._with_single(stored) if single else stored), merge_heads(attend(block, values))
        outputs = [merge_heads(attend(heads.made(*rows), values)) for rows in block_ranges(heads.shape)]
        output = namespace(v).concat(outputs, axis=0)
        return (self._with_single(heads) if single else heads), output

    def _heads(self) -> ComputedWeights:
        q, k = split_heads(self.q, self.n_heads), split_heads(self.k, self.n_heads)
        self.rule.check(q.shape[-2], k.shape[-2], self.n_heads)  # here, and not when rows are asked for
        return ComputedWeights(q, k, self.rule, self.scale)

    def _with_single(self, heads: Weights) -> Weights:
        mask = self.rule.mask
        if mask is not None and mask.ndim == 3 and mask.shape[0] > 1:
            raise RequestError("the mask is given for each head, so that the single head has none: leave out --single")
        return StackedHeads((ComputedWeights(self.q[None, ...], self.k[None, ...], self.rule, self.scale), heads))


@dataclass(frozen=True)
class TokenVectors:
    """Tokens, and the vector of each."""

    x: Array
    """[token, d_model]."""
    tokens: Tokens


def layer_map(
    query: TokenVectors,
    key: TokenVectors,
    projections: Projections,
    n_heads: int,
    *,
    rule: Rule = EVERYTHING,
    scale: float | None = None,
    single: bool = False,
    output: bool = False,
) -> AttentionMap:
    """The map of the only layer of a model that is one attention and nothing else.

    Args:
        query: what attends.
        key: what is attended to; `query` itself for self-attention.
        projections: the matrices, in the library, on the device and in the dtype of the vectors.
        n_heads: the heads that the projections are split into.
        rule: what may be attended.
        scale: 1/√d_head, and 1/√d_model for the single head, unless given.
        single: put the full-width head first.
        output: with the heads' outputs joined, through the output projection where there is one.

    Raises:
        RequestError: the rule does not fit, or the scores are too large for the dtype.
    """
    p = projections
    with quiet(namespace(query.x)):
        q, k = projected(query.x, p.w_q, p.b_q), projected(key.x, p.w_k, p.b_k)
        layer = Projected(q, k, n_heads, rule, scale)
        if layer.overflows():
            instead = "scale the numbers down, or choose a wider --dtype"
            raise RequestError(f"the scores overflow {dtype_name(query.x)}: {instead}")
        joined = None
        if output:
            weights, joined = layer.weights_and_output(projected(key.x, p.w_v, p.b_v), single=single)
            joined = joined if p.w_o is None else projected(joined, p.w_o, p.b_o)
        else:
            weights = layer.weights(single=single)
    return AttentionMap(
        "attention",
        0,
        head_names(n_heads, single=single),
        weights,
        query.tokens,
        key.tokens,
        kind="self" if key is query else "cross",
        output=None if joined is None else to_numpy(joined),
    )


def dtype_name(x: Array) -> str:
    """The name of the dtype of `x`, the same in every library.

    >>> import numpy as np
    >>> dtype_name(np.ones(1))
    'float64'
    """
    return str(x.dtype).rpartition(".")[2]


def _is_small(shape: tuple[int, int, int]) -> bool:
    heads, queries, keys = shape
    return 4 * heads * queries * keys <= STORED_BYTES


def head_names(n_heads: int, *, single: bool) -> tuple[Head, ...]:
    """The heads in the order in which `Projected` has their weights.

    >>> head_names(2, single=True)
    ('single', 0, 1)
    """
    return (*(("single",) if single else ()), *range(n_heads))
