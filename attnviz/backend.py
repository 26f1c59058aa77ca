"""Where the maths runs: NumPy or torch, on which device, in which dtype."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Array, quiet
from attnviz.errors import AttnvizError, RequestError
from attnviz.lazy import function

Place: TypeAlias = Callable[[npt.NDArray[Any]], Array]
"""Puts a NumPy array where the maths is to run; floats in the dtype that was asked for, the rest as they are."""

NUMPY_NAME, TORCH_NAME = "numpy", "torch"
BACKENDS: Mapping[str, tuple[str, ...]] = {
    NUMPY_NAME: ("float32", "float64"),
    TORCH_NAME: ("float32", "float64", "float16", "bfloat16"),
}
"""The backends, and the dtypes in which each can run."""
DEVICES = "cpu, cuda, cuda:N or mps"
AUTO = "auto"
"""All devices of the machine, over which accelerate spreads a model of transformers."""
MPS = "mps"
"""Apple's GPU, the one device without float64."""


@dataclass(frozen=True)
class Placing:
    """A backend, a device and a dtype; called with a NumPy array, it puts the array there."""

    backend: str
    device: str
    dtype: str | None
    """None: a source's own, float32 unless its numbers are float64."""
    place: Place

    def __call__(self, array: npt.NDArray[Any]) -> Array:
        """The array where the maths runs."""
        return self.place(array)

    @property
    def reads(self) -> type[np.floating[Any]]:
        """The NumPy dtype in which a checkpoint is read, so that nothing is lost before it is placed."""
        return np.float64 if self.dtype == "float64" else np.float32

    def runs(self, own_dtype: str) -> str:
        """The dtype in which a source runs whose own is `own_dtype`.

        >>> NUMPY.runs("float64"), placing(dtype="float32").runs("float64")
        ('float64', 'float32')
        """
        return self.dtype or ("float32" if self.device == MPS else own_dtype)

    def provenance(self, own_dtype: str = "float32") -> dict[str, str]:
        """Backend, device and dtype of a source whose own dtype is `own_dtype`.

        >>> NUMPY.provenance()
        {'backend': 'numpy', 'device': 'cpu', 'dtype': 'float32'}
        """
        return {"backend": self.backend, "device": self.device, "dtype": self.runs(own_dtype)}


NUMPY = Placing(NUMPY_NAME, "cpu", None, np.asarray)
"""NumPy, each source in its own dtype."""


def placing(backend: str = NUMPY_NAME, device: str = "cpu", dtype: str | None = None) -> Placing:
    """The backend, device and dtype of these names.

    Args:
        backend: a key of `BACKENDS`.
        device: cpu, and for torch also cuda, cuda:N or mps; auto for a model of transformers, over all that there are.
        dtype: one of the backend's; None leaves each source its own.

    Raises:
        RequestError: there is no such backend, device or dtype, or they do not go together.
        AttnvizError: torch is not installed, or the machine has no such device.

    >>> placing("numpy", "cpu", "float64")(np.ones(1, np.float32)).dtype
    dtype('float64')
    """
    if backend not in BACKENDS:
        raise RequestError(f"no backend {backend!r}: --backend is {' or '.join(BACKENDS)}")
    if not re.fullmatch(r"cpu|auto|mps|cuda(:(0|[1-9][0-9]{0,3}))?", device):
        raise RequestError(f"no device {device!r}: --device is {DEVICES}")
    if backend == NUMPY_NAME and device != "cpu":
        raise RequestError(f"numpy runs on the cpu, not on {device}: add --backend torch")
    if dtype is not None and dtype not in BACKENDS[backend]:
        elsewhere = f"; {dtype} needs --backend torch" if dtype in BACKENDS[TORCH_NAME] else ""
        raise RequestError(f"{backend} has no dtype {dtype!r}: it has {', '.join(BACKENDS[backend])}{elsewhere}")
    if (device, dtype) == (MPS, "float64"):
        raise RequestError("mps has no float64: choose --dtype float32, or --device cpu")
    if device == AUTO:
        return Placing(backend, device, dtype, _nowhere)
    if backend == TORCH_NAME:
        return Placing(backend, device, dtype, _torch_place(device, dtype))
    return NUMPY if dtype is None else Placing(backend, device, dtype, _numpy_place(np.dtype(dtype)))


def _nowhere(array: npt.NDArray[Any]) -> Array:
    raise RequestError(f"--device {AUTO} spreads models that transformers runs: for others it is {DEVICES}")


def _numpy_place(dtype: np.dtype[Any]) -> Place:
    def place(array: npt.NDArray[Any]) -> Array:
        if array.dtype.kind != "f":
            return array
        with quiet(np):  # what is too large becomes infinite, and is found by who uses it
            return array.astype(dtype, copy=False)

    return place


def _torch_place(device: str, dtype: str | None) -> Place:
    try:
        make = function("attnviz.torch_place:torch_place")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise AttnvizError("--backend torch needs torch: pip install 'attnviz[torch]'") from None
    place: Place = make(device, dtype)
    return place
