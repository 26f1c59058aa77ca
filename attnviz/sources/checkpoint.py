"""A checkpoint folder as Hugging Face models are published: config.json, model.safetensors; read without torch."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from attnviz.arrays import Floats, quiet
from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at

CONFIG, WEIGHTS = "config.json", "model.safetensors"


class Checkpoint:
    """The tensors and the configuration of one folder; a tensor is read when it is asked for.

    Args:
        folder: where it is.
        dtype: float32 or float64, in which every tensor is given, whatever it is stored in.

    Raises:
        RequestError: there is no such folder, or it is no checkpoint.
        AttnvizError: a file in it is damaged.
    """

    def __init__(self, folder: Path, dtype: type[np.floating[Any]] = np.float32) -> None:
        self.folder = folder
        self.dtype = dtype
        self.config = read_config(folder)
        self._buffers: dict[tuple[int, ...], npt.NDArray[np.float32]] = {}

    @cached_property
    def _file(self) -> Any:
        path = self.folder / WEIGHTS
        if not path.is_file():
            how = "; to read its .bin files in torch, add --allow-bin" if any(self.folder.glob("*.bin")) else ""
            raise AttnvizError(f"{self.folder} has no {WEIGHTS}: attnviz reads weights in safetensors format only{how}")
        try:
            return safe_open(path, "numpy")
        except (SafetensorError, OSError) as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> AttnvizError:
        return AttnvizError(f"{self.folder / WEIGHTS} is damaged or incomplete: {why}")

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(self._file.keys())

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the weight file, in hexadecimal."""
        with (self.folder / WEIGHTS).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _slice(self, name: str) -> Any:
        if name not in self.names:
            raise AttnvizError(f"{self.folder / WEIGHTS} has no tensor {name}")
        part = self._file.get_slice(name)
        if part.get_dtype() not in ("F16", "F32", "F64"):
            allowed = "F16, F32 or F64 can be read without torch"
            raise AttnvizError(f"tensor {name} in {self.folder / WEIGHTS} is {part.get_dtype()}: {allowed}")
        return part

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it.

        Raises:
            AttnvizError: there is no such tensor, or not of a type that can be read.
        """
        return tuple(self._slice(name).get_shape())

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """See that a tensor has the shape that follows from the configuration.

        Raises:
            AttnvizError: it has another, or cannot be read.
        """
        found = self.shape(name)
        if found != shape:
            there, wanted = (" × ".join(map(str, sizes)) or "()" for sizes in (found, shape))
            where = f"{name} in {self.folder / WEIGHTS}"
            raise AttnvizError(f"tensor {where} has shape {there}, where {CONFIG} asks for {wanted}")

    def rows(self, name: str, indices: list[int]) -> Floats:
        """Some rows of a matrix [row, column]; no others are read."""
        part = self._slice(name)
        return self._given(np.concatenate([part[i : i + 1] for i in indices]))

    def tensor(self, name: str) -> Floats:
        """A whole tensor."""
        return self._given(self._read(name))

    def lent(self, name: str) -> Floats:
        """A whole tensor, to be used before the next one of its shape is lent: they share one buffer.

        Half-precision matrices are widened into it, which spares a fresh page of memory for each.
        """
        stored = self._read(name)
        if stored.dtype != np.float16 or self.dtype != np.float32:
            return self._given(stored)
        buffer = self._buffers.setdefault(stored.shape, np.empty(stored.shape, np.float32))
        return widen_into(stored, buffer)

    def _read(self, name: str) -> npt.NDArray[Any]:
        self._slice(name)
        try:
            array: npt.NDArray[Any] = self._file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise self._damaged(f"{name}: {error}") from error
        return array

    def _given(self, array: npt.NDArray[Any]) -> Floats:
        with quiet(np):  # what is too large for float32 is found as infinity when it is used
            return array.astype(self.dtype, copy=False)


def widen_into(half: npt.NDArray[np.float16], out: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """`half` as float32 in `out`, a contiguous array of its shape: exactly `astype`, in an eighth of its time.

    The bits of a float16, moved to where float32 has them, are the number times 2^-112: only infinities
    and NaN come out otherwise, so they take the ordinary way.

    >>> halves = np.array([1.5, -2**-24, 0.0], np.float16)
    >>> widen_into(halves, np.empty(3, np.float32)).tolist() == halves.tolist()
    True
    """
    bits = np.ascontiguousarray(half).view(np.int16)
    if np.any((bits & 0x7C00) == 0x7C00):
        np.copyto(out, half)
        return out
    words = out.view(np.int32)
    np.copyto(words, bits)
    np.left_shift(words, 13, out=words)
    np.bitwise_and(words, ~0x70000000, out=words)  # of the sign's copies, only the first stays
    np.multiply(out, np.float32(2.0**112), out=out)
    return out


def read_config(folder: Path) -> Mapping[str, Any]:
    """The configuration of a checkpoint folder.

    Raises:
        RequestError: there is no such folder, or it is no checkpoint.
        AttnvizError: its config.json is damaged.
    """
    kind = kind_at(folder)
    if kind != "folder":
        what = "does not exist" if kind == "nothing" else "is a file, not a checkpoint folder"
        raise RequestError(f"model folder {folder} {what}")
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(f"{folder} is no checkpoint folder: it has no {CONFIG}") from None
    except (ValueError, RecursionError, OSError) as error:
        raise AttnvizError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise AttnvizError(f"{path} holds no JSON object")
    return config
