"""Weights of flex attention: queries and keys, and functions that change a score or allow a pair."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from attnviz.arrays import Floats, to_numpy
from attnviz.attention import scaled_scores, softmax
from attnviz.maps import Weights
from attnviz.sources.capture_calls import wide
from attnviz.sources.capture_leads import Leads

Modifier = Callable[..., torch.Tensor]
"""Of a score, its batch item, head, query and key; a mask has no score."""


@dataclass(frozen=True)
class FlexWeights:
    """Weights of one item of a batch, a block of rows at a time."""

    q: torch.Tensor
    """[head, query, d_head]."""
    k: torch.Tensor
    """[kv_head, key, d_head]."""
    index: int
    """The item of the batch."""
    score: Modifier
    allowed: Modifier
    scale: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return self.q.shape[0], self.q.shape[1], self.k.shape[1]

    def rows(self, start: int, stop: int) -> Floats:
        """softmax(score(q kᵀ · scale)) of rows `start` to `stop`, over the pairs that are allowed."""
        device, (n_heads, _, n_keys) = self.q.device, self.shape
        with torch.no_grad():
            item = torch.tensor(self.index, device=device)
            axes = (torch.arange(n_heads), torch.arange(start, stop), torch.arange(n_keys))
            places = (item, *(axis.to(device) for axis in axes))
            scores = scaled_scores(self.q[:, start:stop], self.k, self.scale)
            scores = _each_pair(self.score, of_scores=True)(scores, *places)
            return to_numpy(softmax(scores, _each_pair(self.allowed, of_scores=False)(*places)))


def _each_pair(modifier: Modifier, *, of_scores: bool) -> Modifier:
    """The function for all heads, queries and keys; it is written for one of each."""
    first = (0,) if of_scores else ()
    for head, query, key in ((None, None, 0), (None, 0, None), (0, None, None)):
        modifier = torch.vmap(modifier, in_dims=(*first, None, head, query, key))
    return modifier


@dataclass(frozen=True)
class Flexed:
    """Queries and keys, and the functions that flex attention was given."""

    q: torch.Tensor
    k: torch.Tensor
    score: Modifier
    allowed: Modifier
    scale: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """The axes before query and key, then queries, then keys."""
        return (*self.q.shape[:-1], self.k.shape[-2])

    def item(self, leads: Leads, index: int) -> tuple[Weights, tuple[str, ...]]:
        """The weights of one item, made when they are asked for."""
        q, k = (wide(leads.item(x, index)) for x in (self.q, self.k))
        return FlexWeights(q, k, index, self.score, self.allowed, self.scale), ()

    def copied(self) -> "Flexed":
        """The same of copies of the queries and keys."""
        return replace(self, q=self.q.clone(), k=self.k.clone())


def flexed(args: Sequence[Any]) -> Flexed:
    """What the higher-order operator of flex attention was called with.

    Its arguments are q, k, v, the score function, the block mask that ends with its mask function, the scale, options
    for the kernel, and the tensors that the two functions take besides.
    """
    q, k, _, score, blocks, scale = args[:6]
    more_for_score, more_for_mask = (tuple(args[7]), tuple(args[8])) if len(args) > 8 else ((), ())
    allowed = blocks[-1]
    return Flexed(
        q.detach(),
        k.detach(),
        lambda *places: score(*places, *more_for_score),
        lambda *places: allowed(*places, *more_for_mask),
        float(scale),
    )
