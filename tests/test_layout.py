import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.errors import RequestError
from attnviz.render.layout import MAX_SIDE, Measure, Raster, Scene, Text, cell_size, layout, panels_per_line
from attnviz.render.lettering import measure
from attnviz.render.panels import Axis, Board, Group, Panel
from attnviz.render.ranges import Range
from attnviz.render.scale import SCALES, range_of, shade, ticks

LEGEND = "weight", "0", "0.5", "1", "linear scale, 0 to 1"
Boxes = npt.NDArray[np.float64]
"""[box, (left, top, right, bottom)]."""


def plain_measure(string: str, size: int, bold: bool) -> float:
    return len(string) * size * (0.7 if bold else 0.6)


def board(
    groups: int, panels: int, rows: int, columns: int, *, step: int = 1, caption: str = "caption", long: bool = False
) -> Board:
    ending = "x" * 5000 if long else ""
    row_axis = Axis("query", tuple(f"q{i}{ending}" for i in range(rows)), step)
    column_axis = Axis("key", tuple(f"k{i}{ending}" for i in range(columns)), step)
    values = np.zeros((rows, columns), np.float32)
    return Board(
        caption,
        tuple(
            Group(f"layer {g}", tuple(Panel(f"head {p}", values, row_axis, column_axis) for p in range(panels)))
            for g in range(groups)
        ),
        Range(0.0, 1.0),
    )


def strings(scene: Scene) -> list[str]:
    return [text.string for text in scene.texts]


def text_box(text: Text, measured: Measure = plain_measure) -> tuple[float, float, float, float]:
    width = measured(text.string, text.size, text.bold)
    before = width if text.anchor == "end" else 0.0
    above, below = 0.73 * text.size, 0.24 * text.size  # of DejaVu Sans: capital letters, and letters such as g
    if text.rotation == 90:
        return text.x - above, text.y - (width - before), text.x + below, text.y + before
    return text.x - before, text.y - above, text.x - before + width, text.y + below


def raster_box(raster: Raster) -> tuple[float, float, float, float]:
    return raster.x, raster.y, raster.x + raster.width, raster.y + raster.height


def overlaps(boxes: Boxes, others: Boxes) -> npt.NDArray[np.bool_]:
    left = np.maximum(boxes[:, None, :2], others[None, :, :2])
    right = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    meet: npt.NDArray[np.bool_] = np.all(right - left > 1e-6, axis=2)
    return meet


def check_sound(scene: Scene, measured: Measure = plain_measure) -> None:
    """No text is on another or on a raster, no raster on another, and everything is inside the picture."""
    rasters = np.array([raster_box(r) for r in scene.rasters if r.values.size])
    texts = np.array([text_box(t, measured) for t in scene.texts])
    for boxes in (rasters, texts):
        meet = overlaps(boxes, boxes)
        np.fill_diagonal(meet, False)
        assert not meet.any()
        assert boxes.min() >= 0
        assert (boxes[:, 2:] <= [scene.width, scene.height]).all()
    assert not overlaps(rasters, texts).any()


