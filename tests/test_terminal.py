"""The terminal views, held against the files in golden/terminal.

`ATTNVIZ_REWRITE_GOLDEN=1 pytest tests/test_terminal.py` writes those that differ, names them and fails: look at each.
"""

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment, Segments

from attnviz.arrays import Floats
from attnviz.attention import softmax
from attnviz.collect import HeatmapCollector
from attnviz.maps import AttentionMap, StoredWeights
from attnviz.render import terminal_cells, terminal_style
from attnviz.render.colors import DIVERGING, NAMES, colormap
from attnviz.render.panels import Axis, Board, Group, Panel, heads_board, queries_board
from attnviz.render.ranges import Range
from attnviz.render.scale import SCALES, range_of, shade, ticks
from attnviz.render.terminal import TerminalStyle, heads_view, overview, query_view, tile_limits, view
from attnviz.render.terminal_cells import LEVELS, Pen, Tints, background, half_blocks
from attnviz.tokens import Tokens
from tests import value_boards

GOLDEN = Path(__file__).parent / "golden" / "terminal"
FRUIT = ("[CLS]", "Orange", "is", "my", "favorite", "fruit", "[SEP]")
STORY = "Once upon a time there was a little cat who liked to sit by the window and watch the birds in the garden"
TALE = tuple(STORY.split())
AWKWARD = (
    "[CLS]",
    "漢字",
    "👨‍👩‍👧",
    "שלום",
    "e\u0301",
    "\t",
    "a\nb",
    "\u200b",
    "[/INST]",
    ":smile:",
    "the",
    "\u0301",
    "the",
    "🇧🇷",
)
PLAIN, COLOR = TerminalStyle(100, color=False), TerminalStyle(100, color=True)
PEN = Pen(COLOR, Range(0.0, 1.0), "linear")


@pytest.fixture(autouse=True)
def fresh_styles() -> None:
    """rich's styles keep the codes of the first colour system they are written in; here several are used."""
    for module in (terminal_cells, terminal_style):
        for cached in vars(module).values():
            if hasattr(cached, "cache_clear"):
                cached.cache_clear()


def lines_of(shown: Segments) -> list[str]:
    return "".join(segment.text for segment in shown.segments).split("\n")[:-1]


def printed(board: Board, style: TerminalStyle) -> str:
    sheet = io.StringIO()
    console = Console(
        file=sheet,
        width=style.columns,
        force_terminal=True,
        color_system="truecolor" if style.color else None,
        legacy_windows=False,
        _environ={},
    )
    console.print(view(board, style), end="")
    return sheet.getvalue()


def row_of(lines: list[str], label: str) -> str:
    """The first row with a label."""
    return next(line for line in lines if line.startswith(label))


def board_of(
    weights: Sequence[Sequence[Sequence[float]]] | Sequence[Floats] | Floats, top: float = 1.0, n_layers: int = 1
) -> Board:
    """Heads of weights [head, query, key], over queries q0, q1, … and keys k0, k1, …"""
    array = np.asarray(weights, np.float64)
    rows = Axis("query", tuple(f"q{i}" for i in range(array.shape[1])))
    columns = Axis("key", tuple(f"k{i}" for i in range(array.shape[2])))
    panels = tuple(Panel(f"head {i}", values, rows, columns) for i, values in enumerate(array))
    return Board("a caption", tuple(Group(f"layer {i}", panels) for i in range(n_layers)), Range(0.0, top))


def tokens_of(n: int) -> tuple[str, ...]:
    return FRUIT[:1] if n == 1 else FRUIT if n == 7 else (TALE * 25)[:n]


def seeded(shape: tuple[int, int, int], seed: int) -> Floats:
    """Heads that look at the word before, at the first and around; four digits, which every machine computes alike."""
    _, queries, keys = shape
    scores = np.random.default_rng(seed).normal(size=shape) * 2
    distance = np.arange(queries)[:, None] - np.arange(keys)[None, :]
    scores[0::3] += np.where(distance == 1, 6.0, 0.0)
    scores[1::3, :, 0] += 4.0 + np.log(keys)
    scores[2::3] -= np.abs(distance) / 2
    return np.asarray(softmax(scores).round(4).clip(1e-4), np.float32)


