"""Make the colour tables from matplotlib's: python tools/make_colormaps.py

Importing matplotlib takes longer than drawing a picture, so the package holds the tables as hexadecimal digits.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np

NAMES = {
    "viridis": "viridis",
    "cividis": "cividis",
    "magma": "magma",
    "inferno": "inferno",
    "plasma": "plasma",
    "greys": "Greys",
    "blues": "Blues",
}
"""The name here, and matplotlib's."""
DIVERGING = {"rdbu": "RdBu_r", "puor": "PuOr_r", "brbg": "BrBG_r"}
"""Likewise, of those with a neutral middle: a cold colour below it, a warm one above it."""
TARGET = Path(__file__).parent.parent / "attnviz" / "render" / "colormaps.py"
HEADER = '''"""Colour tables as hexadecimal digits, RRGGBB for each of 256 steps.

Written by tools/make_colormaps.py; do not edit.

Taken from matplotlib (https://matplotlib.org/stable/project/license.html). viridis, magma, inferno and plasma are by
Nathaniel J. Smith, Stéfan van der Walt and Eric Firing (CC0); cividis is by Jamie Nuñez, Christopher Anderton and Ryan
Renslow (CC0); greys, blues, rdbu, puor and brbg are ColorBrewer's (Cynthia Brewer, Mark Harrower and The
Pennsylvania State University, Apache-2.0, https://colorbrewer.org).
"""
'''


def table(name: str) -> str:
    rgb = mpl.colormaps[name](np.arange(256), bytes=True)[:, :3]
    return bytes(rgb.ravel().tolist()).hex()


def tables(names: dict[str, str]) -> str:
    return "{\n" + "".join(f'    "{ours}": "{table(theirs)}",\n' for ours, theirs in names.items()) + "}\n"


def source() -> str:
    return f"{HEADER}\nSEQUENTIAL = {tables(NAMES)}\nDIVERGING = {tables(DIVERGING)}"


if __name__ == "__main__":
    TARGET.write_text(source(), encoding="utf-8")
