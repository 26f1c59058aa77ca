"""Positional encodings: what is added to an embedding so that attention can tell places apart."""

import math
from dataclasses import dataclass

import numpy as np

from attnviz.arrays import Array, Floats, namespace, to_numpy
from attnviz.errors import RequestError
from attnviz.memory import check_room

BASE = 10000.0
"""The wavelengths run from 2π to 2π times this."""


def sinusoidal(positions: Array, d_model: int, base: float = BASE) -> Array:
    """The sinusoidal encoding of each position, sines in even columns and cosines in odd ones.

    PE(pos, 2i) = sin(pos / base^(2i/d_model)) and PE(pos, 2i+1) = cos(pos / base^(2i/d_model)); an odd
    `d_model` ends with a sine. Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    Args:
        positions: [position], floats, any values. The result has their library, dtype and device, and is worked
            out in float64.
        d_model: columns of the result, at least 1.
        base: the wavelengths run from 2π to base · 2π.

    Returns:
        [position, d_model], each in -1..1.

    Raises:
        RequestError: `d_model` is less than 1.

    >>> sinusoidal(np.array([0.0, 1.0]), 4).round(3)
    array([[0.   , 1.   , 0.   , 1.   ],
           [0.841, 0.54 , 0.01 , 1.   ]])
    """
    if d_model < 1:
        raise RequestError(f"the width of a positional encoding must be at least 1, got {d_model}")
    pairs = np.arange((d_model + 1) // 2)
    places = to_numpy(positions).astype(np.float64)  # at position 5,000 a float32 angle is wrong by 2e-4
    angles = places[:, None] * base ** (pairs * (-2.0 / d_model))
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(places), 2 * len(pairs))
    return namespace(positions).asarray(waves[:, :d_model], dtype=positions.dtype, device=positions.device)


@dataclass(frozen=True)
class PositionTable:
    """The encodings of some positions, ready to be shown or written."""

    d_model: int
    positions: tuple[int, ...]
    values: Floats
    """[position, d_model], each in -1..1, float64."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What each column is: `sin 0`, `cos 0`, `sin 1`, …, by pair; a pair has one frequency.

        >>> position_table(3, 1).columns
        ('sin 0', 'cos 0', 'sin 1')
        """
        return tuple(f"{'cos' if column % 2 else 'sin'} {column // 2}" for column in range(self.d_model))

    @property
    def wavelengths(self) -> tuple[float, ...]:
        """How many positions each column takes to come round: 2π · base^(2i/d_model).

        >>> [round(length, 1) for length in position_table(4, 1).wavelengths]
        [6.3, 6.3, 628.3, 628.3]
        """
        return tuple(2 * math.pi * BASE ** (2 * (column // 2) / self.d_model) for column in range(self.d_model))


def position_table(d_model: int, length: int, at: int | None = None) -> PositionTable:
    """The sinusoidal encodings of positions 0 to `length` − 1, or of position `at` alone.

    Args:
        d_model: columns, at least 1.
        length: how many positions there are, at least 1.
        at: one of these positions; one below 0 counts from the end.

    Raises:
        RequestError: a size is less than 1, there is no such position, or the table is too large for the memory.

    >>> position_table(4, 2).values.round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    >>> position_table(4, 100, at=-1).positions
    (99,)
    """
    if length < 1:
        raise RequestError(f"--length must be at least 1, got {length}")
    if d_model < 1:
        raise RequestError(f"--d-model must be at least 1, got {d_model}")
    if at is not None and not -length <= at < length:
        raise RequestError(f"no position {at}: --length {length} has positions 0 to {length - 1}")
    chosen = range(length) if at is None else range(at % length, at % length + 1)
    check_room(32 * d_model * len(chosen), f"{len(chosen)} positions of {d_model} columns", "choose smaller sizes")
    values = sinusoidal(np.arange(chosen.start, chosen.stop, dtype=np.float64), d_model)
    return PositionTable(d_model, tuple(chosen), values)


def turned(encodings: Array, by: float, base: float = BASE) -> Array:
    """The encodings of positions `by` further on, made from the encodings alone: each pair is turned by an angle.

    With ω = base^(−2i/d_model), sin((pos + by) ω) = sin(pos ω) cos(by ω) + cos(pos ω) sin(by ω) and
    cos((pos + by) ω) = cos(pos ω) cos(by ω) − sin(pos ω) sin(by ω): a rotation that does not depend on pos.
    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    Args:
        encodings: [position, d_model], an even number of columns.
        by: how many positions on.
        base: as the encodings were made with.

    Returns:
        [position, d_model].

    Raises:
        RequestError: a column has no partner.

    >>> turned(sinusoidal(np.array([0.0]), 2), 1.0).round(3).tolist()
    [[0.841, 0.54]]
    """
    d_model = encodings.shape[-1]
    if d_model % 2:
        raise RequestError(f"{d_model} columns are no pairs of sine and cosine: an even number is needed")
    xp = namespace(encodings)
    step = sinusoidal(xp.asarray([by], dtype=encodings.dtype, device=encodings.device), d_model, base)
    sine, cosine = encodings[:, 0::2], encodings[:, 1::2]
    sine_by, cosine_by = step[:, 0::2], step[:, 1::2]
    pairs = xp.stack([sine * cosine_by + cosine * sine_by, cosine * cosine_by - sine * sine_by], axis=-1)
    return xp.reshape(pairs, encodings.shape)
