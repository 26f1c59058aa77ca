"""A board in the terminal: heads side by side, layers by heads at a glance, or the weights of one query."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.segment import Segment, Segments

from attnviz.render.labels import elide, justify, widest
from attnviz.render.panels import Board, Group, Panel
from attnviz.render.terminal_cells import Pen
from attnviz.render.terminal_legend import (
    axes_facts,
    cell_facts,
    heading,
    legend,
    pooled_facts,
    prose,
    text_lines,
)
from attnviz.render.terminal_lines import Line, beside, joined, padded, text_line, wrapped
from attnviz.render.terminal_panels import (
    GAP,
    LEAST_LABEL,
    Layout,
    Mode,
    Part,
    choose,
    fine_cells,
    panel_lines,
    parts,
    rows_name_columns,
)
from attnviz.render.terminal_style import TerminalStyle
from attnviz.render.terminal_table import table_lines

__all__ = ["TerminalStyle", "heads_view", "overview", "query_view", "tile_limits", "view"]

_FEWEST_TILES, _MOST_TILES = 24, 64
"""Tiles a side of panels that stand side by side: below the first, fewer panels stand on a line."""
_MOST_LINES = 72
"""Lines of a panel that has the width for itself."""
_THUMBNAIL = 8, 16
"""Tiles a side of a small panel, at least and at most."""
_LAYER_LABEL = 9


def view(board: Board, style: TerminalStyle) -> Segments:
    """The board in the view that it asks for."""
    return {"heads": heads_view, "overview": overview, "queries": query_view}[board.view](board, style)


def tile_limits(style: TerminalStyle, n_panels: int, overview: bool) -> tuple[int, int]:
    """The most rows and columns that are worth collecting of each map: what can be drawn.

    Args:
        style: what is drawn on.
        n_panels: the panels of a group, such as the heads of a layer.
        overview: whether `overview` draws them.

    >>> tile_limits(TerminalStyle(120, color=True), 12, False), tile_limits(TerminalStyle(80, color=False), 1, False)
    ((30, 30), (71, 71))
    """
    if overview:
        tiles = _thumbnail_tiles(style, max(1, n_panels))
        return tiles, tiles
    around = LEAST_LABEL + (1 if style.color else 2)
    if n_panels == 1:
        tiles = min(style.columns - around, _MOST_LINES * (2 if style.halves else 1))
        return tiles, tiles
    for abreast in range(min(3, n_panels), 0, -1):
        tiles = (style.columns - GAP * (abreast - 1)) // abreast - around
        if tiles >= _FEWEST_TILES:
            break
    return min(tiles, _MOST_TILES), min(tiles, _MOST_TILES)


def _thumbnail_tiles(style: TerminalStyle, n_panels: int) -> int:
    """All heads of a layer on one line where that leaves enough tiles, else on two, and so on."""
    fewest, most = _THUMBNAIL
    for lines in range(1, n_panels + 1):
        abreast = -(-n_panels // lines)
        tiles = (style.columns - _LAYER_LABEL) // abreast - 1
        if tiles >= fewest:
            break
    return min(tiles, most)


@dataclass(frozen=True)
class _Laid:
    """A group with panels, laid out."""

    pen: Pen
    pieces: Sequence[Part]
    layout: Layout
    facts: list[str]
    """How to read its cells."""


def heads_view(board: Board, style: TerminalStyle) -> Segments:
    """The panels of each group side by side, in one colour range or in that of the group."""
    shared = _in_one_range(board)
    laid = [_laid(group, board, shared, style) if group.panels else None for group in board.groups]
    first = [one.facts for one in laid if one and one.pen.span == board.range]
    common = [fact for fact in first[0] if all(fact in facts for facts in first)] if first else []
    lines = heading(board, shared, common, style)
    unnamed = False
    for i, (group, one) in enumerate(zip(board.groups, laid, strict=True)):
        pen = _pen(group, board, style)
        if one is None:
            lines += _group_head(group, "", None, pen)
            continue
        own = board.own_range(group) is not None
        left = [] if own else [fact for fact in one.facts if fact not in common]
        lines += _group_head(group, f" ({'; '.join(left)})" if left else "", one.facts if own else None, pen)
        lines += _side_by_side(one)
        unnamed |= not rows_name_columns(group.panels[0], one.layout, style)
        if unnamed and _last_with_its_keys(board, i):
            lines += _key_list(group, style)
            unnamed = False
    return joined(lines[:-1])


def _in_one_range(board: Board) -> list[Panel]:
    """The panels that have the board's range."""
    return [panel for group in board.groups if not board.own_range(group) for panel in group.panels]


