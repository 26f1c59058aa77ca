"""Pooled maps as names and values: what a record holds, but tiles in the place of the weights."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from attnviz.heatmap import Heatmap
from attnviz.maps import Provenance
from attnviz.pooling import Edges
from attnviz.schema import Fields, Table, said_of, stacked, stacks_of
from attnviz.tokens import Tokens

POOLED = "pooled"
"""The name of the tiles [layer, head, query tile, key tile]."""
COLUMNS = ("layer", "head", "query_from", "query_to", "key_from", "key_to", "weight")


def pooled_fields(heatmaps: Sequence[Heatmap], provenance: Provenance, notes: Sequence[str]) -> Fields:
    """The fields of pooled maps, `pooled` for `weights`, and where the tiles are: `query_edges` and `key_edges`.

    Edges are positions in the whole text: where each tile begins, and after the last where it ends. Where one array
    cannot hold all maps, they are in `stacks`, as those of a record.
    """
    maps = [one.map for one in heatmaps]
    return stacked(maps, lambda places: _fields_of([heatmaps[i] for i in places]), provenance, notes)


def _fields_of(heatmaps: Sequence[Heatmap]) -> Fields:
    first, tiles = heatmaps[0], np.stack([one.values for one in heatmaps])
    plain: dict[str, Any] = {
        **said_of([one.map for one in heatmaps], str(tiles.dtype)),
        "pool": first.pool,
        "query_edges": _positions(first.query_edges, first.map.query),
        "key_edges": _positions(first.key_edges, first.map.key),
    }
    return Fields(plain, {POOLED: tiles})


def pooled_table(heatmaps: Sequence[Heatmap]) -> Table:
    """A line for each tile: its layer and head, the positions from which to before which it goes, and its weight."""
    stacks = stacks_of([one.map for one in heatmaps])
    names = {i: (name,) if len(stacks) > 1 else () for name, places in stacks.items() for i in places}
    rows = [
        (*names[i], one.map.layer, head, *query, *key, float(str(one.values[h, r, c])))
        for i, one in enumerate(heatmaps)
        for h, head in enumerate(one.map.heads)
        for r, query in enumerate(_spans(one.query_edges, one.map.query))
        for c, key in enumerate(_spans(one.key_edges, one.map.key))
    ]
    return Table(COLUMNS if len(stacks) == 1 else ("stack", *COLUMNS), rows)


def _spans(edges: Edges, tokens: Tokens) -> list[tuple[int, int]]:
    positions = _positions(edges, tokens)
    return list(pairwise(positions))


def _positions(edges: Edges, tokens: Tokens) -> list[int]:
    """The positions in the whole text at which tiles begin, and after the last the one before which it ends."""
    if len(edges) == 1:
        return [0]
    return [*(tokens.position(i) for i in edges[:-1].tolist()), tokens.position(len(tokens) - 1) + 1]
