"""Positional encodings: what is added to an embedding so that attention can tell places apart."""

from attnviz.arrays import Array, namespace
from attnviz.errors import RequestError


def sinusoidal(positions: Array, d_model: int, base: float = 10000.0) -> Array:
    """The sinusoidal encoding of each position, sines in even columns and cosines in odd ones.

    PE(pos, 2i) = sin(pos / base^(2i/d_model)) and PE(pos, 2i+1) = cos(pos / base^(2i/d_model)); an odd
    `d_model` ends with a sine. Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    Args:
        positions: [position], floats, any values; the result has their library, dtype and device.
        d_model: columns of the result, at least 1.
        base: the wavelengths run from 2π to base · 2π.

    Returns:
        [position, d_model], each in -1..1.

    Raises:
        RequestError: `d_model` is less than 1.

    >>> import numpy as np
    >>> sinusoidal(np.array([0.0, 1.0]), 4).round(3)
    array([[0.   , 1.   , 0.   , 1.   ],
           [0.841, 0.54 , 0.01 , 1.   ]])
    """
    if d_model < 1:
        raise RequestError(f"the width of a positional encoding must be at least 1, got {d_model}")
    xp = namespace(positions)
    pairs = xp.arange((d_model + 1) // 2, dtype=positions.dtype, device=positions.device)
    angles = positions[:, None] * base ** (pairs * (-2.0 / d_model))[None, :]
    waves = xp.stack([xp.sin(angles), xp.cos(angles)], axis=-1)
    return xp.reshape(waves, (positions.shape[0], -1))[:, :d_model]
