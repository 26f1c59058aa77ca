import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, features

from attnviz.arrays import Floats
from attnviz.errors import RequestError
from attnviz.render import lettering
from attnviz.render.colors import MISSING, NAMES, colormap
from attnviz.render.layout import Scene, layout
from attnviz.render.lettering import lettered, measure, prepared
from attnviz.render.panels import Axis, Board, Group, Look, Panel
from attnviz.render.png import color_indices, palette, png, write_png

GOLDEN = Path(__file__).parent / "golden" / "png"
WORDS = ("[CLS]", "orange", "is", "my", "favorite", "fruit", "[SEP]")
Picture = npt.NDArray[np.uint8]
"""[row, column, (red, green, blue)]."""


def axis(name: str, n: int) -> Axis:
    return Axis(name, tuple(WORDS[i % 7] for i in range(n)))


def board_of(*values: Floats, groups: int = 1, top: float = 1.0, caption: str = "a caption") -> Board:
    rows, columns = axis("query", values[0].shape[0]), axis("key", values[0].shape[1])
    panels = [Panel(f"head {i}", v, rows, columns) for i, v in enumerate(values)]
    size = len(panels) // groups
    split = [tuple(panels[i * size : (i + 1) * size]) for i in range(groups)]
    return Board(caption, tuple(Group(f"layer {i}", part) for i, part in enumerate(split)), top)


def decoded(data: bytes) -> Picture:
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == "P"
        return np.asarray(image.convert("RGB"))


def scene_of(board: Board) -> Scene:
    return layout(board, measure)


def middles(picture: Picture, scene: Scene, panel: int) -> Picture:
    """The colour in the middle of every cell [row, column, 3]."""
    raster = scene.panels[panel]
    rows, columns = raster.values.shape
    height, width = raster.height // rows, raster.width // columns
    y, x = raster.y + height * np.arange(rows) + height // 2, raster.x + width * np.arange(columns) + width // 2
    return picture[np.ix_(y, x)]


def color_of(value: float, cmap: str = "viridis") -> list[int]:
    """Within half of one of 239 steps of the map of 256."""
    color: list[int] = colormap(cmap)[round(round(value * 238) * 255 / 238)].tolist()
    return color


@pytest.mark.parametrize("cmap", NAMES)
def test_each_cell_has_the_colour_of_its_value_rows_down_and_columns_across(cmap: str) -> None:
    values = (np.arange(15, dtype=np.float32) ** 1.5 / 60).reshape(3, 5)
    board = board_of(values)
    found = middles(decoded(png(board, cmap)), scene_of(board), 0)
    assert found.tolist() == [[color_of(values[r, c], cmap) for c in range(5)] for r in range(3)]
    assert len({tuple(color) for color in found.reshape(-1, 3).tolist()}) == 15  # so that no two could be swapped


def test_cells_are_filled_to_their_edges() -> None:
    values = np.array([[0.0, 1.0], [0.5, 0.0]])
    board = board_of(values)
    picture, raster = decoded(png(board)), scene_of(board).panels[0]
    half = raster.width // 2
    inside = picture[raster.y : raster.y + raster.height, raster.x : raster.x + raster.width]
    assert (inside[:half, half:] == color_of(1.0)).all()
    assert (inside[half:, :half] == color_of(0.5)).all()


def test_the_empty_triangle_of_a_causal_head_is_at_the_upper_right() -> None:
    board = board_of(np.tri(6) / np.arange(1, 7)[:, None])
    found = middles(decoded(png(board)), scene_of(board), 0)
    empty = (found == color_of(0.0)).all(axis=2)
    np.testing.assert_array_equal(empty, np.triu(np.ones((6, 6), bool), 1))


def test_all_panels_share_one_range() -> None:
    sharp, flat = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.52, 0.48], [0.48, 0.9]])
    board = board_of(sharp, flat)
    picture, scene = decoded(png(board)), scene_of(board)
    first, second = middles(picture, scene, 0), middles(picture, scene, 1)
    assert second[0, 0].tolist() == color_of(0.52)
    assert first[0, 0].tolist() == second[1, 1].tolist() == color_of(0.9)


def test_the_top_of_the_range_has_the_last_colour() -> None:
    board = board_of(np.array([[0.0, 0.05], [0.1, 0.025]]), top=0.1)
    found = middles(decoded(png(board)), scene_of(board), 0)
    assert found[:, :, :].tolist() == [[color_of(0), color_of(0.5)], [color_of(1), color_of(0.25)]]


