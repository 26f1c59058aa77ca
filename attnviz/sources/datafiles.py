"""Files of numbers as people have them: which arrays are in one, each read when it is asked for; texts."""

import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at
from attnviz.memory import check_room


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, known by its header."""

    name: str
    """Empty where the file holds one array without a name."""
    shape: tuple[int, ...]
    dtype: str
    """As NumPy names it, and `bfloat16`."""
    kind: str
    """NumPy's letter: `b` for booleans, `i` and `u` for integers, `f` for floats, `U` and `S` for text."""
    read: Callable[[], npt.NDArray[Any]]
    """The array itself, in the machine's byte order; bfloat16 comes as float32, which holds it exactly.

    Raises AttnvizError where the file is damaged.
    """
    lies: Callable[[], npt.NDArray[Any]] | None = None
    """The array as it lies in the file, mapped and not read, in its own byte order; bfloat16 as the uint16 of its bits.

    None where the file has no place to map.
    """

    def __str__(self) -> str:
        return f"{self.name} ({sizes(self.shape)}, {self.dtype})"


def sizes(shape: tuple[int, ...]) -> str:
    """A shape for people.

    >>> sizes((2, 3)), sizes(())
    ('2 × 3', 'a single value')
    """
    return " × ".join(map(str, shape)) or "a single value"


@dataclass(frozen=True)
class ArrayFile:
    """The arrays of a file, by name, and what text its header holds."""

    arrays: Mapping[str, StoredArray]
    texts: Mapping[str, str]


def check_there(path: Path, what: str) -> None:
    """See that there is a file at `path`.

    Raises:
        RequestError: there is none, or a folder.

    >>> check_there(Path("/"), "mask file")
    Traceback (most recent call last):
    attnviz.errors.RequestError: mask file / is a folder: name a file in it
    """
    kind = kind_at(path)
    if kind == "nothing":
        raise RequestError(f"{what} {path} does not exist")
    if kind == "folder":
        raise RequestError(f"{what} {path} is a folder: name a file in it")


def open_arrays(path: Path) -> ArrayFile:
    """The arrays of a .npy, .npz or .safetensors file; only headers are read, and nothing in it is executed.

    Raises:
        AttnvizError: it is damaged, holds Python objects, or promises more than it holds.
    """
    with _told(path):
        readers = {".npy": _open_npy, ".npz": _open_npz, ".safetensors": _open_safetensors}
        return readers[path.suffix.lower()](path)


def read_text(path: Path, what: str) -> str:
    """The file as text, without a byte order mark.

    Raises:
        RequestError: it is not UTF-8; the message names the line.
        AttnvizError: it cannot be read.
    """
    with _told(path):
        content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte, line = content[error.start], content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{what} {path} is not UTF-8: byte 0x{byte:02X} in line {line}; convert it first") from None


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with _told(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except AttnvizError:
        raise
    except OSError as error:
        raise AttnvizError(f"{path} cannot be read: {error.strerror or error}") from error
    except (
        Exception
    ) as error:  # (a damaged file raises what zipfile, zlib, struct, ast, NumPy or safetensors come upon)
        raise AttnvizError(f"{path} is damaged, or not what its name says: {error}") from error


def _open_npy(path: Path) -> ArrayFile:
    with path.open("rb") as stream:
        shape, dtype = _header(stream, path.stat().st_size)
    read, lies = partial(_read_npy, path), partial(_lies_npy, path)
    return ArrayFile({"": StoredArray("", shape, dtype.name, dtype.kind, read, lies)}, {})


def _read_npy(path: Path) -> npt.NDArray[Any]:
    with _told(path), path.open("rb") as stream:
        return _native(np.lib.format.read_array(stream, allow_pickle=False))


def _lies_npy(path: Path) -> npt.NDArray[Any]:
    with _told(path):
        return np.lib.format.open_memmap(path, mode="r")


_MOST_DEFLATED = 1040
"""Bytes that one byte of a deflated file can stand for."""


def _open_npz(path: Path) -> ArrayFile:
    arrays = {}
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            raise ValueError("it is a single array, whose name ends in .npy")
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.file_size > _MOST_DEFLATED * (min(info.compress_size, path.stat().st_size) + 1):
                raise ValueError(f"{name} promises {info.file_size} bytes, more than its part of the file can hold")
            try:
                with archive.open(info) as stream:
                    shape, dtype = _header(stream, info.file_size)  # type: ignore[arg-type]  # it reads and tells
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            read = partial(_read_npz, path, info.filename)
            arrays[name] = StoredArray(name, shape, dtype.name, dtype.kind, read)
    return ArrayFile(arrays, {})


def _read_npz(path: Path, member: str) -> npt.NDArray[Any]:
    with _told(path), zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        array = _native(np.lib.format.read_array(stream, allow_pickle=False))
        if stream.read(1):  # the checksum is compared at the end
            raise ValueError(f"{member} holds more than its header says")
        return array


def _header(stream: BinaryIO, room: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an npy stream of `room` bytes; no more is believed than these can hold."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"npy format {version[0]}.{version[1]} is not known")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled")
    needed, there = math.prod(shape) * dtype.itemsize, room - stream.tell()
    if min(shape, default=0) < 0 or needed > there:
        raise ValueError(f"its header promises {sizes(shape)} of {dtype.name}, {needed} bytes; there are {there}")
    check_room(needed, f"an array of {sizes(shape)}", "a smaller one is needed")
    return shape, dtype


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.isnative:
        return array
    turned = array.byteswap(inplace=array.flags.writeable)  # a large array has no room for a second one
    return turned.view(array.dtype.newbyteorder("="))


_SAFETENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def _open_safetensors(path: Path) -> ArrayFile:
    from safetensors import safe_open  # noqa: PLC0415  # half of what reading an npz costs

    with safe_open(path, "numpy") as file:
        arrays = {}
        for name in file.keys():  # noqa: SIM118  # it is no mapping
            part = file.get_slice(name)
            if (dtype := _SAFETENSORS.get(part.get_dtype())) is None:
                raise ValueError(f"{name} is stored as {part.get_dtype()}, which is not read here")
            read, lies = partial(_read_safetensors, path, name, dtype), partial(_lies_safetensors, path, name, dtype)
            kind = "f" if dtype == "bfloat16" else np.dtype(dtype).kind
            arrays[name] = StoredArray(name, tuple(part.get_shape()), dtype, kind, read, lies)
        return ArrayFile(arrays, file.metadata() or {})


def _read_safetensors(path: Path, name: str, dtype: str) -> npt.NDArray[Any]:
    """One tensor of a file that the library has checked; it cannot give bfloat16 to NumPy."""
    array = np.array(_lies_safetensors(path, name, dtype))
    return from_bfloat16(array) if dtype == "bfloat16" else _native(array)


def _lies_safetensors(path: Path, name: str, dtype: str) -> npt.NDArray[Any]:
    with _told(path), path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        about = json.loads(stream.read(length))[name]
    stored = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
    shape = tuple(about["shape"])
    if 0 in shape:  # nothing can be mapped
        return np.empty(shape, stored)
    with _told(path):
        return np.memmap(path, stored, "r", offset=8 + length + about["data_offsets"][0], shape=shape)


def from_bfloat16(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The numbers whose bfloat16 bits are `bits`, uint16 of either byte order: the upper half of a float32, exactly.

    >>> from_bfloat16(np.array([0x3F80, 0x3E80], np.uint16)).tolist()
    [1.0, 0.25]
    """
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)
