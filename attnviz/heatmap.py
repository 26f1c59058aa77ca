"""Heatmap: an attention map at a size that can be drawn."""

from dataclasses import dataclass, replace

from attnviz.arrays import Floats
from attnviz.maps import AttentionMap
from attnviz.pooling import Edges, Pool


@dataclass(frozen=True)
class Heatmap:
    """One attention map at a size that can be drawn: a tile is the mean of the weights it is of, or the largest."""

    map: AttentionMap
    """Its weights are gone."""
    values: Floats
    """[head, query tile, key tile] in 0..1; exact weights where a tile is one weight."""
    query_edges: Edges
    key_edges: Edges
    shown_mass: Floats
    """[head]: the mean over the queries of the row's sum; 1 where nothing is hidden or masked."""
    pool: Pool = "mean"
    """What each tile is of the weights it stands for."""

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
