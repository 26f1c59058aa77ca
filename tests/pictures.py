"""Boards to draw, and what is in a picture of any format: where its heatmaps are and which colours their cells have."""

import base64
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import numpy as np
import numpy.typing as npt
from PIL import Image

from attnviz.arrays import Floats
from attnviz.lazy import function
from attnviz.render import FORMATS
from attnviz.render.colors import colormap
from attnviz.render.layout import Scene, layout
from attnviz.render.lettering import measure
from attnviz.render.panels import Axis, Board, Group, Look, Panel
from attnviz.render.ranges import Range

KINDS = ("png", "svg", "pdf")
WORDS = ("[CLS]", "orange", "is", "my", "favorite", "fruit", "[SEP]")
Picture = npt.NDArray[np.uint8]
"""[row, column, (red, green, blue)]."""
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Heatmap:
    """An image in a picture: its place, counted from the upper left, and the colour of each of its cells."""

    place: tuple[float, float, float, float]
    """x, y, width, height."""
    colors: Picture


def axis(name: str, n: int) -> Axis:
    return Axis(name, tuple(WORDS[i % 7] for i in range(n)))


def board_of(
    *values: Floats, groups: int = 1, top: float = 1.0, caption: str = "a caption", scale: str = "linear"
) -> Board:
    rows, columns = axis("query", values[0].shape[0]), axis("key", values[0].shape[1])
    panels = [Panel(f"head {i}", v, rows, columns) for i, v in enumerate(values)]
    size = len(panels) // groups
    split = [tuple(panels[i * size : (i + 1) * size]) for i in range(groups)]
    return Board(
        caption, tuple(Group(f"layer {i}", part) for i, part in enumerate(split)), Range(0.0, top), scale=scale
    )


def scene_of(board: Board) -> Scene:
    return layout(board, measure)


def written(board: Board, kind: str, look: Look | None = None) -> bytes:
    stream = io.BytesIO()
    function(FORMATS[kind].writer)(board, look or Look(), stream)
    return stream.getvalue()


def decoded(data: bytes) -> Picture:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def heatmaps(board: Board, kind: str, look: Look | None = None) -> list[Heatmap]:
    """What is drawn of the panels, the colour bar and the sample for missing values, in this order."""
    read: Callable[[Board, Look], list[Heatmap]] = {"png": _in_png, "svg": _in_svg, "pdf": _in_pdf}[kind]
    return read(board, look or Look())


def _in_png(board: Board, look: Look) -> list[Heatmap]:
    picture, found = decoded(written(board, "png", look)), []
    for raster in scene_of(board).rasters:
        rows, columns = raster.values.shape
        part = picture[raster.y : raster.y + raster.height, raster.x : raster.x + raster.width]
        cells = part.reshape(rows, raster.height // rows, columns, raster.width // columns, 3)
        assert (cells == cells[:, :1, :, :1]).all()  # every pixel of a cell
        found.append(Heatmap((raster.x, raster.y, raster.width, raster.height), cells[:, 0, :, 0]))
    return found


def _in_svg(board: Board, look: Look) -> list[Heatmap]:
    found = []
    for image in ET.fromstring(written(board, "svg", look)).iter(f"{SVG}image"):
        data = base64.b64decode(image.attrib[LINK].partition("base64,")[2])
        width, skewed, tilted, height, x, y = map(float, re.findall(r"[-.\d]+", image.attrib["transform"]))
        assert skewed == tilted == 0
        assert image.attrib["style"].endswith("image-rendering:pixelated")
        colors = decoded(data)
        assert colors.shape[:2] == (int(image.attrib["height"]), int(image.attrib["width"]))
        found.append(Heatmap((x, y, width * colors.shape[1], height * colors.shape[0]), colors))
    return found


def _in_pdf(board: Board, look: Look) -> list[Heatmap]:
    """Read from a file that is the same but for compression."""
    with mock.patch.dict("attnviz.render.figure._SETTINGS", {"pdf.compression": 0}):
        data = written(board, "pdf", look)
    images = {}
    names = dict(re.findall(rb"/(I\d+) (\d+) 0 R", data))
    for name, number in names.items():
        match = re.search(rb"\n%s 0 obj\n<<.*?/Width (\d+) /Height (\d+).*?stream\n" % number, data, re.DOTALL)
        assert match
        columns, rows = int(match[1]), int(match[2])
        pixels = np.frombuffer(data, np.uint8, rows * columns * 3, match.end())
        images[name] = pixels.reshape(rows, columns, 3)
    found = []
    page = re.search(rb"/MediaBox \[ 0 0 ([.\d]+) ([.\d]+) \]", data)
    assert page
    number = rb"(-?[\d.]+)\s+"
    pattern = rb"q\s+1 0 0 1 0 0\s+cm\s+%s-?0\s+-?0\s+%s%s%scm\s+/(I\d+)\s+Do" % (number, number, number, number)
    for width, height, x, y, name in re.findall(pattern, data):
        assert float(height) < 0  # the rows of the data are from the lowest to the highest
        place = float(x), float(page[2]) - float(y), float(width), -float(height)
        found.append(Heatmap(place, images[name][::-1]))
    return found


def color_of(value: float, cmap: str = "viridis") -> list[int]:
    """Within half of one of 239 steps of the map of 256."""
    color: list[int] = colormap(cmap)[round(int(value * 238 + 0.5) * 255 / 238)].tolist()
    return color
