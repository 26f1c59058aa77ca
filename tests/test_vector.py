"""What SVG and PDF have of their own; test_pictures.py has what they share with PNG."""

import base64
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from attnviz.render.panels import Axis, Board, Group, Look, Panel
from attnviz.render.ranges import Range
from attnviz.tokens import visible
from tests import value_boards
from tests.pictures import SVG, board_of, decoded, scene_of, written
from tests.test_pictures import TOKENS

GOLDEN = Path(__file__).parent / "golden" / "vector"


def awkward() -> Board:
    names = Axis("query", TOKENS), Axis("key", TOKENS)
    return Board(
        "a <caption> & more", (Group("layer 0", (Panel("head 0", np.eye(len(TOKENS)), *names),)),), Range(0.0, 1.0)
    )


def tree(board: Board, look: Look | None = None) -> ET.Element:
    return ET.fromstring(written(board, "svg", look))


def titles(svg: ET.Element) -> list[str]:
    """The texts in the order in which they are drawn."""
    groups = [group for group in svg.iter(f"{SVG}g") if group.get("id", "").startswith("text-")]
    assert [group.get("id") for group in groups] == [f"text-{i}" for i in range(len(groups))]
    return [group.findtext(f"{SVG}title") or "" for group in groups]


def test_every_text_of_the_layout_stands_in_the_svg_as_it_is() -> None:
    board = awkward()
    found = titles(tree(board))
    assert found == [text.string for text in scene_of(board).texts]
    assert {visible(token) for token in TOKENS[:-1]} <= set(found)


def test_a_text_is_drawn_where_the_layout_has_it() -> None:
    scene, svg = scene_of(board_of(np.eye(3))), tree(board_of(np.eye(3)))
    for i, text in enumerate(scene.texts):
        group = svg.find(f".//{SVG}g[@id='text-{i}']/{SVG}g")
        assert group is not None
        place = re.match(
            r"translate\(([-.\d]+) ([-.\d]+)\)( rotate\(-90\))? scale\(([-.\d]+)", group.attrib["transform"]
        )
        assert place is not None
        x, y, turned, size = float(place[1]), float(place[2]), place[3], float(place[4])
        assert size == pytest.approx(text.size / 100)
        assert (turned is not None) == (text.rotation == 90)
        if text.anchor == "start":
            assert (x, y) == (text.x, text.y)
        else:
            assert (y > text.y) if turned else (x < text.x)
            assert x == text.x if turned else y == text.y


def test_dollar_signs_are_no_formulas() -> None:
    board = board_of(np.eye(1), caption="$x$")
    svg = tree(board)
    group = svg.find(f".//{SVG}g[@id='text-0']")
    assert group is not None
    assert len(list(group.iter(f"{SVG}use"))) == 3


def test_names_in_an_svg_are_unique_even_of_equal_heatmaps() -> None:
    svg = tree(board_of(*np.ones((4, 2, 2)), groups=2))
    names = [element.attrib["id"] for element in svg.iter() if "id" in element.attrib]
    assert len(names) == len(set(names))
    assert [name for name in names if name.startswith("heatmap-")] == [f"heatmap-{i}" for i in range(5)]


def test_an_svg_has_the_size_of_the_png() -> None:
    board = board_of(np.eye(3))
    height, width, _ = decoded(written(board, "png")).shape
    assert tree(board).attrib["viewBox"] == f"0 0 {width} {height}"


def test_what_made_the_numbers_goes_with_the_file_and_nothing_about_the_time_or_the_programs() -> None:
    look = Look(description="attnviz 0.1 · <minilm>")
    svg, pdf = written(board_of(np.eye(1)), "svg", look).decode(), written(board_of(np.eye(1)), "pdf", look)
    assert "<dc:title>a caption</dc:title>" in svg
    assert "<dc:description>attnviz 0.1 · &lt;minilm&gt;</dc:description>" in svg
    assert b"/Title (a caption)" in pdf
    assert not re.search(r"dc:(date|creator)|[Mm]atplotlib", svg)
    assert not re.search(rb"/(CreationDate|ModDate|Creator|Producer)|[Mm]atplotlib", pdf)


def test_a_long_board_is_a_page_that_readers_show() -> None:
    board = board_of(*np.full((60, 500, 4), 0.5), groups=30)
    scene = scene_of(board)
    assert max(scene.width, scene.height) > 14_400
    page = re.search(rb"/MediaBox \[ 0 0 ([.\d]+) ([.\d]+) \]", written(board, "pdf"))
    assert page is not None
    width, height = float(page[1]), float(page[2])
    assert max(width, height) == pytest.approx(14_400, abs=1)
    assert width / height == pytest.approx(scene.width / scene.height, rel=1e-3)


def test_the_user_s_own_settings_change_nothing_and_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {kind: written(board_of(np.eye(2)), kind) for kind in ("svg", "pdf")}
    own: dict[Any, Any] = {
        "savefig.transparent": True,
        "svg.fonttype": "none",
        "savefig.bbox": "tight",
        "pdf.compression": 0,
    }
    settings: Any = mpl.rcParams
    for name, value in own.items():
        monkeypatch.setitem(settings, name, value)
    assert {kind: written(board_of(np.eye(2)), kind) for kind in plain} == plain
    assert {name: settings[name] for name in own} == own


