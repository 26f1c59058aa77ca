"""Several heads or layers as one: their mean, their largest weight, and attention rollout."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from attnviz.arrays import Floats
from attnviz.blocks import Block
from attnviz.collect import Collector
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, StoredWeights, Weights, block_ranges
from attnviz.memory import check_room

Way: TypeAlias = Literal["mean", "max"]
_FEWER = "choose heads with --head, rows with --query or a stretch with --from and --to"
_OVER_HEADS: Mapping[Way, Callable[..., Any]] = {"mean": np.mean, "max": np.max}


@dataclass(frozen=True)
class ReducedHeads:
    """One head made of all heads of other weights, row by row."""

    base: Weights
    way: Way

    @property
    def shape(self) -> tuple[int, int, int]:
        """One head, queries, keys."""
        _, queries, keys = self.base.shape
        return 1, queries, keys

    def rows(self, start: int, stop: int) -> Floats:
        """Rows `start` to `stop`, the mean or the largest of the heads."""
        return np.asarray(_OVER_HEADS[self.way](self.base.rows(start, stop), axis=0, keepdims=True))


def over_heads(one: AttentionMap, way: Way) -> AttentionMap:
    """The map with one head, called after `way`: the mean or the largest weight of its heads.

    mean: (1 / H) Σₕ Aₕ, whose rows still sum to 1; max: maxₕ Aₕ, whose rows sum to 1 or more. The full-width head is
    left out where there are others. What is no number in one head is none here.

    >>> from attnviz.tokens import Tokens
    >>> weights, tokens = StoredWeights(np.array([[[1.0, 0.0]], [[0.5, 0.5]]])), Tokens.of("ab")
    >>> one = AttentionMap("m", 0, (0, 1), weights, tokens.pick([0]), tokens)
    >>> over_heads(one, "mean").rows(0, 1).tolist(), over_heads(one, "max").rows(0, 1).tolist()
    ([[[0.75, 0.25]]], [[[1.0, 0.5]]])
    """
    own = [i for i, head in enumerate(one.heads) if head != "single"]
    some = one.pick(heads=own) if 0 < len(own) < len(one.heads) else one
    return replace(some, heads=(way,), weights=ReducedHeads(some.weights, way))


def over_layers(maps: Iterable[AttentionMap], way: Way) -> AttentionMap:
    """One map with the mean or the largest weight of each head over the layers, which are seen one at a time.

    Head h of one layer and head h of the next have nothing in common but their number: after `over_heads` this is the
    mean over all heads. The map has the number of the last layer, and a name that says which went into it.

    Raises:
        RequestError: the maps differ in their heads or tokens, there are none, or the memory does not hold one.
    """
    total: Floats | None = None
    layers: list[int] = []
    first = last = None
    for one in maps:
        first = first or one
        _check_alike(first, one)
        if total is None:
            needed = 12 * int(np.prod(one.weights.shape))  # float64, and what it is rounded to
            check_room(needed, "keeping a map of every weight", _FEWER)
            total = np.zeros(one.weights.shape, np.float64)
        for start, block in one.blocks():
            part = total[:, start : start + block.shape[1]]
            if way == "mean":
                part += block
            else:
                np.maximum(part, block, out=part)
        layers.append(one.layer)
        last = one
    if total is None or last is None:
        raise RequestError(f"there is no layer to take the {way} of")
    if way == "mean":
        total /= len(layers)
    weights = StoredWeights(total.astype(last.rows(0, 0).dtype))
    which = "cross " if last.kind == "cross" else {"encoder": "", "decoder": "decoder "}[last.stack]
    name = f"{way} of {which}layers {', '.join(map(str, layers))}"
    return replace(last, name=name, title=name, weights=weights, output=None)


def rollout(maps: Iterable[AttentionMap]) -> Iterator[AttentionMap]:
    """Attention rollout up to each layer: how much of each input token is in each token, were attention all there is.

    Rₗ = Ãₗ Rₗ₋₁ with R₋₁ = I, where Ãₗ is ½ A + ½ I with its rows divided by their sums, and A the mean of the layer's
    heads; ½ I stands for the residual connection. A row that attends to nothing keeps its own token; a row that is no
    number makes none of what mixes it in. Layers are seen one at a time; two n × n matrices are kept.

    Args:
        maps: self-attention of one stack, each layer once, in order from the first on: rollout begins with the first.

    Returns:
        For each map one with the same layer and the one head `rollout`; its rows sum to 1.

    Raises:
        RequestError: the maps are no self-attention over the same tokens in every layer, or the memory does not hold
            it.

    Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.
    """
    rolled: Floats | None = None
    first = None
    for one in maps:
        first = first or one
        _check_alike(first, one)
        if one.kind == "cross" or one.query != one.key:
            raise RequestError("rollout is of self-attention, where the queries are the keys: leave these maps out")
        n_tokens = len(one.query)
        mean = over_heads(one, "mean")
        if rolled is None:
            instead = "take a shorter text, or choose --reduce mean"
            check_room(16 * n_tokens**2, "rollout, which keeps two n × n matrices,", instead)
            rolled = np.eye(n_tokens, dtype=mean.rows(0, 0).dtype)
        mixed = np.empty_like(rolled)
        for start, stop in block_ranges(one.weights.shape):
            block = mean.rows(start, stop)[0].astype(mixed.dtype)  # a copy: rows are only lent
            block[np.arange(stop - start), np.arange(start, stop)] += 1
            block /= block.sum(axis=1, keepdims=True)
            np.matmul(block, rolled, out=mixed[start:stop])
        rolled = mixed
        yield replace(one, heads=("rollout",), weights=StoredWeights(rolled[None]), output=None)


class RolloutCollector(Collector[tuple[slice, slice, Floats]]):
    """Attention rollout through all layers that are seen, while something else is made of them.

    Args:
        most: tokens up to which there is one, as a matrix [token, token] is kept for each layer.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._means: list[AttentionMap] = []

    def wants(self, one: AttentionMap) -> bool:
        """Whether it is self-attention of the stack that came first, from its first layer on, and not too long."""
        of_one = self._means[0].stack == one.stack if self._means else one.layer == 0
        return one.kind == "self" and one.query == one.key and of_one and 0 < len(one.query) <= self._most

    def begin(self, one: AttentionMap) -> None:
        """Make room for the mean of the map's heads."""
        self._map = one.without_weights()
        _, n_queries, n_keys = one.weights.shape
        self._sum: Floats = np.zeros((n_queries, n_keys))

    def look(self, block: Block) -> tuple[slice, slice, Floats]:
        """Add up the heads of the block."""
        return block.queries, block.keys, block.weights.sum(axis=0, dtype=np.float64)

    def keep(self, part: tuple[slice, slice, Floats]) -> None:
        """Add those of other heads."""
        queries, keys, total = part
        self._sum[queries, keys] += total

    def finish(self) -> None:
        """Keep the mean."""
        mean = StoredWeights(self._sum[None] / len(self._map.heads))
        self._means.append(replace(self._map, heads=("mean",), weights=mean))

    def result(self) -> Floats | None:
        """[query, key], as `rollout` has it after the last layer; None where no map was wanted."""
        last = deque(rollout(self._means), maxlen=1)
        return last[0].weights.rows(0, len(last[0].query))[0] if last else None


def _check_alike(first: AttentionMap, one: AttentionMap) -> None:
    """See that two maps can be put together.

    Raises:
        RequestError: they have other heads, tokens, or are of another stack.
    """
    if (first.stack, first.kind) != (one.stack, one.kind):
        raise RequestError(f"{first.name} and {one.name} are of different stacks: choose one")
    if first.heads != one.heads:
        raise RequestError(f"layer {first.layer} and layer {one.layer} hold different heads: choose the same for both")
    if first.query != one.query or first.key != one.key:
        raise RequestError(f"layer {first.layer} and layer {one.layer} hold different tokens: choose the same for both")
