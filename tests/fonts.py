"""Font files to draw with, made on the spot."""

from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from attnviz.render import fonts, lettering, png

NOBODY_ELSE_HAS = "\U00010600"
"""A letter of Linear A."""


def make_font(path: Path, characters: str, side: int = 1000) -> Path:
    """A font in which each of the characters is a filled square, `side` thousandths of its size wide and high."""
    names = {ord(c): f"glyph{i}" for i, c in enumerate(characters)}
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, side), (side, side), (side, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square, nothing = pen.glyph(), TTGlyphPen(None).glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", *names.values()])
    builder.setupCharacterMap(names)
    builder.setupGlyf({".notdef": nothing, **dict.fromkeys(names.values(), square)})
    builder.setupHorizontalMetrics({".notdef": (side, 0), **dict.fromkeys(names.values(), (side, 0))})
    builder.setupHorizontalHeader(ascent=1000, descent=-200)
    builder.setupNameTable({"familyName": path.stem, "styleName": "Regular", "psName": path.stem})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    return path


def forget_fonts() -> None:
    """Empty every cache that depends on which fonts there are."""
    for cached in (fonts.installed, lettering.measure, lettering.lettered, lettering.runs, lettering._file_of,
                   lettering._has, lettering._picture, lettering._face, lettering.check_font, png._stamp):  # fmt: skip
        cached.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let fonts be installed in these folders only."""
    monkeypatch.setattr(fonts, "FOLDERS", tuple(map(str, folders)))
    forget_fonts()
