"""Saved attention in npy, npz and safetensors files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.datafiles import StoredArray, open_arrays
from attnviz.sources.saved_contents import TOKEN_FIELDS, Contents, SavedArray, is_record_array

_METADATA = "attnviz"
"""Where a safetensors file that attnviz wrote holds the fields of its record."""


def read_npy(path: Path) -> Contents:
    """The one array of an npy file, mapped.

    Raises:
        AttnvizError: it is damaged or holds Python objects.
    """
    return Contents(_saved(open_arrays(path).arrays), {})


def read_npz(path: Path) -> Contents:
    """The arrays of an npz file, and the tokens or the record that are among them.

    Raises:
        RequestError: what should be tokens is none.
        AttnvizError: it is damaged or holds Python objects.
    """
    arrays = dict(open_arrays(path).arrays)
    is_record = "schema" in arrays
    names = [name for name in arrays if (not is_record_array(name) if is_record else name in TOKEN_FIELDS)]
    fields = {name: _plain(name, arrays.pop(name).read(), path) for name in names}
    return Contents(_saved(arrays), fields)


def read_safetensors(path: Path) -> Contents:
    """The tensors of a safetensors file, mapped, and the tokens or the record that its metadata holds.

    Raises:
        AttnvizError: it is damaged, or its metadata are.
    """
    opened = open_arrays(path)
    texts = opened.texts
    if _METADATA in texts:
        fields = _parsed(texts[_METADATA], path, "metadata")
        if not isinstance(fields, dict):
            raise AttnvizError(f"{path} has metadata of attnviz that are no JSON object")
        return Contents(_saved(opened.arrays), fields)
    return Contents(
        _saved(opened.arrays), {name: _parsed(texts[name], path, name) for name in TOKEN_FIELDS if name in texts}
    )


def _saved(arrays: Mapping[str, StoredArray]) -> dict[str, SavedArray]:
    return {
        name: SavedArray(name, one.shape, one.dtype, one.kind, one.lies or one.read) for name, one in arrays.items()
    }


def _plain(name: str, array: npt.NDArray[Any], path: Path) -> Any:
    """An array of an archive as the value that it was written for: a list, a single value, or JSON in a text."""
    if array.dtype.kind == "S" and array.ndim:
        return [_decoded(value, name, path) for value in array.ravel().tolist()]
    value = array.tolist()
    if array.ndim or not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    return _parsed(value, path, name)


def _decoded(value: bytes, name: str, path: Path) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RequestError(f"{path} holds {name} that are not UTF-8: {value!r:.80}") from None


def _parsed(text: str, path: Path, name: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise AttnvizError(f"{path} holds {name} that are nested too deeply") from None
    except ValueError as error:
        raise AttnvizError(f"{path} holds {name}, text that is not JSON ({error})") from error
