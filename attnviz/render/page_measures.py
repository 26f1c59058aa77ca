"""A few numbers for each head, for a page whose maker has no others."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from attnviz.arrays import Floats, quiet
from attnviz.maps import AttentionMap

HeadValues: TypeAlias = Sequence[Sequence[float | None]]
"""[map][head] in the order of the record; None where a head has no such number."""


def head_values(maps: Sequence[AttentionMap]) -> Mapping[str, HeadValues]:
    """Entropy in nats, largest weight, weight on the first key and, where queries are keys, on oneself and distance.

    Each is the mean over a head's rows, as they are; a row that is no number makes it None. Entropy is
    −Σⱼ A[i, j] ln A[i, j], distance Σⱼ A[i, j] |i − j|.

    >>> from attnviz.maps import StoredWeights
    >>> from attnviz.tokens import Tokens
    >>> ab = Tokens.of("ab")
    >>> one = AttentionMap("m", 0, (0,), StoredWeights(np.array([[[1.0, 0.0], [0.5, 0.5]]])), ab, ab)
    >>> [(name, round(values[0][0], 3)) for name, values in head_values([one]).items()]
    [('entropy', 0.347), ('largest', 0.75), ('sink', 0.75), ('self', 0.75), ('distance', 0.25)]
    """
    names = [name for name in _FOLDS if name not in _PLACED or all(map(_is_placed, maps))]
    found: dict[str, list[list[float | None]]] = {name: [] for name in names}
    for one in maps:
        for name in names:
            found[name].append(_of_map(one, _FOLDS[name]))
    return found


def _of_map(one: AttentionMap, fold: Callable[[Floats, int], Floats]) -> list[float | None]:
    if not len(one.query) or not len(one.key):
        return [None] * len(one.heads)
    sums = np.zeros(len(one.heads))
    with quiet(np):
        for start, block in one.blocks():
            sums += fold(block, start).sum(axis=1, dtype=np.float64)
    return [float(value) if np.isfinite(value) else None for value in sums / len(one.query)]


def _is_placed(one: AttentionMap) -> bool:
    return one.kind == "self" and one.query == one.key


def _entropy(block: Floats, start: int) -> Floats:
    return np.asarray(-(block * np.log(np.where(block > 0, block, 1))).sum(axis=2))


def _largest(block: Floats, start: int) -> Floats:
    return np.asarray(block.max(axis=2))


def _sink(block: Floats, start: int) -> Floats:
    return block[:, :, 0]


def _self(block: Floats, start: int) -> Floats:
    rows = np.arange(block.shape[1])
    return block[:, rows, start + rows]


def _distance(block: Floats, start: int) -> Floats:
    queries, keys = np.arange(start, start + block.shape[1]), np.arange(block.shape[2])
    return np.asarray((block * np.abs(queries[:, None] - keys)).sum(axis=2))


_FOLDS: Mapping[str, Callable[[Floats, int], Floats]] = {
    "entropy": _entropy,
    "largest": _largest,
    "sink": _sink,
    "self": _self,
    "distance": _distance,
}
_PLACED = ("self", "distance")
"""Those that compare positions of queries and keys."""
