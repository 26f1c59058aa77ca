"""What a lesson is: steps with a sentence, a formula, the matrices it gives, and what to notice in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from attnviz.arrays import Array, Floats, to_numpy
from attnviz.backend import NUMPY, Placing
from attnviz.maps import Provenance

Kind: TypeAlias = Literal["weights", "signed", "numbers"]
"""What values are: weights in 0..1, numbers of either sign, or plain numbers, which are read and not coloured."""

Timer: TypeAlias = Callable[[], float]
"""Seconds since any moment, as `time.perf_counter` gives them."""


@dataclass(frozen=True)
class Axis:
    """One axis of a matrix."""

    name: str
    """What stands along it, in the reader's language."""
    labels: tuple[str, ...]
    """One for each row or column; a token as it is."""


@dataclass(frozen=True)
class Matrix:
    """Numbers that a step gives."""

    name: str
    """Under which they are written to files; no other matrix of the lesson has it."""
    title: str
    values: Floats
    """[row, column]."""
    rows: Axis
    columns: Axis
    kind: Kind = "signed"

    def __post_init__(self) -> None:
        wanted = len(self.rows.labels), len(self.columns.labels)
        if self.values.shape != wanted:
            raise ValueError(f"{self.name} is {self.values.shape}, but its labels are {wanted}")

    @classmethod
    def of(cls, name: str, title: str, values: Array, rows: Axis, columns: Axis, kind: Kind = "signed") -> "Matrix":
        """From an array of any library, on any device."""
        return cls(name, title, to_numpy(values), rows, columns, kind)


@dataclass(frozen=True)
class Step:
    """One step of a lesson."""

    title: str
    sentence: str
    """What is done, and why."""
    formula: str
    """The same as mathematics, in Unicode."""
    matrices: tuple[Matrix, ...]
    notice: str
    """What to see in the matrices, with the numbers measured."""


@dataclass(frozen=True)
class Lesson:
    """A lesson that has been worked out."""

    name: str
    title: str
    steps: tuple[Step, ...]
    provenance: Provenance

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """The matrices of all steps, in order."""
        return tuple(matrix for step in self.steps for matrix in step.matrices)


@dataclass(frozen=True)
class Setting:
    """What a student may change; left as it is, a lesson shows its worked example."""

    text: str | None = None
    """A sentence of one's own, in place of the example."""
    source: str | None = None
    """The sentence that the other one attends to, in cross-attention."""
    query: str | None = None
    """The token whose row is looked at; the first one unless given."""
    embeddings: Path | None = None
    """A file of one's own vectors, in place of a text."""
    module: Path | None = None
    """A file with the state dict of a multi-head module."""
    n_heads: int | None = None
    seed: int = 0
    """Everything that is drawn is drawn from it."""
    shared_projections: bool = False
    """Every head uses the first head's projections."""
    placing: Placing = NUMPY
    """Where the maths runs; in float64 unless it says otherwise."""
    timer: Timer | None = None
    """What takes the time, where a lesson is to measure it."""


_POWERS = (1e-12, 1e-9, 1e-6, 1e-3, 1.0)


def numbers(values: Array, digits: int = 3) -> str:
    """Numbers for a sentence.

    >>> import numpy as np
    >>> numbers(np.array([0.5, 0.25]))
    '0.500, 0.250'
    """
    return ", ".join(f"{value:.{digits}f}" for value in to_numpy(values).ravel().tolist())


def bound(value: float) -> str:
    """A round number above a difference: what is nothing but rounding is not the same on every machine.

    >>> bound(0.0), bound(2.2e-16), bound(4e-8), bound(0.5)
    ('1e-12', '1e-12', '1e-06', '1')
    """
    return f"{next((power for power in _POWERS if value < power), value):.0e}".replace("1e+00", "1")


def counted(n: int, prefix: str = "") -> tuple[str, ...]:
    """Labels for what has only a number.

    >>> counted(3, "k")
    ('k0', 'k1', 'k2')
    """
    return tuple(f"{prefix}{i}" for i in range(n))


def largest_difference(x: Array, other: Array) -> float:
    """The largest difference between two arrays, entry by entry.

    >>> import numpy as np
    >>> largest_difference(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    0.5
    """
    return float(abs(to_numpy(x) - to_numpy(other)).max())


def highest(row: Array, labels: Sequence[str]) -> tuple[str, float]:
    """The label of the largest value of a row, and the value.

    >>> import numpy as np
    >>> highest(np.array([0.25, 0.75]), ("a", "b"))
    ('b', 0.75)
    """
    values = to_numpy(row)
    return labels[int(values.argmax())], float(values.max())
