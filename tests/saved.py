"""Attention in files, as people save it."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file

from attnviz.render.jsontext import json_of
from attnviz.schema import Fields
from tests.cli import strict_json

Array = npt.NDArray[Any]

SUFFIXES = (".npy", ".npz", ".safetensors", ".json", ".csv", ".pt")


def weights_of(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    """Rows that sum to 1."""
    scores = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True), dtype)


def read_json(fields: Fields) -> dict[str, Any]:
    """What the json file of these fields holds, which is strict."""
    stream = io.BytesIO()
    json_of(fields, stream)
    return dict(strict_json(stream.getvalue()))


def write(path: Path, array: Array, name: str = "attention") -> Path:
    """The array in a file of the kind that the suffix names."""
    match path.suffix:
        case ".npy":
            np.save(path, array)
        case ".npz":
            arrays: dict[str, Any] = {name: array}
            np.savez_compressed(path, **arrays)
        case ".safetensors":
            save_file({name: np.ascontiguousarray(array)}, path)
        case ".json":
            path.write_text(json.dumps(array.tolist()))
        case ".jsonl":
            path.write_text(json.dumps(array.tolist()) + "\n")
        case ".csv":
            path.write_text("".join(",".join(map(repr, row)) + "\n" for row in array.tolist()))
        case _:
            torch.save(torch.from_numpy(np.ascontiguousarray(array)), path)
    return path


def tokens_file(folder: Path, content: object, name: str = "tokens.json") -> Path:
    """The tokens in a file: text as it is, anything else as json."""
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name
