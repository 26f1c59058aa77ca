"""softmax(q kᵀ) of a block of rows in NumPy, near what the machine can do: what `attention_weights` does, for much.

The scale goes into the queries; keys that no row of the block may attend to are not looked at, and of the others only
those at the edges are masked; the exponentials are not divided by their sums, which is left to who needs it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import log

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.attention import EVERYTHING, Rule
from attnviz.blocks import Block, Logarithms, Piece
from attnviz.exponential import Exponential, exponential
from attnviz.scratch import lent

_SAFE = {np.dtype(np.float32): 70.0, np.dtype(np.float64): 600.0}
"""Exponentials of scores up to this size do not vanish, nor do sums of a million of them, or of them times a score,
overflow."""


@dataclass(frozen=True)
class Exponentials:
    """The exponentials of scores, a block at a time; NumPy arrays of float32 or float64 throughout."""

    q: Floats
    """[head, query, d_head]."""
    k: Floats
    """[kv_head, key, d_head]."""
    rule: Rule = EVERYTHING
    scale: float | None = None
    """1/√d_head unless given."""
    softcap: float | None = None
    """As in `attention_weights`."""
    sink: Floats | None = None
    """[head], as in `attention_weights`."""

    @cached_property
    def _factor(self) -> float:
        return float(self.q.shape[-1]) ** -0.5 if self.scale is None else float(self.scale)

    @cached_property
    def _way(self) -> Exponential:
        return exponential(self.q.dtype)

    @cached_property
    def _norms(self) -> tuple[Floats, Floats]:
        """[head, query]: |q| times the scale; [kv_head, key]: the largest |k| up to there. None is below the truth."""
        tiny = float(np.finfo(self.q.dtype).tiny) ** 0.5 * 1e3  # the square of less may be nothing
        with np.errstate(over="ignore", invalid="ignore"):
            q, k = (np.maximum(np.sqrt(np.vecdot(x, x)), tiny) for x in (self.q, self.k))
            return q * abs(self._factor), np.maximum.accumulate(k, axis=1)

    @cached_property
    def _safe_anywhere(self) -> bool | None:
        """Whether `safe` holds for every piece; None where that is a matter of the piece."""
        mask, most = self.rule.mask, _SAFE[self.q.dtype]
        if mask is not None and mask.dtype != np.bool_:
            return False
        if self.sink is not None and not self.sink.max(initial=0) <= most:
            return False
        if not self.k.size or (self.softcap is not None and self.softcap <= most):
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            q, k = (x.max(initial=0) for x in self._norms)
            return True if q * k <= most else None

    def safe(self, piece: Piece) -> bool:
        """Whether no score there can be so large that its exponential needs the row's maximum taken off.

        |q · k| ≤ |q| |k|, so that the largest norms tell, or the cap does; a sink may be small without harm.
        """
        if self._safe_anywhere is not None:
            return self._safe_anywhere
        q, k = self._norms
        _, last = key_range(self.rule, piece.start, piece.stop, k.shape[1])
        kv_heads = np.arange(piece.head, piece.last_head) // (len(q) // len(k))
        with np.errstate(over="ignore", invalid="ignore"):
            largest = q[piece.head : piece.last_head, piece.start : piece.stop].max(axis=1, initial=0)
            return not last or bool((largest * k[kv_heads, last - 1] <= _SAFE[q.dtype]).all())

    def block(self, piece: Piece, *, logits: bool = False) -> Block:
        """The exponentials of some heads and rows, in memory that the next call of this thread uses again.

        Args:
            piece: which.
            logits: with what they are the exponentials of.
        """
        n_keys = self.k.shape[-2]
        first, last = key_range(self.rule, piece.start, piece.stop, n_keys)
        shape = piece.last_head - piece.head, piece.stop - piece.start, last - first
        scores = lent("scores", shape, self.q.dtype)
        values = lent("values", shape, self.q.dtype) if logits else scores
        safe = self.safe(piece)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self._scores(piece, first, last, scores)
            fill = self._way.nothing if safe else float(np.finfo(scores.dtype).min) / 2
            masked = self._mask(piece, first, last, scores, fill)
            sums, factor = self._exponentiate(piece, scores, values, masked, safe=safe)
        logs = Logarithms(scores, 1 / self._way.per_nat, log(self._way.of_zero)) if logits else None
        return Block(values, piece.head, piece.start, first, n_keys, factor, logs, sums)

    def _scores(self, piece: Piece, first: int, last: int, out: Floats) -> None:
        """The scores, in the unit of the exponential."""
        unit = self._way.per_nat
        factor = self._factor * unit if self.softcap is None else self._factor / self.softcap
        q = self.q[piece.head : piece.last_head, piece.start : piece.stop] * factor
        group = self.q.shape[0] // self.k.shape[0]
        n_heads, n_rows, width = q.shape
        for kv_head in range(piece.head // group, (piece.last_head - 1) // group + 1):
            a, b = (max(0, min(n_heads, head - piece.head)) for head in (kv_head * group, (kv_head + 1) * group))
            rows, together = (b - a) * n_rows, q[a:b]  # heads that share keys: one product
            keys = self.k[kv_head, first:last].T
            np.matmul(together.reshape(rows, width), keys, out=out[a:b].reshape(rows, last - first))
        if self.softcap is not None:
            np.tanh(out, out=out)
            out *= self.softcap * unit

    def _mask(self, piece: Piece, first: int, last: int, scores: Floats, fill: float) -> float | None:
        """Put `fill` for masked scores, and add what the mask adds; what was put, where some may be masked."""
        rule = self.rule
        edges = _edges(rule, piece.start, piece.stop, first, last) if rule.mask is None and rule.keys is None else None
        if edges is None:
            allowed, bias = _of_heads(rule, piece).block(piece.start, piece.stop, last, scores, first)
            if bias is not None:
                far = float(np.finfo(scores.dtype).max) / 4  # in bits it is still a number
                scores += np.clip(bias, -far, far) * self._way.per_nat
            parts = [] if allowed is None else [(slice(0, last - first), allowed)]
        else:
            queries = np.arange(piece.start, piece.stop)
            parts = [(slice(a - first, b - first), rule.by_place(queries, np.arange(a, b))) for a, b in edges if a < b]
        for where, allowed in parts:
            np.copyto(scores[:, :, where], fill, where=~allowed)
        return fill if parts else None

    def _exponentiate(
        self, piece: Piece, scores: Floats, values: Floats, masked: float | None, *, safe: bool
    ) -> tuple[Floats, Floats]:
        """Exponentials into `values`; [head, row] each row's sum, and 1 by it, which is 0 for rows without a key."""
        way = self._way
        dead: npt.NDArray[np.bool_] | None = None
        sink = None
        if self.sink is not None:
            sink = (self.sink[piece.head : piece.last_head, None] * way.per_nat).astype(scores.dtype)
        if not safe and scores.size:
            largest = scores.max(axis=2)
            dead = largest <= masked if masked is not None else None
            if sink is not None:
                largest = np.maximum(largest, sink)
                sink = sink - largest
            np.subtract(scores, largest[:, :, None], out=scores)
            if way.bounded or values is not scores:  # by an array, which NumPy takes up five times as fast as a number
                np.maximum(scores, np.full(scores.shape[2], way.nothing, scores.dtype), out=scores)
        way.make(scores, values)
        sums = values @ np.ones(values.shape[2], values.dtype)
        if dead is None:
            dead = sums == 0
        factor = 1 / (sums if sink is None else sums + way.of_zero * np.exp(sink / way.per_nat))
        return sums, np.where(dead, 0, factor)


