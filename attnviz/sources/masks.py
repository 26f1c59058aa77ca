"""Masks from files: what may be attended, as people save it."""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz.arrays import to_numpy
from attnviz.attention import Rule, additive
from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at
from attnviz.sources.datafiles import StoredArray, check_there, open_arrays, read_text, sizes

SUFFIXES = (".npy", ".npz", ".safetensors", ".json", ".csv")


def split_name(typed: str, suffixes: Iterable[str] = SUFFIXES) -> tuple[Path, str | None]:
    """The file with one of the suffixes, and the array, that `FILE:NAME` names.

    A file whose own name has a colon is that file.

    >>> split_name("masks.npz:causal")[1]
    'causal'
    """
    match = re.fullmatch(f"(.*?(?:{'|'.join(map(re.escape, suffixes))})):(.*)", typed, re.DOTALL | re.IGNORECASE)
    if match is None or kind_at(Path(typed)) != "nothing":
        return Path(typed), None
    return Path(match[1]), match[2]


def read_mask(path: Path, name: str | None, n_queries: int, n_keys: int) -> Rule:
    """The mask in a file, as a rule.

    It holds booleans (True: may attend), integers 0 and 1 (1: may attend), or floats that are added to the
    scores, of which −1e9, half the dtype's minimum and what is below mean "not allowed".

    Args:
        path: a npy, npz, safetensors, json (nested lists) or csv file.
        name: which array, where the file names them; None for the only one.
        n_queries, n_keys: the sizes of the text. The mask is [query, key], [head, query, key], or [key] for
            padding; one row stands for all queries.

    Raises:
        RequestError: there is no such file or array, it does not fit the text, or its values are none of these.
        AttnvizError: it is damaged or cannot be read.
    """
    check_there(path, "mask file")
    stored = _chosen(_arrays_in(path), name, path)
    shape = _without_batch(stored.shape)
    _check_shape(shape, n_queries, n_keys, f"mask {_named(path, stored)}")
    mask = _checked(stored.read().reshape(shape), stored, path)
    if mask.ndim > 1:
        return Rule(mask=mask)
    return Rule(keys=mask) if mask.dtype == bool else Rule(mask=mask[None, :])


def _arrays_in(path: Path) -> Mapping[str, StoredArray]:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"mask file {path} has the suffix {suffix!r}: {', '.join(SUFFIXES)} can be read")
    if suffix not in (".json", ".csv"):
        return open_arrays(path).arrays
    content = read_text(path, "mask file")
    array = _from_json(content, path) if suffix == ".json" else _from_csv(content, path)
    return {"": StoredArray("", array.shape, array.dtype.name, array.dtype.kind, lambda: array)}


def _from_json(content: str, path: Path) -> npt.NDArray[Any]:
    try:
        loaded = json.loads(content)
        if not isinstance(loaded, list):
            raise RequestError(f"mask file {path} holds no list: nested lists of one length are needed")
        return np.array(loaded)
    except (ValueError, RecursionError) as error:
        raise AttnvizError(f"mask file {path} is no JSON of nested lists of one length: {error}") from error


def _from_csv(content: str, path: Path) -> npt.NDArray[Any]:
    reader = csv.reader(io.StringIO(content, newline=""))
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and len(row) != len((rows or [row])[0]):
                raise RequestError(f"mask file {path}, line {reader.line_num}: {len(row)} numbers, not {len(rows[0])}")
            rows += [row] if row else []
    except csv.Error as error:
        raise AttnvizError(f"mask file {path}, line {reader.line_num}: {error}") from error
    whole = all(re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", cell) for row in rows for cell in row)
    try:
        return np.array(rows, dtype=np.int64 if whole else np.float64)
    except ValueError as error:
        raise RequestError(f"mask file {path} holds what is no number: {error}") from None


def _chosen(found: Mapping[str, StoredArray], name: str | None, path: Path) -> StoredArray:
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if "" in found:
        raise RequestError(f"mask file {path} holds one array, which has no name: leave out :{name}")
    if name is not None and name in found:
        return found[name]
    if not found:
        raise RequestError(f"mask file {path} holds no arrays")
    missing = "" if name is None else f"no {name!r}, but "
    there = ", ".join(map(str, found.values()))
    raise RequestError(f"mask file {path} holds {missing}{there}: choose one with --mask {path}:{next(iter(found))}")


def _named(path: Path, stored: StoredArray) -> str:
    return f"{path}:{stored.name}" if stored.name else str(path)


def _without_batch(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without leading axes of one entry, as the masks of batched models have."""
    while len(shape) > 3 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _check_shape(shape: tuple[int, ...], n_queries: int, n_keys: int, what: str) -> None:
    fits = 1 <= len(shape) <= 3 and shape[-1] == n_keys and (len(shape) == 1 or shape[-2] in (1, n_queries))
    if not fits or 0 in shape:
        raise RequestError(
            f"{what} is {sizes(shape)}, but there are {n_queries} queries and {n_keys} keys: it must be"
            f" {n_queries} × {n_keys}, heads × {n_queries} × {n_keys}, or {n_keys} for padding"
        )


def _checked(array: npt.NDArray[Any], stored: StoredArray, path: Path) -> npt.NDArray[Any]:
    """The mask as booleans, or as floats to be added, with −inf for what is not allowed."""
    what, kind = f"mask {_named(path, stored)}", array.dtype.kind
    if kind == "b":
        return array
    if kind in "iu":
        _refuse_first(array, (array != 0) & (array != 1), what, "integers are 1 (may attend) and 0")
        return array.astype(bool)
    if kind != "f":
        raise RequestError(f"{what} holds {stored.dtype}: booleans, integers 0 and 1, or floats to be added")
    _refuse_first(array, np.isnan(array) | (array == np.inf), what, "what is added to a score is a number or -inf")
    if np.all((array == 0) | (array == 1)) and np.any(array == 1):
        raise RequestError(
            f"{what} holds 0 and 1 as floats, and floats are added to the scores: if 1 means 'may attend', save it as"
            " booleans or integers"
        )
    allowed, bias = additive(array)  # in the dtype of the file, whose minimum counts
    return np.where(allowed, to_numpy(bias), -np.inf) if np.any(bias) else allowed


def _refuse_first(array: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], what: str, why: str) -> None:
    if np.any(wrong):
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = ", ".join(map(str, index))
        raise RequestError(f"{what}[{place}] is {array[index]}: {why}")
