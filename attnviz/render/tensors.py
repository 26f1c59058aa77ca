"""Records and other results as safetensors: the arrays by their names, everything else as JSON in the metadata."""

import json
from typing import BinaryIO

import numpy as np
from safetensors.numpy import save

from attnviz.maps import AttentionRecord
from attnviz.schema import Fields, flat, to_fields

METADATA = "attnviz"
"""The one key of the metadata: with several, their order would differ from run to run."""


def write_safetensors(record: AttentionRecord, stream: BinaryIO) -> None:
    """Write `record` to `stream`; the same record gives the same bytes."""
    safetensors_of(to_fields(record), stream)


def safetensors_of(fields: Fields, stream: BinaryIO) -> None:
    """Write any result to `stream`, as `write_safetensors` writes a record."""
    fields = flat(fields)
    arrays = {name: np.ascontiguousarray(array) for name, array in fields.arrays.items()}
    stream.write(save(arrays, metadata={METADATA: json.dumps(fields.plain)}))