def test_what_is_not_a_number_has_a_colour_of_its_own_and_leaves_the_others_alone() -> None:
    values = np.array([[0.2, 0.8], [np.nan, np.nan], [0.4, 0.6]], np.float32)
    board = board_of(values, np.nan_to_num(values))
    picture, scene = decoded(png(board)), scene_of(board)
    found, whole = middles(picture, scene, 0), middles(picture, scene, 1)
    assert (found[1] == MISSING).all()
    np.testing.assert_array_equal(found[[0, 2]], whole[[0, 2]])
    assert scene.missing is not None
    assert picture[scene.missing.y + 5, scene.missing.x + 5].tolist() == list(MISSING)


@pytest.mark.parametrize("cmap", NAMES)
def test_the_colour_for_missing_values_is_far_from_all_others(cmap: str) -> None:
    others = np.delete(palette(cmap), 239, axis=0).astype(int)
    assert palette(cmap)[239].tolist() == list(MISSING)
    assert np.sqrt(((others - MISSING) ** 2).sum(axis=1)).min() > 80


def test_values_out_of_range_have_the_colours_of_its_ends() -> None:
    values = np.array([[-1.0, 2.0, np.inf, -np.inf, 3e38]], np.float32)
    assert color_indices(values, 1.0).tolist() == [[0, 238, 238, 0, 238]]
    assert color_indices(np.zeros((1, 2)), 0.0).tolist() == [[0, 0]]


def test_the_values_are_not_changed() -> None:
    values = np.array([[0.25, np.nan]])
    png(board_of(values))
    np.testing.assert_array_equal(values, [[0.25, np.nan]])


def test_the_colour_bar_goes_from_the_first_colour_to_the_last() -> None:
    board = board_of(np.ones((2, 2)))
    bar = scene_of(board).bar
    colors = decoded(png(board))[bar.y + bar.height // 2, bar.x : bar.x + bar.width]
    assert colors[[0, -1]].tolist() == [color_of(0), color_of(1)]
    assert len(np.unique(colors, axis=0)) > 150


def test_letters_are_smooth_and_dark_on_white() -> None:
    picture = decoded(png(board_of(np.ones((2, 2)))))
    caption = picture[20:50, 20:200]
    assert (caption[:, :, 0] == caption[:, :, 1]).all()
    assert caption.min() < 40
    assert len(np.unique(caption)) > 8
    assert (picture[:20] == 255).all()
    assert (picture[:, -20:] == 255).all()


def test_labels_below_read_upwards_and_end_at_their_column() -> None:
    board = Board("", (Group("", (Panel("", np.zeros((1, 1)), Axis("q", ("i",)), Axis("k", ("LLLLLLLL",))),)),), 1.0)
    text = next(text for text in scene_of(board).texts if text.rotation == 90)
    levels, left, above = lettered(text.string, text.size)
    upright = np.rot90(levels)
    top = text.y - left
    part = decoded(png(board))[top : top + upright.shape[0], text.x - above : text.x - above + upright.shape[1], 0]
    assert ((part < 200) == (upright > 70)).mean() > 0.97
    assert upright.max() > 200


def test_the_same_board_gives_the_same_bytes() -> None:
    board = board_of(*np.random.default_rng(0).random((4, 5, 5)))
    assert png(board, description="made by hand") == png(board, description="made by hand")


@pytest.mark.parametrize("description", ["attnviz 0.1 · {a: 1}", "日本", "half \ud800 a pair"])
def test_the_description_is_kept_in_the_file(description: str) -> None:
    with Image.open(io.BytesIO(png(board_of(np.ones((1, 1))), description=description))) as image:
        assert image.info["Description"] == description.encode("utf-8", "backslashreplace").decode()


def test_it_is_written_as_the_look_says() -> None:
    stream, board = io.BytesIO(), board_of(np.ones((1, 1)))
    write_png(board, Look(cmap="magma", description="x"), stream)
    assert stream.getvalue() == png(board, "magma", "x") != png(board)


def test_an_unknown_colour_map_is_refused() -> None:
    with pytest.raises(RequestError, match="did you mean viridis"):
        png(board_of(np.ones((1, 1))), "viridsi")


TOKENS = [
    "$$",
    "$x$",
    "a_b^c",
    "\\frac",
    "[/INST]",
    "日本",
    "👩‍🚀",
    "שלום",
    "é",
    "\x00",
    "\x1b[31m",
    "\ud83d",
    "x" * 5000,
]


def test_any_token_can_be_drawn() -> None:
    names = Axis("query", tuple(TOKENS)), Axis("key", tuple(TOKENS))
    board = Board("日本 \x1b \ud83d", (Group("\x00", (Panel("\udc00", np.eye(13), *names),)),), 1.0)
    assert max(decoded(png(board)).shape) < 2000


@pytest.mark.parametrize(
    ("string", "drawn"),
    [
        ("$x$ \\frac [/INST]", "$x$ \\frac [/INST]"),
        ("naïve … ⟨→⟩ Ġ▁", "naïve … ⟨→⟩ Ġ▁"),
        ("日本 ok", "⟨65E5 672C⟩ ok"),
        ("日" * 50, "⟨65E5 65E5 65E5 65E5 …⟩"),
        ("a\U0001f9ff\u200d", "a⟨1F9FF⟩"),
        ("␛[31m␡", "⟨001B⟩[31m⟨007F⟩"),
        ("e\u0301", "é"),
    ],
)
@pytest.mark.parametrize("bold", [False, True])
def test_characters_without_a_glyph_have_a_stand_in(string: str, drawn: str, bold: bool) -> None:
    assert prepared(string, bold) == drawn


def test_a_stand_in_is_drawn_as_it_reads() -> None:
    np.testing.assert_array_equal(lettered("日", 12)[0], lettered("⟨65E5⟩", 12)[0])


@pytest.mark.skipif(not features.check_feature("raqm"), reason="this Pillow has no Raqm")
def test_right_to_left_text_is_joined_and_begins_at_the_right() -> None:
    assert measure("مرحبا", 20) < sum(measure(letter, 20) for letter in "مرحبا")
    last_is_alef = lettered("אא" + "ל", 20)[0]
    first_is_lamed = lettered("ל" + "אא", 20)[0]
    assert last_is_alef[:, :13].sum() != first_is_lamed[:, :13].sum()


def test_right_to_left_text_is_turned_round_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lettering, "_shaping", lambda: False)
    assert prepared("ab אבג דה 1") == "ab הד גבא 1"


