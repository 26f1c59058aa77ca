"""Attention that was saved: reading back what records write."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from attnviz.arrays import quiet
from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at
from attnviz.maps import AttentionRecord
from attnviz.schema import from_fields

ARRAYS = ("weights", "output")


def load(path: str | PathLike[str]) -> AttentionRecord:
    """The record saved at `path`, an npz or a json file.

    Raises:
        RequestError: there is no such file, or its suffix is not one that can be read.
        AttnvizError: it is damaged, or no record of attnviz.
    """
    file = Path(path)
    readers = {".npz": _read_npz, ".json": _read_json}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise RequestError(f"{file} cannot be read by its suffix {file.suffix!r}: {' or '.join(readers)}")
    if (kind := kind_at(file)) in ("nothing", "folder"):
        what = "does not exist" if kind == "nothing" else "is a folder"
        raise RequestError(f"{file} {what}: name a saved npz or json file")
    try:
        plain, arrays = reader(file)
        return from_fields(plain, arrays)
    except AttnvizError as error:
        raise AttnvizError(f"{file} is no record of attnviz: {error}") from error
    except RecursionError:
        raise AttnvizError(f"{file} is no record of attnviz: it is nested too deeply") from None


Parts = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]


def _read_npz(file: Path) -> Parts:
    try:
        loaded = _members(file)
    except Exception as error:  # (a damaged archive raises what zipfile, zlib, struct, ast or NumPy come upon)
        why = "objects are never loaded" if "pickle" in str(error) else error  # no advice to load them all the same
        raise AttnvizError(f"the archive is damaged or holds objects ({why})") from error
    arrays = {name: loaded.pop(name) for name in ARRAYS if name in loaded}
    return {name: _plain(array) for name, array in loaded.items()}, arrays


def _members(file: Path) -> dict[str, npt.NDArray[Any]]:
    with file.open("rb") as stream:  # NumPy leaves open what it cannot read
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise TypeError("it is a single array")
        with archive:
            return {name: archive[name] for name in archive.files}


def _plain(array: npt.NDArray[Any]) -> Any:
    value = array.tolist()
    if array.ndim or not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise AttnvizError(f"it holds text that is not JSON ({error})") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_json(file: Path) -> Parts:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (ValueError, OSError) as error:
        raise AttnvizError(f"it is not strict JSON ({error})") from error
    if not isinstance(loaded, dict):
        raise AttnvizError("it holds no JSON object")
    dtype = np.float64 if loaded.get("dtype") == "float64" else np.float32
    arrays = {name: _floats(name, loaded.pop(name), dtype) for name in ARRAYS if name in loaded}
    return loaded, arrays


def _floats(name: str, nested: Any, dtype: type[np.floating[Any]]) -> npt.NDArray[Any]:
    """The nested lists as an array; null is NaN."""
    try:
        with quiet(np):  # what is too large for float32 is infinite
            return np.array(nested, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise AttnvizError(f"{name} is no array of numbers ({error})") from error
