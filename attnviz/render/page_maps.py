"""The maps of a record as a page holds them: codes of every head, thumbnails, and what is said of all of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnviz.arrays import Floats
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap
from attnviz.pooling import Edges, tile_edges
from attnviz.render.page_codes import Bits, encode, largest_error

THUMBNAIL_TILES = 48
"""The most tiles a side of a thumbnail."""


@dataclass(frozen=True)
class PageMap:
    """One map in a page."""

    map: AttentionMap
    triangle: bool
    """Whether every head has nothing above the diagonal, so that only what is below it is written."""
    heads: tuple[str, ...]
    """The codes of each head, as text."""
    thumbnails: Heatmap
    """At the size of thumbnails."""
    error: float
    """How far a weight in the page can be from what it stands for."""
    largest: float
    """The largest finite weight, or -inf where there is none."""

    @property
    def packed_thumbnails(self) -> str:
        """The thumbnails [head · row, column], always of 8 bits."""
        n_heads, rows, columns = self.thumbnails.values.shape
        return encode(self.thumbnails.values.reshape(n_heads * rows, columns), 8).packed()


def page_map(one: AttentionMap, bits: Bits) -> PageMap:
    """The map as a page holds it."""
    weights = np.concatenate([block for _, block in one.blocks()] or [one.rows(0, 0)], axis=1)
    triangle = one.kind == "self" and len(one.query) == len(one.key) and _is_causal(weights)
    heads, error = [], 0.0
    for head in weights:
        coded = encode(head, bits)
        error = max(error, largest_error(head, coded))
        heads.append(coded.packed(triangle=triangle))
    largest = float(weights.max(initial=-np.inf, where=np.isfinite(weights)))
    return PageMap(one, triangle, tuple(heads), pooled(one, weights, THUMBNAIL_TILES), error, largest)


def _is_causal(weights: Floats) -> bool:
    """Whether nothing [head, query, key] is above the diagonal, NaN included, and there is something that could be."""
    n_queries, n_keys = weights.shape[1:]
    above = ~np.tri(n_queries, n_keys, dtype=np.bool_)
    return bool(above.any()) and not any(head[above].any() for head in weights)


def pooled(one: AttentionMap, weights: Floats, most: int) -> Heatmap:
    """The map at most `most` tiles a side, by the mean; a tile with a NaN in it is NaN.

    Args:
        one: the map.
        weights: [head, query, key] of it, all.
        most: tiles.
    """
    rows, columns = tile_edges(len(one.query), most), tile_edges(len(one.key), most)
    mass = weights.sum(axis=2, dtype=np.float64).mean(axis=1) if len(one.query) else np.zeros(len(weights))
    if not weights.size:
        return Heatmap(one, np.zeros((len(weights), len(rows) - 1, len(columns) - 1)), rows, columns, mass)
    sums = np.add.reduceat(np.add.reduceat(weights, columns[:-1], axis=2), rows[:-1], axis=1)
    return Heatmap(one, sums / _areas(rows, columns), rows, columns, mass)


def _areas(rows: Edges, columns: Edges) -> Floats:
    return (np.diff(rows)[:, None] * np.diff(columns)[None, :]).astype(np.float32)


def addresses(maps: tuple[AttentionMap, ...]) -> Iterator[str]:
    """What stands for each map in the page's address, before the head's number: `5.`, or where stacks mix `cross5.`."""
    mixed = len({(one.stack, one.kind) for one in maps}) > 1
    for one in maps:
        which = "cross" if one.kind == "cross" else one.stack
        yield f"{which if mixed else ''}{one.layer}."