def test_without_matplotlib_s_font_pillow_s_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = (lettering.measure, lettering.lettered, lettering._font, lettering._has, lettering._drawn)
    monkeypatch.setattr(lettering, "_file", lambda bold: None)
    for cached in caches:
        cached.cache_clear()
    try:
        assert prepared("日") == "<65E5>"
        assert lettered("head 0", 12)[0].max() > 200
    finally:
        for cached in caches:
            cached.cache_clear()


def test_neither_matplotlib_nor_a_needless_part_of_pillow_is_imported() -> None:
    code = (
        "import sys, numpy as np\n"
        "from attnviz.render.panels import Axis, Board, Group, Panel\n"
        "from attnviz.render.png import png\n"
        "panel = Panel('t', np.ones((1, 1)), Axis('query', ('a',)), Axis('key', ('日',)))\n"
        "png(Board('c', (Group('g', (panel,)),), 1.0))\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('matplotlib', 'torch') or m == 'PIL.JpegImagePlugin'])\n"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("[]\n", "")


def golden_boards() -> dict[str, Board]:
    scores = np.random.default_rng(7).normal(size=(24, 5, 5)) * 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    missing = weights[:3].copy()
    missing[1, 2] = np.nan
    rows, columns = Axis("query", tuple(map(str, range(0, 80, 2))), 2), Axis("key", tuple(map(str, range(0, 80, 2))), 2)
    pooled = Panel("head 0 · 41% hidden", np.kron(weights[0], np.full((8, 8), 0.1)), rows, columns)
    return {
        "heads": board_of(*weights[:4], caption="minilm · 5 tokens · Orange is my favorite"),
        "layers": board_of(*weights, groups=2),
        "missing": board_of(*missing),
        "pooled": Board("pooled", (Group("decoder layer 3", (pooled,)),), 0.1),
    }


@pytest.mark.parametrize("name", golden_boards())
def test_pictures_look_as_they_did(name: str) -> None:
    """Pixels, not bytes: compression differs between versions. ATTNVIZ_REWRITE_GOLDEN=1 writes the files anew, and
    fails so that nobody leaves it on; look at them before they are committed."""
    path, data = GOLDEN / f"{name}.png", png(golden_boards()[name])
    if os.environ.get("ATTNVIZ_REWRITE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        pytest.fail(f"{path} was written anew: look at it")
    now, then = decoded(data), decoded(path.read_bytes())
    assert now.shape == then.shape
    different = (now != then).any(axis=2)
    assert not different.any(), f"{different.sum()} pixels differ, the first at row, column {np.argwhere(different)[0]}"
