"""Heatmap: an attention map at a size that can be drawn."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.maps import AttentionMap

Edges = npt.NDArray[np.intp]
"""Where tiles begin, and after the last where it ends: n tiles have n + 1 edges."""


def tile_edges(length: int, most: int) -> Edges:
    """Edges of at most `most` tiles over `length` tokens, all of one size but the last.

    >>> tile_edges(5, 9).tolist(), tile_edges(5, 2).tolist()
    ([0, 1, 2, 3, 4, 5], [0, 3, 5])
    """
    step = max(1, -(-length // most))
    return np.append(np.arange(0, length, step), length)


@dataclass(frozen=True)
class Heatmap:
    """One attention map at a size that can be drawn: each tile is the mean of the weights it stands for."""

    map: AttentionMap
    values: Floats
    """[head, query tile, key tile] in 0..1; exact weights where a tile is one weight."""
    query_edges: Edges
    key_edges: Edges
    shown_mass: Floats
    """[head]: the mean over the queries of the row's sum; 1 where nothing is hidden or masked."""

    @property
    def exact(self) -> bool:
        """Whether every tile is one weight."""
        _, queries, keys = self.values.shape
        return (queries, keys) == (len(self.map.query), len(self.map.key))

    def head(self, index: int) -> "Heatmap":
        """The heatmap of one head alone."""
        only = slice(index, index + 1)
        return replace(
            self, map=self.map.pick(heads=[index]), values=self.values[only], shown_mass=self.shown_mass[only]
        )
