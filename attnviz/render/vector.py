"""SVG and PDF: the same scene as the PNG, to be printed and enlarged."""

import logging
import os
import sys
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

from attnviz.lazy import function
from attnviz.render.layout import layout
from attnviz.render.lettering import measure
from attnviz.render.panels import Board, Look


def write_svg(board: Board, look: Look, stream: BinaryIO) -> None:
    """Write `board` to `stream` as an SVG file.

    A pixel of the PNG is a unit. Letters are outlines, so that no reader needs the fonts; each text also stands in a
    `<title>`, where programs find it. A heatmap is an image of one pixel a cell.

    Raises:
        RequestError: there is no such colour map or scale, the font cannot be used, or the picture would be too large.
    """
    _write("save_svg", board, look, stream)


def write_pdf(board: Board, look: Look, stream: BinaryIO) -> None:
    """Write `board` to `stream` as a PDF file of one page.

    A pixel of the PNG is a point, or less where the page would be larger than readers allow. Texts can be searched and
    copied. A heatmap is an image of one pixel a cell.

    Raises:
        RequestError: there is no such colour map or scale, the font cannot be used, or the picture would be too large.
    """
    _write("save_pdf", board, look, stream)


def _write(save: str, board: Board, look: Look, stream: BinaryIO) -> None:
    scene = layout(board, partial(measure, font=look.font), look.say)
    _load_matplotlib()
    function(f"attnviz.render.figure:{save}")(scene, board.caption, look, stream)


def _load_matplotlib() -> None:
    """Import matplotlib whatever the environment says.

    It would fail for a MPLBACKEND that it does not know, though nothing here uses a backend, and warn where it finds
    no place for its settings.
    """
    if "matplotlib" in sys.modules:
        return
    logger = logging.getLogger("matplotlib")
    level, backend = logger.level, os.environ.pop("MPLBACKEND", None)
    logger.setLevel(logging.ERROR)
    try:
        settings: Any = function("matplotlib:rcParams")
        function("matplotlib.font_manager:fontManager")
    finally:
        logger.setLevel(level)
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            settings["backend"] = backend
