"""What is right in a picture of any format: the colours of the cells, where they are, that anything can be drawn."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from attnviz.errors import RequestError
from attnviz.render.colors import MISSING, NAMES
from attnviz.render.panels import Axis, Board, Group, Look, Panel
from attnviz.render.ranges import Range
from attnviz.render.scale import SCALES, shade
from tests.pictures import KINDS, board_of, color_of, heatmaps, scene_of, written

TOKENS = (
    "$$",
    "$x$",
    "a_b^c",
    "\\frac",
    "[/INST]",
    "</script>",
    "<!-- --> ]]>",
    "日本",
    "👩‍🚀",
    "שלום",
    "سلام",
    "é",
    "\x00",
    "\x1b[31m",
    "\ud83d",
    "\ufffe",
    "",
    "x" * 5000,
)

pytestmark = pytest.mark.parametrize("kind", KINDS)


def test_each_cell_has_the_colour_of_its_value_rows_down_and_columns_across(kind: str) -> None:
    values = (np.arange(15, dtype=np.float32) ** 1.5 / 60).reshape(3, 5)
    for cmap in NAMES:
        found = heatmaps(board_of(values), kind, Look(cmap))[0].colors
        assert found.tolist() == [[color_of(values[r, c], cmap) for c in range(5)] for r in range(3)]
        assert len({tuple(color) for color in found.reshape(-1, 3).tolist()}) == 15  # so that no two could be swapped


def test_heatmaps_are_where_the_layout_has_them(kind: str) -> None:
    board = board_of(*np.full((6, 4, 6), 0.2), groups=2)
    board.panels[1].values[0, 0] = np.nan
    places = [(r.x, r.y, r.width, r.height) for r in scene_of(board).rasters]
    assert [heatmap.place for heatmap in heatmaps(board, kind)] == places


def test_the_empty_triangle_of_a_causal_head_is_at_the_upper_right(kind: str) -> None:
    found = heatmaps(board_of(np.tri(6) / np.arange(1, 7)[:, None]), kind)[0].colors
    np.testing.assert_array_equal((found == color_of(0.0)).all(axis=2), np.triu(np.ones((6, 6), bool), 1))


def test_all_panels_share_one_range(kind: str) -> None:
    sharp, flat = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.52, 0.48], [0.48, 0.9]])
    first, second, _ = (heatmap.colors for heatmap in heatmaps(board_of(sharp, flat), kind))
    assert second[0, 0].tolist() == color_of(0.52)
    assert first[0, 0].tolist() == second[1, 1].tolist() == color_of(0.9)


def test_the_top_of_the_range_has_the_last_colour(kind: str) -> None:
    found = heatmaps(board_of(np.array([[0.0, 0.05], [0.1, 0.025]]), top=0.1), kind)[0].colors
    assert found.tolist() == [[color_of(0), color_of(0.5)], [color_of(1), color_of(0.25)]]


@pytest.mark.parametrize("scale", SCALES)
def test_colours_follow_the_scale(kind: str, scale: str) -> None:
    values = np.array([[0.0, 0.001, 0.5], [0.02, 0.2, np.nan]])
    found = heatmaps(board_of(values, scale=scale), kind)[0].colors
    shades = shade(values, Range(0.0, 1.0), scale)
    assert found[1, 2].tolist() == list(MISSING)
    assert found.reshape(-1, 3)[:5].tolist() == [color_of(share) for share in shades.reshape(-1)[:5]]


@pytest.mark.parametrize("scale", SCALES)
def test_the_colour_bar_goes_evenly_from_the_first_colour_to_the_last(kind: str, scale: str) -> None:
    bar = heatmaps(board_of(np.ones((2, 2)), scale=scale), kind)[1].colors
    assert bar.shape == (1, 192, 3)
    assert bar[0].tolist() == [color_of(share) for share in np.linspace(0, 1, 192, dtype=np.float32)]


def test_what_is_not_a_number_has_a_colour_of_its_own_and_leaves_the_others_alone(kind: str) -> None:
    values = np.array([[0.2, 0.8], [np.nan, np.nan], [0.4, 0.6]], np.float32)
    found, whole, _, sample = (heatmap.colors for heatmap in heatmaps(board_of(values, np.nan_to_num(values)), kind))
    assert (found[1] == MISSING).all()
    np.testing.assert_array_equal(found[[0, 2]], whole[[0, 2]])
    assert sample.tolist() == [[list(MISSING)]]


def test_values_out_of_range_have_the_colours_of_its_ends(kind: str) -> None:
    values = np.array([[-1.0, 2.0, np.inf, -np.inf, 3e38]], np.float32)
    found = heatmaps(board_of(values), kind)[0].colors
    assert found.tolist() == [[color_of(share) for share in (0, 1, 1, 0, 1)]]
    assert (heatmaps(board_of(values[:, :1], top=0.0), kind)[0].colors == color_of(0)).all()


def test_the_values_are_not_changed(kind: str) -> None:
    values = np.array([[0.25, np.nan]])
    written(board_of(values, scale="sqrt"), kind)
    np.testing.assert_array_equal(values, [[0.25, np.nan]])


def test_the_same_board_gives_the_same_bytes(kind: str) -> None:
    board = board_of(*np.random.default_rng(0).random((4, 5, 5)))
    look = Look(description="made by hand")
    assert written(board, kind, look) == written(board, kind, look) != written(board, kind)


def test_another_process_gives_the_same_bytes(kind: str) -> None:
    code = (
        "import sys, numpy as np\n"
        "from tests.pictures import board_of, written\n"
        f"sys.stdout.buffer.write(written(board_of(np.eye(5), caption='日本 سلام'), '{kind}'))\n"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, check=True)
    assert run.stdout == written(board_of(np.eye(5), caption="日本 سلام"), kind)
    assert run.stderr == b""


@pytest.mark.parametrize("values", [np.eye(len(TOKENS)), np.full((len(TOKENS),) * 2, np.nan)])
def test_any_token_can_be_drawn(kind: str, values: np.ndarray) -> None:
    names = Axis("query", TOKENS), Axis("key", TOKENS)
    board = Board("日本 \x1b \ud83d $", (Group("\x00", (Panel("\udc00", values, *names),)),), Range(0.0, 1.0))
    look = Look(description="日本 \x1b \ud83d")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert written(board, kind, look) == written(board, kind, look)
        assert heatmaps(board, kind, look)[0].colors.shape == (len(TOKENS), len(TOKENS), 3)


@pytest.mark.parametrize("shape", [(1, 1), (4, 6), (1, 7)])
def test_panels_of_any_shape_can_be_drawn(kind: str, shape: tuple[int, int]) -> None:
    board = board_of(*np.full((3, *shape), 0.25))
    assert [heatmap.colors.shape for heatmap in heatmaps(board, kind)] == [(*shape, 3)] * 3 + [(1, 192, 3)]


def test_panels_and_boards_of_nothing_can_be_drawn(kind: str) -> None:
    nothing = Panel("head 0", np.zeros((0, 3)), Axis("query", ()), Axis("key", ("a", "b", "c")))
    assert written(Board("", (Group("", (nothing,)),), Range(0.0, 1.0)), kind)
    assert written(Board("nothing", (), Range(0.0, 1.0)), kind)


def test_many_panels_can_be_drawn(kind: str) -> None:
    board = board_of(*np.random.default_rng(0).random((576, 6, 6)), groups=24)
    assert len(heatmaps(board, kind)) == 577


def test_an_unknown_colour_map_is_refused(kind: str) -> None:
    with pytest.raises(RequestError, match="did you mean viridis"):
        written(board_of(np.ones((1, 1))), kind, Look("viridsi"))
