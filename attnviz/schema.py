"""The names under which a record is written and read back, the same in every format that holds numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats, to_numpy
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import HEAD_NAMES, AttentionMap, AttentionRecord, Head, Provenance, StoredWeights
from attnviz.tokens import Tokens

T = TypeVar("T")

SCHEMA = "attnviz/1"
"""A change of what a name means is a new number."""


@dataclass(frozen=True)
class Fields:
    """A record, or another result, as names and values."""

    plain: dict[str, Any]
    """Strings, numbers, and lists of them: what JSON has words for."""
    arrays: dict[str, Floats]
    """Of a record `weights` [layer, head, query, key], and where the source has it `output` [layer, query, d_model]."""


@dataclass(frozen=True)
class Table:
    """A result as rows, for spreadsheets."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | int | float | None]]
    """One value for each column; None where there is none."""


def to_fields(record: AttentionRecord) -> Fields:
    """The fields of a record whose maps have one shape, the same heads and the same tokens.

    Raises:
        RequestError: the maps differ, so that no one array holds them.
    """
    first = record.maps[0]
    for one in record.maps[1:]:
        if _shared(one) != _shared(first):
            raise RequestError(
                f"layer {first.layer} and layer {one.layer} hold different heads or tokens, and one array cannot hold"
                " both: choose the same heads for every layer"
            )
    plain = {
        "schema": SCHEMA,
        "provenance": dict(record.provenance),
        "notes": list(record.notes),
        "layers": [one.layer for one in record.maps],
        "heads": list(first.heads),
        "names": [one.name for one in record.maps],
        "stack": first.stack,
        "kind": first.kind,
        "keys_left_out": first.cut,
        "dtype": str(record.weights.dtype),
        **_token_fields("query", first.query),
        **_token_fields("key", first.key),
    }
    outputs = [one.output for one in record.maps if one.output is not None]
    arrays = {"weights": record.weights}
    if len(outputs) == len(record.maps):
        arrays["output"] = np.stack(outputs)
    return Fields(plain, arrays)


def _shared(one: AttentionMap) -> tuple[object, ...]:
    """What is written once, for all maps."""
    return one.heads, one.query, one.key, one.stack, one.kind, one.cut


def _token_fields(axis: str, tokens: Tokens) -> dict[str, Any]:
    return {
        f"{axis}_tokens": list(tokens.pieces),
        f"{axis}_text": list(tokens.text),
        f"{axis}_spans": [list(span) for span in tokens.spans],
        f"{axis}_special": list(tokens.special),
    }


def from_fields(plain: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> AttentionRecord:
    """The record that `to_fields` took apart.

    Raises:
        AttnvizError: a field is missing, of another schema, or does not fit the others.
    """
    if (found := plain.get("schema")) != SCHEMA:
        raise AttnvizError(f"its schema is {found!r:.80}: this version of attnviz reads {SCHEMA!r}")
    try:
        return _record(plain, arrays)
    except KeyError as error:
        raise AttnvizError(f"it has no {error.args[0]!r}") from error
    except ValueError as error:
        raise AttnvizError(f"its parts do not fit together: {error}") from error


def _record(plain: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> AttentionRecord:
    layers, names = _list_of(int, "layers", plain), _list_of(str, "names", plain)
    weights, outputs = _array("weights", arrays["weights"], 4), arrays.get("output")
    query, key = (_tokens_from(axis, plain) for axis in ("query", "key"))
    if not 0 < len(layers) == len(names) == len(weights):
        raise AttnvizError(f"its layers are {len(layers)}, but there are {len(names)} names and {len(weights)} weights")
    if outputs is not None:
        outputs = _array("output", outputs, 3)
        if outputs.shape[:2] != (len(layers), len(query)):
            sizes = f"{len(layers)} layers and {len(query)} queries"
            raise AttnvizError(f"its output is {' × '.join(map(str, outputs.shape))}, but there are {sizes}")
    maps = tuple(
        AttentionMap(
            name=names[i],
            layer=layer,
            heads=_heads(plain["heads"]),
            weights=StoredWeights(weights[i]),
            query=query,
            key=key,
            stack=_one_of(("encoder", "decoder"), "stack", plain),
            kind=_one_of(("self", "cross"), "kind", plain),
            output=None if outputs is None else outputs[i],
            cut=_one_of((False, True), "keys_left_out", plain),
        )
        for i, layer in enumerate(layers)
    )
    return AttentionRecord(maps, _provenance(plain["provenance"]), _list_of(str, "notes", plain))


def _list_of(kind: type[T], name: str, plain: Mapping[str, Any]) -> tuple[T, ...]:
    values = plain[name]
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise AttnvizError(f"its {name} is no list of {kind.__name__}")
    return tuple(values)


def _one_of(allowed: tuple[Any, ...], name: str, plain: Mapping[str, Any]) -> Any:
    value = plain[name]
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise AttnvizError(f"its {name} is {value!r:.80}, which is none of {', '.join(map(repr, allowed))}")
    return value


def _array(name: str, array: npt.NDArray[Any], n_axes: int) -> Floats:
    if array.dtype.kind != "f":
        raise AttnvizError(f"its {name} are {array.dtype}, not floating-point numbers")
    if array.ndim != n_axes:
        raise AttnvizError(f"its {name} have {array.ndim} axes, not {n_axes}")
    return to_numpy(array)


def _heads(values: Any) -> tuple[Head, ...]:
    if not isinstance(values, list) or not all(type(value) is int or value in HEAD_NAMES.values() for value in values):
        raise AttnvizError(f"its heads is no list of numbers and {', '.join(map(repr, HEAD_NAMES))}")
    return tuple(values)


def _provenance(value: Any) -> Provenance:
    """The provenance, if it has what is printed of every record."""
    if not isinstance(value, dict):
        raise AttnvizError("its provenance is no JSON object")
    for name in ("attnviz", "model", "backend", "device", "dtype", "text"):
        if not isinstance(value[name], str):
            raise AttnvizError(f"its provenance has a {name} that is no text")
    return value


def _tokens_from(axis: str, plain: Mapping[str, Any]) -> Tokens:
    spans = plain[f"{axis}_spans"]
    if not isinstance(spans, list) or not all(_is_span(span) for span in spans):
        raise AttnvizError(f"its {axis}_spans is no list of pairs of numbers")
    return Tokens(
        _list_of(str, f"{axis}_tokens", plain),
        _list_of(str, f"{axis}_text", plain),
        tuple((first, last) for first, last in spans),
        _list_of(bool, f"{axis}_special", plain),
    )


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [int, int]
