"""PNG: one image of 256 colours, of which 239 are the colour map's, one stands for NaN and 16 draw smooth letters."""

import io
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from attnviz.arrays import Floats
from attnviz.render.colors import DEFAULT_COLORMAP, MISSING, Colors, colormap, grey
from attnviz.render.layout import Box, Raster, Scene, Text, layout
from attnviz.render.lettering import lettered, measure
from attnviz.render.panels import Board, Look

Indices = npt.NDArray[np.uint8]
"""[row, column] of the palette."""

_STEPS = 239
_MISSING = 239
_WHITE = 255
_GREYS = 16


def png(board: Board, cmap: str = DEFAULT_COLORMAP, description: str = "", font: Path | None = None) -> bytes:
    """A board as a PNG file.

    Args:
        board: what to draw.
        cmap: the colours, one of `attnviz.render.colors.NAMES`.
        description: kept in the file as its Description, such as what made the numbers.
        font: the font file to use first, for every character that it has.

    Raises:
        RequestError: there is no such colour map or scale, the font cannot be used, or the picture would be too large.
    """
    colors = palette(cmap)
    image = Image.fromarray(painted(layout(board, partial(measure, font=font)), font))
    image.putpalette(colors.tobytes())
    info = PngInfo()
    if description:
        info.add_text("Description", description.encode("utf-8", "backslashreplace").decode("utf-8"))
    file = _Png()
    image.save(file, compress_level=1, pnginfo=info)
    return file.getvalue()


def write_png(board: Board, look: Look, stream: BinaryIO) -> None:
    """Write `board` to `stream` as a PNG file."""
    stream.write(png(board, look.cmap, look.description, look.font))


class _Png(io.BytesIO):
    """A file in memory whose name says what it is: asked for a format, Pillow would import five others as well."""

    name = "picture.png"


def palette(cmap: str) -> Colors:
    """The 256 colours of the image [256, 3]: the map's, the one for NaN, greys from the ink to white."""
    steps = colormap(cmap)[np.linspace(0, 255, _STEPS).round().astype(int)]
    greys = [[grey(1 - i / (_GREYS - 1))] * 3 for i in range(_GREYS)]
    return np.concatenate([steps, np.array([MISSING, *greys], np.uint8)])


def painted(scene: Scene, font: Path | None = None) -> Indices:
    """The scene as numbers of the palette's colours [row, column], its texts in `font` as far as that has them."""
    canvas = np.full((scene.height, scene.width), _WHITE, np.uint8)
    for box in scene.boxes:
        _fill(canvas, box)
    for raster in scene.rasters:
        _enlarge(canvas, raster, scene.shades(raster))
    for text in scene.texts:
        _write(canvas, text, font)
    return canvas


def color_indices(shades: Floats) -> Indices:
    """The palette's number for each shade of 0..1 or NaN.

    >>> color_indices(np.array([[0.0, 0.5, 1.0, np.nan]]))
    array([[  0, 119, 238, 239]], dtype=uint8)
    """
    steps = shades * (_STEPS - 1)
    steps += 0.5  # and then cut off: the nearest step
    if np.isnan(steps.min(initial=0.0)):
        steps[np.isnan(steps)] = _MISSING
    return steps.astype(np.uint8)


def _fill(canvas: Indices, box: Box) -> None:
    canvas[box.y : box.y + box.height, box.x : box.x + box.width] = _WHITE - round(box.ink * (_GREYS - 1))


def _enlarge(canvas: Indices, raster: Raster, shades: Floats) -> None:
    if not raster.values.size:
        return
    rows, columns = raster.values.shape
    cells = color_indices(shades)
    for axis, times in ((1, raster.width // columns), (0, raster.height // rows)):
        cells = cells if times == 1 else cells.repeat(times, axis)
    canvas[raster.y : raster.y + raster.height, raster.x : raster.x + raster.width] = cells


def _write(canvas: Indices, text: Text, font: Path | None) -> None:
    stamp, left, above = _stamp(text.string, text.size, text.anchor, text.rotation, text.bold, text.ink, font)
    x, y = text.x - left, text.y - above
    height, width = stamp.shape
    place = canvas[max(0, y) : y + height, max(0, x) : x + width]
    part = stamp[max(0, -y) :, max(0, -x) :][: place.shape[0], : place.shape[1]]
    np.minimum(place, part, out=place)  # the boxes of neighbouring letters may overlap


@lru_cache(maxsize=4096)
def _stamp(
    string: str, size: int, anchor: str, rotation: int, bold: bool, ink: float, font: Path | None
) -> tuple[Indices, int, int]:
    """A text in the palette's greys, and the column and row in it that belong at the text's place."""
    levels, x, y = lettered(string, size, bold, font)
    if anchor == "end":
        x = levels.shape[1] - x
    stamp = (_WHITE - (levels * (ink * (_GREYS - 1) / 255) + 0.5).astype(np.uint8)).astype(np.uint8)
    return (np.rot90(stamp).copy(), y, stamp.shape[1] - x) if rotation == 90 else (stamp, x, y)
