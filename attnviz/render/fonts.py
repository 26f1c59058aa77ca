"""Font files: the one that comes along, and those of the system that have many characters."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

FOLDERS: tuple[str, ...] = {
    "darwin": ("~/Library/Fonts", "/Library/Fonts", "/System/Library/Fonts"),
    "win32": ("%LOCALAPPDATA%/Microsoft/Windows/Fonts", "%WINDIR%/Fonts"),
}.get(sys.platform, ("~/.local/share/fonts", "~/.fonts", "/usr/local/share/fonts", "/usr/share/fonts"))
"""Where fonts are installed, on this kind of system."""

_WIDE = (
    "notosanscjk", "notosanssc", "notosansjp", "notosanskr", "notosanstc", "sourcehansans", "wqy", "droidsansfallback",
    "pingfang", "hiragino", "stheiti", "applesdgothicneo", "msyh", "yugoth", "msgothic", "malgun", "simsun",
    "arialunicode", "arial unicode", "arialuni", "segoeui", "seguisym", "notosans", "notoemoji", "symbola",
    "freesans", "unifont",
)  # fmt: skip
"""How the names of fonts with many characters begin, those that look best first."""
_STYLES = ("bold", "black", "light", "thin", "medium", "italic", "oblique", "condensed", "mono", "serif")
_SUFFIXES = (".ttf", ".otf", ".ttc")


@cache
def bundled(bold: bool) -> Path | None:
    """DejaVu Sans as it comes with matplotlib, None where it does not.

    matplotlib is looked up but not imported, which would take longer than a whole picture.
    """
    spec = find_spec("matplotlib")
    folders = spec.submodule_search_locations if spec else None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    paths = (Path(folder, "mpl-data", "fonts", "ttf", name) for folder in folders or ())
    return next((path for path in paths if path.is_file()), None)


@cache
def installed() -> tuple[Path, ...]:
    """The fonts in the system's folders whose names promise many characters, in an order that depends on names alone.

    Which there are differs from machine to machine, so they are for characters that no other font has.
    """
    places = ((_place(path), path.name, path) for path in _files())
    return tuple(path for *_, path in sorted(place for place in places if place[0] < len(_WIDE)))


def _place(path: Path) -> int:
    name = path.name.lower()
    if not name.endswith(_SUFFIXES) or any(style in name for style in _STYLES):
        return len(_WIDE)
    return next((i for i, start in enumerate(_WIDE) if name.startswith(start)), len(_WIDE))


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        for where, _, names in os.walk(os.path.expandvars(os.path.expanduser(folder))):  # noqa: PTH111 (no error where there is no home)
            yield from (Path(where, name) for name in names)
