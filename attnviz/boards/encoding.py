"""Positional encodings as a board: a position a row, a dimension a column."""

import numpy as np

from attnviz.arrays import Floats
from attnviz.pooling import tile_edges
from attnviz.positions import PositionTable
from attnviz.render.panels import Axis, Board, Group, Panel
from attnviz.render.ranges import Range

PICTURE_TILES, TEXT_TILES = 512, 128
"""The most rows and columns that pictures and text show."""


def encoding_board(table: PositionTable, most: int = PICTURE_TILES) -> Board:
    """The encodings, each in -1..1.

    Args:
        table: of any size.
        most: how many rows and columns are shown; of longer tables the means of neighbours, which is said.
    """
    rows, columns = tile_edges(len(table.positions), most), tile_edges(table.d_model, most)
    values = _pooled(table.values, rows, columns)
    sizes = int(np.diff(rows).max()), int(np.diff(columns).max())
    panel = Panel(
        "",
        values,
        Axis("position", tuple(str(table.positions[i]) for i in rows[:-1])),
        Axis("dimension", tuple(table.columns[i] for i in columns[:-1])),
    )
    tile = "{} × {}".format(*sizes)
    said = () if sizes == (1, 1) else (f"each tile is the mean of up to {tile} values, and named after the first",)
    caption = (
        f"sinusoidal encoding · {_counted(len(table.positions), 'position')} × {_counted(table.d_model, 'dimension')}"
    )
    return Board(caption, (Group("", (panel,), said),), Range(-1.0, 1.0, "encoding"), view="queries")


def _pooled(values: Floats, rows: np.ndarray, columns: np.ndarray) -> Floats:
    sums = np.add.reduceat(np.add.reduceat(values, rows[:-1], axis=0), columns[:-1], axis=1)
    return np.asarray(sums / (np.diff(rows)[:, None] * np.diff(columns)))


def _counted(n: int, what: str) -> str:
    return f"1 {what}" if n == 1 else f"{n} {what}s"
