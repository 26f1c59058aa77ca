"""Colour tables by name: 256 colours from the lowest value to the highest."""

from functools import cache

import numpy as np
import numpy.typing as npt

from attnviz.errors import RequestError
from attnviz.near import meant
from attnviz.render import colormaps

Colors = npt.NDArray[np.uint8]
"""[step, 3]: red, green, blue."""

NAMES: tuple[str, ...] = tuple(colormaps.SEQUENTIAL)
"""The maps for sequential ranges."""
DEFAULT_COLORMAP = "viridis"
"""Even steps to the eye, also in grey print and to colour-blind readers."""
DIVERGING: tuple[str, ...] = tuple(colormaps.DIVERGING)
"""The maps for signed ranges, with a neutral colour in the middle; colour-blind readers can tell their ends apart."""
DEFAULT_DIVERGING = "rdbu"

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
def colormap(name: str, *, diverging: bool = False) -> Colors:
    """The 256 colours [256, 3] of the map `name`, read-only.

    Args:
        name: one of `NAMES`, or where it is to be a diverging map of `DIVERGING`.
        diverging: which of them.

    Raises:
        RequestError: there is no such map.

    >>> colormap("greys")[[0, 255]].tolist(), colormap("rdbu", diverging=True)[127].tolist()
    ([[255, 255, 255], [0, 0, 0]], [246, 246, 246])
    """
    tables = colormaps.DIVERGING if diverging else colormaps.SEQUENTIAL
    digits = tables.get(name.casefold())
    if digits is None:
        kind = "diverging colour map" if diverging else "colour map"
        raise RequestError(f"no {kind} {name!r}: choose one of {', '.join(tables)}{meant(name, tables)}")
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(256, 3)
