"""Memory that each thread keeps and uses again: new memory costs a page fault for each 4 KB of it."""

import threading
from math import prod

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats

_PAGE = 2 << 20
"""A large page, of which the processor finds more at once than of small ones; NumPy asks for such from 4 MB on."""
_APART = 17 * 64
"""Each memory begins so much later in its page: reads wait for writes to the same place of another small page."""


class _Kept(threading.local):
    def __init__(self) -> None:
        self.parts: dict[str, npt.NDArray[np.uint8]] = {}


_kept = _Kept()


def lent(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Floats:
    """Memory of that shape, the same again for each call with that name in this thread; what is in it is not told.

    >>> lent("here", (2, 3), "float32").shape, np.shares_memory(lent("here", (4,), "f4"), lent("here", (2,), "f8"))
    ((2, 3), True)
    """
    parts, n_bytes = _kept.parts, prod(shape) * np.dtype(dtype).itemsize
    if name not in parts or len(parts[name]) < n_bytes:
        later = _APART * len(parts)
        new = np.empty(max(n_bytes + later, _PAGE) + _PAGE, np.uint8)
        parts[name] = new[-new.ctypes.data % _PAGE + later :]
    made: Floats = parts[name][:n_bytes].view(dtype).reshape(shape)
    return made
