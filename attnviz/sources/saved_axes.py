"""Which axis of a saved array is what, and its weights layer by layer, widened as they are asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats, to_numpy
from attnviz.blocks import Block, Piece
from attnviz.errors import RequestError
from attnviz.sources.datafiles import from_bfloat16, sizes
from attnviz.sources.saved_contents import SavedArray

Axes = tuple[str, ...]

_ARRAY: Mapping[int, Axes] = {
    2: ("query", "key"),
    3: ("head", "query", "key"),
    4: ("layer", "head", "query", "key"),
    5: ("layer", "batch", "head", "query", "key"),
}
_LIST: Mapping[int, Axes] = {**_ARRAY, 3: ("layer", "query", "key")}
_BATCHED: Mapping[int, Axes] = {3: ("batch", "query", "key"), 4: ("batch", "head", "query", "key"), 5: _ARRAY[5]}
_BATCHED_LIST: Mapping[int, Axes] = {4: ("layer", "batch", "query", "key"), 5: _ARRAY[5]}
_PLAIN = _ARRAY[4]
"""The axes of a record, which need no word."""


@dataclass(frozen=True)
class SavedWeights:
    """One layer of a saved array; a block of rows is read and widened when it is asked for."""

    array: npt.NDArray[Any]
    """[head, query, key], in the dtype of the file."""
    widen: Callable[[npt.NDArray[Any]], Floats] = to_numpy

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        heads, queries, keys = self.array.shape
        return heads, queries, keys

    def rows(self, start: int, stop: int) -> Floats:
        """Weights [head, stop − start, key] of queries `start` to `stop`."""
        return self.widen(np.asarray(self.array[:, start:stop]))

    @property
    def divisible(self) -> bool:
        """Any part can be read by itself."""
        return True

    def block(self, piece: Piece, *, logits: bool = False) -> Block:
        """The part, read and widened."""
        head, last_head, start, stop = piece
        return Block(self.widen(np.asarray(self.array[head:last_head, start:stop])), head, start)


def layers_of(saved: SavedArray, batch: int | None, what: str) -> tuple[list[SavedWeights], str | None]:
    """The weights of each layer, and as what the axes are read where that is worth a word.

    Args:
        saved: 2 to 5 axes: query, key; before them head; layer; batch after layer.
        batch: which entry of the batch; with it, the axis before the heads of a single layer is the batch.
        what: how messages call the array.

    Raises:
        RequestError: it has other axes, none of some axis, several texts and no `batch`, or is not of numbers.
        AttnvizError: the file is damaged.
    """
    if saved.kind not in "fbiu":
        raise RequestError(f"{what} has dtype {saved.dtype}: weights are floats, or booleans or integers 0 and 1")
    axes = _axes_of(saved, batch, what)
    index = _batch_index(axes, saved.shape, batch, what)
    parts = saved.read()
    layers = list(parts) if "layer" in axes else [np.asarray(parts)]
    if index is not None:
        layers = [layer[index] for layer in layers]
    if "head" not in axes:
        layers = [layer[None] for layer in layers]
    widen = from_bfloat16 if saved.dtype == "bfloat16" else to_numpy
    return [SavedWeights(layer, widen) for layer in layers], _inferred(axes, saved.shape, index)


def _axes_of(saved: SavedArray, batch: int | None, what: str) -> Axes:
    n_axes = len(saved.shape)
    tables = (_LIST, _BATCHED_LIST) if saved.layered else (_ARRAY, _BATCHED)
    axes = tables[0 if batch is None else 1].get(n_axes)
    if axes is None and n_axes in _ARRAY:
        raise RequestError(f"{what} is {sizes(saved.shape)} and has no batch: leave out --batch")
    if axes is None:
        has = "1 axis" if n_axes == 1 else f"{n_axes} axes"
        raise RequestError(f"{what} has {has} ({sizes(saved.shape)}), not 2 to 5: {', '.join(_ARRAY[5])}")
    if 0 in saved.shape:
        axis = axes[saved.shape.index(0)]
        raise RequestError(f"{what} is {sizes(saved.shape)}: there is nothing on its {axis} axis")
    return axes


def _batch_index(axes: Axes, shape: Sequence[int], batch: int | None, what: str) -> int | None:
    if "batch" not in axes:
        return None
    size = shape[axes.index("batch")]
    if batch is None and size > 1:
        said = f"{what} holds a batch of {size} ({sizes(tuple(shape))}: {', '.join(axes)})"
        raise RequestError(f"{said}: choose one with --batch INDEX, 0 to {size - 1}")
    index = batch or 0
    if not 0 <= index < size:
        there = "only 0" if size == 1 else f"0 to {size - 1}"
        raise RequestError(f"no batch entry {index} in {what}: they are counted from 0, here {there}")
    return index


def _inferred(axes: Axes, shape: Sequence[int], index: int | None) -> str | None:
    if axes == _PLAIN:
        return None
    note = f"read as {', '.join(axes)}: {sizes(tuple(shape))}"
    if index is not None:
        size = shape[axes.index("batch")]
        note += "; the batch of 1 is left out" if size == 1 else f"; entry {index} of the batch of {size} is shown"
    return note
