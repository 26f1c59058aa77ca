"""Letters for pictures: which font draws which characters, how wide texts are, and texts as grey levels.

A character is drawn by the first font that has it: the one asked for, DejaVu Sans, then what is installed. One that
no font has is drawn as its code point: ⟨65E5⟩.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont, features

from attnviz.errors import AttnvizError, RequestError
from attnviz.render.fonts import bundled, installed

Levels = npt.NDArray[np.uint8]
"""[row, column]: how much of each pixel is covered, from 0 to 255."""

_PAD = 2
"""Pixels around the letters, for the parts of them that lean out of their box."""
_JOINERS = dict.fromkeys(map(ord, "\u200c\u200d\ufe0e\ufe0f"))
"""They join characters or choose between forms of them, and are not drawn."""
_MOST_CODES = 4
_CONTROLS = {chr(0x2400 + i): i for i in range(32)} | {"␡": 0x7F}
"""The pictures of control characters, and what they are pictures of."""
_INSTEAD = {"␊": "↵"}
"""What is drawn where no font has the character itself; line ends are in most long texts."""
_RUN = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+(?: +[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+)*")
"""Letters of Hebrew, Arabic and their like, with the blanks between them."""
_JOINED = re.compile("[\u0900-\u1cff]")
"""Scripts of India and its neighbours, where places and shapes of letters depend on the letters around them."""
_NOBODY_HAS = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Run:
    """A part of a text that one font draws."""

    string: str
    """In the order in which it is read."""
    font: Path | None
    """None for the one that Pillow has within itself."""


@lru_cache(maxsize=4096)
def measure(string: str, size: int, bold: bool = False, font: Path | None = None) -> float:
    """The width in pixels of `string` as `lettered` draws it.

    Args:
        string: one line.
        size: of the font, in pixels.
        bold: whether it is bold, where the font that comes along draws it.
        font: the font file to use first.

    Raises:
        RequestError: `font` is no font file that can be used.

    >>> measure("", 12), measure("aaaa", 12) > measure("aa", 12)
    (0.0, True)
    """
    return float(sum(_length(run, size) for run in runs(string, bold, font)))


@lru_cache(maxsize=1024)
def lettered(string: str, size: int, bold: bool = False, font: Path | None = None) -> tuple[Levels, int, int]:
    """A line of text as grey levels, and the column and row in it where its baseline begins; arguments as `measure`."""
    parts = runs(string, bold, font)
    metrics = [_face(file, size).getmetrics() for file in {run.font for run in parts} or {bundled(bold)}]
    ascent, descent = map(max, zip(*metrics, strict=True))
    width = math.ceil(measure(string, size, bold, font))
    image = Image.new("L", (width + 2 * _PAD, ascent + descent + 2 * _PAD))
    x = 0.0
    for run in parts:
        drawn, face = _drawn(run, size)
        place = _PAD + round(x), _PAD + ascent
        ImageDraw.Draw(image).text(place, drawn, fill=255, font=face, anchor="ls")
        x += _length(run, size)
    return np.asarray(image), _PAD, _PAD + ascent


@lru_cache(maxsize=4096)
def runs(string: str, bold: bool = False, font: Path | None = None) -> tuple[Run, ...]:
    """The parts of a line from left to right, with a stand-in for each run of characters that no font has.

    Text that is read from right to left is one part, so that its parts need not be put in order.

    Args:
        string, bold, font: as for `measure`.

    Raises:
        RequestError: `font` is no font file that can be used.

    >>> "".join(run.string for run in runs("naïve ␀"))
    'naïve ⟨0000⟩'
    """
    if font is not None:
        check_font(font)
    elif string.isascii():
        return (Run(string, bundled(bold)),) if string else ()
    string = unicodedata.normalize("NFC", string)
    for c, instead in _INSTEAD.items():
        string = string if c not in string or _file_of(c, bold, font) else string.replace(c, instead)
    if _right_to_left(string):
        return _one_run(string, bold, font)
    grouped = groupby(_placed(string.translate(_JOINERS), bold, font), lambda pair: pair[1])
    return tuple(Run("".join(part for part, _ in group), file) for file, group in grouped)


@cache
def check_font(font: Path) -> None:
    """Refuse a font file that cannot be used.

    Raises:
        RequestError: there is none.
        AttnvizError: it is damaged, or has letters of one size only.
    """
    if not font.is_file():
        raise RequestError(f"font {font}: no such file; name a font file, such as a .ttf or .otf one")
    try:
        _face(font, 12)
    except OSError as error:
        raise AttnvizError(f"font {font} cannot be used ({error}): name another .ttf or .otf file") from None


def has_glyph(c: str, font: Path | None = None) -> bool:
    """Whether some font has a character, or nothing is to be drawn for it.

    Raises:
        RequestError: `font` is no font file that can be used.

    >>> has_glyph("é"), has_glyph("\N{ZERO WIDTH JOINER}"), has_glyph(_NOBODY_HAS)
    (True, True, False)
    """
    if font is not None:
        check_font(font)
    return ord(c) in _JOINERS or any(_file_of(one, False, font) for one in (c, _INSTEAD.get(c, c)))


def _one_run(string: str, bold: bool, font: Path | None) -> tuple[Run, ...]:
    whole = (file for file in _files(bold, font) if all(map(partial(_has, file), string)))
    file = next(whole, bundled(bold))
    parts = groupby(string, lambda c: c.isascii() or _has(file, c))
    return (Run("".join("".join(part) if known else _stand_in(list(part)) for known, part in parts), file),)


def _placed(string: str, bold: bool, font: Path | None) -> Iterator[tuple[str, Path | None]]:
    """The characters, together as long as one font has them, and that font."""
    for file, part in groupby(string, lambda c: _file_of(c, bold, font)):
        if file:
            yield "".join(part), file[0]
        else:
            yield from _placed(_stand_in(list(part)), bold, font)


def _stand_in(characters: Sequence[str]) -> str:
    codes = [f"{_CONTROLS.get(c, ord(c)):04X}" for c in characters[:_MOST_CODES]]
    opening, closing = "⟨⟩" if bundled(bold=False) else "<>"
    return opening + " ".join(codes + ["…"] * (len(characters) > _MOST_CODES)) + closing


def _files(bold: bool, font: Path | None) -> Iterator[Path | None]:
    """The fonts, in the order in which they are asked; the system's are looked for only where the others do not do."""
    if font is not None:
        yield font
    yield bundled(bold)
    yield from installed()