def heatmaps_of(
    tokens: Sequence[str], n_heads: int, style: TerminalStyle, *, n_layers: int = 1, small: bool = False
) -> HeatmapCollector:
    collector = HeatmapCollector(*tile_limits(style, n_heads, small))
    for layer in range(n_layers):
        weights = seeded((n_heads, len(tokens), len(tokens)), seed=layer)
        if tokens is AWKWARD:
            weights *= np.tri(len(tokens), dtype=np.float32)
            weights[1, 4], weights[2, 3] = np.nan, 0
        both = Tokens.of(tokens)
        collector.add(AttentionMap("", layer, tuple(range(n_heads)), StoredWeights(weights), both, both))
    return collector


def heads_case(tokens: Sequence[str], n_heads: int, style: TerminalStyle) -> Board:
    return heads_board(heatmaps_of(tokens, n_heads, style).result(), "seeded weights · any tokens")


def overview_case(style: TerminalStyle) -> Board:
    collector = heatmaps_of(FRUIT, 12, style, n_layers=6, small=True)
    return heads_board(collector.result(), "seeded weights · 6 layers", "overview")


def queries_case(style: TerminalStyle) -> Board:
    collector = HeatmapCollector(*tile_limits(style, 1, False))
    weights = seeded((12, 7, 7), seed=0)
    both = Tokens.of(FRUIT)
    collector.add(AttentionMap("", 0, tuple(range(12)), StoredWeights(weights), both, both).pick(queries=[4, 1]))
    return queries_board(collector.result(), "seeded weights · two queries")


def stretch_case(style: TerminalStyle) -> Board:
    """Tokens 95 to 119 of 130, and 30 to 129 as the largest weights of tiles."""
    both = Tokens.of(tokens_of(130))
    whole = AttentionMap("", 0, (0, 1, 2), StoredWeights(seeded((3, 130, 130), seed=0)), both, both)
    exact, pooled = HeatmapCollector(25, 25), HeatmapCollector(8, 8, pool="max")
    exact.add(whole.pick(queries=range(95, 120), keys=range(95, 120)))
    pooled.add(replace(whole.pick(queries=range(30, 130), keys=range(30, 130)), layer=1))
    return heads_board([*exact.result(), *pooled.result()], "seeded weights · part of a text")


CASES: dict[str, Callable[[TerminalStyle], Board]] = {
    "001-tokens": lambda style: heads_case(tokens_of(1), 3, style),
    "007-tokens": lambda style: heads_case(tokens_of(7), 12, style),
    "024-tokens": lambda style: heads_case(tokens_of(24), 3, style),
    "130-tokens": lambda style: heads_case(tokens_of(130), 3, style),
    "512-tokens": lambda style: heads_case(tokens_of(512), 3, style),
    "awkward": lambda style: heads_case(AWKWARD, 3, style),
    "overview": overview_case,
    "query": queries_case,
    "stretch": stretch_case,
    "difference": lambda style: value_boards.difference(),
    "signed": lambda style: value_boards.signed(),
    "lesson": lambda style: value_boards.lesson(),
    "lesson-tables": lambda style: replace(value_boards.lesson(), view="queries"),
}
OF_VALUES = ("difference", "signed", "lesson", "lesson-tables")
"""Not of weights."""
KINDS = {"color.ans": (True, "utf-8"), "plain.txt": (False, "utf-8"), "ascii.txt": (False, "ascii")}
NAMES_OF_GOLDEN = [
    f"{case}-{width}-{kind}"
    for case in CASES
    for width in ("040", "080", "120", *(() if case in OF_VALUES else ("200",)))
    for kind in KINDS
]


@pytest.mark.parametrize("name", NAMES_OF_GOLDEN)
def test_looks_as_it_looked(name: str) -> None:
    case, width, kind = name.rsplit("-", 2)
    color, encoding = KINDS[kind]
    style = TerminalStyle(int(width), color, encoding)
    shown = printed(CASES[case](style), style).encode(encoding)
    path = GOLDEN / name
    if os.environ.get("ATTNVIZ_REWRITE_GOLDEN") == "1" and not (path.exists() and path.read_bytes() == shown):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shown)
        pytest.fail(f"rewritten: {path}")
    assert shown.decode(encoding) == path.read_bytes().decode(encoding)


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(NAMES_OF_GOLDEN)


# Numbers