SIZES = [
    (1, 12, 7, 7), (6, 12, 7, 7), (1, 12, 24, 24), (6, 12, 128, 128), (1, 12, 512, 512), (1, 1, 1, 1), (2, 3, 4, 6),
    (1, 7, 12, 7), (1, 40, 12, 200), (12, 1, 9, 9), (1, 11, 7, 7), (1, 32, 5, 5), (2, 3, 0, 4),
]  # fmt: skip
"""Groups, panels in each, rows, columns."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("long", [False, True])
def test_nothing_overlaps_or_leaves_the_picture(size: tuple[int, int, int, int], long: bool) -> None:
    check_sound(layout(board(*size, long=long, caption="a caption " * 40), plain_measure))


@pytest.mark.parametrize("size", SIZES)
def test_nothing_overlaps_in_the_font_that_draws(size: tuple[int, int, int, int]) -> None:
    check_sound(layout(board(*size), measure), measure)


@given(st.integers(1, 4), st.integers(1, 20), st.integers(1, 70), st.integers(1, 70), st.sampled_from([1, 3]))
def test_nothing_overlaps_whatever_the_sizes(groups: int, panels: int, rows: int, columns: int, step: int) -> None:
    scene = layout(board(groups, panels, rows, columns, step=step), plain_measure)
    check_sound(scene)
    for raster in scene.panels:
        assert raster.width % columns == raster.height % rows == 0
        assert raster.width >= columns
        assert raster.height >= rows


def test_panels_keep_the_order_and_the_values_of_the_board() -> None:
    drawn = board(2, 3, 4, 6)
    scene = layout(drawn, plain_measure)
    pairs = zip(scene.panels, drawn.panels, strict=True)
    assert all(raster.values is panel.values for raster, panel in pairs)
    assert [(r.x, r.y) for r in scene.panels] == sorted(((r.x, r.y) for r in scene.panels), key=lambda at: at[::-1])


def test_twelve_heads_stand_in_three_lines_of_four_each_with_its_labels() -> None:
    scene = layout(board(1, 12, 7, 7), plain_measure)
    assert len({raster.x for raster in scene.panels}) == 4
    assert len({raster.y for raster in scene.panels}) == 3
    assert {raster.width // 7 for raster in scene.panels} == {28}
    for i in range(7):
        assert strings(scene).count(f"q{i}") == strings(scene).count(f"k{i}") == 12


def test_seventy_two_heads_stand_in_a_line_for_each_layer_with_labels_at_the_edges() -> None:
    scene = layout(board(6, 12, 7, 7), plain_measure)
    assert len({raster.x for raster in scene.panels}) == 12
    assert len({raster.y for raster in scene.panels}) == 6
    for i in range(7):
        assert strings(scene).count(f"q{i}") == 6
        assert strings(scene).count(f"k{i}") == 12
    assert [f"layer {i}" in strings(scene) for i in range(6)] == [True] * 6
    assert strings(scene).count("head 11") == 6


def test_texts_name_the_axes_once_and_the_ends_of_the_range() -> None:
    scene = layout(board(2, 12, 5, 5), plain_measure)
    assert sorted(s for s in strings(scene) if s.endswith(("↓", "→"))) == ["key →", "query ↓"]
    assert strings(scene)[:6] == ["caption", *LEGEND]
    np.testing.assert_allclose(scene.bars[0].values[0, [0, -1]], [0, 1])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("top", [0.001, 1.0, 1.2345])
def test_the_legend_states_the_scale_with_ticks_where_their_shades_are(scale: str, top: float) -> None:
    drawn = replace(board(1, 2, 3, 3), scale=scale, range=Range(0.0, top))
    drawn.panels[0].values[0] = np.nan
    for measured in (plain_measure, measure):
        scene = layout(drawn, measured)
        check_sound(scene, measured)
        said = strings(scene)
        assert said.index("weight") < said.index(range_of(scale, Range(0.0, top))) < said.index("not a number")
        bar = scene.bars[0]
        marks = [box.x for box in scene.boxes if box.y == bar.y + bar.height + 1 and box.width == 1]
        assert marks == [bar.x + round(share * (bar.width - 1)) for share, _ in ticks(scale, Range(0.0, top))]
        for mark, (_, label) in zip(marks, ticks(scale, Range(0.0, top)), strict=True):
            text = next(text for text in scene.texts if text.string == label and text.y > bar.y + bar.height)
            assert text.x + measured(label, text.size, False) / 2 == pytest.approx(mark, abs=1)


@pytest.mark.parametrize("scale", SCALES)
def test_rasters_have_the_shades_of_the_scale_and_the_bar_all_of_them(scale: str) -> None:
    drawn = replace(board(1, 1, 2, 2), scale=scale, range=Range(0.0, 0.5))
    drawn.panels[0].values[:] = [[0.1, 0.2], [0.0, 0.7]]
    scene = layout(drawn, plain_measure)
    np.testing.assert_array_equal(scene.shades(scene.panels[0]), shade(drawn.panels[0].values, Range(0.0, 0.5), scale))
    np.testing.assert_allclose(scene.shades(scene.bars[0])[0], np.linspace(0, 1, 192), atol=1e-6)


def test_axes_of_one_name_are_both_named() -> None:
    axis = Axis("token", ("a",))
    scene = layout(Board("", (Group("", (Panel("", np.ones((1, 1)), axis, axis),)),), Range(0.0, 1.0)), plain_measure)
    assert strings(scene) == [*LEGEND, "a", "token ↓", "a", "token →"]


def labels_at(scene: Scene, panel: int, rotation: int) -> Iterator[tuple[float, str]]:
    """The labels beside a panel or below it: the middle of each, and its string."""
    raster = scene.panels[panel]
    for text in scene.texts:
        left, top, right, bottom = text_box(text)
        if text.rotation == rotation == 90 and raster.x <= text.x <= raster.x + raster.width + 9 and top > raster.y:
            yield (left + right) / 2 - raster.x, text.string
        beside = raster.x - 20 < right < raster.x and raster.y - 8 < (top + bottom) / 2 < raster.y + raster.height
        if rotation == 0 and text.anchor == "end" and beside:
            yield (top + bottom) / 2 - raster.y, text.string


@pytest.mark.parametrize("rotation", [0, 90])
def test_labels_stand_at_the_middle_of_their_rows_and_columns(rotation: int) -> None:
    scene = layout(board(1, 1, 5, 5), plain_measure)
    cell = scene.panels[0].width / 5
    found = sorted(labels_at(scene, 0, rotation))
    assert [string for _, string in found] == [f"{'qk'[rotation // 90]}{i}" for i in range(5)]
    for i, (middle, _) in enumerate(found):
        assert middle == pytest.approx((i + 0.5) * cell, abs=2)


def test_labels_are_thinned_and_ticked_where_cells_are_smaller_than_letters() -> None:
    scene = layout(board(1, 1, 128, 128), plain_measure)
    kept = [s for s in strings(scene) if s.startswith("q") and "↓" not in s]
    assert kept == [f"q{i}" for i in range(0, 128, 5)]
    ticks = [box for box in scene.boxes if (box.width, box.height) == (4, 1)]
    cell = scene.panels[0].height // 128
    assert [tick.y - scene.panels[0].y for tick in ticks] == [5 * i * cell + cell // 2 for i in range(len(kept))]


def test_no_label_is_smaller_than_eleven_pixels() -> None:
    for size in SIZES:
        assert min(text.size for text in layout(board(*size), plain_measure).texts) >= 11


def test_columns_that_differ_have_labels_below_each_group() -> None:
    groups = board(1, 10, 3, 3).groups + board(1, 10, 3, 4).groups
    texts = strings(layout(Board("", groups, Range(0.0, 1.0)), plain_measure))
    assert texts.count("k0") == 20


def test_panels_of_a_group_with_different_tokens_have_their_own_labels() -> None:
    panels = board(1, 20, 3, 3).panels
    other = Panel("other", np.zeros((3, 3)), Axis("query", ("x", "y", "z")), panels[0].columns)
    texts = strings(layout(Board("", (Group("", (*panels, other)),), Range(0.0, 1.0)), plain_measure))
    assert texts.count("q0") == 20
    assert texts.count("x") == 1


def test_one_panel_of_each_layer_stand_side_by_side_with_both_titles() -> None:
    scene = layout(board(6, 1, 7, 7), plain_measure)
    assert len({raster.y for raster in scene.panels}) == 2
    assert "layer 5 · head 0" in strings(scene)


def test_small_panels_leave_room_for_their_titles() -> None:
    one = Axis("query", ("a",))
    panels = tuple(Panel(f"head {i} · 41% hidden", np.ones((1, 1)), one, one) for i in range(20))
    scene = layout(Board("", (Group("", panels),), Range(0.0, 1.0)), plain_measure)
    assert {panel.title for panel in panels} <= set(strings(scene))
    check_sound(scene)


def test_long_texts_are_cut_with_an_ellipsis() -> None:
    texts = strings(layout(board(1, 1, 2, 2, long=True, caption="c" * 5000), plain_measure))
    assert max(map(len, texts)) < 60
    assert all(any(s.startswith(start) and s.endswith("…") for s in texts) for start in ("q0x", "k1x", "c"))


def test_texts_are_shown_as_data_with_signs_for_what_is_invisible() -> None:
    labels = ("$x$", "\\frac", "[/INST]", "\x1b[31m", "\x00", "\ud83d", "")
    axis = Axis("key", labels)
    panel = Panel("query \x1b", np.zeros((7, 7)), axis, axis)
    texts = strings(layout(Board("a\nb", (Group("", (panel,)),), Range(0.0, 1.0)), plain_measure))
    assert {"$x$", "\\frac", "[/INST]", "␛[31m", "␀", "⟨U+D83D⟩", "⟨empty⟩", "query ␛", "a␊b"} <= set(texts)


@pytest.mark.parametrize(
    ("rows", "columns", "note"),
    [(2, 2, "2 × 2 tokens"), (1, 4, "4 tokens"), (2, 3, "2 query × 3 key tokens"), (1, 1, None)],
)
def test_pooled_boards_say_what_a_cell_stands_for(rows: int, columns: int, note: str | None) -> None:
    panel = Panel("", np.zeros((1, 1)), Axis("query", ("0–1",), rows), Axis("key", ("0–3",), columns))
    texts = strings(layout(Board("", (Group("", (panel,)),), Range(0.0, 1.0)), plain_measure))
    said = [s for s in texts if s.startswith("each cell")]
    assert said == ([f"each cell is the mean of {note}"] if note else [])


def test_missing_values_have_a_legend_only_where_there_are_some() -> None:
    drawn = board(1, 2, 3, 3)
    assert layout(drawn, plain_measure).samples == ()
    drawn.panels[1].values[2, 0] = np.nan
    scene = layout(drawn, plain_measure)
    assert np.isnan(scene.samples[0].values).all()
    assert "not a number" in strings(scene)
    check_sound(scene)


@pytest.mark.parametrize("size", [(24, 24, 512, 512), (1, 576, 512, 512), (2, 288, 100, 100), (60, 12, 64, 64)])
def test_pictures_of_many_panels_stay_below_the_largest_side(size: tuple[int, int, int, int]) -> None:
    scene = layout(board(*size), plain_measure)
    assert max(scene.width, scene.height) <= MAX_SIDE
    assert len(scene.panels) == size[0] * size[1]


def test_cells_shrink_where_the_picture_would_be_too_large() -> None:
    free, full = layout(board(60, 2, 64, 64), plain_measure), layout(board(60, 12, 64, 64), plain_measure)
    assert free.panels[0].width == full.panels[0].width  # it fits
    assert layout(board(100, 12, 64, 64), plain_measure).panels[0].width < full.panels[0].width


def test_too_many_panels_are_refused_with_what_to_choose() -> None:
    with pytest.raises(RequestError, match=r"1200 panels .* 20000 a side .* --layer and --head"):
        layout(board(48, 25, 512, 512), plain_measure)


def test_an_empty_board_is_a_caption_and_a_colour_bar() -> None:
    assert strings(layout(Board("nothing", (), Range(0.0, 1.0)), plain_measure)) == ["nothing", *LEGEND]


@pytest.mark.parametrize("n", [1, 7, 13, 24, 31, 64, 128, 300, 512])
def test_cells_of_square_panels_are_squares_no_wider_than_512_in_all(n: int) -> None:
    width, height = cell_size(n, n)
    assert width == height
    assert 1 <= width * n <= 512


@given(st.integers(1, 200), st.floats(0.2, 5))
def test_lines_of_a_group_are_as_full_as_can_be(n: int, shape: float) -> None:
    per_line = panels_per_line(n, shape)
    assert 1 <= per_line <= n
    fewest = min(n, max(1, math.ceil(math.sqrt(n / shape))))
    assert -n % per_line == min(-n % k for k in range(fewest, min(n, 2 * fewest) + 1))
