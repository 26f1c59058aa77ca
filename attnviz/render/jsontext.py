"""Records and other results as strict JSON, indented or on one line: nine significant digits, written row by row."""

import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from attnviz.arrays import Floats
from attnviz.maps import AttentionRecord
from attnviz.schema import Fields, flat, to_fields

NOT_A_NUMBER = "values that are not numbers are null"


def write_json(record: AttentionRecord, stream: BinaryIO) -> None:
    """Write `record` to `stream` as UTF-8.

    float32 values have nine significant digits and float64 ones seventeen, so both read back exactly;
    NaN and infinities are null, and a note says so.
    """
    json_of(to_fields(record), stream)


def write_jsonl(record: AttentionRecord, stream: BinaryIO) -> None:
    """Write `record` to `stream` as `write_json` does, but on one line: records may follow each other."""
    jsonl_of(to_fields(record), stream)


def json_of(fields: Fields, stream: BinaryIO) -> None:
    """Write any result to `stream`, as `write_json` writes a record."""
    _write(fields, stream, "\n")


def jsonl_of(fields: Fields, stream: BinaryIO) -> None:
    """Write any result to `stream` on one line."""
    _write(fields, stream, "")


def _write(fields: Fields, stream: BinaryIO, line_end: str) -> None:
    _note_missing(fields)
    _write_object(fields, stream, line_end)
    stream.write(b"\n")


def _write_object(fields: Fields, stream: BinaryIO, line_end: str) -> None:
    lines = [f"{json.dumps(key)}: {_dumped(value)}" for key, value in fields.plain.items()]
    opening = "{" + f",{line_end} ".join(lines)
    stream.write(opening.encode(errors="backslashreplace"))  # half a surrogate pair as its escape
    for name, array in fields.arrays.items():
        stream.write(f",{line_end} {json.dumps(name)}: ".encode())
        for chunk in _nested(array, line_end):
            stream.write(chunk.encode())
    for i, (name, part) in enumerate(fields.stacks.items()):
        before = f',{line_end} "stacks": {{{line_end}' if i == 0 else f",{line_end}"
        stream.write(f"{before}{json.dumps(name)}: ".encode())
        _write_object(part, stream, line_end)
    stream.write(b"}}" if fields.stacks else b"}")


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _note_missing(fields: Fields) -> None:
    notes = fields.plain["notes"]
    arrays = flat(fields).arrays.values()
    if NOT_A_NUMBER not in notes and not all(np.isfinite(array).all() for array in arrays):
        notes.append(NOT_A_NUMBER)


def _nested(array: Floats, line_end: str) -> Iterator[str]:
    """The array as nested lists, a chunk for each of its rows."""
    if array.ndim == 1:
        yield _row(array)
        return
    yield "["
    for i, part in enumerate(array):
        if i:
            yield "," + line_end * (1 if array.ndim == 2 else 2)
        yield from _nested(part, line_end)
    yield "]"


def _row(row: Floats) -> str:
    digits = "%.17g" if row.dtype == np.float64 else "%.9g"
    plain = np.isfinite(row) & ((row != 0) | ~np.signbit(row))
    if plain.all():
        return "[" + ",".join([digits] * row.size) % tuple(row.tolist()) + "]"
    return "[" + ",".join(_number(value, digits) for value in row.tolist()) + "]"


def _number(value: float, digits: str) -> str:
    if not math.isfinite(value):
        return "null"
    if value == 0 and math.copysign(1, value) < 0:
        return "-0.0"  # -0 would read back as a whole number, which has no sign
    return digits % value


def json_bytes(record: AttentionRecord) -> int:
    """About how many bytes the JSON of `record` will have."""
    weights = sum(int(np.prod(one.weights.shape)) for one in record.maps)
    outputs = sum(one.output.size for one in record.maps if one.output is not None)
    return 12 * (weights + outputs)