def test_a_weight_stands_in_its_row_and_column() -> None:
    weights = np.arange(1, 16).reshape(1, 3, 5) / 100
    rows = [line.split() for line in lines_of(heads_view(board_of(weights), PLAIN))]
    assert [row for row in rows if row and row[0] in ("q0", "q1", "q2")] == [
        ["q0", "1", "2", "3", "4", "5"],
        ["q1", "6", "7", "8", "9", "10"],
        ["q2", "11", "12", "13", "14", "15"],
    ]
    assert ["k0", "k1", "k2", "k3", "k4"] in rows


def test_coloured_numbers_stand_on_the_colour_of_their_weight() -> None:
    shown = heads_view(board_of([[[0.21, 0.0, 1.0], [np.nan, 0.5, 0.25]]]), COLOR)
    cells = [(segment.text.strip(), ground(segment)) for segment in shown.segments if ground(segment)][-6:]
    assert [text for text, _ in cells] == [".21", "", "1.0", "?", ".50", ".25"]
    assert cells[1][1] == tuple(colormap("viridis")[0])
    assert cells[2][1] == tuple(colormap("viridis")[255])
    assert cells[3][1] == (255, 0, 255)


def ground(segment: Segment) -> tuple[int, ...] | None:
    color = segment.style.bgcolor if segment.style else None
    return None if color is None else tuple(color.get_truecolor())


@pytest.mark.parametrize("style", [PLAIN, COLOR], ids=["plain", "color"])
def test_three_heads_of_seven_tokens_stand_on_a_line_of_a_hundred(style: TerminalStyle) -> None:
    lines = lines_of(heads_view(heads_case(FRUIT, 12, style), style))
    assert [line.split() for line in lines if line.startswith("head ")] == [
        ["head", f"{i}", "head", f"{i + 1}", "head", f"{i + 2}"] for i in range(0, 12, 3)
    ]
    digits = [line for line in lines if line.startswith("favorite")]
    assert len(digits) == 4
    assert all(line.count("favorite") == 3 for line in digits)


@pytest.mark.parametrize(("precision", "number"), [(1, "2"), (2, "21"), (3, "214")])
def test_digits_are_as_many_as_asked_for(precision: int, number: str) -> None:
    lines = lines_of(heads_view(board_of([[[0.2143]]]), TerminalStyle(80, color=False, precision=precision)))
    assert row_of(lines, "q0").split() == ["q0", number]
    assert f"{number} means 0.{number}" in " ".join(lines)


def test_one_is_not_taken_for_a_hundredth() -> None:
    lines = lines_of(heads_view(board_of([[[1.0, 0.004, 0.01, 0.0]]]), PLAIN))
    assert row_of(lines, "q0").split() == ["q0", "1.", "·", "1"]
    assert "1. means 1" in " ".join(lines)


def test_weights_above_one_are_written_out() -> None:
    lines = lines_of(heads_view(board_of([[[1.2, 1.0, 0.05]]], top=1.2), PLAIN))
    assert row_of(lines, "q0").split() == ["q0", "120", "100", "5"]
    assert "0 to 1.2" in " ".join(lines)


def test_rows_without_a_number_and_rows_without_weight_differ() -> None:
    lines = lines_of(heads_view(board_of([[[np.nan, np.nan], [0.0, 0.0]]]), PLAIN))
    assert row_of(lines, "q0").split() == ["q0", "?", "?"]
    assert row_of(lines, "q1") == "q1"
    said = " ".join(lines)
    assert "? is not a number" in said
    assert "blank is exactly 0" in said


# Shades and colours


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_a_flat_head_has_other_shades_than_a_strong_one(encoding: str) -> None:
    flat, strong = np.full((30, 30), 0.52), np.full((30, 30), 0.9)
    style = TerminalStyle(80, color=False, encoding=encoding)
    row = row_of(lines_of(heads_view(board_of([flat, strong]), style)), " 0 q0")
    row.encode(encoding)
    edge = style.signs.edge
    _, first, _, second, _ = row.split(edge)
    assert len(set(first)) == len(set(second)) == 1
    assert style.signs.shades.index(first[0]) < style.signs.shades.index(second[0])


