"""The names under which a record is written and read back, the same in every format that holds numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats, to_numpy
from attnviz.errors import AttnvizError
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
    stacks: Mapping[str, "Fields"] = field(default_factory=dict)
    """Of a record whose maps no one array can hold: the same for those that one can, by name."""


@dataclass(frozen=True)
class Table:
    """A result as rows, for spreadsheets."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | int | float | None]]
    """One value for each column; None where there is none."""


def to_fields(record: AttentionRecord) -> Fields:
    """The fields of a record; where one array cannot hold all maps, they are in `stacks`, as `stacks_of` names them."""
    maps = record.maps
    return stacked(maps, lambda places: _fields_of([maps[i] for i in places]), record.provenance, record.notes)


def stacked(
    maps: Sequence[AttentionMap],
    fields_of: Callable[[Sequence[int]], Fields],
    provenance: Provenance,
    notes: Sequence[str],
) -> Fields:
    """The fields of what is of these maps, in `stacks` where one array cannot hold them all.

    Args:
        maps: what it is of.
        fields_of: the fields of those in some places, which one array can hold.
        provenance, notes: of them all.
    """
    said = {"schema": SCHEMA, "provenance": dict(provenance), "notes": list(notes)}
    groups = stacks_of(maps)
    stacks = {name: fields_of(places) for name, places in groups.items()}
    if len(stacks) == 1:
        (one,) = stacks.values()
        return Fields({**said, **one.plain}, one.arrays)
    for name, places in groups.items():
        stacks[name].plain["places"] = list(places)
    return Fields(said, {}, stacks)


def stacks_of(maps: Sequence[AttentionMap]) -> dict[str, list[int]]:
    """The places of maps that one array can hold together: those with the same heads and tokens, of one stack and kind.

    They are called `encoder`, `decoder` or `cross`, and the second of a name `encoder-2`.
    """
    groups: list[list[int]] = []
    for i, one in enumerate(maps):
        for places in groups:
            if _shared(maps[places[0]]) == _shared(one):
                places.append(i)
                break
        else:
            groups.append([i])
    named: dict[str, list[int]] = {}
    for places in groups:
        first = maps[places[0]]
        name = "cross" if first.kind == "cross" else first.stack
        number = sum(one.partition("-")[0] == name for one in named) + 1
        named[name if number == 1 else f"{name}-{number}"] = places
    return named


def flat(fields: Fields) -> Fields:
    """The same for formats without nesting: `stacks` lists their names, and `cross.weights` is that of one of them.

    >>> sorted(flat(Fields({"notes": []}, {}, {"cross": Fields({"heads": [0]}, {})})).plain)
    ['cross.heads', 'notes', 'stacks']
    """
    if not fields.stacks:
        return fields
    parts = fields.stacks.items()
    plain = {f"{stack}.{name}": value for stack, part in parts for name, value in part.plain.items()}
    arrays = {f"{stack}.{name}": array for stack, part in parts for name, array in part.arrays.items()}
    return Fields({**fields.plain, "stacks": list(fields.stacks), **plain}, {**fields.arrays, **arrays})


def _fields_of(maps: Sequence[AttentionMap]) -> Fields:
    """The fields of maps that one array can hold."""
    weights = AttentionRecord(tuple(maps), {}).weights
    outputs = [one.output for one in maps if one.output is not None]
    arrays = {"weights": weights}
    if len(outputs) == len(maps):
        arrays["output"] = np.stack(outputs)
    return Fields(said_of(maps, str(weights.dtype)), arrays)


def said_of(maps: Sequence[AttentionMap], dtype: str) -> dict[str, Any]:
    """What is said of maps that one array of numbers can hold: layers, heads, tokens."""
    first = maps[0]
    return {
        "layers": [one.layer for one in maps],
        "heads": list(first.heads),
        "names": [one.name for one in maps],
        "stack": first.stack,
        "kind": first.kind,
        "keys_left_out": first.cut,
        "dtype": dtype,
        **_token_fields("query", first.query),
        **_token_fields("key", first.key),
    }


def _shared(one: AttentionMap) -> tuple[object, ...]:
    """What is written once, for all maps."""
    return one.heads, one.query, one.key, one.stack, one.kind, one.cut


def _token_fields(axis: str, tokens: Tokens) -> dict[str, Any]:
    return {
        f"{axis}_tokens": list(tokens.pieces),
        f"{axis}_text": list(tokens.text),
        f"{axis}_spans": [list(span) for span in tokens.spans],
        f"{axis}_special": list(tokens.special),
        **({} if tokens.positions is None else {f"{axis}_positions": list(tokens.positions)}),
        **({f"{axis}_generated": list(tokens.generated)} if tokens.generated else {}),
    }


def from_fields(plain: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> AttentionRecord:
    """The record that `to_fields` took apart, and `flat` made flat.

    Raises:
        AttnvizError: a field is missing, of another schema, or does not fit the others.
    """
    if (found := plain.get("schema")) != SCHEMA:
        raise AttnvizError(f"its schema is {found!r:.80}: this version of attnviz reads {SCHEMA!r}")
    try:
        maps = _stacked(plain, arrays) if "stacks" in plain else _maps(plain, arrays)
        return AttentionRecord(maps, _provenance(plain["provenance"]), _list_of(str, "notes", plain))
    except KeyError as error:
        raise AttnvizError(f"it has no {error.args[0]!r}") from error
    except ValueError as error:
        raise AttnvizError(f"its parts do not fit together: {error}") from error


def _stacked(plain: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[AttentionMap, ...]:
    """The maps of all stacks, each in its place."""
    placed: dict[int, AttentionMap] = {}
    n_maps = 0
    for stack in _list_of(str, "stacks", plain):
        own, its = _under(stack, plain), _under(stack, arrays)
        try:
            maps, places = _maps(own, its), _list_of(int, "places", own)
        except KeyError as error:
            raise AttnvizError(f"its stack {stack} has no {error.args[0]!r}") from error
        if len(maps) != len(places):
            raise AttnvizError(f"its stack {stack} has {len(maps)} layers, but {len(places)} places")
        placed.update(zip(places, maps, strict=True))
        n_maps += len(maps)
    if sorted(placed) != list(range(n_maps)) or not placed:
        raise AttnvizError(f"the places in its stacks are not those of {n_maps} maps")
    return tuple(placed[i] for i in range(n_maps))


def _under(stack: str, values: Mapping[str, T]) -> dict[str, T]:
    """What belongs to one stack."""
    return {name.removeprefix(f"{stack}."): value for name, value in values.items() if name.startswith(f"{stack}.")}


def _maps(plain: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[AttentionMap, ...]:
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
    return tuple(
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
        _list_of(int, f"{axis}_positions", plain) if f"{axis}_positions" in plain else None,
        _list_of(bool, f"{axis}_generated", plain) if f"{axis}_generated" in plain else (),
    )


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [int, int]
