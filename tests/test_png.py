import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.render.colors import DIVERGING, MISSING, NAMES, Colors, colormap
from attnviz.render.lettering import lettered
from attnviz.render.panels import Axis, Board, Group, Look, Panel
from attnviz.render.png import Palette, png, write_png
from attnviz.render.ranges import Range
from tests import value_boards
from tests.pictures import board_of, decoded, scene_of

GOLDEN = Path(__file__).parent / "golden" / "png"


@pytest.mark.parametrize(
    ("maps", "kinds"),
    [
        *(((colormap(name),), (False,)) for name in NAMES),
        *(((colormap(name, diverging=True),), (True,)) for name in DIVERGING),
        ((colormap("viridis"), colormap("rdbu", diverging=True)), (False, True)),
    ],
)
def test_the_colour_for_missing_values_is_far_from_all_others(maps: tuple[Colors, ...], kinds: tuple[bool]) -> None:
    palette = Palette(maps, kinds)
    assert palette.colors.shape == (256, 3)
    others = palette.colors[[i for i in range(256) if not 238 <= i <= 239 or (i == 238 and len(maps) == 1)]].astype(int)
    assert palette.colors[239].tolist() == list(MISSING)
    assert np.sqrt(((others - MISSING) ** 2).sum(axis=1)).min() > 80


def test_it_is_an_image_with_a_palette() -> None:
    with Image.open(io.BytesIO(png(board_of(np.ones((2, 2)))))) as image:
        assert (image.format, image.mode) == ("PNG", "P")


def test_letters_are_smooth_and_dark_on_white() -> None:
    picture = decoded(png(board_of(np.ones((2, 2)))))
    caption = picture[20:50, 20:200]
    assert (caption[:, :, 0] == caption[:, :, 1]).all()
    assert caption.min() < 40
    assert len(np.unique(caption)) > 8
    assert (picture[:20] == 255).all()
    assert (picture[:, -20:] == 255).all()


def test_labels_below_read_upwards_and_end_at_their_column() -> None:
    panel = Panel("", np.zeros((1, 1)), Axis("q", ("i",)), Axis("k", ("LLLLLLLL",)))
    board = Board("", (Group("", (panel,)),), Range(0.0, 1.0))
    text = next(text for text in scene_of(board).texts if text.rotation == 90)
    levels, left, above = lettered(text.string, text.size)
    upright = np.rot90(levels)
    top = text.y - left
    part = decoded(png(board))[top : top + upright.shape[0], text.x - above : text.x - above + upright.shape[1], 0]
    assert ((part < 200) == (upright > 70)).mean() > 0.97
    assert upright.max() > 200


@pytest.mark.parametrize("description", ["attnviz 0.1 · {a: 1}", "日本", "half \ud800 a pair"])
def test_the_description_is_kept_in_the_file(description: str) -> None:
    with Image.open(io.BytesIO(png(board_of(np.ones((1, 1))), Look(description=description)))) as image:
        assert image.info["Description"] == description.encode("utf-8", "backslashreplace").decode()


def test_it_is_written_as_the_look_says() -> None:
    stream, board = io.BytesIO(), board_of(np.ones((1, 1)))
    write_png(board, Look(cmap="magma", description="x"), stream)
    assert stream.getvalue() == png(board, Look("magma", description="x")) != png(board)


def test_neither_matplotlib_nor_a_needless_part_of_pillow_is_imported() -> None:
    code = (
        "import sys, numpy as np\n"
        "from attnviz.render.panels import Axis, Board, Group, Panel\n"
        "from attnviz.render.png import png\n"
        "from attnviz.render.ranges import Range\n"
        "panel = Panel('t', np.ones((1, 1)), Axis('query', ('a',)), Axis('key', ('日',)))\n"
        "png(Board('c', (Group('g', (panel,)),), Range(0.0, 1.0)))\n"
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
    part = Axis("query", tuple(f"w{i}" for i in range(500, 540)), 1, tuple(range(500, 540)))
    halves = Axis("key", tuple(f"{i}–{i + 1}" for i in range(500, 580, 2)), 2, tuple(range(500, 580, 2)))
    stretch = (
        Panel("head 0 · 86% hidden", np.kron(weights[1], np.full((8, 8), 0.1)), part, replace(part, name="key")),
        Panel("head 1 · over 99% hidden", np.kron(weights[2], np.full((8, 8), 0.1)), part, halves, "max"),
    )
    return {
        "heads": board_of(*weights[:4], caption="minilm · 5 tokens · Orange is my favorite"),
        "layers": board_of(*weights, groups=2),
        "sqrt": board_of(*weights[:4], scale="sqrt"),
        "missing": board_of(*missing),
        "difference": value_boards.difference(),
        "lesson": value_boards.lesson(),
        "stretch": Board("tokens 500 to 539", (Group("layer 0", stretch),), Range(0.0, 0.1)),
        "pooled": Board("pooled", (Group("decoder layer 3", (pooled,)),), Range(0.0, 0.1)),
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
