"""Saved attention in json and jsonl files: a record of attnviz, nested lists, or an object that has them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from attnviz.arrays import quiet
from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.datafiles import read_text
from attnviz.sources.saved_contents import RECORD_ARRAYS, TOKEN_FIELDS, WHAT, Contents, SavedArray, in_memory

_DEEPEST = 8
"""No attention has as many axes; whoever nests deeper gets no array."""


def read_json(path: Path) -> Contents:
    """The record, the nested lists or the object of lists in a json file.

    Raises:
        RequestError: it is not UTF-8.
        AttnvizError: it is not strict JSON, or its lists are no array of numbers.
    """
    return _contents(read_text(path, WHAT), path)


def read_jsonl(path: Path) -> Contents:
    """The only record of a jsonl file.

    Raises:
        RequestError: it is not UTF-8, or holds several records or none.
        AttnvizError: the record is not strict JSON.
    """
    lines = [(i, line) for i, line in enumerate(read_text(path, WHAT).split("\n"), 1) if line.strip()]
    if len(lines) != 1:
        last = f"; to take the last one: sed -n {lines[-1][0]}p {path.name} > one.json" if lines else ""
        raise RequestError(f"{path} holds {len(lines)} records, and one is read{last}")
    return _contents(lines[0][1], path)


def _contents(text: str, path: Path) -> Contents:
    try:
        loaded = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise AttnvizError(f"{path} is nested too deeply for attention") from None
    except ValueError as error:
        raise AttnvizError(f"{path} is not strict JSON ({error})") from error
    if isinstance(loaded, list):
        return Contents({"": in_memory("", _array("its list", loaded, np.float64, path))}, {})
    if not isinstance(loaded, dict):
        raise AttnvizError(f"{path} holds no JSON object or list")
    if "schema" in loaded and isinstance(loaded.get("stacks"), dict):
        return _stacks(loaded, path)
    return Contents(_arrays(loaded, path), loaded)


def _stacks(loaded: dict[str, Any], path: Path) -> Contents:
    """A record whose maps are in several stacks, made flat."""
    arrays: dict[str, SavedArray] = {}
    stacks = loaded.pop("stacks")
    fields = {**loaded, "stacks": list(stacks)}
    for stack, part in stacks.items():
        if not isinstance(part, dict):
            raise AttnvizError(f"{path}: the stack {stack:.40} is no JSON object")
        held = _arrays({"schema": None, **part}, path)
        arrays |= {f"{stack}.{name}": replace(array, name=f"{stack}.{name}") for name, array in held.items()}
        fields |= {f"{stack}.{name}": value for name, value in part.items() if name not in held}
    return Contents(arrays, fields)


def _arrays(loaded: dict[str, Any], path: Path) -> dict[str, SavedArray]:
    """The arrays in an object, which are taken out of it."""
    if "schema" in loaded:
        dtype = np.float64 if loaded.get("dtype") == "float64" else np.float32
        names = [name for name in RECORD_ARRAYS if name in loaded]
    else:
        dtype = np.float64
        names = [name for name, value in loaded.items() if name not in TOKEN_FIELDS and _is_nested(value)]
    return {name: in_memory(name, _array(name, loaded.pop(name), dtype, path)) for name in names}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON: write null for a value that is not a number")


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def _array(name: str, nested: Any, dtype: type[np.floating[Any]], path: Path) -> npt.NDArray[Any]:
    """The nested lists as an array; null is NaN."""
    shape, inner = [], nested
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
        if len(shape) > _DEEPEST:
            raise AttnvizError(f"{path}: {name} is no array: its lists are nested {_DEEPEST} deep and deeper")
    for wrong in _unlike(nested, shape, ""):
        raise AttnvizError(f"{path}: {name} is no array of numbers: {name}{wrong}")
    try:
        with quiet(np):  # what is too large for float32 is infinite
            return np.array(nested, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise AttnvizError(f"{path}: {name} is no array of numbers ({error})") from error


_NUMBERS = {int, float, bool, type(None)}


def _unlike(nested: Any, shape: list[int], place: str) -> Iterator[str]:
    """What is not as `shape` says, each with its place."""
    if not shape:
        if type(nested) not in _NUMBERS:
            yield f"{place} is {_described(nested)}, not a number"
    elif not isinstance(nested, list) or len(nested) != shape[0]:
        yield f"{place} is {_described(nested)}, where {_count(shape[0], len(shape))} are expected as in the first"
    elif len(shape) > 1 or not {type(value) for value in nested} <= _NUMBERS:
        for i, part in enumerate(nested):
            yield from _unlike(part, shape[1:], f"{place}[{i}]")


def _described(value: Any) -> str:
    if isinstance(value, list):
        return f"a row of {len(value)}"
    return f"{json.dumps(value):.40}"


def _count(n: int, n_axes: int) -> str:
    return f"{n} {'numbers' if n_axes == 1 else 'rows'}"
