"""Positional encodings: what is added to an embedding so that attention can tell places apart."""

import numpy as np

from attnviz.arrays import Array, namespace, to_numpy
from attnviz.errors import RequestError


def sinusoidal(positions: Array, d_model: int, base: float = 10000.0) -> Array:
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
