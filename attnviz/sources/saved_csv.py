"""Saved attention in csv files: the long form that attnviz writes, or one matrix with or without its tokens."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from attnviz._version import __version__
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import HEAD_NAMES
from attnviz.pooled import COLUMNS as _POOLED
from attnviz.schema import SCHEMA
from attnviz.sources.datafiles import read_text
from attnviz.sources.saved_contents import WHAT, Contents, in_memory, pooled_message

_COLUMNS = ("layer", "head", "query", "key", "query_text", "key_text", "weight")
_STACK = "stack"
_STACKS = {
    "encoder": {"stack": "encoder", "kind": "self"},
    "decoder": {"stack": "decoder", "kind": "self"},
    "cross": {"stack": "decoder", "kind": "cross"},
}
"""What the names in the first column stand for, a number after them left out."""
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf(?:inity)?)\s*", re.IGNORECASE
)


_Row = tuple[int, list[str]]
"""A row, with the number of the line in which it ends."""


def read_csv(path: Path) -> Contents:
    """The record of a table with one weight a line, or a matrix [query, key].

    The header of a matrix names its keys and its first column the queries; either may be missing, and an
    empty cell is a weight that is not a number.

    Raises:
        RequestError: the rows differ in length, a cell is no number, or lines are missing; the message says where.
        AttnvizError: the file cannot be read.
    """
    reader = csv.reader(io.StringIO(read_text(path, WHAT), newline=""), strict=True)
    try:
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise AttnvizError(f"{path} is no csv: line {reader.line_num}: {error}") from error
    if not rows:
        raise AttnvizError(f"{path} is empty")
    header = tuple(cell.strip().lower() for cell in rows[0][1])
    if header == _COLUMNS:
        return _Table(rows[1:], path).contents()
    if header == (_STACK, *_COLUMNS):
        return _stacks(rows[1:], path)
    if header in (_POOLED, (_STACK, *_POOLED)):
        raise RequestError(pooled_message(path))
    return _matrix(rows, path)


def _stacks(rows: Sequence[_Row], path: Path) -> Contents:
    """The record of a table whose first column tells the stack."""
    if not rows:
        raise RequestError(f"{path} holds no weights")
    tables: dict[str, list[_Row]] = {}
    places: dict[tuple[str, str], int] = {}
    for number, cells in rows:
        tables.setdefault(cells[0], []).append((number, cells[1:]))
        places.setdefault((cells[0], cells[1] if len(cells) > 1 else ""), len(places))
    fields: dict[str, Any] = {"stacks": list(tables)}
    arrays = {}
    for stack, own in tables.items():
        base = stack.partition("-")[0]
        if base not in _STACKS:
            raise RequestError(f"{path}: line {own[0][0]}: the stack {stack!r:.40} is none of {', '.join(_STACKS)}")
        contents = _Table(own, path).contents()
        said = {**contents.fields, **_STACKS[base]}
        said["places"] = [places[stack, str(layer)] for layer in said["layers"]]
        fields |= {name: said.pop(name) for name in ("schema", "provenance", "notes")}
        fields |= {f"{stack}.{name}": value for name, value in said.items()}
        arrays[f"{stack}.weights"] = replace(contents.arrays["weights"], name=f"{stack}.weights")
    return Contents(arrays, fields)


def _matrix(rows: list[_Row], path: Path) -> Contents:
    header = rows[0][1]
    corner = not header[0].strip()
    headed = len(rows) > 1 and (corner or not all(map(_is_value, header[1:] or header)))
    body = rows[1:] if headed else rows
    named = (headed and corner) or not all(_is_value(cells[0]) for _, cells in body)
    width = len(body[0][1])
    if headed and not (len(header) == width or (named and len(header) == width - 1)):
        raise RequestError(f"{path}: line {body[0][0]} has {width} cells, and line {rows[0][0]} has {len(header)}")
    if named and width == 1:
        raise RequestError(f"{path}: line {body[0][0]}: {body[0][1][0]!r:.40} is no number")
    array = np.array([_numbers(cells, number, width, 1 if named else 0, path) for number, cells in body])
    fields: dict[str, list[str]] = {}
    if named:
        fields["query_tokens"] = [cells[0] for _, cells in body]
    if headed:
        fields["key_tokens"] = header[len(header) - array.shape[1] :]
        if not named and array.shape[0] == array.shape[1]:
            fields["query_tokens"] = fields["key_tokens"]
    return Contents({"": in_memory("", array)}, fields)


def _is_value(cell: str) -> bool:
    return not cell.strip() or _NUMBER.fullmatch(cell) is not None


def _numbers(cells: list[str], number: int, width: int, first: int, path: Path) -> list[float]:
    if len(cells) != width:
        raise RequestError(f"{path}: line {number} has {len(cells)} cells, where the rows before it have {width}")
    for i, cell in enumerate(cells[first:], first + 1):
        if not _is_value(cell):
            raise RequestError(f"{path}: line {number}, cell {i}: {cell!r:.40} is no number")
    return [float(cell) if cell.strip() else math.nan for cell in cells[first:]]


class _Table:
    """The long form, column by column."""

    def __init__(self, rows: Sequence[_Row], path: Path) -> None:
        for number, cells in rows:
            if len(cells) != len(_COLUMNS):
                raise RequestError(f"{path}: line {number} has {len(cells)} cells, not {len(_COLUMNS)}")
        if not rows:
            raise RequestError(f"{path} holds no weights")
        self._path = path
        self._lines = [number for number, _ in rows]
        self._cells = dict(zip(_COLUMNS, zip(*(cells for _, cells in rows), strict=True), strict=True))

    def contents(self) -> Contents:
        """The fields and the weights of a record."""
        layers, heads = self._numbers("layer"), self._numbers("head")
        queries, keys = self._texts("query"), self._texts("key")
        shape = len(layers), len(heads), len(queries), len(keys)
        numbers = [dict(zip(found, range(len(found)), strict=True)) for found in (layers, heads)]
        for axis, texts in (("query", queries), ("key", keys)):
            ranks = {position: i for i, position in enumerate(texts)}
            numbers.append({cell: ranks[position] for cell, position in self._numbers(axis).items()})
        places = [[found[cell] for cell in self._cells[name]] for found, name in zip(numbers, _COLUMNS, strict=False)]
        weights = self._weights(places, shape)
        fields = self._fields(list(layers.values()), list(heads.values()), queries, keys, weights.dtype.name)
        return Contents({"weights": in_memory("weights", weights)}, fields)

    def _refuse(self, column: str, cell: str, why: str) -> NoReturn:
        line = self._lines[self._cells[column].index(cell)]
        raise RequestError(f"{self._path}: line {line}: the {column} {cell!r:.40} {why}")

    def _numbers(self, column: str) -> dict[str, Any]:
        """The number that each different cell of a column stands for."""
        found: dict[str, Any] = {}
        for cell in dict.fromkeys(self._cells[column]):
            if column == "head" and cell in HEAD_NAMES:
                found[cell] = cell
            elif re.fullmatch(r"0|[1-9][0-9]{0,8}", cell):
                found[cell] = int(cell)
            else:
                self._refuse(column, cell, "is no whole number")
        return found

    def _texts(self, axis: str) -> dict[int, str]:
        """What is shown at each position, in ascending order; there may be gaps where tokens were left out."""
        numbers = self._numbers(axis)
        texts: dict[int, str] = {}
        for cell, text in dict.fromkeys(zip(self._cells[axis], self._cells[f"{axis}_text"], strict=True)):
            if (there := texts.setdefault(numbers[cell], text)) != text:
                self._refuse(f"{axis}_text", text, f"is of {axis} {cell}, which is also {there!r:.40}")
        return dict(sorted(texts.items()))

    def _weights(self, places: list[list[int]], shape: tuple[int, int, int, int]) -> npt.NDArray[Any]:
        cells, needed = self._cells["weight"], math.prod(shape)
        for cell in cells:
            if not _NUMBER.fullmatch(cell):
                self._refuse("weight", cell, "is no number")
        flat = np.zeros(0, np.int64)
        if len(cells) == needed:  # or the shape could be one that no index reaches
            flat = np.ravel_multi_index(tuple(map(np.array, places)), shape)
        if len(np.unique(flat)) != needed:
            sizes = "{} layers, {} heads, {} queries and {} keys".format(*shape)
            raise RequestError(
                f"{self._path} has {len(cells)} lines, not one for each weight: {sizes} make {needed}; lines were lost"
                " or are there twice"
            )
        wide = any(len(cell) > _SHORT and _digits(cell) > _SHORT for cell in cells)
        weights = np.empty(needed, np.float64 if wide else np.float32)
        weights[flat] = np.array([float(cell) for cell in cells])
        return weights.reshape(shape)

    def _fields(
        self, layers: list[int], heads: list[Any], queries: dict[int, str], keys: dict[int, str], dtype: str
    ) -> dict[str, Any]:
        tokens: dict[str, Any] = {
            f"{axis}_{field}": value
            for axis, texts in (("query", list(queries.values())), ("key", list(keys.values())))
            for field, value in (
                ("tokens", texts), ("text", texts), ("spans", [[0, 0]] * len(texts)), ("special", [False] * len(texts)),
            )
        }  # fmt: skip
        gaps = {axis: list(texts) for axis, texts in (("query", queries), ("key", keys)) if _has_gaps(texts)}
        tokens |= {f"{axis}_positions": positions for axis, positions in gaps.items()}
        where = {"backend": "numpy", "device": "cpu", "dtype": dtype}
        return {
            "schema": SCHEMA,
            "provenance": {"attnviz": __version__, "source": "saved", "model": self._path.name, **where, "text": ""},
            "notes": [],
            "layers": layers,
            "heads": heads,
            "names": [f"layer.{layer}" for layer in layers],
            "stack": "encoder",
            "kind": "self" if queries == keys else "cross",
            "keys_left_out": "key" in gaps,
            **tokens,
        }


def _has_gaps(texts: dict[int, str]) -> bool:
    """Whether positions, in ascending order, are not counted from 0 without leaving any out."""
    return list(texts) != list(range(len(texts)))


_SHORT = 9
"""The most significant digits with which a float32 is written."""


def _digits(cell: str) -> int:
    """The significant digits of a number.

    >>> _digits("0.0101"), _digits("1.50e-12")
    (3, 3)
    """
    return len(re.sub(r"[eE].*", "", cell).strip(" +-").replace(".", "").lstrip("0"))
