"""The names under which a record is written and read back, the same in every format that holds numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionMap, AttentionRecord, StoredWeights
from attnviz.tokens import Tokens

SCHEMA = "attnviz/1"
"""A change of what a name means is a new number."""


@dataclass(frozen=True)
class Fields:
    """A record as names and values."""

    plain: dict[str, Any]
    """Strings, numbers, and lists of them: what JSON has words for."""
    arrays: dict[str, Floats]
    """`weights` [layer, head, query, key], and where the source has it `output` [layer, query, d_model]."""


def to_fields(record: AttentionRecord) -> Fields:
    """The fields of a record whose maps have one shape, the same heads and the same tokens.

    Raises:
        RequestError: the maps differ, so that no one array holds them.
    """
    if not record.maps:
        raise AttnvizError("there is no attention to write: the record holds no maps")
    first = record.maps[0]
    for one in record.maps[1:]:
        if (one.heads, one.query, one.key) != (first.heads, first.query, first.key):
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
        raise AttnvizError(f"its schema is {found!r}: this version of attnviz reads {SCHEMA!r}")
    try:
        weights, outputs = arrays["weights"], arrays.get("output")
        query, key = (_tokens_from(axis, plain) for axis in ("query", "key"))
        maps = tuple(
            AttentionMap(
                name=plain["names"][i],
                layer=layer,
                heads=tuple(plain["heads"]),
                weights=StoredWeights(weights[i]),
                query=query,
                key=key,
                stack=plain["stack"],
                kind=plain["kind"],
                output=None if outputs is None else outputs[i],
                cut=plain["keys_left_out"],
            )
            for i, layer in enumerate(plain["layers"])
        )
        return AttentionRecord(maps, plain["provenance"], tuple(plain["notes"]))
    except KeyError as error:
        raise AttnvizError(f"it has no {error.args[0]!r}") from error
    except (IndexError, TypeError, ValueError) as error:
        raise AttnvizError(f"its parts do not fit together: {error}") from error


def _tokens_from(axis: str, plain: Mapping[str, Any]) -> Tokens:
    spans = tuple((int(first), int(last)) for first, last in plain[f"{axis}_spans"])
    return Tokens(tuple(plain[f"{axis}_tokens"]), tuple(plain[f"{axis}_text"]), spans, tuple(plain[f"{axis}_special"]))
