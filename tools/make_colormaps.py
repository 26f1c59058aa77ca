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
TARGET = Path(__file__).parent.parent / "attnviz" / "render" / "colormaps.py"
HEADER = '''"""Colour tables as hexadecimal digits, RRGGBB for each of 256 steps.

Written by tools/make_colormaps.py; do not edit.

Taken from matplotlib (https://matplotlib.org/stable/project/license.html). viridis, magma, inferno and plasma are by
Nathaniel J. Smith, Stéfan van der Walt and Eric Firing (CC0); cividis is by Jamie Nuñez, Christopher Anderton and Ryan
Renslow (CC0); greys and blues are ColorBrewer's (Cynthia Brewer, Mark Harrower and The Pennsylvania State University,
Apache-2.0, https://colorbrewer.org).
"""

TABLES = {
'''


def table(name: str) -> str:
    rgb = mpl.colormaps[name](np.arange(256), bytes=True)[:, :3]
    return bytes(rgb.ravel().tolist()).hex()


def source() -> str:
    return HEADER + "".join(f'    "{ours}": "{table(theirs)}",\n' for ours, theirs in NAMES.items()) + "}\n"


if __name__ == "__main__":
    TARGET.write_text(source(), encoding="utf-8")
