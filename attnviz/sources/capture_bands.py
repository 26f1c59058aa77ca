"""Masks of a size that counts, which are only a rule written out: causal, a window, or both."""

import torch

from attnviz.attention import Rule

LONG = 512
"""Tokens from which on a mask is looked at: below, it is as quickly used as understood."""
_ROWS = 256


def band_of(mask: torch.Tensor) -> Rule | None:
    """The rule that a mask [query, key] writes out in every entry; None where it says anything else, or is short.

    >>> ones = torch.ones(600, 600, dtype=torch.bool)
    >>> band_of(ones.tril().triu(-2)), band_of(ones.tril(1).triu(-1))
    (Rule(causal=True, window=3, keys=None, mask=None), Rule(causal=False, window=2, keys=None, mask=None))
    """
    n_queries, n_keys = mask.shape
    if mask.dtype != torch.bool or n_queries != n_keys or n_keys < LONG:
        return None
    causal = not bool(mask[0, 1:].any())
    width = int(mask[-1 if causal else 0].sum())
    if not width or not _is_band(mask, width - 1, 0 if causal else width - 1):
        return None
    return Rule(causal=causal, window=None if width == n_keys else width)


def _is_band(mask: torch.Tensor, before: int, after: int) -> bool:
    """Whether each query may attend to so many keys before and after it, and to no others."""
    n = mask.shape[0]
    pattern = torch.ones(_ROWS, _ROWS + before + after, dtype=torch.bool, device=mask.device)
    pattern = pattern.triu().tril(before + after)
    for start in range(0, n, _ROWS):
        rows = mask[start : start + _ROWS]
        first, last = max(0, start - before), min(n, start + _ROWS + after)
        offset = first - (start - before)
        expected = pattern[: rows.shape[0], offset : offset + last - first]
        if rows[:, :first].any() or rows[:, last:].any() or not torch.equal(rows[:, first:last], expected):
            return False
    return True
