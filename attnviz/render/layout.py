"""Where everything in a picture goes, in whole pixels: for all kinds of pictures, so numbers and strings only."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from attnviz.arrays import Floats
from attnviz.errors import RequestError
from attnviz.render.panels import Axis, Board, Group, Panel
from attnviz.render.ranges import Range
from attnviz.render.scale import quantity, range_of, shade, ticks
from attnviz.tokens import visible
from attnviz.translation import IN_ENGLISH, Say

Measure: TypeAlias = Callable[[str, int, bool], float]
"""The width in pixels of a string, at a font size in pixels, bold or not."""

MAX_SIDE = 20_000
"""The widest and highest picture: beyond it, viewers give up."""


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text."""

    x: int
    y: int
    """Where its baseline begins, or ends."""
    string: str
    size: int
    anchor: Literal["start", "end"] = "start"
    """Which end of the text is at (x, y)."""
    rotation: Literal[0, 90] = 0
    """90 reads upwards: the text lies left of x, and its end is above its start."""
    bold: bool = False
    ink: float = 1.0
    """How dark it is, from 0 for white to 1."""


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, such as a tick mark or what shows around a raster as its frame; drawn before all else."""

    x: int
    y: int
    width: int
    height: int
    ink: float


@dataclass(frozen=True, slots=True)
class Raster:
    """Values as colours: each fills an equal part of the rectangle."""

    x: int
    y: int
    width: int
    height: int
    values: Floats
    """[row, column], row 0 at the top; NaN for a value that is not a number."""
    range: Range
    """From the first colour to the last."""
    is_bar: bool = False
    """Whether it shows the colours themselves: the values are shares of them, not of the range."""


@dataclass(frozen=True)
class Scene:
    """A picture, as what is to be drawn on white."""

    width: int
    height: int
    scale: str
    """How the colours follow the values."""
    panels: tuple[Raster, ...]
    """In the order of the board's."""
    bars: tuple[Raster, ...]
    """The colour bars, each a row of shades from 0 to 1: the board's, then those of groups with their own range."""
    samples: tuple[Raster, ...]
    """What the colour for "not a number" is shown with, beside the bars of panels with such values."""
    boxes: tuple[Box, ...]
    texts: tuple[Text, ...]

    @property
    def rasters(self) -> tuple[Raster, ...]:
        """Everything with colours: the panels, the bars and the samples of what is missing."""
        return (*self.panels, *self.bars, *self.samples)

    def shades(self, raster: Raster) -> Floats:
        """How far along the colours each value of one of the rasters is, from 0 to 1, or NaN [row, column]."""
        return raster.values if raster.is_bar else shade(raster.values, raster.range, self.scale)


# Sizes in pixels. No label is smaller than 11: less cannot be read on a common screen.
_MARGIN = 24
_CAPTION, _HEADING, _TITLE, _LABEL, _SMALL_LABEL = 16, 14, 12, 12, 11
_TITLE_BAND = 25  # a panel's title, from its top to the raster
_TITLE_GAP = 10  # from its baseline to the raster
_HEADING_BAND = 26
_LABEL_GAP = 7  # between a raster and its labels, with room for a tick mark
_NAME_GAP = 12  # between a raster and an axis's name, beyond the first of the columns' labels
_TICK, _LEAST_TICK_GAP = 4, 4
_PANEL_GAP = 18
_LINE_GAP = 18
_GROUP_GAP = 26
_BAR_WIDTH, _BAR_HEIGHT = 192, 12
_BAR_BAND = 34  # the bar with its ticks
_LEGEND_GAP, _LEGEND_LINE = 24, 20
_SAMPLE = 12  # the side of the sample of a missing value
_MOST_LABEL, _MOST_TITLE = 132, 190  # texts that are wider end in …
_NARROWEST = 380  # of what is inside the margins, so that the caption has a place
_PROSE_WIDTH = 620  # likewise, where there is prose to read
_PROSE, _PROSE_LINE, _PROSE_GAP = 13, 20, 12
_MOST_CAPTION_LINES = 3
_LONG = 300  # characters that are more than fit anywhere but in a caption
_LARGEST_CELL = 36
_LABELLED = 13  # the smallest cell with a label of its own
_MANY = 0.72  # how much smaller cells are where panels are many
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_FEW_PANELS = 16  # up to so many, each has labels of its own
_FAINT, _SOFT = 0.25, 0.72


