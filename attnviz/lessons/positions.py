"""Sinusoidal positions: the first two by hand, slow and fast columns, and moving on as a rotation."""

import numpy as np

from attnviz.arrays import Array, Floats
from attnviz.lessons import axes
from attnviz.lessons.inputs import of_text
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, bound, counted, largest_difference, numbers
from attnviz.positions import position_table, sinusoidal, turned
from attnviz.tokens import visible
from attnviz.translation import Say

D_MODEL, WIDE, LENGTH, ON = 4, 8, 24, 3


def positions(setting: Setting, say: Say) -> tuple[Step, ...]:
    """Positions 0 and 1, or those of the student's tokens; many positions; each position turned into a later one."""
    labels = counted(2)
    if setting.text is not None:
        words = of_text(setting.text, setting, d_model=D_MODEL, n_heads=1).labels
        labels = tuple(f"{i} {visible(word)}" for i, word in enumerate(words))
    places = setting.placing(np.arange(len(labels), dtype=np.float64))
    return (
        _by_hand(sinusoidal(places, D_MODEL), labels, say),
        _waves(say),
        _rotation(places, labels, say),
    )


def _by_hand(encodings: Array, labels: tuple[str, ...], say: Say) -> Step:
    last = len(labels) - 1
    title = say("encoding, d = {d_model}", d_model=D_MODEL)
    return Step(
        say("Sine and cosine of the position"),
        say(
            "To each embedding a vector is added that depends on the position alone. Even columns are sines and odd"
            " ones cosines, two columns to each frequency."
        ),
        "PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))",
        (Matrix.of("encodings", title, encodings, _rows(labels, say), _columns(D_MODEL, say)),),
        say(
            "Position 0 is ({first}), position {last} is ({numbers}).",
            first=numbers(encodings[0]),
            last=last,
            numbers=numbers(encodings[-1]),
        )
        if last
        else say("Position 0 is ({first}): sin 0 and cos 0 by turns.", first=numbers(encodings[0])),
    )


def _waves(say: Say) -> Step:
    table = position_table(WIDE, LENGTH)
    change = np.abs(np.diff(table.values, axis=0)).mean(0)
    column, mean = _columns(WIDE, say), Axis(say("mean"), ("|Δ|",))

    return Step(
        say("Fast and slow columns"),
        say(
            "The first pair of columns comes round every {fast:.1f} positions, each following pair more slowly, the"
            " last here every {slow:.0f}. Fast columns tell neighbours apart, slow ones distant places.",
            fast=table.wavelengths[0],
            slow=table.wavelengths[-1],
        ),
        "λᵢ = 2π · 10000^(2i/d)",
        (
            Matrix.of(
                "waves",
                say("{n} positions, d = {d_model}", n=LENGTH, d_model=WIDE),
                table.values,
                _rows(counted(LENGTH), say),
                column,
            ),
            Matrix.of("change", say("mean change to the next position"), change[None], mean, column, "numbers"),
        ),
        say(
            "From one position to the next the first column changes by {fast:.3f} on average, the last but one by"
            " {slow:.5f}.",
            fast=float(change[0]),
            slow=float(change[-2]),
        ),
    )


def _rotation(places: Array, labels: tuple[str, ...], say: Say) -> Step:
    encodings, later = sinusoidal(places, D_MODEL), sinusoidal(places + ON, D_MODEL)
    moved = turned(encodings, ON)
    rows, column = _rows(labels, say), _columns(D_MODEL, say)
    return Step(
        say("Moving on is a rotation"),
        say(
            "Each pair of columns is a point on a circle. The point {k} positions on is the same one turned by an"
            " angle that does not depend on the position, so that a matrix can learn to look {k} places away.",
            k=ON,
        ),
        "PE(pos + k) = R_k PE(pos)",
        (
            Matrix.of("rotation", say("R_k for k = {k}", k=ON), rotation(ON, D_MODEL), column, column),
            Matrix.of("turned", say("R_k PE(pos)"), moved, rows, column),
            Matrix.of("later", say("PE(pos + k)"), later, rows, column),
        ),
        say(
            "The turned encodings differ from those {k} positions on by less than {difference}.",
            k=ON,
            difference=bound(largest_difference(moved, later)),
        ),
    )


def rotation(by: float, d_model: int) -> Floats:
    """The matrix R for which R PE(pos) = PE(pos + by), for an even width.

    >>> rotation(0, 2).tolist()
    [[1.0, 0.0], [-0.0, 1.0]]
    """
    step = sinusoidal(np.array([float(by)]), d_model)[0]
    matrix = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        sine, cosine = step[i], step[i + 1]
        matrix[i : i + 2, i : i + 2] = [[cosine, sine], [-sine, cosine]]
    return matrix


def _rows(labels: tuple[str, ...], say: Say) -> Axis:
    return Axis(say("position"), labels)


def _columns(d_model: int, say: Say) -> Axis:
    return Axis(axes.dimensions(1, say).name, position_table(d_model, 1).columns)
