"""Letters for pictures made of pixels: the font, how wide texts are, and texts as grey levels."""

import math
import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont, features

Levels = npt.NDArray[np.uint8]
"""[row, column]: how much of each pixel is covered, from 0 to 255."""

_PAD = 2
"""Pixels around the letters, for the parts of them that lean out of their box."""
_JOINERS = dict.fromkeys(map(ord, "\u200c\u200d\ufe0e\ufe0f"))
"""They join characters or choose between forms of them, and are not drawn."""
_MOST_CODES = 4
_CONTROLS = {chr(0x2400 + i): i for i in range(32)} | {"␡": 0x7F}
"""The pictures of control characters, and what they are pictures of."""
_RUN = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+(?: +[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+)*")
"""Letters of Hebrew, Arabic and their like, with the blanks between them."""


@lru_cache(maxsize=4096)
def measure(string: str, size: int, bold: bool = False) -> float:
    """The width in pixels of `string` as `lettered` draws it.

    >>> measure("", 12), measure("aaaa", 12) > measure("aa", 12)
    (0.0, True)
    """
    drawn = prepared(string, bold)
    return float(_font(size, bold, _shaped(drawn)).getlength(drawn))


@lru_cache(maxsize=1024)
def lettered(string: str, size: int, bold: bool = False) -> tuple[Levels, int, int]:
    """A line of text as grey levels, and the column and row in it where its baseline begins."""
    drawn = prepared(string, bold)
    font = _font(size, bold, _shaped(drawn))
    ascent, descent = font.getmetrics()
    width = math.ceil(measure(string, size, bold)) + 2 * _PAD
    image = Image.new("L", (width, ascent + descent + 2 * _PAD))
    ImageDraw.Draw(image).text((_PAD, _PAD + ascent), drawn, fill=255, font=font, anchor="ls")
    return np.asarray(image), _PAD, _PAD + ascent


def prepared(string: str, bold: bool = False) -> str:
    """`string` with a stand-in such as ⟨65E5⟩ for each run of characters that the font does not have.

    >>> prepared("naïve"), prepared("日本 ok"), prepared("日" * 9)
    ('naïve', '⟨65E5 672C⟩ ok', '⟨65E5 65E5 65E5 65E5 …⟩')
    """
    if string.isascii():
        return string
    string = unicodedata.normalize("NFC", string)
    if not _shaped(string):
        string = _RUN.sub(lambda run: run[0][::-1], string.translate(_JOINERS))
    runs = groupby(string, lambda c: c.isascii() or _has(c, bold))
    opening, closing = "⟨⟩" if _has("⟨", bold) else "<>"
    return "".join("".join(run) if known else f"{opening}{_codes(list(run))}{closing}" for known, run in runs)


def _codes(characters: Sequence[str]) -> str:
    codes = [f"{_CONTROLS.get(c, ord(c)):04X}" for c in characters[:_MOST_CODES]]
    return " ".join(codes + ["…"] * (len(characters) > _MOST_CODES))


@cache
def _has(c: str, bold: bool) -> bool:
    """Whether the font has a character: else it draws what it draws for one that no font has."""
    return _drawn(c, bold) != _drawn("\U0010ffff", bold)


@cache
def _drawn(c: str, bold: bool) -> bytes:
    image = Image.new("L", (48, 48))
    ImageDraw.Draw(image).text((12, 32), c, fill=255, font=_font(20, bold, shaped=False), anchor="ls")
    return image.tobytes()


def _right_to_left(string: str) -> bool:
    return not string.isascii() and any(unicodedata.bidirectional(c) in ("R", "AL") for c in string)


def _shaped(string: str) -> bool:
    """Whether the text is laid out by Raqm, which knows right-to-left scripts; all else is spaced letter by letter."""
    return _right_to_left(string) and _shaping()


@cache
def _shaping() -> bool:
    return features.check_feature("raqm") is True


@cache
def _font(size: int, bold: bool, shaped: bool) -> ImageFont.FreeTypeFont:
    engine = ImageFont.Layout.RAQM if shaped else ImageFont.Layout.BASIC
    path = _file(bold)
    if path is None:
        return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
    return ImageFont.truetype(path, size, layout_engine=engine)


@cache
def _file(bold: bool) -> Path | None:
    """DejaVu Sans as it comes with matplotlib; None where it does not, and Pillow's own font has to do.

    matplotlib is looked up but not imported, which would take longer than the whole picture.
    """
    spec = find_spec("matplotlib")
    folders = spec.submodule_search_locations if spec else None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    paths = (Path(folder, "mpl-data", "fonts", "ttf", name) for folder in folders or ())
    return next((path for path in paths if path.is_file()), None)