@pytest.mark.parametrize("backend", ["nonsense", "TkAgg"])
def test_it_is_drawn_whatever_the_environment_says(tmp_path: Path, backend: str) -> None:
    (tmp_path / "matplotlibrc").write_text("savefig.transparent: true\nno sense at all\n", "utf-8")
    code = (
        "import os, sys, numpy as np\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from tests.pictures import board_of, written\n"
        "sys.stdout.buffer.write(written(board_of(np.eye(2)), 'svg'))\n"
        "import matplotlib\n"
        "sys.stderr.write(os.environ['MPLBACKEND'] + ' ' + str('pyplot' in str(sorted(sys.modules))))\n"
    )
    environment = {**os.environ, "MPLBACKEND": backend, "HOME": "/proc", "DISPLAY": "", "TMPDIR": str(tmp_path)}
    environment.pop("MPLCONFIGDIR", None)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, check=False, env=environment, cwd=tmp_path
    )
    assert run.stderr.decode() == f"{backend} False"
    assert run.stdout == written(board_of(np.eye(2)), "svg")


def test_matplotlib_is_imported_for_vectors_only() -> None:
    code = "import sys, attnviz.render.vector, attnviz.render.png; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="pdftoppm is not installed")
def test_a_pdf_looks_like_the_png(tmp_path: Path) -> None:
    board = board_of(*np.random.default_rng(0).random((2, 4, 6)))
    (tmp_path / "a.pdf").write_bytes(written(board, "pdf"))
    command = ["pdftoppm", "-r", "72", "-png", "-singlefile", str(tmp_path / "a.pdf"), str(tmp_path / "a")]
    said = subprocess.run(command, check=True, capture_output=True)
    assert said.stderr == b""
    png = decoded(written(board, "png")).astype(int)
    with Image.open(tmp_path / "a.png") as image:
        pdf = np.asarray(image.convert("RGB")).astype(int)
    assert pdf.shape == png.shape
    for raster in scene_of(board).panels:
        middles = np.ix_(
            np.arange(4) * raster.height // 4 + raster.y + 9, np.arange(6) * raster.width // 6 + raster.x + 9
        )
        assert np.abs(pdf[middles] - png[middles]).max() <= 1
    assert np.abs(pdf - png).mean() < 6  # letters are smoothed in another way


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
def test_the_texts_of_a_pdf_can_be_searched(tmp_path: Path) -> None:
    labels = ("orange", "$x$", "</script>", "שלום")
    panel = Panel("head 0", np.eye(4), Axis("query", labels), Axis("key", labels))
    (tmp_path / "a.pdf").write_bytes(written(Board("a caption", (Group("layer 0", (panel,)),), Range(0.0, 1.0)), "pdf"))
    said = subprocess.run(["pdftotext", str(tmp_path / "a.pdf"), "-"], check=True, capture_output=True).stdout.decode()
    assert [s for s in ("a caption", "weight", "layer 0", "head 0", "query", *labels) if s not in said] == []


def golden_boards() -> dict[str, Board]:
    weights = np.array([[[0.5, 0.25, 0.25], [0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], [[1, 0, 0], [0, 1, 0], [np.nan] * 3]])
    axes = Axis("query", ("a", "$b$", "é")), Axis("key", ("a", "$b$", "é"))
    panels = tuple(Panel(f"head {i}", values, *axes) for i, values in enumerate(weights))
    groups = (Group("layer 0", panels),)
    weights_on = {scale: Board("three tokens", groups, Range(0.0, 1.0), scale=scale) for scale in ("linear", "sqrt")}
    return {**weights_on, "difference": value_boards.difference(), "lesson": value_boards.lesson()}


MADE_WITH = "3.11.2"


def unpacked(data: bytes) -> bytes:
    """A file with the pixels of its images in place of what they are packed into."""
    pattern = rb"(?<=base64,\n)[A-Za-z0-9+/=]+"
    return re.sub(pattern, lambda packed: decoded(base64.b64decode(packed[0])).tobytes().hex().encode(), data)


@pytest.mark.parametrize(
    "name", [*(f"{board}.svg" for board in golden_boards()), *(f"{scale}.pdf" for scale in ("linear", "sqrt"))]
)
def test_pictures_are_as_they_were(name: str) -> None:
    """Byte for byte but for compression, with the matplotlib they were made with: others may draw letters otherwise.
    ATTNVIZ_REWRITE_GOLDEN=1 writes the files anew, and fails; look at them before they are committed."""
    path, (scale, kind) = GOLDEN / name, name.split(".")
    with mock.patch.dict("attnviz.render.figure._SETTINGS", {"pdf.compression": 0}):
        data = written(golden_boards()[scale], kind, Look(description="made by hand"))
    if os.environ.get("ATTNVIZ_REWRITE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        pytest.fail(f"{path} was written anew: look at it")
    if mpl.__version__ != MADE_WITH:
        pytest.skip(f"made with matplotlib {MADE_WITH}")
    assert unpacked(data) == unpacked(path.read_bytes())
