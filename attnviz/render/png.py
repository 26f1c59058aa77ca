"""PNG: one image of 256 colours, of which 239 are the colour maps', one stands for NaN and 16 draw smooth letters."""

import io
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from attnviz.arrays import Floats
from attnviz.render.colors import MISSING, Colors, colormap, grey
from attnviz.render.layout import Box, Raster, Scene, Text, layout
from attnviz.render.lettering import lettered, measure
from attnviz.render.panels import Board, Look
from attnviz.render.ranges import Range

Indices = npt.NDArray[np.uint8]
"""[row, column] of the palette."""

_STEPS = 239
_MISSING = 239
_WHITE = 255
_GREYS = 16


def png(board: Board, look: Look | None = None) -> bytes:
    """A board as a PNG file.

    Args:
        board: what to draw.
        look: its colours and font, and a description that is kept in the file.

    Raises:
        RequestError: there is no such colour map or scale, the font cannot be used, or the picture would be too large.
    """
    look = look or Look()
    scene = layout(board, partial(measure, font=look.font), look.say)
    palette = Palette.of(scene, look)
    image = Image.fromarray(painted(scene, palette, look.font))
    image.putpalette(palette.colors.tobytes())
    info = PngInfo()
    if look.description:
        info.add_text("Description", look.description.encode("utf-8", "backslashreplace").decode("utf-8"))
    file = _Png()
    image.save(file, compress_level=1, pnginfo=info)
    return file.getvalue()


def write_png(board: Board, look: Look, stream: BinaryIO) -> None:
    """Write `board` to `stream` as a PNG file."""
    stream.write(png(board, look))


class _Png(io.BytesIO):
    """A file in memory whose name says what it is: asked for a format, Pillow would import five others as well."""

    name = "picture.png"


@dataclass(frozen=True)
class Palette:
    """The 256 colours of an image: one colour map's or half as many steps of two, the one for NaN, and greys."""

    maps: tuple[Colors, ...]
    """For sequential ranges and for signed ones, or that one of them which there is."""
    kinds: tuple[bool, ...]
    """Whether each is for signed ranges."""

    @classmethod
    def of(cls, scene: Scene, look: Look) -> "Palette":
        """The palette of a scene.

        Raises:
            RequestError: there is no such colour map.
        """
        known = colormap(look.cmap), colormap(look.diverging, diverging=True)
        kinds = tuple(sorted({raster.range.signed for raster in scene.rasters})) or (False,)
        return cls(tuple(known[signed] for signed in kinds), kinds)

    @property
    def steps(self) -> int:
        """The colours of each map; an odd number, so that a diverging map has a middle."""
        return _STEPS // len(self.maps)

    @property
    def colors(self) -> Colors:
        """The colours [256, 3]: the maps', the one for NaN, greys from the ink to white."""
        chosen = np.linspace(0, 255, self.steps).round().astype(int)
        greys = [[grey(1 - i / (_GREYS - 1))] * 3 for i in range(_GREYS)]
        spare = [MISSING] * (1 + _STEPS - self.steps * len(self.maps))
        return np.concatenate([*(one[chosen] for one in self.maps), np.array([*spare, *greys], np.uint8)])

    def indices(self, shades: Floats, span: Range) -> Indices:
        """The palette's number for each shade of 0..1 or NaN of values in a range."""
        return color_indices(shades, self.steps, self.steps * self.kinds.index(span.signed))


def painted(scene: Scene, palette: Palette, font: Path | None = None) -> Indices:
    """The scene as numbers of the palette's colours [row, column], its texts in `font` as far as that has them."""
    canvas = np.full((scene.height, scene.width), _WHITE, np.uint8)
    for box in scene.boxes:
        _fill(canvas, box)
    for raster in scene.rasters:
        if raster.values.size:
            _enlarge(canvas, raster, palette.indices(scene.shades(raster), raster.range))
    for text in scene.texts:
        _write(canvas, text, font)
    return canvas


def color_indices(shades: Floats, steps: int = _STEPS, first: int = 0) -> Indices:
    """The palette's number for each shade of 0..1 or NaN, where a map has so many steps from its first number on.

    >>> color_indices(np.array([[0.0, 0.5, 1.0, np.nan]]))
    array([[  0, 119, 238, 239]], dtype=uint8)
    """
    numbers = shades * (steps - 1)
    numbers += first + 0.5  # and then cut off: the nearest step
    if np.isnan(numbers.min(initial=0.0)):
        numbers[np.isnan(numbers)] = _MISSING
    return numbers.astype(np.uint8)


def _fill(canvas: Indices, box: Box) -> None:
    canvas[box.y : box.y + box.height, box.x : box.x + box.width] = _WHITE - round(box.ink * (_GREYS - 1))


def _enlarge(canvas: Indices, raster: Raster, cells: Indices) -> None:
    rows, columns = cells.shape
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
