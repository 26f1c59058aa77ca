"""What rows add to each measure: the formulas of the table, on rows."""

import numpy as np

from attnviz.measures.rows import Ratio, Rows


def entropy(rows: Rows) -> Ratio:
    """−Σⱼ A[i, j] ln A[i, j]."""
    return Ratio(0 - rows.negentropy)


def span(rows: Rows) -> Ratio:
    """exp of the row's entropy."""
    return Ratio(np.exp(-rows.negentropy))


def distance(rows: Rows) -> Ratio:
    """Σⱼ A[i, j] |i − j|, weighed by the row's sum."""
    return Ratio(rows.sum_over(rows.apart), rows.sums)


def self_weight(rows: Rows) -> Ratio:
    """A[i, i]."""
    return rows.at_offset(0)


def previous(rows: Rows) -> Ratio:
    """A[i, i − 1]."""
    return rows.at_offset(-1)


def following(rows: Rows) -> Ratio:
    """A[i, i + 1]."""
    return rows.at_offset(1)


def first(rows: Rows) -> Ratio:
    """A[i, 0], of every row but the first."""
    later = rows.positions > 0
    return Ratio(rows.at_key(0) * later, later)


def sink(rows: Rows) -> Ratio:
    """A[i, 0]."""
    return Ratio(rows.at_key(0))


def special(rows: Rows) -> Ratio:
    """Σ A[i, j] over the special tokens j."""
    return Ratio(rows.sum_over(rows.setting.special[rows.block.keys].astype(rows.block.values.dtype)))


def duplicate(rows: Rows) -> Ratio:
    """Σ A[i, j] over the earlier copies j of token i."""
    return Ratio(rows.sum_over_copies(0), rows.again)


def induction(rows: Rows) -> Ratio:
    """Σ A[i, j + 1] over the earlier copies j of token i."""
    return Ratio(rows.sum_over_copies(1), rows.again)


def largest(rows: Rows) -> Ratio:
    """maxⱼ A[i, j]."""
    block = rows.block
    most = block.values.max(axis=2) if block.values.size else np.zeros(rows.sums.shape, rows.sums.dtype)
    if block.values.shape[2] < block.n_keys:
        most = np.maximum(most, 0)
    return Ratio(block.times(most))