def test_shades_mean_what_the_legend_says() -> None:
    weights = np.zeros((1, 40, 40))
    weights[0, 0, :7] = np.nan, 0.02, 0.05, 0.2, 0.3, 0.52, 0.9
    lines = lines_of(heads_view(board_of(weights), TerminalStyle(60, color=False)))
    assert row_of(lines, " 0 q0").split("│")[1].rstrip() == "? ·░▒▓█"
    assert "blank below 0.03, · to 0.1, ░ to 0.25, ▒ to 0.5, ▓ to 0.75, █ to 1" in " ".join(lines)


def test_half_blocks_hold_the_upper_and_the_lower_row() -> None:
    low, high = (tuple(colormap("viridis")[i]) for i in (0, 255))
    pink = (255, 0, 255)
    lines = half_blocks(np.array([[0.0, 1.0], [1.0, np.nan], [1.0, 0.0]]), PEN)
    assert [[(segment.text, ink(segment), ground(segment)) for segment in line] for line in lines] == [
        [("▀", low, high), ("▀", high, pink)],
        [("▀", high, None), ("▀", low, None)],
    ]


def ink(segment: Segment) -> tuple[int, ...] | None:
    color = segment.style.color if segment.style else None
    return None if color is None else tuple(color.get_truecolor())


def test_all_panels_share_one_range() -> None:
    shown = heads_view(board_of([[[0.52]], [[0.9]]]), COLOR)
    flat, strong = (ground(segment) for segment in shown.segments if segment.text.strip() in (".52", ".90"))
    table = colormap("viridis").astype(int)
    nearest = [int(np.abs(table - np.array(color)).sum(axis=1).argmin()) / 255 for color in (flat, strong)]
    assert nearest == pytest.approx([0.52, 0.9], abs=1 / LEVELS)


@pytest.mark.parametrize(
    "tints", [*map(Tints, NAMES), *(Tints(name, signed=True) for name in DIVERGING)], ids=lambda tints: tints.cmap
)
@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD])
def test_numbers_can_be_read_on_every_colour(tints: Tints, system: ColorSystem) -> None:
    for level in range(-1, tints.levels):
        style = background(tints, level)
        assert style.color is not None
        assert style.bgcolor is not None
        text, behind = (luminance(color.downgrade(system).get_truecolor()) for color in (style.color, style.bgcolor))
        contrast = (max(text, behind) + 0.05) / (min(text, behind) + 0.05)
        assert contrast >= (4.5 if system is ColorSystem.TRUECOLOR else 3)


def luminance(color: Sequence[int]) -> float:
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("case", CASES)
def test_without_colour_there_are_no_styles_at_all(case: str) -> None:
    board = CASES[case](PLAIN)
    assert {segment.style for segment in view(board, PLAIN).segments} == {None}
    assert "\x1b" not in printed(board, PLAIN)


# Colour scales


def scaled(scale: str, values: Floats, columns: int = 40, top: float = 1.0) -> Board:
    """A head of so many columns that it is drawn in shades, whose first values are these [row, column]."""
    weights = np.zeros((1, max(20, len(values)), columns))
    weights[0, : len(values), : values.shape[1]] = values
    return replace(board_of(weights, top=top), scale=scale)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("width", [60, 30])
