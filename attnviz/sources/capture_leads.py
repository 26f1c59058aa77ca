"""The axes before query and key: which of them is the batch, and which are heads."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnviz.errors import RequestError
from attnviz.sources.capture_tags import Folded, Given


@dataclass(frozen=True)
class Leads:
    """How the axes before the last two are shared out."""

    sizes: tuple[int, ...]
    """As they are in the weights."""
    batch: int
    heads: int
    heads_first: bool = False

    def item(self, x: torch.Tensor, index: int) -> torch.Tensor:
        """What `x` [..., a, b] has for one item of the batch: [head, a, b].

        Axes of `x` before the last two are as in the weights, or fewer heads, or 1, or not there.
        """
        ends = x.shape[-2:]
        if len(self.sizes) < 2:
            x = x.expand(*self.sizes, *ends).reshape(
                *((self.heads, self.batch) if self.heads_first else (self.batch, self.heads)), *ends
            )
        else:
            x = x.reshape(*(1,) * (len(self.sizes) + 2 - x.ndim), *x.shape)
        axis = 1 if self.heads_first else 0
        x = x.select(axis, 0 if x.shape[axis] == 1 else index)
        if x.ndim > 3:
            x = x.expand(*self.sizes[1:], *ends)
        return x.reshape(-1, *ends)


def leads_of(
    sizes: Sequence[int],
    folded: Folded | None,
    inputs: Sequence[Given],
    n_queries: int,
    n_heads: int | None = None,
) -> Leads:
    """Which axes are the batch and which are heads.

    Of two axes and more the first is the batch. One axis may be both joined: then the tensors before it, the number
    of heads where it is given, or the batch that the model was given tell how.

    Args:
        sizes: the axes before query and key.
        folded: the two axes that one axis was made from, where that was seen.
        inputs: what the model was given.
        n_queries: the length of the query axis.
        n_heads: the number of heads, where the reader says it.

    Raises:
        RequestError: there cannot be that many heads.

    >>> leads_of((8,), None, [Given((2, 5, 6), True)], 5).heads
    4
    """
    total = int(torch.Size(sizes).numel())
    if n_heads is not None and (n_heads < 1 or total % n_heads):
        raise RequestError(f"{n_heads} heads do not fit weights of {' × '.join(map(str, sizes)) or 'one head'}")
    batch = batch_of(inputs, n_queries)
    if len(sizes) >= 2:
        sure = folded is not None and folded.sure
        return _of_several(tuple(sizes), None if sure else batch, n_heads)
    axis = tuple(sizes)
    if n_heads is not None:
        heads_first = folded is not None and not folded.sure and folded.first == n_heads != folded.second
        return Leads(axis, total // n_heads, n_heads, heads_first)
    if folded is not None and folded.first * folded.second == total and (folded.sure or batch != total):
        if not folded.sure and folded.second == batch != folded.first:
            return Leads(axis, folded.second, folded.first, heads_first=True)
        return Leads(axis, folded.first, folded.second)
    if batch is not None and total % batch == 0:
        return Leads(axis, batch, total // batch)
    return Leads(axis, total, 1)


def _of_several(sizes: tuple[int, ...], batch: int | None, n_heads: int | None) -> Leads:
    """The first axis is the batch, unless it can only be the heads."""
    first, heads = sizes[0], int(torch.Size(sizes[1:]).numel())
    turned = len(sizes) == 2 and first != heads
    if n_heads is not None and n_heads != heads and not (turned and n_heads == first):
        raise RequestError(f"there are {heads} heads in weights of {' × '.join(map(str, sizes))}, not {n_heads}")
    if turned and (n_heads == first or (n_heads is None and heads == batch and first % batch)):
        return Leads(sizes, heads, first, heads_first=True)
    return Leads(sizes, first, heads)


def batch_of(inputs: Sequence[Given], n_queries: int) -> int | None:
    """How many items were in the batch that the model was given; None where its inputs do not tell.

    >>> batch_of([Given((5, 2, 6), True)], 5), batch_of([Given((2, 5), False)], 5)
    (2, 2)
    """
    for one in inputs:
        if len(one.shape) < 2:
            continue
        first, second = one.shape[:2]
        if first == n_queries != second:  # the sequence comes first
            return 1 if len(one.shape) == 2 and one.floating else second
        return 1 if len(one.shape) == 2 and one.floating and first == n_queries else first
    return None