def layout(board: Board, measure: Measure, say: Say = IN_ENGLISH) -> Scene:
    """The picture of a board: caption, colour bar, then the groups one below the other.

    Rows run from top to bottom and columns from left to right, as in the values. All panels have one colour range but
    those of groups with their own, whose colour bar stands below the group's title and prose.
    Cells are whole pixels, as large as the number of tokens and the largest picture allow.

    Args:
        board: what to draw.
        measure: the width of a text in the font that it will be drawn with.
        say: the language of legends.

    Raises:
        RequestError: the picture would have more than `MAX_SIDE` pixels a side even at one pixel a cell.
    """
    board = _joined(board)
    most = _LARGEST_CELL
    while True:
        plans = _Plans(board, measure, most)
        scene = _Drawing(board, plans, measure, say).scene()
        if max(scene.width, scene.height) <= MAX_SIDE:
            return scene
        if plans.largest_cell <= 1:
            raise RequestError(
                f"{len(board.panels)} panels make a picture of {scene.width} × {scene.height} pixels, and at most"
                f" {MAX_SIDE} a side can be drawn: choose some of them with --layer and --head"
            )
        most = plans.largest_cell * 4 // 5


def _joined(board: Board) -> Board:
    """Groups of one panel each, all of one size, as one group: side by side rather than in one long column."""
    panels = board.panels
    if len(board.groups) < 2 or len(panels) != len(board.groups) or len({panel.values.shape for panel in panels}) > 1:
        return board
    if any(group.text or board.own_range(group) for group in board.groups):
        return board
    pairs = zip(board.groups, panels, strict=True)
    titled = (replace(panel, title=" · ".join(filter(None, (group.title, panel.title)))) for group, panel in pairs)
    return replace(board, groups=(Group("", tuple(titled)),))


def cell_size(rows: int, columns: int, most: int = _LARGEST_CELL, scale: float = 1.0) -> tuple[int, int]:
    """The width and height of a cell, where a panel has so many rows and columns.

    A panel's side grows slower than its number of tokens, up to 512. Cells are squares, but where a label would not
    fit beside them: twelve heads by 500 keys are high enough to read.

    Args:
        rows, columns: the size of a panel.
        most: the largest cell.
        scale: makes cells smaller, as far as every label still has its place.

    >>> [cell_size(n, n)[0] for n in (1, 7, 16, 24, 128, 512)], cell_size(12, 512)
    ([36, 28, 19, 16, 4, 1], (1, 14))
    """
    width, height = (min(most, _cell(n, scale)) for n in (columns, rows))
    side = max(min(width, height), _LABELLED + 1)
    return min(width, side), min(height, side)


def _cell(n: int, scale: float) -> int:
    n = max(n, 1)
    cell = min(_LARGEST_CELL, max(1, int(min(512, 196 * (n / 7) ** 0.55) / n)))
    return max(round(scale * cell), _LABELLED if cell >= _LABELLED else 1)


def panels_per_line(n_panels: int, shape: float) -> int:
    """How many of the panels of one group stand side by side.

    Lines are full where that can be, and the whole is one to about four times as wide as it is high.

    Args:
        n_panels: how many there are.
        shape: the width of a panel and its labels, divided by its height.

    >>> [panels_per_line(n, 1.0) for n in (1, 2, 6, 7, 12, 16)]
    [1, 2, 3, 4, 4, 4]
    """
    fewest = min(n_panels, max(1, math.ceil(math.sqrt(n_panels / shape))))
    return min(range(fewest, min(n_panels, 2 * fewest) + 1), key=lambda n: -n_panels % n, default=1)


def elided(string: str, most: float, measure: Callable[[str], float]) -> str:
    """`string`, cut to the width `most` with … at its end where it is wider.

    >>> elided("favorite", 8, len), elided("favorite", 5, len)
    ('favorite', 'favo…')
    """
    if measure(string) <= most:
        return string
    return string[: _fitting(string, most - measure("…"), measure)].rstrip() + "…"


