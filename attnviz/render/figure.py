"""A scene as a figure of matplotlib, saved with nothing in it that differs from run to run."""

import io
import re
from html import escape
from pathlib import Path as File
from typing import Any, BinaryIO

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from attnviz.render.colors import grey
from attnviz.render.layout import Box, Raster, Scene, Text
from attnviz.render.lettering import runs
from attnviz.render.panels import Look
from attnviz.render.png import Palette
from attnviz.tokens import visible

_SETTINGS = {"svg.hashsalt": "attnviz", "svg.fonttype": "path", "pdf.fonttype": 3}
"""Letters are outlines; in a PDF (its type 3) they are also text. Its type 42 embeds OpenType fonts so that readers
complain."""
_TEXT = re.compile(r'(<g id="text-([0-9]+)">\s*)<!--.*?-->')
"""The beginning of a text: matplotlib puts what it draws, stand-ins and all, into a comment."""
_MOST_POINTS = 14_400
"""The largest side of a PDF page that all readers show."""
_POINTS_PER_INCH = 72


def save_svg(scene: Scene, title: str, look: Look, stream: BinaryIO) -> None:
    """Write the scene to `stream` as an SVG file."""
    said = _said({"Title": title, "Description": look.description})
    svg = _saved(scene, look, "svg", dict.fromkeys(("Date", "Creator", "Format", "Type")) | said, 1.0).decode()
    svg = svg.replace(
        'style="image-rendering:', 'style="image-rendering:optimizeSpeed;image-rendering:'
    )  # older readers
    titles = [f"<title>{escape(text.string, quote=False)}</title>" for text in scene.texts]
    stream.write(_TEXT.sub(lambda match: match[1] + titles[int(match[2])], svg).encode())


def save_pdf(scene: Scene, title: str, look: Look, stream: BinaryIO) -> None:
    """Write the scene to `stream` as a PDF file."""
    said = _said({"Title": title, "Subject": look.description})
    scale = min(1.0, _MOST_POINTS / max(scene.width, scene.height))
    stream.write(_saved(scene, look, "pdf", dict.fromkeys(("CreationDate", "Creator", "Producer")) | said, scale))


def _said(texts: dict[str, str]) -> dict[str, Any]:
    return {name: visible(text) for name, text in texts.items() if text}


def _saved(scene: Scene, look: Look, kind: str, metadata: dict[str, Any], scale: float) -> bytes:
    settings: dict[Any, Any] = {k: v for k, v in mpl.rcParamsDefault.items() if not k.startswith("backend")}
    data = io.BytesIO()
    with mpl.rc_context(settings | _SETTINGS):  # whatever the user's own settings are
        size = scale * scene.width / _POINTS_PER_INCH, scale * scene.height / _POINTS_PER_INCH
        figure = Figure(figsize=size, dpi=_POINTS_PER_INCH)
        figure.add_artist(_Picture(scene, look, scale))
        figure.savefig(data, format=kind, metadata=metadata)
    return data.getvalue()


class _Picture(Artist):
    """The whole scene: to lay out thousands of texts and patches of matplotlib's own would take most of the time."""

    def __init__(self, scene: Scene, look: Look, scale: float) -> None:
        super().__init__()
        self._scene, self._font, self._scale = scene, look.font, scale
        self._palette = Palette.of(scene, look)
        self._colors = self._palette.colors

    def draw(self, renderer: RendererBase) -> None:
        """Draw it; matplotlib calls this."""
        for box in self._scene.boxes:
            self._box(renderer, box)
        for i, raster in enumerate(self._scene.rasters):
            if raster.values.size:
                self._raster(renderer, raster, i)
        for i, text in enumerate(self._scene.texts):
            self._text(renderer, text, i)

    def _up(self, y: float) -> float:
        """From the bottom, as matplotlib counts."""
        return self._scene.height - y

    def _box(self, renderer: RendererBase, box: Box) -> None:
        place = Affine2D().scale(box.width, -box.height).translate(box.x, self._up(box.y)).scale(self._scale)
        renderer.draw_path(_context(renderer), Path.unit_rectangle(), place, _color(box.ink))

    def _raster(self, renderer: RendererBase, raster: Raster, i: int) -> None:
        place = Affine2D().scale(raster.width, -raster.height).translate(raster.x, self._up(raster.y))
        context = _context(renderer)
        context.set_gid(f"heatmap-{i}")  # type: ignore[arg-type]  # its stubs ask for a number
        image = self._colors[self._palette.indices(self._scene.shades(raster), raster.range)]
        renderer.draw_image(context, 0, 0, image, place.scale(self._scale))

    def _text(self, renderer: RendererBase, text: Text, i: int) -> None:
        context = _context(renderer)
        context.set_foreground(_color(text.ink))
        parts = [(run.string, self._properties(run.font, text)) for run in runs(text.string, text.bold, self._font)]
        widths = [renderer.get_text_width_height_descent(s, font, ismath=False)[0] for s, font in parts]
        along = -sum(widths) if text.anchor == "end" else 0.0
        renderer.open_group("text", gid=f"text-{i}")
        for (string, properties), width in zip(parts, widths, strict=True):
            x, y = self._scale * text.x, self._scale * self._up(text.y)
            x, y = (x, y + along) if text.rotation else (x + along, y)
            from_top = self._scale * self._scene.height - y if renderer.flipy() else y
            renderer.draw_text(context, x, from_top, string, properties, text.rotation, ismath=False)
            along += width
        renderer.close_group("text")

    def _properties(self, font: File | None, text: Text) -> FontProperties:
        weight = "bold" if text.bold else "normal"
        return FontProperties(family="DejaVu Sans", weight=weight, size=text.size * self._scale, fname=font)


def _context(renderer: RendererBase) -> GraphicsContextBase:
    context = renderer.new_gc()
    context.set_linewidth(0)
    return context


def _color(ink: float) -> tuple[float, float, float]:
    return (grey(ink) / 255,) * 3
