"""Blocks of weights pooled to tiles: added up, or the largest of each."""

from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.blocks import Block

Pool: TypeAlias = Literal["mean", "max"]
"""What a tile is of the weights that it stands for."""
Edges: TypeAlias = npt.NDArray[np.intp]
"""Where tiles begin, and after the last where it ends: n tiles have n + 1 edges."""


def tile_edges(length: int, most: int) -> Edges:
    """Edges of at most `most` tiles over `length` tokens, all of one size but the last.

    >>> tile_edges(5, 9).tolist(), tile_edges(5, 2).tolist()
    ([0, 1, 2, 3, 4, 5], [0, 3, 5])
    """
    step = max(1, -(-length // most))
    return np.append(np.arange(0, length, step), length)


class Tiles(NamedTuple):
    """What one block adds to the tiles."""

    heads: slice
    rows: slice
    columns: slice
    values: Floats
    """[head, tile row, tile column]: sums, or the largest weights."""


def pooled(block: Block, rows: Edges, columns: Edges, pool: Pool) -> Tiles:
    """The sums, or the largest, of the weights of a block in each tile that it touches.

    Rows are put together first: that is one pass over the block, and leaves little to do along the keys.

    >>> block = Block(np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]))
    >>> pooled(block, np.array([0, 2]), np.array([0, 2, 3]), "mean").values.tolist()
    [[[12.0, 9.0]]]
    >>> pooled(block, np.array([0, 2]), np.array([0, 2, 3]), "max").values.tolist()
    [[[5.0, 6.0]]]
    """
    if not block.values.size:
        return Tiles(block.heads, slice(0), slice(0), np.zeros((block.values.shape[0], 0, 0)))
    first, last = (int(np.searchsorted(rows, i, side="right")) - 1 for i in (block.start, block.queries.stop - 1))
    left, right = (int(np.searchsorted(columns, i, side="right")) - 1 for i in (block.key, block.keys.stop - 1))
    edges = np.clip(rows[first : last + 2] - block.start, 0, block.values.shape[1])
    if len(edges) > block.values.shape[1]:
        together = block.weights.copy()
    else:
        together = _summed(block, edges) if pool == "mean" else _largest(block, edges)
    starts = np.maximum(columns[left : right + 1] - block.key, 0)
    if len(starts) == together.shape[2]:
        values = together
    elif pool == "mean":
        values = np.add.reduceat(together, starts, axis=2, dtype=np.float64)
    else:
        values = np.maximum.reduceat(together, starts, axis=2)
    return Tiles(block.heads, slice(first, last + 1), slice(left, right + 1), values)


def _summed(block: Block, edges: Edges) -> Floats:
    """[head, tile row, key]: the rows of each tile added up, each by its factor."""
    n_heads, n_rows, n_keys = block.values.shape
    values = block.values
    factor = np.ones((n_heads, n_rows), values.dtype) if block.factor is None else block.factor
    summed = np.empty((n_heads, len(edges) - 1, n_keys), values.dtype)
    for i, (a, b) in enumerate(pairwise(edges.tolist())):
        np.matmul(factor[:, None, a:b], values[:, a:b], out=summed[:, i : i + 1])
    return summed


def _largest(block: Block, edges: Edges) -> Floats:
    """[head, tile row, key]: the largest weight of the rows of each tile."""
    weights = block.weights
    return np.stack([weights[:, a:b].max(axis=1) for a, b in pairwise(edges.tolist())], axis=1)