def test_shades_and_colours_follow_the_scale_of_the_whole_panel(scale: str, width: int) -> None:
    """Also where its columns stand on several lines."""
    values = np.array([[0.0, 0.001, 0.02, 0.2], [0.5, np.nan, 0.3, 0.1]])
    values = np.hstack([values, np.zeros((2, 35)), [[0.9], [0.6]]])
    board = scaled(scale, values)
    wanted = shade(board.panels[0].values, Range(0.0, 1.0), scale)
    plain = lines_of(heads_view(board, TerminalStyle(width, color=False)))
    rows = [[row for row in plain if row.lstrip().startswith(f"{i} q{i}")] for i in range(2)]
    signs = ["".join(row.split("│")[1].ljust(40 if width == 60 else 0) for row in lines)[:40] for lines in rows]
    for i in range(2):
        steps = np.searchsorted([0.03, 0.1, 0.25, 0.5, 0.75], wanted[i], side="right")
        expected = "".join("?" if np.isnan(v) else " ·░▒▓█"[s] for v, s in zip(wanted[i], steps, strict=True))
        assert signs[i] == expected
    lines = half_blocks(wanted[:2], PEN)
    assert (ink(lines[0][0]), ground(lines[0][0])) == tuple(
        tuple(colormap("viridis")[round(round(v * 63) * 255 / 63)].tolist()) for v in wanted[:2, 0]
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("draw", [heads_view, query_view, overview])
def test_numbers_are_the_weights_on_every_scale(
    scale: str, color: bool, draw: Callable[[Board, TerminalStyle], Segments]
) -> None:
    style = TerminalStyle(100, color)
    board = board_of([[[0.21, 0.0, 0.75], [0.64, 0.16, 0.2]]])

    def texts(board: Board) -> list[str]:
        lines = lines_of(draw(board, style))
        return lines[next(i for i, line in enumerate(lines) if line.startswith(("layer", "head"))) :]

    if draw is overview:
        assert len(texts(replace(board, scale=scale))) == len(texts(board))
    else:
        assert texts(replace(board, scale=scale)) == texts(board)


@pytest.mark.parametrize("draw", [heads_view, query_view, overview])
@pytest.mark.parametrize("scale", SCALES)
def test_colours_of_numbers_follow_the_scale(draw: Callable[[Board, TerminalStyle], Segments], scale: str) -> None:
    values = np.array([[0.04, 0.0, 0.5], [0.25, 0.01, 0.0]])
    shown = draw(replace(board_of(values[None]), scale=scale), COLOR).segments
    found = {ground(segment) for segment in shown} | {ink(segment) for segment in shown}
    levels = np.rint(shade(values, Range(0.0, 1.0), scale) * 63) * 255 / 63
    assert {tuple(colormap("viridis")[round(level)].tolist()) for level in levels.reshape(-1).tolist()} <= found


@pytest.mark.parametrize("scale", SCALES[1:])
@pytest.mark.parametrize("draw", [heads_view, query_view, overview])
@pytest.mark.parametrize("width", [20, 40, 100])
def test_the_scale_is_said_beside_its_colours(
    scale: str, draw: Callable[[Board, TerminalStyle], Segments], width: int
) -> None:
    board = replace(board_of([[[0.1, 0.2]]], top=0.2), scale=scale)
    lines = lines_of(draw(board, TerminalStyle(width, color=True)))
    (_, first), *_, (_, last) = ticks(scale, Range(0.0, 0.2))
    assert lines[1].startswith(f"weight {first} ")
    assert lines[1].endswith(f" {last}")
    assert range_of(scale, Range(0.0, 0.2)) in " ".join(lines)
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ("sqrt", "sqrt scale: blank below 0.0009, · to 0.01, ░ to 0.0625, ▒ to 0.25, ▓ to 0.5625, █ to 1"),
        ("row", "row scale, as shares of each row's maximum: blank below 0.03, · to 0.1"),
        ("rank", "rank scale, as shares of the panel's weights in order: blank below 0.03, · to 0.1"),
    ],
)
def test_shades_are_explained_on_every_scale(scale: str, said: str) -> None:
    lines = lines_of(heads_view(scaled(scale, np.array([[0.5]])), TerminalStyle(60, color=False)))
    assert said in " ".join(lines)


def test_a_weight_that_is_just_a_step_has_the_shade_that_begins_there() -> None:
    values = np.array([[0.03, 0.1, 0.25]], np.float32)
    board = scaled("linear", values)
    panel = replace(board.panels[0], values=board.panels[0].values.astype(np.float32))
    lines = lines_of(heads_view(Board("", (Group("", (panel,)),), Range(0.0, 1.0)), TerminalStyle(60, color=False)))
    assert row_of(lines, " 0 q0").split("│")[1].rstrip() == "·░▒"


# What is said


@pytest.mark.parametrize("style", [PLAIN, COLOR], ids=["plain", "color"])
@pytest.mark.parametrize("draw", [heads_view, overview, query_view])
def test_caption_range_and_axes_are_there(
    draw: Callable[[Board, TerminalStyle], Segments], style: TerminalStyle
) -> None:
    lines = lines_of(draw(board_of([[[0.01, 0.05]]], top=0.05), style))
    assert lines[0] == "a caption"
    assert lines[1].startswith("weight 0 ")
    assert "0.05" in lines[1]
    assert "rows: query, columns: key" in " ".join(lines[:4])
    assert "layer" in " ".join(lines)