@cache
def _file_of(c: str, bold: bool, font: Path | None) -> tuple[Path | None, ...]:
    """The first font that has a character; nothing where none has it."""
    first = next(((file,) for file in _files(bold, font) if _has(file, c)), ())
    return first or ((bundled(bold),) if c.isascii() else ())


@cache
def _has(file: Path | None, c: str) -> bool:
    """Whether a font has a character: else it draws what it draws for one that no font has."""
    return _picture(file, c) != _picture(file, _NOBODY_HAS)


@cache
def _picture(file: Path | None, c: str) -> bytes:
    """A character as a font draws it; nothing for a font that cannot be used."""
    image = Image.new("L", (48, 48))
    with suppress(OSError):
        ImageDraw.Draw(image).text((12, 32), c, fill=255, font=_face(file, 20), anchor="ls")
    return image.tobytes()


def _right_to_left(string: str) -> bool:
    return not string.isascii() and any(unicodedata.bidirectional(c) in ("R", "AL") for c in string)


@cache
def _shaping() -> bool:
    return features.check_feature("raqm") is True


def turned(string: str) -> str:
    """Right-to-left words from left to right, as they are drawn where nothing knows the rules of such scripts.

    >>> turned("ab \u05d0\u05d1") == "ab \u05d1\u05d0"
    True
    """
    return _RUN.sub(lambda run: run[0][::-1], string.translate(_JOINERS))


def _drawn(run: Run, size: int) -> tuple[str, ImageFont.FreeTypeFont]:
    """What Pillow draws, and with what: Raqm where letters join or run to the left, else letter by letter."""
    shaped = _shaping() and (_right_to_left(run.string) or _JOINED.search(run.string) is not None)
    return run.string if shaped else turned(run.string), _face(run.font, size, shaped=shaped)


def _length(run: Run, size: int) -> float:
    string, face = _drawn(run, size)
    return face.getlength(string)


@cache
def _face(file: Path | None, size: int, *, shaped: bool = False) -> ImageFont.FreeTypeFont:
    if file is None:
        return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
    engine = ImageFont.Layout.RAQM if shaped else ImageFont.Layout.BASIC
    return ImageFont.FreeTypeFont(file, size, layout_engine=engine)  # truetype() would go on looking in other folders
