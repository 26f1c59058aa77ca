"""Boards of other values than weights, which pictures and the terminal both draw."""

from functools import cache

import numpy as np

from attnviz.arrays import Floats
from attnviz.render.panels import Axis, Board, Group, Panel
from attnviz.render.ranges import Range

WORDS = ("Orange", "is", "my", "favorite")
QUERY, KEY = Axis("query", WORDS), Axis("key", WORDS)
FORMULAS = (
    "softmax(QKᵀ / √dₖ) · V, with V ∈ ℝⁿ: a row of weights for each query, which sums to 1.",
    "Σᵢ qᵢ·kᵢ is a score, x² ≥ 0 ≠ −1, [red]no markup[/red] & <none>",
)


def numbered(name: str, n: int) -> Axis:
    return Axis(name, tuple(map(str, range(n))))


def spread(*shape: int, top: float) -> Floats:
    """Values between −top and top that look random but are the same on every machine."""
    steps = np.arange(np.prod(shape), dtype=np.int64)
    return ((steps * steps * 37 + steps * 11) % 2001 / 1000 - 1).reshape(shape) * top


@cache
def difference() -> Board:
    """Signed values, one of them exactly 0, and a row without a number."""
    values = spread(3, 4, 4, top=0.8).round(3)
    values[0, 1, 2], values[0, 3, 0], values[1, 2] = 0.0, -0.001, np.nan
    panels = tuple(Panel(f"head {i}", one, QUERY, KEY) for i, one in enumerate(values))
    return Board("one model less another · 4 tokens", (Group("layer 0", panels),), Range(-1.0, 1.0, "difference"))


@cache
def signed() -> Board:
    """Signed values too many to be written as numbers."""
    axes = (Axis(name, tuple(f"word{i}" for i in range(30))) for name in ("query", "key"))
    rows, columns = axes
    panels = tuple(Panel(f"head {i}", one, rows, columns) for i, one in enumerate(spread(2, 30, 30, top=2.0) ** 3 / 4))
    return Board("cubes", (Group("layer 0", panels),), Range(-2.0, 2.0, "score"))


@cache
def lesson() -> Board:
    """Groups with prose, with their own ranges, with neither, without panels; rows that are nothing."""
    angles = np.arange(4)[:, None] / 10 ** (np.arange(10) // 2 * 0.8)
    encoding = np.where(np.arange(10) % 2, np.cos(angles), np.sin(angles)).round(6)
    scores = spread(2, 4, 4, top=17.0).round(2)
    weights = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.5, 0.25, 0], [0.004, 0.496, 0.3, 0.2]])
    entropy = (spread(3, 5, top=0.97) + 0.97).round(3)
    groups = (
        Group("what this is", (), text=("Step by step, from words to weights.", "", FORMULAS[1])),
        Group(
            "positional encoding",
            (Panel("", encoding, Axis("token", WORDS), numbered("dimension", 10)),),
            range=Range(-1.0, 1.0, "encoding"),
        ),
        Group(
            "scores",
            tuple(Panel(f"head {i}", one, QUERY, KEY) for i, one in enumerate(scores)),
            FORMULAS[:1],
            Range(-20.0, 20.0, "score"),
        ),
        Group("weights", (Panel("head 0", weights, QUERY, KEY),), ("Each row of scores through the softmax.",)),
        Group(
            "entropy",
            (Panel("", entropy, numbered("layer", 3), numbered("head", 5)),),
            range=Range(0.0, 1.95, "entropy, nats"),
        ),
        Group(
            "one query alone",
            (
                Panel("as a row", scores[0, :1], Axis("", ("",)), KEY),
                Panel("as a column", scores[0, :1].T, KEY, Axis("", ("",))),
            ),
            range=Range(-20.0, 20.0, "score"),
        ),
    )
    return Board("a lesson · 4 tokens", groups, Range(0.0, 1.0))
