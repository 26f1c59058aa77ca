"""Measures of heads as mosaics: a layer a row, a head a column, and the heads that have most."""

from collections.abc import Sequence

import numpy as np

from attnviz.measures.heads import SINK_THRESHOLD, HeadTable, RankedHead, rank, sink_rate
from attnviz.measures.table import Measure, measure
from attnviz.render.panels import Axis, Board, Group, Panel
from attnviz.render.ranges import Range, range_holding


def measures_board(
    tables: Sequence[HeadTable], names: Sequence[str], caption: str, top: int, *, ascending: bool = False
) -> Board:
    """A mosaic for each measure, and the heads that have most of it.

    Args:
        tables: one for each stack.
        names: of measures; those that a table does not have are left out of it.
        caption: what was measured.
        top: how many heads are named.
        ascending: the heads that have least.
    """
    groups = [
        _mosaic(table, measure(name), rank(table, name, top, ascending=ascending), ascending=ascending)
        for table in tables
        for name in names
        if name in table.values
    ]
    first = groups[0].range if groups else None
    return Board(caption, tuple(groups), first or Range(0.0, 1.0))


def _mosaic(table: HeadTable, which: Measure, ranking: Sequence[RankedHead], *, ascending: bool) -> Group:
    values = table.values[which.name]
    layers = Axis("layer", tuple(map(str, table.layers)))
    heads = Axis("head", tuple(map(str, table.heads)))
    named = ", ".join(f"{one.layer}.{one.head} ({one.value:.4g})" for one in ranking)
    said = [which.meaning, f"{'least' if ascending else 'most'}: head {named}"]
    if which.name == "sink":
        said.append(f"sink rate: {sink_rate(table):.3g} of the heads have more than {SINK_THRESHOLD}")
    stack = "cross-attention: " if table.kind == "cross" else "decoder: " if table.stack == "decoder" else ""
    return Group(
        f"{stack}{which.title}",
        (Panel("", values.astype(np.float64), layers, heads),),
        tuple(said),
        _range(which, values),
    )


def _range(which: Measure, values: np.ndarray) -> Range:
    """The range of the measure; where it grows with the text, one that holds all values."""
    what = which.title if which.unit == "weight" else f"{which.title}, {which.unit}"
    if which.high is None:
        return range_holding([values], what)
    return Range(which.low, which.high, what)