def _pen(group: Group, board: Board, style: TerminalStyle) -> Pen:
    return Pen(style, board.own_range(group) or board.range, board.scale)


def _laid(group: Group, board: Board, shared: Sequence[Panel], style: TerminalStyle) -> _Laid:
    pen = _pen(group, board, style)
    pieces = parts(group, pen)
    panels = [piece.panel for piece in pieces]
    layout = choose(panels, pen)
    cells = cell_facts(group.panels if board.own_range(group) else shared, layout.mode, pen)
    return _Laid(pen, pieces, layout, [*axes_facts(panels[0], style), *cells, *pooled_facts(panels, style)])


def _group_head(group: Group, said: str, facts: Sequence[str] | None, pen: Pen) -> list[Line]:
    """A group's title with what is said of it alone, its prose, and where it has its own range what that is.

    Args:
        group: whose panels, if any, follow.
        said: put after the title.
        facts: how to read the panels, where their range is the group's own.
        pen: draws them.
    """
    style = pen.style
    lines = [*prose(style.own(group.title) + said, style, bold=True), *text_lines(group.text, style)]
    lines += legend(group.panels, facts, pen) if facts is not None else []
    return [*lines, []] if not group.panels or (group.text and facts is None) else lines


def _side_by_side(one: _Laid) -> list[Line]:
    lines: list[Line] = []
    for start in range(0, len(one.pieces), one.layout.abreast):
        some = one.pieces[start : start + one.layout.abreast]
        blocks = [panel_lines(piece, one.layout, one.pen) for piece in some]
        lines += [*beside(blocks, one.layout.width, " " * GAP), []]
    return lines


def _last_with_its_keys(board: Board, i: int) -> bool:
    """Whether the group after group `i` has other keys, or none, or there is none."""
    keys = [group.panels[0].columns if group.panels else None for group in board.groups[i : i + 2]]
    return keys.count(keys[0]) == 1


