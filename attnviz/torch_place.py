"""Putting arrays into torch, on the device and in the dtype that were asked for."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from attnviz.arrays import Array
from attnviz.backend import MPS, Place
from attnviz.errors import AttnvizError


def torch_place(device: str, dtype: str | None) -> Place:
    """What puts NumPy arrays on `device`, floats as `dtype` where one is given.

    Args:
        device: cpu, cuda, cuda:N or mps.
        dtype: a floating-point type of torch; None keeps each array's own, but float64 is float32 on mps.

    Raises:
        AttnvizError: the machine has no such device.

    >>> torch_place("cpu", "float16")(np.array([1.5])).dtype
    torch.float16
    """
    check_device(device)
    wanted = None if dtype is None else getattr(torch, dtype)

    def place(array: npt.NDArray[Any]) -> Array:
        target = wanted if array.dtype.kind == "f" else None
        if target is None and device == MPS and array.dtype == np.float64:
            target = torch.float32  # all that mps has
        try:
            return torch.asarray(_writable(array), dtype=target, device=device)
        except torch.OutOfMemoryError as error:
            raise AttnvizError(f"{device} has no room for an array of {array.nbytes / 1e6:.0f} MB: {error}") from error

    return place


def check_device(device: str) -> None:
    """See that torch can use `device` here.

    Raises:
        AttnvizError: it cannot; the message names the devices that there are.
    """
    there = devices()
    if device not in there:
        raise AttnvizError(
            f"torch {torch.__version__} finds no {device} on this machine: choose --device {' or '.join(there)}"
        )


def devices() -> tuple[str, ...]:
    """The devices that torch can use here.

    >>> devices()[0]
    'cpu'
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a driver that is too old, and then says that there is none
        n_cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ("cuda", *(f"cuda:{i}" for i in range(n_cuda))) if n_cuda else ()
    mps = (MPS,) if torch.backends.mps.is_available() else ()
    return ("cpu", *cuda, *mps)


def _writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as torch takes it: writable, in the machine's byte order, with strides forward."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.require(native, requirements=["C", "W"])