def wrapped(string: str, most: float, lines: int, measure: Callable[[str], float]) -> list[str]:
    """`string` in at most so many lines of the width `most`, broken at blanks where it has some.

    >>> wrapped("the cat sat on the mat", 8, 2, len)
    ['the cat', 'sat on…']
    """
    result = []
    while lines > 1 and measure(string) > most:
        n = max(1, _fitting(string, most, measure))
        blank = string.rfind(" ", n // 2, n + 1)
        n = blank if blank > 0 else n
        result.append(string[:n].rstrip())
        string, lines = string[n:].lstrip(), lines - 1
    return [*result, elided(string, most, measure)]


def _fitting(string: str, most: float, measure: Callable[[str], float]) -> int:
    return max(0, bisect_right(range(len(string) + 1), most, key=lambda n: measure(string[:n])) - 1)


@lru_cache(maxsize=4096)
def _shown(text: str) -> str:
    """A title as it is drawn; nothing where there is none."""
    return visible(text[:_LONG]) if text else ""


def _at(measure: Measure, size: int, *, bold: bool = False) -> Callable[[str], float]:
    return lambda string: measure(string, size, bold)


@dataclass(frozen=True)
class _Labels:
    """The labels of an axis that are drawn."""

    size: int
    every: int
    strings: tuple[str, ...]
    """Of rows or columns 0, `every`, 2 · `every`, …"""
    width: int
    """Of the widest."""


@dataclass(frozen=True)
class _Plan:
    """How a group is laid out."""

    group: Group
    cell: tuple[int, int]
    """Width and height."""
    panel: tuple[int, int]
    """Width and height of the values of the largest panel, with the widest title."""
    per_line: int
    pitch: int
    """From one panel to the next on a line."""
    below: int
    """The height of the columns' labels."""

    def line_height(self, own_labels: bool) -> int:
        """From one line of panels to the next."""
        return _TITLE_BAND + self.panel[1] + _LINE_GAP + (self.below if own_labels else 0)

    @property
    def width(self) -> int:
        """Of a line, without the labels at its left."""
        return (self.per_line - 1) * self.pitch + self.panel[0]

    def like(self, other: "_Plan") -> bool:
        """Whether one stands below the other column by column, so that the columns can share their labels."""
        columns = {panel.columns for plan in (self, other) for panel in plan.group.panels}
        return len(columns) == 1 and (self.cell, self.per_line) == (other.cell, other.per_line)


class _Plans:
    """Sizes of everything, with cells of at most so many pixels."""

    def __init__(self, board: Board, measure: Measure, most: int) -> None:
        self._measure = measure
        self._labels: dict[tuple[int, int], _Labels] = {}
        drawn = [group for group in board.groups if group.panels or group.text]
        groups = [group for group in drawn if group.panels]
        self.own_labels = len(board.panels) <= _FEW_PANELS or not all(map(_one_pair_of_axes, groups))
        """Every panel has its labels; else every line has those of the rows, every column those of the columns."""
        titles = (math.ceil(measure(_shown(panel.title), _TITLE, False)) for panel in board.panels)
        self._title = min(_MOST_TITLE, max(titles, default=0))
        sizes = [(group, _group_cell(group, most, 1.0 if self.own_labels else _MANY)) for group in drawn]
        self.largest_cell = max((max(cell) for _, cell in sizes), default=1)
        self.beside = max((self._beside(group, cell) for group, cell in sizes if group.panels), default=0)
        """The width of the rows' labels."""
        self.groups = [self._plan(group, cell, len(groups) == 1) for group, cell in sizes]
        narrowest = _PROSE_WIDTH if any(group.text for group in drawn) else _NARROWEST
        self.inside = max([narrowest, *(self.beside + plan.width for plan in self.groups)])
        """The width of everything but the margins."""

    def labels(self, axis: Axis, cell: int) -> _Labels:
        """The labels of an axis, every k-th where cells are smaller than letters."""
        known = self._labels.get((id(axis), cell))  # panels share their axes, and comparing them takes longer
        if known is None:
            size = _LABEL if cell >= _LABEL + 3 else _SMALL_LABEL
            every = next((step for step in _STEPS if step * cell >= size + 2), _STEPS[-1])
            measure = _at(self._measure, size)
            labels = _placed(axis, every) if every > 1 else axis.labels
            shown = visible if axis.of_tokens else _shown
            strings = tuple(elided(shown(s[:_LONG]), _MOST_LABEL, measure) for s in labels)
            known = _Labels(size, every, strings, math.ceil(max(map(measure, strings), default=0)))
            self._labels[id(axis), cell] = known
        return known

    def _beside(self, group: Group, cell: tuple[int, int]) -> int:
        width = _at(self._measure, _SMALL_LABEL)
        axes = {id(panel.rows): panel for panel in group.panels}.values()
        labels = max(self.labels(panel.rows, cell[1]).width for panel in axes)
        names = max(max(width(_down(panel.rows)), width(_across(panel.columns))) for panel in axes)
        return max(labels + _LABEL_GAP, math.ceil(names) + _NAME_GAP)

    def _plan(self, group: Group, cell: tuple[int, int], alone: bool) -> _Plan:
        if not group.panels:
            return _Plan(group, cell, (0, 0), 1, 0, 0)
        shapes = [panel.values.shape for panel in group.panels]
        width = max(self._title, max(columns for _, columns in shapes) * cell[0])
        height = max(rows for rows, _ in shapes) * cell[1]
        columns = {id(panel.columns): panel.columns for panel in group.panels}.values()
        below = _LABEL_GAP + max(self.labels(axis, cell[0]).width for axis in columns)
        pitch = width + _PANEL_GAP + (self.beside if self.own_labels else 0)
        plan = _Plan(group, cell, (width, height), len(group.panels), pitch, below)
        per_line = panels_per_line(plan.per_line, pitch / plan.line_height(self.own_labels)) if alone else plan.per_line
        room = MAX_SIDE - 2 * _MARGIN - self.beside - width
        return replace(plan, per_line=min(per_line, max(1, 1 + room // pitch)))


def _placed(axis: Axis, every: int) -> list[str]:
    """Every k-th label; single tokens of a part of a text with their positions."""
    chosen = range(0, len(axis.labels), every)
    if axis.positions is None or axis.step > 1:
        return [axis.labels[i] for i in chosen]
    return [f"{axis.position(i)} {axis.labels[i]}" for i in chosen]


def _group_cell(group: Group, most: int, scale: float) -> tuple[int, int]:
    if not group.panels:
        return 1, 1
    shapes = [panel.values.shape for panel in group.panels]
    return cell_size(max(rows for rows, _ in shapes), max(columns for _, columns in shapes), most, scale)


def _one_pair_of_axes(group: Group) -> bool:
    """Whether all panels have the same rows and columns."""
    first = group.panels[0]
    return all(
        mine is its or mine == its
        for panel in group.panels
        for mine, its in ((panel.rows, first.rows), (panel.columns, first.columns))
    )


class _Drawing:
    """The picture, put together from top to bottom."""

    def __init__(self, board: Board, plans: _Plans, measure: Measure, say: Say) -> None:
        self._board, self._plans, self._measure, self._say = board, plans, measure, say
        self._panels: list[Raster] = []
        self._bars: list[Raster] = []
        self._samples: list[Raster] = []
        self._boxes: list[Box] = []
        self._texts: list[Text] = []
        self._named: set[str] = set()

    def scene(self) -> Scene:
        """The whole of it."""
        y = self._caption(_MARGIN)
        groups = self._plans.groups
        shared = [panel for plan in groups if not self._board.own_range(plan.group) for panel in plan.group.panels]
        if shared or not groups:
            y = self._legend(y, self._board.range, shared)
        for i, plan in enumerate(groups):
            y = self._group(plan, y + _GROUP_GAP, not self._continued(plan, groups[i + 1 : i + 2]))
        width, height = self._plans.inside + 2 * _MARGIN, y + _MARGIN
        rasters = tuple(self._panels), tuple(self._bars), tuple(self._samples)
        return Scene(width, height, self._board.scale, *rasters, tuple(self._boxes), tuple(self._texts))

    def _continued(self, plan: _Plan, following: Sequence[_Plan]) -> bool:
        """Whether the columns of what follows, if anything, stand right below those of a group."""
        return any(
            other.group.panels and plan.like(other) and not other.group.text and not self._board.own_range(other.group)
            for other in following
        )

    def _text(self, x: int, y: int, string: str, size: int, *, bold: bool = False, ink: float = 1.0) -> int:
        """Add a text that begins at (x, y); where it ends."""
        self._texts.append(Text(x, y, string, size, bold=bold, ink=ink))
        return x + math.ceil(self._measure(string, size, bold))

    def _caption(self, y: int) -> int:
        """Add the caption; where it ends, as in all that follow."""
        if not self._board.caption:
            return y
        measure = _at(self._measure, _CAPTION, bold=True)
        caption = visible(self._board.caption[: _MOST_CAPTION_LINES * self._plans.inside])
        for line in wrapped(caption, self._plans.inside, _MOST_CAPTION_LINES, measure):
            self._text(_MARGIN, y + _CAPTION, line, _CAPTION, bold=True)
            y += _CAPTION + 6
        return y + 8

    def _legend(self, y: int, span: Range, panels: Sequence[Panel]) -> int:
        """Add a colour bar, and what it means, what missing values look like and what a cell stands for."""
        what = elided(
            _shown(quantity(span, self._say)), self._plans.inside - _BAR_WIDTH - _LEGEND_GAP, _at(self._measure, _TITLE)
        )
        x = self._text(_MARGIN, y + _BAR_HEIGHT - 2, what, _TITLE) + 10
        shares = np.linspace(0, 1, _BAR_WIDTH, dtype=np.float32)[None]
        bar = self._framed(Raster(x, y, _BAR_WIDTH, _BAR_HEIGHT, shares, span, is_bar=True))
        self._bars.append(bar)
        self._ticks(bar)
        x, below = x + _BAR_WIDTH + _LEGEND_GAP, y + _BAR_BAND
        for string, ink, sample in self._said(span, panels):
            before = _SAMPLE + 6 if sample else 0
            if x + before + self._measure(string, _TITLE, False) > _MARGIN + self._plans.inside:
                x, y, below = _MARGIN, below, below + _LEGEND_LINE
            if sample:
                nothing = np.full((1, 1), np.nan, np.float32)
                self._samples.append(self._framed(Raster(x, y, _SAMPLE, _SAMPLE, nothing, span)))
            x = self._text(x + before, y + _BAR_HEIGHT - 2, string, _TITLE, ink=ink) + _LEGEND_GAP
        return below

    def _said(self, span: Range, panels: Sequence[Panel]) -> Iterator[tuple[str, float, bool]]:
        """What a legend says: each text, its ink, and whether the colour for missing values stands before it."""
        yield range_of(self._board.scale, span, self._say), 1.0, False
        if any(np.isnan(np.min(panel.values, initial=0.0)) for panel in panels):
            yield self._say("not a number"), 1.0, True
        if note := tile_note(panels, self._say):
            yield note, _SOFT, False

    def _ticks(self, bar: Raster) -> None:
        y = bar.y + bar.height + 1
        for share, string, width in self._apart(bar):
            x = bar.x + round(share * (bar.width - 1))
            self._boxes.append(Box(x, y, 1, _TICK, _SOFT))
            self._text(round(x - width / 2), y + _TICK + 10, string, _SMALL_LABEL)

    def _apart(self, bar: Raster) -> list[tuple[float, str, float]]:
        """The ticks of a bar with the widths of their labels, every second one where the labels would touch."""
        marks = [
            (*tick, self._measure(tick[1], _SMALL_LABEL, False))
            for tick in ticks(self._board.scale, bar.range, self._say)
        ]
        gaps = ((b[0] - a[0]) * bar.width - (a[2] + b[2]) / 2 for a, b in pairwise(marks))
        return marks if min(gaps) >= _LEAST_TICK_GAP else marks[::2]

    def _framed(self, raster: Raster) -> Raster:
        self._boxes.append(Box(raster.x - 1, raster.y - 1, raster.width + 2, raster.height + 2, _FAINT))
        return raster

    def _group(self, plan: _Plan, y: int, labelled: bool) -> int:
        """Add a group, with the columns' labels below it if `labelled` or if every panel has its own."""
        panels, own = plan.group.panels, self._plans.own_labels
        bottom = y = self._head(plan.group, y)
        span = plan.group.range or self._board.range
        for i, panel in enumerate(panels):
            line, column = divmod(i, plan.per_line)
            x = _MARGIN + self._plans.beside + column * plan.pitch
            top = y + _TITLE_BAND + line * plan.line_height(own)
            self._panel(panel, plan, (x, top), span)
            if own or column == 0:
                self._row_labels(panel.rows, plan.cell[1], x, top)
            bottom = max(bottom, top + plan.panel[1])
            if own or (labelled and i + plan.per_line >= len(panels)):
                self._column_labels(panel, plan.cell, x, top, corner=own or column == 0)
                bottom = max(bottom, top + plan.panel[1] + plan.below)
        return bottom

    def _head(self, group: Group, y: int) -> int:
        """Add what stands above the panels of a group: its title, its prose, and its colour bar if it has its own."""
        if group.title:
            measure = _at(self._measure, _HEADING, bold=True)
            title = elided(_shown(group.title), self._plans.inside, measure)
            self._text(_MARGIN, y + _HEADING, title, _HEADING, bold=True)
            y += _HEADING_BAND
        if group.text:
            y = self._prose(group.text, y) + (_PROSE_GAP if group.panels else 0)
        if group.panels and (span := self._board.own_range(group)):
            y = self._legend(y, span, group.panels)
        return y

    def _prose(self, lines: Sequence[str], y: int) -> int:
        measure = _at(self._measure, _PROSE)
        for line in lines:
            string = visible(line) if line else ""
            parts = wrapped(string, self._plans.inside, 1 + len(string), measure)
            self._texts += [Text(_MARGIN, y + _PROSE + i * _PROSE_LINE, s, _PROSE) for i, s in enumerate(parts) if s]
            y += len(parts) * _PROSE_LINE
        return y

    def _panel(self, panel: Panel, plan: _Plan, place: tuple[int, int], span: Range) -> None:
        x, y = place
        if panel.title:
            measure = _at(self._measure, _TITLE)
            self._text(x, y - _TITLE_GAP, elided(_shown(panel.title), plan.panel[0], measure), _TITLE)
        rows, columns = panel.values.shape
        raster = Raster(x, y, columns * plan.cell[0], rows * plan.cell[1], panel.values, span)
        self._panels.append(self._framed(raster) if panel.values.size else raster)

    def _row_labels(self, axis: Axis, cell: int, x: int, y: int) -> None:
        labels = self._plans.labels(axis, cell)
        for i, string in enumerate(labels.strings):
            middle = y + i * labels.every * cell + cell // 2
            if labels.every > 1:
                self._boxes.append(Box(x - 1 - _TICK, middle, _TICK, 1, _SOFT))
            self._texts.append(Text(x - _LABEL_GAP, middle + _drop(labels.size), string, labels.size, "end"))
        self._name(_down(axis), x, y - _TITLE_GAP)

    def _column_labels(self, panel: Panel, cell: tuple[int, int], x: int, y: int, corner: bool) -> None:
        axis, width = panel.columns, cell[0]
        y += panel.values.shape[0] * cell[1]
        labels = self._plans.labels(axis, width)
        for i, string in enumerate(labels.strings):
            middle = x + i * labels.every * width + width // 2
            if labels.every > 1:
                self._boxes.append(Box(middle, y + 1, 1, _TICK, _SOFT))
            self._texts.append(Text(middle + _drop(labels.size), y + _LABEL_GAP, string, labels.size, "end", 90))
        if corner:
            self._name(_across(axis), x, y + _LABEL_GAP + _SMALL_LABEL)

    def _name(self, name: str, x: int, y: int) -> None:
        """Name an axis beside the raster at `x`, where it has a name and that has not been said yet."""
        if name and name not in self._named:
            self._named.add(name)
            self._texts.append(Text(x - _NAME_GAP, y, name, _SMALL_LABEL, "end", ink=_SOFT))


def _down(axis: Axis) -> str:
    return f"{axis.name} ↓" if axis.name else ""


def _across(axis: Axis) -> str:
    return f"{axis.name} →" if axis.name else ""


def _drop(size: int) -> int:
    """From the middle of a cell to the baseline of its label: half the height of a letter such as d."""
    return round(0.36 * size)


def tile_note(panels: Sequence[Panel], say: Say = IN_ENGLISH) -> str:
    """What a cell of the panels stands for where it is more than one weight, else nothing."""
    steps = {(panel.rows.step, panel.columns.step): panel for panel in panels}
    (rows, columns), panel = max(steps.items(), key=lambda item: math.prod(item[0]), default=((1, 1), None))
    if panel is None or rows == columns == 1:
        return ""
    sizes = f"{rows} × {columns}" if rows == columns else f"{rows} {panel.rows.name} × {columns} {panel.columns.name}"
    sizes = str(rows * columns) if 1 in (rows, columns) else sizes
    if panel.pool == "max":
        return say("each cell is the largest weight of {sizes} tokens", sizes=sizes)
    if len(steps) > 1:
        return say("each cell is the mean of up to {sizes} tokens", sizes=sizes)
    return say("each cell is the mean of {sizes} tokens", sizes=sizes)
