"""Colour tables by name: 256 colours from the lowest value to the highest."""

from difflib import get_close_matches
from functools import cache

import numpy as np
import numpy.typing as npt

from attnviz.errors import RequestError
from attnviz.render.colormaps import TABLES

Colors = npt.NDArray[np.uint8]
"""[step, 3]: red, green, blue."""

NAMES: tuple[str, ...] = tuple(TABLES)
DEFAULT_COLORMAP = "viridis"
"""Even steps to the eye, also in grey print and to colour-blind readers."""

MISSING = (187, 51, 255)
"""Where a value is not a number: a violet apart from every map and from white, to colour-blind readers too."""
_INK = 28


def grey(ink: float) -> int:
    """The level of red, green and blue of texts and lines, from the white of the paper at 0 to the ink at 1.

    >>> grey(0), grey(1)
    (255, 28)
    """
    return round(255 - ink * (255 - _INK))


@cache
def colormap(name: str) -> Colors:
    """The 256 colours [256, 3] of the map `name`, read-only.

    Raises:
        RequestError: there is no such map.

    >>> colormap("greys")[[0, 255]].tolist()
    [[255, 255, 255], [0, 0, 0]]
    """
    digits = TABLES.get(name.casefold())
    if digits is None:
        near = get_close_matches(name.casefold(), NAMES, n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise RequestError(f"no colour map {name!r}: choose one of {', '.join(NAMES)}{guess}")
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(256, 3)