def key_range(rule: Rule, start: int, stop: int, n_keys: int) -> tuple[int, int]:
    """The first key that a query from `start` to `stop` may attend to by its place, and after the last.

    >>> key_range(Rule(causal=True), 4, 6, 9), key_range(Rule(causal=True, window=2), 4, 6, 9)
    ((0, 6), (3, 6))
    """
    first, last = 0, n_keys
    if rule.window is not None:
        first, last = max(0, start - rule.window + 1), min(last, stop - 1 + rule.window)
    if rule.causal:
        last = min(last, stop)
    return min(first, n_keys), max(min(first, n_keys), last)


def _edges(rule: Rule, start: int, stop: int, first: int, last: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The two ranges of keys in which some query from `start` to `stop` may not attend, and another may."""
    low, high = first, last
    if rule.window is not None:
        low, high = stop - rule.window, start + rule.window
    if rule.causal:
        high = min(high, start + 1)
    low = min(max(low, first), last)
    return (first, low), (max(low, min(high, last)), last)


def _of_heads(rule: Rule, piece: Piece) -> Rule:
    """The rule for some heads, of a mask that is given for each."""
    if rule.mask is None or rule.mask.ndim < 3 or rule.mask.shape[0] == 1:
        return rule
    return replace(rule, mask=rule.mask[piece.head : piece.last_head])
