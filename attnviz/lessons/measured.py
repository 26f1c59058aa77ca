"""Numbers that lessons read off attention weights: how spread out a row is, how far apart two are."""

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Array, Floats, to_numpy
from attnviz.measures.divergence import js_divergence

Doubles = npt.NDArray[np.float64]


def entropy(weights: Array) -> Doubles:
    """The entropy of each row, in nats: 0 where all weight is on one key, ln n where it is even.

    H = −Σ_j w_j ln w_j. Source: Shannon 1948, "A Mathematical Theory of Communication", section 6.

    Args:
        weights: [..., key] in 0..1.

    Returns:
        [...], 0 or more.

    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    w = to_numpy(weights).astype(np.float64)
    return np.asarray(0.0 - (w * _log(w)).sum(-1))


def between_heads(weights: Array) -> Doubles:
    """How far every two heads are apart: their Jensen-Shannon divergence, the mean over queries, in nats.

    Args:
        weights: [head, query, key].

    Returns:
        [head, head] in 0..ln 2; 0 on the diagonal.
    """
    heads = to_numpy(weights)
    return np.stack([js_divergence(head, heads).mean(-1) for head in heads])


def jacobian_size(weights: Array) -> Doubles:
    """How strongly each row of weights still answers to its scores: the Frobenius norm of the softmax's Jacobian.

    ∂w_i/∂s_j = w_i (δ_ij − w_j), so ‖J‖² = Σ w² − 2 Σ w³ + (Σ w²)².

    Args:
        weights: [..., key] in 0..1.

    Returns:
        [...], 0 where the softmax is saturated.

    >>> jacobian_size(np.array([[1.0, 0.0], [0.5, 0.5]])).tolist()
    [0.0, 0.5]
    """
    w = to_numpy(weights).astype(np.float64)
    squares = (w**2).sum(-1)
    return np.asarray(np.sqrt(np.maximum(squares - 2 * (w**3).sum(-1) + squares**2, 0.0)))


def _log(x: Floats) -> Doubles:
    """The logarithm, and 0 where it is of 0, so that 0 · log 0 is 0."""
    return np.log(np.where(x > 0, x, 1.0))