def _key_list(group: Group, style: TerminalStyle) -> list[Line]:
    """All keys with their positions, where cells stand for single ones that are more than their positions."""
    keys = group.panels[0].columns
    named_by_position = keys.labels == tuple(str(keys.position(i)) for i in range(len(keys.labels)))
    if keys.step > 1 or not keys.of_tokens or named_by_position:
        return []
    same = keys.labels == group.panels[0].rows.labels
    texts = (elide(style.token(text), style.columns // 2, style.signs.ellipsis) for text in keys.labels)
    items = [f"{keys.position(i)} {text}" for i, text in enumerate(texts)]
    which = style.say("tokens") if same else style.say("keys")
    items[0] = f"{style.own(which)}: {items[0]}"
    return [*map(text_line, wrapped(items, style.columns, "  ")), []]


def overview(board: Board, style: TerminalStyle) -> Segments:
    """Layers down, heads across, each head a small panel; `heads_view` where even those are too wide.

    Groups with something of their own to say, or without panels, are for `heads_view` too.
    """
    if not board.panels or any(group.text or board.own_range(group) or not group.panels for group in board.groups):
        return heads_view(board, style)
    pen = Pen(style, board.range, board.scale)
    tiles = max((len(panel.columns.labels) for panel in board.panels), default=1)
    column = max(tiles, min(_THUMBNAIL[0], widest(_head_label(panel, style) for panel in board.panels)))
    abreast = (style.columns - _LAYER_LABEL) // (column + 1)
    if abreast == 0:
        return heads_view(board, style)
    n_heads = max((len(group.panels) for group in board.groups), default=1)
    abreast = -(-n_heads // -(-n_heads // abreast))
    axes = [f"each panel is a head, {fact}" for panel in board.panels[:1] for fact in axes_facts(panel, style)]
    facts = [*axes, *cell_facts(board.panels, Mode.FINE, pen), *pooled_facts(board.panels, style)]
    lines = heading(board, board.panels, facts, style)
    for start in range(0, n_heads, abreast):
        lines += [*_thumbnails(board, start, start + abreast, column, pen), []]
    for i, group in enumerate(board.groups):
        lines += _key_list(group, style) if _last_with_its_keys(board, i) else []
    return joined(lines[:-1])


def _thumbnails(board: Board, start: int, stop: int, column: int, pen: Pen) -> list[Line]:
    """Heads `start` to `stop` of every layer."""
    style = pen.style
    lines: list[Line] = []
    header = ""
    edge = "" if style.color else style.signs.edge
    for group in board.groups:
        panels = group.panels[start:stop]
        heads = " ".join(justify(elide(_head_label(panel, style), column, ""), column, 0) for panel in panels)
        if heads != header:
            lines.append(text_line(f"{'head':<{_LAYER_LABEL}}{heads}"))
            header = heads
        blocks = [fine_cells(pen.shades(panel.values), pen) for panel in panels]
        lines += _labelled(group, beside(blocks, column, edge or " "), edge, style)
        lines += [] if _ends_in_half_line(group, style) else [[]]
    return lines if lines[-1] else lines[:-1]


def _labelled(group: Group, lines: Sequence[Line], edge: str, style: TerminalStyle) -> list[Line]:
    """The panels of a layer with its name before them and an edge around them."""
    names = [text_line(text) for text in wrapped(style.own(group.title).split(" "), _LAYER_LABEL - 1)]
    framed: list[Line] = [[Segment(edge or " "), *line, Segment(edge)] for line in lines]
    nothing: Line = []
    pairs = zip_longest(names, framed, fillvalue=nothing)
    return [[*padded(name, _LAYER_LABEL - 1), *line] for name, line in pairs]


def _ends_in_half_line(group: Group, style: TerminalStyle) -> bool:
    """Whether the last line of the panels is half empty, which parts them from the next ones."""
    return style.halves and len(group.panels[0].rows.labels) % 2 == 1


def _head_label(panel: Panel, style: TerminalStyle) -> str:
    """`3` for head 3."""
    return style.own(panel.title.split(" · ")[0].removeprefix("head ").removesuffix(" head"))


def query_view(board: Board, style: TerminalStyle) -> Segments:
    """A table for each panel, such as one query: a line for each head, the key tokens written out across."""
    shared = _in_one_range(board)
    lines = heading(board, shared, _table_facts(shared, style), style)
    for group in board.groups:
        pen = _pen(group, board, style)
        own = _table_facts(group.panels, style) if board.own_range(group) and group.panels else None
        lines += _group_head(group, "", own, pen)
        titles = _numbered_repeats([panel.title for panel in group.panels])
        for title, panel in zip(titles, group.panels, strict=True):
            lines += prose(style.own(title), style, bold=True) if panel.title else []
            lines += table_lines(panel, pen)
    return joined(lines[:-1])


def _table_facts(panels: Sequence[Panel], style: TerminalStyle) -> list[str]:
    return [*(fact for panel in panels[:1] for fact in axes_facts(panel, style)), *pooled_facts(panels, style)]


def _numbered_repeats(titles: Sequence[str]) -> list[str]:
    """Titles that occur again say which they are.

    >>> _numbered_repeats(["query a", "query b", "query a"])
    ['query a (1 of 2)', 'query b', 'query a (2 of 2)']
    """
    return [
        title if titles.count(title) == 1 else f"{title} ({titles[:i].count(title) + 1} of {titles.count(title)})"
        for i, title in enumerate(titles)
    ]
