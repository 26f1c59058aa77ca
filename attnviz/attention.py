"""The maths of attention, once for NumPy, torch and any array API library.

Axes come in the order head, query, key (or head, token, d_head); any axes may stand before them.
`scores` are before the softmax and `weights` after it. `allowed` is True where a query may attend to a
key. Source throughout: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnviz.arrays import Array, is_bool, like, namespace, quiet, widened
from attnviz.errors import RequestError


def softmax(scores: Array, allowed: Array | None = None, sink: Array | None = None) -> Array:
    """The softmax over the last axis, over the allowed entries alone.

    softmax(s)_j = exp(s_j − max s) / Σ_k exp(s_k − max s): shifting by the maximum changes nothing in the
    result and keeps exp from overflowing. A sink is one more score in the sum and the maximum, and no key.

    Args:
        scores: [..., key], any range.
        allowed: booleans that broadcast to `scores`; None allows everything.
        sink: scores that broadcast to [..., 1].

    Returns:
        [..., key] in 0..1. A row sums to 1, with a sink to less; one that may attend to nothing is 0 throughout.

    >>> import numpy as np
    >>> softmax(np.array([1e4, 1e4, -1e4]))
    array([0.5, 0.5, 0. ])
    >>> softmax(np.zeros(3), np.array([True, False, False]))
    array([1., 0., 0.])
    >>> softmax(np.zeros(2), np.array([False, False]))
    array([0., 0.])
    >>> softmax(np.zeros(3), sink=np.zeros(1))
    array([0.25, 0.25, 0.25])
    """
    xp = namespace(scores)
    wide = widened(scores)
    if allowed is not None:
        wide = xp.where(allowed, wide, float(xp.finfo(wide.dtype).min))
    if sink is not None:
        wide = xp.concat([wide, xp.broadcast_to(like(sink, wide), (*wide.shape[:-1], 1))], axis=-1)
    if xp.__name__ == "torch":
        weights = wide.softmax(-1)  # half the time of the same thing spelled out
    else:
        with quiet(xp):  # the smallest score minus a large maximum is -inf, and exp(-inf) is the 0 wanted
            weights = xp.exp(wide - xp.max(wide, axis=-1, keepdims=True))
            weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    if sink is not None:
        weights = weights[..., :-1]
    if allowed is not None:
        weights = xp.where(allowed, weights, 0.0)
    return like(weights, scores)


def split_heads(x: Array, n_heads: int) -> Array:
    """[..., token, n_heads · d_head] → [..., head, token, d_head]; head h owns columns h·d_head onwards.

    Raises:
        RequestError: the width is no multiple of `n_heads`, or 0.

    >>> import numpy as np
    >>> split_heads(np.arange(8).reshape(2, 4), 2).tolist()
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """
    width = x.shape[-1]
    if n_heads < 1 or width < 1 or width % n_heads:
        raise RequestError(heads_message(width, n_heads))
    xp = namespace(x)
    return xp.moveaxis(xp.reshape(x, (*x.shape[:-1], n_heads, width // n_heads)), -2, -3)


def heads_message(width: int, n_heads: int, what: str = "d_model") -> str:
    """What to say when `n_heads` heads cannot share the `width` columns of `what`, with the numbers that could.

    >>> heads_message(6, 4)
    'd_model 6 cannot be split into 4 heads: the number of heads must divide it (1, 2, 3 or 6)'
    """
    divisors = [str(n) for n in range(1, width + 1) if width % n == 0]
    fit = " or ".join(filter(None, [", ".join(divisors[:-1]), divisors[-1]])) if divisors else "none"
    return f"{what} {width} cannot be split into {n_heads} heads: the number of heads must divide it ({fit})"


def merge_heads(x: Array) -> Array:
    """[..., head, token, d_head] → [..., token, n_heads · d_head]: undoes `split_heads`.

    >>> import numpy as np
    >>> merge_heads(split_heads(np.arange(8).reshape(2, 4), 2)).tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    xp = namespace(x)
    x = xp.moveaxis(x, -3, -2)
    return xp.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def grouped(x: Array, n_heads: int) -> Array:
    """Key or value heads repeated so that each serves its run of neighbouring query heads.

    Query head h uses key head h // (n_heads / n_kv_heads). Source: Ainslie et al. 2023, "GQA".

    Args:
        x: [..., n_kv_heads, token, d_head].
        n_heads: the number of query heads, a multiple of n_kv_heads.

    Returns:
        [..., n_heads, token, d_head].

    Raises:
        RequestError: the query heads cannot be shared out evenly.

    >>> import numpy as np
    >>> grouped(np.arange(2).reshape(2, 1, 1), 4).ravel().tolist()
    [0, 0, 1, 1]
    """
    n_kv = x.shape[-3]
    if n_kv == n_heads:
        return x
    if n_kv == 0 or n_heads % n_kv:
        raise RequestError(f"{n_heads} query heads cannot share {n_kv} key heads: one must divide the other")
    xp = namespace(x)
    *before, _, tokens, width = x.shape
    runs = xp.broadcast_to(x[..., :, None, :, :], (*before, n_kv, n_heads // n_kv, tokens, width))
    return xp.reshape(runs, (*before, n_heads, tokens, width))


def scaled_scores(q: Array, k: Array, scale: float | None = None) -> Array:
    """q kᵀ · scale, one score for each query and key.

    Args:
        q: [..., head, query, d_head].
        k: [..., kv_head, key, d_head]; fewer heads than `q` has are shared by runs of its heads.
        scale: 1/√d_head unless given; 1.0 for none.

    Returns:
        [..., head, query, key], in the dtype of `q`.

    >>> import numpy as np
    >>> scaled_scores(np.array([[[1.0, 0.0]]]), np.array([[[1.0, 0.0], [0.0, 1.0]]]), scale=2.0)
    array([[[2., 0.]]])
    """
    if q.shape[-1] != k.shape[-1]:
        raise RequestError(f"queries have {q.shape[-1]} columns and keys {k.shape[-1]}: they must be equally wide")
    factor = float(q.shape[-1]) ** -0.5 if scale is None else float(scale)  # a Python float keeps float32
    return (q * factor) @ grouped(k, q.shape[-3]).mT


def capped(scores: Array, softcap: float) -> Array:
    """Scores that come near to ±softcap, and never go beyond it: softcap · tanh(scores / softcap).

    Source: Bello et al. 2016, "Neural Combinatorial Optimization with Reinforcement Learning", section A.2.

    >>> import numpy as np
    >>> capped(np.array([-1e9, 0.0, 1e9]), 50.0)
    array([-50.,   0.,  50.])
    """
    return namespace(scores).tanh(scores / softcap) * softcap


def additive(bias: Array) -> tuple[Array, Array]:
    """A mask that is added to the scores, as what may be attended and what is really added there.

    An entry at or below −1e9, or half the dtype's minimum where that is nearer, counts as "not allowed":
    libraries write −inf, the dtype's minimum or −1e9 for it, and only −inf would come out as weight 0.

    Args:
        bias: [..., query, key], floats.

    Returns:
        `allowed`, booleans, and the bias with 0 where it does not allow.

    >>> import numpy as np
    >>> allowed, bias = additive(np.array([0.0, -2.0, -1e9, -np.inf]))
    >>> allowed.tolist(), bias.tolist()
    ([True, True, False, False], [0.0, -2.0, 0.0, 0.0])
    """
    xp = namespace(bias)
    allowed = bias > max(-1e9, float(xp.finfo(bias.dtype).min) / 2)
    return allowed, xp.where(allowed, bias, 0.0)


@dataclass(frozen=True)
class Rule:
    """Which keys a query may attend to, as a rule: the n × n mask is never built, only blocks of its rows."""

    causal: bool = False
    """No key after the query."""

    window: int | None = None
    """|query − key| < window, so the token itself counts as one."""

    keys: Array | None = None
    """[key] booleans: False for padding, to which nothing attends."""

    mask: Array | None = None
    """[query, key] or [head, query, key]: booleans, or floats that are added to the scores.

    A mask of one row stands for all queries.
    """

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise RequestError(f"a window holds at least the token itself: 1 or more, got {self.window}")

    @property
    def said(self) -> dict[str, bool | int]:
        """The rule without its arrays, as provenance has it; nothing where it allows everything.

        >>> Rule(causal=True, window=3).said, Rule().said
        ({'causal': True, 'window': 3}, {})
        """
        causal: dict[str, bool | int] = {"causal": True} if self.causal else {}
        return causal if self.window is None else {**causal, "window": self.window}

    def also(self, other: "Rule") -> "Rule":
        """What this rule and the other one both allow; what they add to the scores is added up.

        Raises:
            RequestError: their masks are of sizes that do not go together.

        >>> Rule(window=3).also(Rule(causal=True, window=2))
        Rule(causal=True, window=2, keys=None, mask=None)
        """
        windows = [rule.window for rule in (self, other) if rule.window is not None]
        return Rule(
            self.causal or other.causal,
            min(windows) if windows else None,
            _both(self.keys, other.keys),
            _both(self.mask, other.mask),
        )

    def placed(self, place: Callable[[Array], Array]) -> "Rule":
        """The same rule with its arrays where `place` puts them."""
        keys, mask = (None if part is None else place(part) for part in (self.keys, self.mask))
        return replace(self, keys=keys, mask=mask)

    def check(self, n_queries: int, n_keys: int, n_heads: int | None = None) -> None:
        """Refuse what is made for another number of queries, keys or heads.

        Raises:
            RequestError: it does not fit.
        """
        if self.keys is not None and self.keys.shape[-1] != n_keys:
            raise RequestError(f"the padding is given for {self.keys.shape[-1]} keys, but there are {n_keys} keys")
        if self.mask is not None:
            rows, columns = self.mask.shape[-2:]
            if rows not in (1, n_queries) or columns != n_keys:
                sizes = f"{n_queries} queries and {n_keys} keys"
                raise RequestError(f"the mask is {rows} × {columns}, but there are {sizes}")
            masks = self.mask.shape[0] if self.mask.ndim == 3 else 1
            if n_heads is not None and masks not in (1, n_heads):
                raise RequestError(f"the mask is given for {masks} heads, but there are {n_heads}")

    def by_place(self, queries: Array, keys: Array) -> Array | None:
        """[query, key]: what causality and the window allow at these positions; None where they allow everything.

        >>> import numpy as np
        >>> Rule(causal=True, window=2).by_place(np.array([3]), np.arange(1, 5)).tolist()
        [[False, True, True, False]]
        """
        queries, keys = queries[:, None], keys[None, :]
        conditions = [keys <= queries] if self.causal else []
        if self.window is not None:
            conditions.append(namespace(keys).abs(queries - keys) < self.window)
        return _all_of(conditions)

    def block(
        self, start: int, stop: int, last: int, scores: Array, first: int = 0
    ) -> tuple[Array | None, Array | None]:
        """What rows `start` to `stop` may attend to, and what is added to their scores.

        Args:
            start, stop: the queries asked for.
            last: the key before which those asked for end.
            scores: an array of the library, dtype and device wanted.
            first: the key with which they begin.

        Returns:
            `allowed` [row, key] or [head, row, key], or None where everything is; the bias, or None.
        """
        xp = namespace(scores)
        conditions = []
        if self.causal or self.window is not None:
            places = (xp.arange(a, b, device=scores.device) for a, b in ((start, stop), (first, last)))
            conditions.append(self.by_place(*places))
        if self.keys is not None:
            conditions.append(self.keys[None, first:last])
        bias = None
        if self.mask is not None:
            rows = self.mask if self.mask.shape[-2] == 1 else self.mask[..., start:stop, :]
            rows = rows[..., first:last]
            if is_bool(rows):
                conditions.append(rows)
            else:
                allowed, bias = _added(rows, scores)
                conditions.append(allowed)
        return _all_of(conditions), bias


def _added(bias: Array, scores: Array) -> tuple[Array, Array]:
    allowed, bias = additive(bias)
    if bias.dtype == scores.dtype:
        return allowed, bias
    within, bias = additive(like(bias, scores))  # the scores' dtype may be too narrow for what the mask's holds
    return allowed & within, bias


def _both(mask: Array | None, other: Array | None) -> Array | None:
    """One mask for two: allowed by both, with both biases."""
    if mask is None or other is None:
        return other if mask is None else mask
    try:
        np.broadcast_shapes(tuple(mask.shape), tuple(other.shape))
    except ValueError:
        shapes = " and ".join(" × ".join(map(str, one.shape)) for one in (mask, other))
        raise RequestError(f"masks of {shapes} do not go together") from None
    if is_bool(mask) and is_bool(other):
        return mask & other
    (allowed, bias), (also_allowed, more) = ((one, 0.0) if is_bool(one) else additive(one) for one in (mask, other))
    return namespace(mask).where(allowed & also_allowed, bias + more, -math.inf)


def _all_of(conditions: Sequence[Array]) -> Array | None:
    result = None
    for condition in conditions:
        result = condition if result is None else result & condition
    return result


EVERYTHING = Rule()
"""Every query may attend to every key."""


def check_softmax(softcap: float | None, sink: Array | None, n_heads: int) -> None:
    """Refuse a cap that leaves nothing of the scores, and sinks that are made for another number of heads.

    Raises:
        RequestError: they do not fit.
    """
    if softcap is not None and not softcap > 0:
        raise RequestError(f"scores are capped at a number above 0, got {softcap:g}")
    if sink is not None and tuple(sink.shape) != (n_heads,):
        shape = " × ".join(map(str, sink.shape))
        raise RequestError(f"there is one sink for each of {n_heads} heads, but they are given for {shape}")


def attention_weights(
    q: Array,
    k: Array,
    rule: Rule = EVERYTHING,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Array | None = None,
    start: int = 0,
    stop: int | None = None,
) -> Array:
    """softmax(q kᵀ · scale) over the keys that `rule` allows, for queries `start` to `stop`.

    With a sink a row sums to less than 1: its weight j is exp(s_j) / (exp(sink) + Σ_k exp(s_k)). Sources of caps and
    sinks: Gemma Team 2024, "Gemma 2", section 2; OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2.

    Args:
        q: [..., head, query, d_head].
        k: [..., kv_head, key, d_head].
        rule: what may be attended.
        scale: 1/√d_head unless given.
        softcap: scores s become softcap · tanh(s / softcap), before the rule adds or masks anything.
        sink: [head], for each head a score of its own, in the sum of each row, of what is no key.
        start, stop: the queries asked for; all unless given.

    Returns:
        [..., head, row, key] in 0..1, in the dtype of `q`.

    Raises:
        RequestError: the rule, the cap, the sinks, or the width of the keys, does not fit the queries.

    >>> import numpy as np
    >>> keys = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    >>> attention_weights(np.array([[[1.0, 0.0]]]), keys).round(3)
    array([[[0.401, 0.198, 0.401]]])
    """
    stop = q.shape[-2] if stop is None else stop
    rule.check(q.shape[-2], k.shape[-2], q.shape[-3])
    check_softmax(softcap, sink, q.shape[-3])
    rows = q[..., start:stop, :]
    scores = scaled_scores(widened(rows), widened(k), scale)
    if softcap is not None:
        scores = capped(scores, softcap)
    allowed, bias = rule.block(start, stop, k.shape[-2], scores)
    if bias is not None:
        scores = scores + bias
    return like(softmax(scores, allowed, None if sink is None else sink[:, None, None]), q)


def attend(weights: Array, v: Array) -> Array:
    """The weighted sum of the values.

    Args:
        weights: [..., head, query, key].
        v: [..., kv_head, key, d_value]; fewer heads are shared as in `grouped`.

    Returns:
        [..., head, query, d_value], in the dtype of `weights`.

    >>> import numpy as np
    >>> attend(np.array([[[0.25, 0.75]]]), np.array([[[4.0], [8.0]]]))
    array([[[7.]]])
    """
    return like(widened(weights) @ widened(grouped(v, weights.shape[-3])), weights)


@dataclass(frozen=True)
class Projections:
    """The matrices that make queries, keys, values and the output; x @ w + b, so [d_in, d_out]."""

    w_q: Array
    """[d_model, n_heads · d_head]."""
    w_k: Array
    """[d_model, n_kv_heads · d_head]."""
    w_v: Array
    """[d_model, n_kv_heads · d_value]."""
    w_o: Array | None = None
    """[n_heads · d_value, d_model], or None: the heads' outputs are only joined."""
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    b_o: Array | None = None

    @classmethod
    def per_head(
        cls, w_q: Sequence[Array], w_k: Sequence[Array], w_v: Sequence[Array], w_o: Array | None = None
    ) -> "Projections":
        """From one [d_model, d_head] matrix per head: side by side they are the full matrices.

        >>> import numpy as np
        >>> Projections.per_head([np.zeros((3, 2))] * 4, [np.zeros((3, 2))] * 4, [np.zeros((3, 1))] * 4).w_q.shape
        (3, 8)
        """
        xp = namespace(w_q[0])
        full_q, full_k, full_v = (xp.concat(list(matrices), axis=-1) for matrices in (w_q, w_k, w_v))
        return cls(full_q, full_k, full_v, w_o)


def projected(x: Array, w: Array, b: Array | None = None) -> Array:
    """x @ w + b, or x @ w where there is no bias.

    >>> import numpy as np
    >>> projected(np.ones((1, 2)), np.ones((2, 1)), np.ones(1))
    array([[3.]])
    """
    y = like(widened(x) @ widened(w), x)
    return y if b is None else y + b


def project_heads(
    x: Array, context: Array, projections: Projections, n_heads: int, n_kv_heads: int | None = None
) -> tuple[Array, Array, Array]:
    """The queries of `x` and the keys and values of `context` (`x` again: self-attention), split into heads.

    Args:
        x: [..., query, d_model].
        context: [..., key, d_model].
        projections: the matrices.
        n_heads, n_kv_heads: query heads, and key and value heads where these are fewer.

    Returns:
        q, k, v: [..., head, token, d_head] each.
    """
    p = projections
    n_kv = n_heads if n_kv_heads is None else n_kv_heads
    return (
        split_heads(projected(x, p.w_q, p.b_q), n_heads),
        split_heads(projected(context, p.w_k, p.b_k), n_kv),
        split_heads(projected(context, p.w_v, p.b_v), n_kv),
    )


def joined_output(head_outputs: Array, projections: Projections) -> Array:
    """The heads' outputs side by side, through the output projection where there is one.

    Args:
        head_outputs: [..., head, query, d_value].

    Returns:
        [..., query, d_model].
    """
    joined = merge_heads(head_outputs)
    return joined if projections.w_o is None else projected(joined, projections.w_o, projections.b_o)


@dataclass(frozen=True)
class MultiHead:
    """What multi-head attention gives, with what it went through."""

    weights: Array
    """[..., head, query, key] in 0..1."""
    head_outputs: Array
    """[..., head, query, d_value]."""
    output: Array
    """[..., query, d_model]."""


def multi_head_attention(
    x: Array,
    projections: Projections,
    n_heads: int,
    *,
    context: Array | None = None,
    n_kv_heads: int | None = None,
    rule: Rule = EVERYTHING,
    scale: float | None = None,
) -> MultiHead:
    """Multi-head attention of `x` on itself, or on `context` where that is given (cross-attention).

    Args:
        x: [..., query, d_model].
        projections: the matrices, [d_in, d_out].
        n_heads: the heads that the columns of the queries are split into.
        context: [..., key, d_model].
        n_kv_heads: key and value heads, where these are fewer than `n_heads` (grouped-query attention).
        rule: what may be attended.
        scale: 1/√d_head unless given.

    >>> import numpy as np
    >>> one = np.eye(2)
    >>> multi_head_attention(np.zeros((3, 2)), Projections(one, one, one), 2).weights.shape
    (2, 3, 3)
    """
    q, k, v = project_heads(x, x if context is None else context, projections, n_heads, n_kv_heads)
    weights = attention_weights(q, k, rule, scale=scale)
    head_outputs = attend(weights, v)
    return MultiHead(weights, head_outputs, joined_output(head_outputs, projections))
