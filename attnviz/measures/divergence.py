"""Jensen-Shannon divergence: how differently two rows of attention look."""

import numpy as np

from attnviz.arrays import Floats
from attnviz.measures.rows import Ratio, Rows, raised


def js_divergence(a: Floats, b: Floats) -> Floats:
    """JS(a, b) = ½ Σⱼ [aⱼ ln(aⱼ / mⱼ) + bⱼ ln(bⱼ / mⱼ)], m = (a + b) / 2, over the last axis.

    Exact where a and b nearly agree: aⱼ / mⱼ is 1 + (aⱼ − bⱼ) / (aⱼ + bⱼ), and its logarithm is taken from there.

    Args:
        a, b: [..., key], not smoothed; what is below 0 counts as 0. Rows that do not sum to 1 are taken as they are.

    Returns:
        [...] in nats as float64: 0 for equal rows, ln 2 at most where rows sum to 1, never below 0; NaN where a
        value is no number or infinite.

    Source: Lin 1991, "Divergence measures based on the Shannon entropy"; the divergence, not its root.

    >>> js_divergence(np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([0.  , 0.693147])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = (np.maximum(x, 0, dtype=np.float64) for x in (a, b))
        total = a + b
        ratio = np.divide(a - b, total, out=np.zeros_like(total), where=total != 0)
        terms = np.zeros_like(total)
        for x, away in ((a, ratio), (b, -ratio)):
            logs = np.log1p(away, out=np.zeros_like(away), where=(away > -0.5) & (x != 0))
            far = (away <= -0.5) & (x != 0)  # so near −1, perhaps, that rounding has taken the rest
            np.log(2 * x / total, out=logs, where=far)
            terms += x * logs
        result: Floats = np.maximum(terms.sum(axis=-1) / 2, 0.0)
    return result


EXACT_ROWS, MOST_ROWS = 256, 32
"""Every row is compared with those of the other heads up to so many; beyond, at most so many are, evenly spaced: pairs
of heads are many, and each weight of each pair takes a logarithm."""


def compared_rows(n_queries: int, *, every: bool = False) -> range:
    """The rows that are compared with those of other heads: every one, or of many a few.

    >>> compared_rows(4), compared_rows(1000), compared_rows(1000, every=True)
    (range(0, 4), range(16, 1000, 32), range(0, 1000))
    """
    step = 1 if every or n_queries <= EXACT_ROWS else -(-n_queries // MOST_ROWS)
    return range(step // 2, n_queries, step)


def between_heads(rows: Rows) -> Ratio:
    """Each row's mean divergence to the same row of the other heads, [head, row], of rows of all heads.

    JS(a, b) = H(m) − ½ H(a) − ½ H(b): one logarithm for each weight of each pair of heads. Equal rows give 0.
    """
    total, number = _totals(rows)
    return Ratio(np.divide(total, number, out=total, where=number > 0), number > 0)


def _totals(rows: Rows) -> tuple[Floats, Floats]:
    """The divergences to the other heads added up, and to how many: [head, row]."""
    weights, n_heads = raised(rows.block.weights), rows.setting.n_heads
    counted, ordinary = rows.counted, rows.setting.ordinary
    mixed, logs = np.empty_like(weights), np.log(weights)
    own = np.vecdot(weights, logs)  # as m ln m is, to the last bit: equal rows differ by 0
    half = weights * weights.dtype.type(0.5)
    total, number = (np.zeros(own.shape) for _ in range(2))
    for i in range(n_heads - 1):
        others = slice(i + 1, n_heads)
        m, log = mixed[others], logs[others]
        np.add(half[i], half[others], out=m)
        np.log(m, out=log)
        both = counted[i] & counted[others]
        divergence = np.where(both, np.maximum((own[i] + own[others]) / 2 - np.vecdot(m, log), 0), 0)
        heads = ordinary[others]
        total[i] += divergence[heads].sum(axis=0)
        number[i] += both[heads].sum(axis=0)
        if ordinary[i]:
            total[others] += divergence
            number[others] += both
    return total, number
