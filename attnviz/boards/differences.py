"""Two attentions compared, as a board: how much each head changed, the most changed heads as signed maps, measures."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from attnviz.collect import HeatmapCollector, collect
from attnviz.compare import Comparison, HeadChange, Place
from attnviz.measures.heads import HeadTable
from attnviz.measures.table import measure
from attnviz.render.panels import Axis, Board, Group, Panel, token_axis
from attnviz.render.ranges import Range, range_holding

_TILES = 512
SHOWN = ("entropy", "distance", "previous", "special", "sink")
"""The measures that are put side by side where tokens differ; files have them all."""


def comparison_board(comparison: Comparison, by: str, top: int, caption: str, lines: Sequence[str]) -> Board:
    """The comparison, the most changed heads first.

    Args:
        comparison: of two records.
        by: what changed most: `largest`, `mean` or `divergence`.
        top: how many heads are drawn as maps of B minus A.
        caption: what is compared.
        lines: what is to be read before the numbers.
    """
    ranked = [one for one in comparison.changes if one.largest > 0 or one.unlike][:top]
    names = _names(one.place for one in comparison.changes)
    maps = [_difference(comparison, one, names[one.place]) for one in ranked]
    signed = range_holding([panel.values for panel in maps], "B − A") if maps else None
    groups = [Group("", (), tuple(lines)), _mosaic(comparison.changes, names, by)]
    if signed is not None:
        span = signed if signed.signed else Range(-signed.top, signed.top, signed.what)
        groups.append(Group("the most changed heads", tuple(maps), range=span))
    for first, second in zip(*(comparison.measures or ((), ())), strict=False):
        groups += [
            _side_by_side(first, second, name) for name in SHOWN if name in first.values and name in second.values
        ]
    return Board(caption, tuple(groups), groups[1].range or Range(0.0, 1.0))


def _mosaic(changes: Sequence[HeadChange], names: Mapping[Place, str], by: str) -> Group:
    """How much each head changed: a layer a row, a head a column."""
    places = sorted(names)
    heads = list(dict.fromkeys(one.head for one in sorted(changes, key=lambda one: str(one.head).zfill(9))))
    values = np.full((len(places), len(heads)), np.nan)
    for one in changes:
        # beside a weight that is no number in one record only, the others say too little
        value = np.nan if one.unlike else getattr(one, by)
        values[places.index(one.place), heads.index(one.head)] = value
    what = {"largest": "largest |B − A|", "mean": "mean |B − A|", "divergence": "divergence, nats"}[by]
    layers = Axis("layer", tuple(names[place] for place in places))
    panel = Panel("", values, layers, Axis("head", tuple(map(str, heads))))
    return Group("how much each head changed", (panel,), range=range_holding([values], what))


def _names(places: Iterable[Place]) -> dict[Place, str]:
    """What each layer is called: its number, and of what where several stacks have it."""
    there = dict.fromkeys(places)
    mixed = len({stack for stack, kind, _ in there if kind == "self"}) > 1
    names = {}
    for stack, kind, layer in there:
        which = "cross " if kind == "cross" else "decoder " if mixed and stack == "decoder" else ""
        names[stack, kind, layer] = f"{which}{layer}"
    return names


def _difference(comparison: Comparison, change: HeadChange, layer: str) -> Panel:
    collector = HeatmapCollector(_TILES, _TILES)
    collect([comparison.difference(change)], [collector])
    (heatmap,) = collector.result()
    rows = token_axis("query", heatmap.map.query, heatmap.query_edges)
    columns = token_axis("key", heatmap.map.key, heatmap.key_edges)
    return Panel(f"head {layer}.{change.head}", heatmap.values[0], rows, columns)


def _side_by_side(first: HeadTable, second: HeadTable, name: str) -> Group:
    which = measure(name)
    values = [table.values[name] for table in (first, second)]
    what = which.title if which.unit == "weight" else f"{which.title}, {which.unit}"
    span = range_holding(values, what) if which.high is None else Range(which.low, which.high, what)
    panels = tuple(
        Panel(side, one, Axis("layer", tuple(map(str, table.layers))), Axis("head", tuple(map(str, table.heads))))
        for side, one, table in zip("AB", values, (first, second), strict=True)
    )
    return Group(which.title, panels, range=span)