@pytest.mark.parametrize("style", [PLAIN, COLOR], ids=["plain", "color"])
def test_pooled_tiles_are_said_to_be_means(style: TerminalStyle) -> None:
    narrow = TerminalStyle(80, style.color)
    lines = lines_of(heads_view(heads_case(tokens_of(512), 3, narrow), narrow))
    step = -(-512 // tile_limits(narrow, 3, False)[0])
    assert f"each cell is the mean of {step} × {step} tokens" in " ".join(lines)


def test_keys_that_are_not_the_queries_are_listed_once() -> None:
    lines = lines_of(heads_view(board_of(np.full((2, 3, 5), 0.2), n_layers=2), PLAIN))
    assert [line for line in lines if line.startswith("keys:")] == ["keys: 0 k0  1 k1  2 k2  3 k3  4 k4"]


def test_repeated_tokens_get_their_positions() -> None:
    lines = lines_of(heads_view(heads_case(("the", "cat", "saw", "the"), 1, PLAIN), PLAIN))
    assert [" ".join(line.split()[: 2 if "the" in line else 1]) for line in lines[-4:]] == [
        "the 0",
        "cat",
        "saw",
        "the 3",
    ]


def test_layers_of_other_shapes_say_how_to_read_them() -> None:
    large, small = board_of(np.full((1, 40, 40), 0.2)), board_of(np.full((1, 2, 2), 0.2))
    both = Board("a caption", (large.groups[0], small.groups[0]), Range(0.0, 1.0))
    lines = lines_of(heads_view(both, TerminalStyle(60, color=False)))
    assert "layer 0 (21 means 0.21)" in lines
    assert any(line.startswith("layer 0 (blank below 0.03") for line in lines)


def test_a_long_caption_takes_three_lines_at_most() -> None:
    board = Board("word " * 500, board_of([[[0.2]]]).groups, Range(0.0, 1.0))
    lines = lines_of(heads_view(board, PLAIN))
    assert next(i for i, line in enumerate(lines) if line.startswith("weight")) <= 3


# Tables and overviews


def test_a_query_s_keys_are_written_out_and_its_weights_have_all_digits() -> None:
    board = queries_case(PLAIN)
    lines = lines_of(query_view(board, PLAIN))
    start = lines.index("query favorite")
    assert lines[start + 1].split() == list(FRUIT)
    for head in range(12):
        wanted = [f"{value:.2f}".removeprefix("0") for value in seeded((12, 7, 7), 0)[head, 4].tolist()]
        assert lines[start + 2 + head].split() == ["head", str(head), *wanted]


def test_one_and_zero_are_whole_in_a_table() -> None:
    assert lines_of(query_view(board_of([[[1.0, 0.0, 0.001]]]), PLAIN))[-1].split() == ["q0", "1.00", "0", ".00"]


def test_a_wide_table_is_cut_into_blocks_with_their_labels() -> None:
    style = TerminalStyle(30, color=False)
    lines = lines_of(query_view(queries_case(style), style))
    assert sum(line.startswith("head 11") for line in lines) > 2
    found = [token for line in lines if line.startswith("       ") for token in line.split()]
    assert found == [*FRUIT, *FRUIT]


def test_queries_of_one_text_are_told_apart() -> None:
    one = board_of([[[0.2]]]).panels[0]
    panels = (Panel("query the", one.values, one.rows, one.columns),) * 2
    lines = lines_of(query_view(Board("a caption", (Group("layer 0", panels),), Range(0.0, 1.0)), PLAIN))
    assert "query the (1 of 2)" in lines
    assert "query the (2 of 2)" in lines


@pytest.mark.parametrize("color", [False, True])
def test_an_overview_has_a_row_for_each_layer_and_a_column_for_each_head(color: bool) -> None:
    style = TerminalStyle(120, color)
    lines = lines_of(view(overview_case(style), style))
    assert [line.split()[:2] for line in lines if line.startswith("layer")] == [["layer", str(i)] for i in range(6)]
    assert [line.split() for line in lines if line.startswith("head")] == [["head", *map(str, range(12))]]
    assert len(lines) < 60


def test_a_narrow_overview_takes_the_heads_in_turns() -> None:
    style = TerminalStyle(60, color=True)
    lines = lines_of(view(overview_case(style), style))
    assert [line.split()[1:] for line in lines if line.startswith("head")] == [
        [str(i) for i in range(start, start + 6)] for start in (0, 6)
    ]


def test_an_overview_draws_every_weight_where_it_belongs() -> None:
    weights = np.zeros((2, 2, 3))
    weights[1, 0, 2] = 1.0
    lines = lines_of(overview(board_of(weights), PLAIN))
    assert lines[-4:-2] == ["layer 0 │   │  █│", "        │   │   │"]


# Sizes


@pytest.mark.parametrize(("width", "color", "most"), [(120, True, 80), (120, False, 150)])
def test_twelve_heads_of_130_tokens_are_not_a_long_read(width: int, color: bool, most: int) -> None:
    style = TerminalStyle(width, color)
    lines = lines_of(heads_view(heads_case(tokens_of(130), 12, style), style))
    assert len(lines) < most
    assert "head 0" in lines[5]
    assert "head 2" in lines[5]


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("n_panels", [1, 2, 3, 12])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_what_the_limits_allow_can_be_drawn(width: int, n_panels: int, color: bool) -> None:
    style = TerminalStyle(width, color)
    rows, columns = tile_limits(style, n_panels, False)
    board = board_of(np.full((n_panels, rows, columns), 0.01), top=0.01)
    said = "\n".join(lines_of(heads_view(board, style)))
    assert "columns 0 to" not in said
    assert said.count("head ") == n_panels
    assert columns >= min(24, width - 9)


def test_columns_that_no_line_can_hold_are_split() -> None:
    weights = np.zeros((1, 2, 50))
    weights[0, 1, 49] = 1.0
    lines = lines_of(heads_view(board_of(weights), TerminalStyle(40, color=False)))
    assert "head 0, columns 0 to 30" in lines
    assert "head 0, columns 31 to 49" in lines
    assert "     31   36   41   46" in lines
    assert "1 q1│                  █│" in lines


@pytest.mark.parametrize("kind", KINDS)
@given(
    tokens=st.lists(st.text(max_size=6) | st.sampled_from(AWKWARD), min_size=1, max_size=30),
    n_heads=st.integers(1, 4),
    width=st.integers(1, 130),
    which=st.sampled_from(["heads", "overview", "queries"]),
)
def test_no_line_is_too_wide_and_nothing_acts_on_the_terminal(
    kind: str, tokens: list[str], n_heads: int, width: int, which: str
) -> None:
    color, encoding = KINDS[kind]
    style = TerminalStyle(width, color, encoding)
    heatmaps = heatmaps_of(tokens, n_heads, style, n_layers=2, small=which == "overview").result()
    draw = {"heads": heads_view, "overview": overview, "queries": query_view}[which]
    board = (queries_board if which == "queries" else heads_board)(heatmaps, " ".join(tokens))
    text = "\n".join(lines_of(draw(board, style)))
    text.encode(encoding)
    assert max(map(cell_len, text.split("\n"))) <= max(20, width)
    assert not [c for c in text if (ord(c) < 32 and c != "\n") or c in "\u202a\u202b\u202d\u202e\u2066\u2067\u2068"]
    assert color or not [line for line in text.split("\n") if line != line.rstrip(" ")]


@dataclass(frozen=True)
class Shown:
    tokens: tuple[str, ...]
    labels: tuple[str, ...]


@pytest.mark.parametrize(
    "shown",
    [
        Shown(("[red]", "[/]", ":smile:"), ("[red]", "[/]", ":smile:")),
        Shown((" ", "", "\t"), ("␣", "⟨empty⟩", "␉")),
        Shown(("\x1b[2J", "\r\n"), ("␛[2J", "␍␊")),
        Shown(("\u200b", "\ufeffa"), ("⟨U+200B⟩", "⟨U+FEFF⟩a")),
        Shown(("שלום", "سلام", "hi"), ("\u200eשלום\u200e", "\u200eسلام\u200e", "hi")),
        Shown(("漢字", "👨‍👩‍👧", "❤️", "ｱ"), ("漢字", "👨‍👩‍👧", "❤️", "ｱ")),
    ],
)
def test_tokens_are_shown_letter_for_letter(shown: Shown) -> None:
    board = heads_case(shown.tokens, 1, PLAIN)
    rows = printed(board, PLAIN).splitlines()[-len(shown.tokens) :]
    assert tuple(row.split()[0] for row in rows) == shown.labels
    cells_from = {cell_len(row[: row.index(label) + len(label)]) for row, label in zip(rows, shown.labels, strict=True)}
    assert len(cells_from) == 1
