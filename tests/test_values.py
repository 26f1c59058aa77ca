"""Boards of other values than weights: signed ones, groups with a range of their own, prose; as pictures and text."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.arrays import Floats
from attnviz.errors import RequestError
from attnviz.render.colors import DIVERGING, MISSING, colormap
from attnviz.render.fonts import bundled
from attnviz.render.layout import Scene, layout
from attnviz.render.lettering import measure, runs
from attnviz.render.panels import Axis, Board, Group, Look, Panel
from attnviz.render.ranges import Range
from attnviz.render.scale import SCALES, range_of, shade
from attnviz.render.terminal import TerminalStyle, heads_view, overview, query_view
from tests.pictures import KINDS, color_of, heatmaps, scene_of
from tests.test_layout import check_sound, plain_measure, strings
from tests.test_terminal import ground, lines_of, printed
from tests.value_boards import FORMULAS, KEY, QUERY, difference, lesson, numbered, signed

PLAIN, COLOR = TerminalStyle(80, color=False), TerminalStyle(80, color=True)
SCORES = Range(-2.0, 2.0, "score")
VALUES = np.array([[-2.0, -0.5, 0.0], [0.5, 2.0, 1.0]])


def one_panel(values: Floats, span: Range, own: Range | None = None, title: str = "head 0") -> Board:
    axes = numbered("layer", values.shape[0]), numbered("head", values.shape[1])
    return Board("a caption", (Group("a title", (Panel(title, values, *axes),), range=own),), span)


def diverging(share: float, cmap: str = "rdbu", steps: int = 239) -> list[int]:
    colors = colormap(cmap, diverging=True)
    color: list[int] = colors[round(int(share * (steps - 1) + 0.5) * 255 / (steps - 1))].tolist()
    return color


# Pictures


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cmap", DIVERGING)
def test_signed_values_have_the_colours_of_the_diverging_map(kind: str, cmap: str) -> None:
    found = heatmaps(one_panel(VALUES, SCORES), kind, Look(diverging=cmap, cmap="magma"))
    shades = [[0, 0.375, 0.5], [0.625, 1, 0.75]]
    assert found[0].colors.tolist() == [[diverging(share, cmap) for share in row] for row in shades]
    assert found[0].colors[0, 2].tolist() == colormap(cmap, diverging=True)[128].tolist()
    assert found[1].colors[0, [0, -1]].tolist() == colormap(cmap, diverging=True)[[0, 255]].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES)
def test_signed_colours_follow_the_scale(kind: str, scale: str) -> None:
    found = heatmaps(replace(one_panel(VALUES, SCORES), scale=scale), kind)[0].colors
    assert found.tolist() == [[diverging(share) for share in row] for row in shade(VALUES, SCORES, scale).tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_both_kinds_of_maps_stand_in_one_picture(kind: str) -> None:
    weights = np.array([[0.0, 0.25], [1.0, np.nan]])
    first, second = one_panel(weights, Range(0.0, 1.0)).groups[0], one_panel(VALUES, SCORES, SCORES).groups[0]
    found = heatmaps(Board("", (first, second), Range(0.0, 1.0)), kind)
    viridis = colormap("viridis")
    assert found[0].colors.tolist() == [
        [viridis[0].tolist(), viridis[round(30 * 255 / 118)].tolist()],
        [viridis[255].tolist(), list(MISSING)],
    ]
    assert found[1].colors.tolist() == [
        [diverging(share, steps=119) for share in row] for row in ((0, 0.375, 0.5), (0.625, 1, 0.75))
    ]
    assert found[2].colors[0, -1].tolist() == viridis[255].tolist()
    assert found[3].colors[0, -1].tolist() == diverging(1)
    assert found[4].colors.tolist() == [[list(MISSING)]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequential_range_may_begin_anywhere(kind: str) -> None:
    found = heatmaps(one_panel(np.array([[4.0, 5.0, 6.0]]), Range(4.0, 6.0, "bits")), kind)[0].colors
    assert found.tolist() == [[color_of(0), color_of(0.5), color_of(1)]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("look", [Look(diverging="viridis"), Look(cmap="rdbu")])
def test_a_map_of_the_other_kind_is_refused(kind: str, look: Look) -> None:
    with pytest.raises(RequestError, match="choose one of"):
        heatmaps(one_panel(VALUES, SCORES), kind, look)


def test_a_group_with_the_board_s_range_is_drawn_as_if_it_said_nothing() -> None:
    with_own, without = (one_panel(VALUES, SCORES, own) for own in (replace(SCORES), None))
    first, second = layout(with_own, plain_measure), layout(without, plain_measure)
    assert (first.texts, first.boxes, first.width, first.height) == (
        second.texts,
        second.boxes,
        second.width,
        second.height,
    )
    for style in (PLAIN, COLOR):
        assert printed(with_own, style) == printed(without, style)


def test_the_bar_of_a_group_stands_between_its_prose_and_its_panels_and_no_other_where_none_is_needed() -> None:
    board = one_panel(VALUES, Range(0.0, 1.0), SCORES)
    board = replace(board, groups=(replace(board.groups[0], text=("some prose",)),))
    scene = layout(board, plain_measure)
    check_sound(scene)
    assert "weight" not in strings(scene)
    (bar,), (panel,) = scene.bars, scene.panels
    heights = {text.string: text.y for text in scene.texts}
    assert heights["a title"] < heights["some prose"] < bar.y < heights["head 0"] < panel.y
    assert abs(heights["score"] - bar.y) < 12
    assert (scene.texts[3].string, range_of("linear", SCORES) in strings(scene)) == ("score", True)


def test_the_legend_of_each_range_speaks_of_its_own_panels() -> None:
    missing = VALUES.copy()
    missing[0, 0] = np.nan
    whole, broken = one_panel(VALUES, SCORES, SCORES).groups[0], one_panel(missing, SCORES, Range(-3, 3)).groups[0]
    scene = layout(Board("", (whole, broken), Range(0.0, 1.0)), plain_measure)
    (sample,) = scene.samples
    assert scene.bars[1].y <= sample.y < scene.panels[1].y
    texts = lines_of(heads_view(Board("", (whole, broken), Range(0.0, 1.0)), PLAIN))
    assert [("not a number" in line) for line in texts if line.startswith(("score", "weight"))] == [False, True]


def test_labels_of_ticks_that_would_touch_are_left_out() -> None:
    scene = layout(one_panel(VALUES, Range(-0.0001235, 0.0001235, "score")), plain_measure)
    check_sound(scene)
    assert "−0.0001235" in strings(scene)
    assert "0" in strings(scene)
    assert not [string for string in strings(scene) if string.startswith(("6.1", "−6.1"))]


@pytest.mark.parametrize("board", [difference(), lesson(), signed()], ids=["difference", "lesson", "signed"])
def test_nothing_overlaps_or_leaves_the_picture(board: Board) -> None:
    for measured in (plain_measure, measure):
        check_sound(layout(board, measured), measured)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([None, SCORES, Range(0, 3.3, "entropy, nats"), Range(0, 1)]),
            st.lists(st.sampled_from(["", "words " * 40, "x" * 300, "ᵀ√ₖ"]), max_size=3),
        ),
        max_size=4,
    ),
    st.integers(1, 9),
    st.integers(1, 30),
    st.integers(20, 130),
)
def test_whatever_is_mixed_has_its_place(
    groups: list[tuple[int, Range | None, list[str]]], rows: int, columns: int, width: int
) -> None:
    values = np.linspace(-1, 1, rows * columns).reshape(rows, columns)
    panels = [Panel("", values, numbered("", rows), numbered("head", columns))] * 3
    board = Board("", tuple(Group("", tuple(panels[:n]), tuple(text), own) for n, own, text in groups), Range(0.0, 1.0))
    scene = layout(board, plain_measure)
    if scene.rasters:
        check_sound(scene)
    for color in (False, True):
        for draw in (heads_view, query_view, overview):
            lines = lines_of(draw(board, TerminalStyle(width, color)))
            assert max(map(cell_len, lines), default=0) <= width


def prose_of(scene: Scene) -> str:
    return " ".join(text.string for text in scene.texts if text.size == 13)


def test_prose_is_wrapped_letter_for_letter() -> None:
    words = " ".join(f"word{i}" for i in range(200))
    board = Board("", (Group("a title", (), (words, *FORMULAS)),), Range(0.0, 1.0))
    scene = scene_of(board)
    assert prose_of(scene) == " ".join([words, *FORMULAS])
    assert "weight" not in strings(scene)
    shown = " ".join(" ".join(lines_of(heads_view(board, TerminalStyle(40, color=False)))).split())
    assert shown == " ".join(["a title", words, *FORMULAS])


@pytest.mark.parametrize("bold", [False, True])
def test_formulas_are_drawn_by_the_font_that_comes_along(bold: bool) -> None:
    formula = "ᵀ√ₖₙₘᵢⱼₜₓ₀₁₂²³ⁿ⁻¹Σ∑·∈ℝ≤≥≠→×∞≈⊙−±αβγθσλμπ‖⟨⟩"
    assert [(run.string, run.font) for run in runs(formula, bold)] == [(formula, bundled(bold))]


def test_an_axis_without_a_name_and_labels_is_nothing_in_a_picture() -> None:
    panel = Panel("", np.ones((1, 2)), Axis("", ("",)), Axis("", ("a", "")))
    scene = layout(Board("", (Group("", (panel,)),), Range(0.0, 1.0)), plain_measure)
    assert [string for string in strings(scene)[5:] if string] == ["a"]


# Text


def cells_of(board: Board, style: TerminalStyle, label: str) -> list[str]:
    return next(line.split()[1:] for line in lines_of(heads_view(board, style)) if line.startswith(f"{label} "))


@pytest.mark.parametrize("style", [PLAIN, COLOR], ids=["plain", "color"])
@pytest.mark.parametrize("draw", [heads_view, query_view])
def test_signed_numbers_stand_in_their_rows_and_columns(draw: object, style: TerminalStyle) -> None:
    view = {heads_view: heads_view, query_view: query_view}[draw]  # type: ignore[index]
    lines = [line.split() for line in lines_of(view(one_panel(VALUES, SCORES), style))]
    assert ["0", "−2.00", "−.50", "0"] in lines
    assert ["1", ".50", "2.00", "1.00"] in lines


@pytest.mark.parametrize("color", [False, True])
def test_numbers_are_aligned_at_the_right(color: bool) -> None:
    lines = lines_of(
        heads_view(
            one_panel(np.array([[-12.0, 3.0], [0.5, 11.0]]), Range(-20, 20, "score")), replace(COLOR, color=color)
        )
    )
    assert lines[-3:] == ["       0     1", "0  −12.0   3.0", "1     .5  11.0"]


def test_numbers_stand_on_the_colours_of_the_diverging_map() -> None:
    shown = heads_view(one_panel(VALUES, SCORES), COLOR)
    grounds = {segment.text.strip(): ground(segment) for segment in shown.segments if ground(segment)}
    table = colormap("rdbu", diverging=True)
    assert grounds["−2.00"] == tuple(table[0])
    assert grounds["0"] == tuple(table[128])
    assert grounds["2.00"] == tuple(table[255])


def test_the_look_s_precision_is_that_of_the_numbers() -> None:
    assert cells_of(one_panel(VALUES / 3, SCORES), replace(PLAIN, precision=3), "0") == ["−.667", "−.167", "0"]


def test_columns_that_do_not_fit_are_read_in_blocks_where_rows_are_few() -> None:
    values = np.arange(60, dtype=float).reshape(2, 30) / 10
    lines = lines_of(heads_view(one_panel(values, Range(0, 6, "norm")), replace(PLAIN, width=60)))
    assert [line for line in lines if "columns" in line][1:] == [
        "head 0, columns 0 to 9",
        "head 0, columns 10 to 19",
        "head 0, columns 20 to 29",
    ]
    rows = [line.split()[1:] for line in lines if line.startswith("1 ")]
    assert [float(text) for row in rows for text in row] == values[1].tolist()


@pytest.mark.parametrize(
    ("encoding", "row"), [("utf-8", "≡═━─╌ ·░▒▓█?"), ("ascii", "%=~-_ .:+*#?")], ids=["unicode", "ascii"]
)
def test_shades_show_the_sign(encoding: str, row: str) -> None:
    values = np.zeros((20, 40))
    values[0, :12] = -2, -1.2, -0.8, -0.4, -0.1, 0.01, 0.1, 0.4, 0.8, 1.2, 2, np.nan
    lines = lines_of(heads_view(one_panel(values, SCORES), TerminalStyle(60, color=False, encoding=encoding)))
    edge = "│" if encoding == "utf-8" else "|"
    first = next(line for line in lines if edge in line)
    assert first.split(edge)[1].rstrip() == row
    said = " ".join(lines).replace("-", "−") if encoding == "ascii" else " ".join(lines)
    for sign, end in zip(row[:5], ("−2", "−1.5", "−1", "−0.5", "−0.2"), strict=True):
        assert f"{sign} to {end}".replace("-", "−") in said
    assert "blank from −0.06 to 0.06" in said


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_shades_of_either_sign_are_told_apart(encoding: str) -> None:
    signs = TerminalStyle(80, color=False, encoding=encoding).signs
    assert len(set(signs.above[1:] + signs.below[1:])) == 2 * len(signs.sizes)
    assert len(signs.above) == len(signs.below) == len(signs.sizes) + 1


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ("sqrt", "sqrt scale: blank from −0.0018 to 0.0018, above: · to 0.02"),
        ("row", "row scale, as shares of each row's largest magnitude: blank from −0.03 to 0.03, above: · to 0.1"),
        ("rank", "rank scale, as shares of the panel's magnitudes in order: blank from −0.03 to 0.03"),
    ],
)
def test_signed_shades_are_explained_on_every_scale(scale: str, said: str) -> None:
    board = replace(one_panel(np.zeros((20, 40)), SCORES), scale=scale)
    assert said in " ".join(lines_of(heads_view(board, TerminalStyle(60, color=False))))


@pytest.mark.parametrize("style", [PLAIN, COLOR], ids=["plain", "color"])
def test_an_overview_of_signed_values_draws_them_all(style: TerminalStyle) -> None:
    panels = one_panel(VALUES, SCORES).groups[0].panels
    board = Board("", (Group("layer 0", panels * 3), Group("layer 1", panels * 3)), SCORES, "overview")
    shown = overview(board, style)
    lines = lines_of(shown)
    assert [line.split()[:2] for line in lines if line.startswith("layer")] == [["layer", "0"], ["layer", "1"]]
    if style is PLAIN:
        assert sum(line.count("≡━ ") for line in lines) == 6
    else:
        colors = colormap("rdbu", diverging=True)
        grounds = {
            tuple(segment.style.color.get_truecolor())
            for segment in shown.segments
            if segment.style and segment.style.color
        }
        assert {tuple(colors[0]), tuple(colors[128])} <= grounds


def test_rows_that_are_no_tokens_have_no_positions_and_columns_have_their_labels() -> None:
    rows, columns = Axis("layer", ("3", "5")), Axis("head", tuple(str(i) for i in range(7, 37)))
    panel = Panel("", np.zeros((2, 30)), rows, columns)
    board = Board("", (Group("", (panel,)),), Range(0.0, 1.0))
    lines = lines_of(heads_view(board, TerminalStyle(40, color=False)))
    assert [line.split("│")[0].strip() for line in lines if "│" in line] == ["3", "5"]
    assert lines[-3].split()[:3] == ["7", "12", "17"]
    assert not [line for line in lines if line.startswith(("keys", "tokens"))]


def test_prose_stands_under_the_title_and_above_the_panels() -> None:
    board = one_panel(VALUES, SCORES)
    board = replace(board, groups=(replace(board.groups[0], text=("first [b]line[/b]", "", "second")),))
    for draw in (heads_view, query_view):
        lines = lines_of(draw(board, PLAIN))
        start = lines.index("a title")
        assert lines[start : start + 6] == ["a title", "first [b]line[/b]", "", "second", "", "head 0"]


def test_axes_of_values_are_named_where_they_have_names() -> None:
    panel = Panel("", VALUES[:1], Axis("", ("",)), KEY)
    lines = lines_of(
        heads_view(Board("", (Group("", (replace(panel, columns=Axis("key", ("a", "b", "c"))),)),), SCORES), PLAIN)
    )
    assert lines[0] == "score −2 to 2; columns: key"
    assert QUERY.of_tokens
    assert not numbered("layer", 2).of_tokens
