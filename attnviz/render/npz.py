"""Records and other results as NumPy archives: the names of the JSON, no pickles, always the same bytes."""

import json
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from attnviz.maps import AttentionRecord
from attnviz.schema import Fields, flat, to_fields


def write_npz(record: AttentionRecord, stream: BinaryIO) -> None:
    """Write `record` to `stream`.

    Numbers and lists of strings are arrays of their own; what is neither, such as the provenance, is its
    JSON text.
    """
    npz_of(to_fields(record), stream)


def npz_of(fields: Fields, stream: BinaryIO) -> None:
    """Write any result to `stream`, as `write_npz` writes a record."""
    fields = flat(fields)
    members: dict[str, Any] = {name: as_array(value) for name, value in fields.plain.items()} | fields.arrays
    np.savez(stream, **members)


def as_array(value: Any) -> npt.NDArray[Any]:
    """A plain value as an array without pickles.

    A list of strings becomes an array of strings, unless one ends in NUL, which NumPy would drop: then,
    like anything else that is no list of one kind, it is JSON text in an array of no dimensions.

    >>> as_array(["a", "b"]).tolist(), as_array({"a": 1}).item(), as_array([0, 1]).dtype.kind
    (['a', 'b'], '{"a": 1}', 'i')
    """
    if isinstance(value, bool | str):
        return np.array(value)
    if isinstance(value, list) and value:
        array = np.array(value) if _one_kind(value) else None
        if array is not None and array.tolist() == value:
            return array
    return np.array(json.dumps(value))


def _one_kind(values: list[Any]) -> bool:
    return len({type(value) for value in values}) == 1 and not isinstance(values[0], dict)
