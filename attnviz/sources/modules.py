"""The state dict of one multi-head attention module, from npz, safetensors or what `torch.save` wrote."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz.attention import Projections
from attnviz.backend import NUMPY, Placing
from attnviz.errors import RequestError
from attnviz.sources.datafiles import StoredArray, check_there, from_bfloat16, open_arrays, sha256_of
from attnviz.sources.given import Matrix, as_projections, check_together, finite, heads_of, read_given
from attnviz.sources.per_head import heads_together
from attnviz.sources.saved_contents import SavedArray, read_contents

WHAT = "module file"
SUFFIXES = (".npz", ".safetensors", ".pt", ".pth")


@dataclass(frozen=True)
class Module:
    """A multi-head attention module's matrices."""

    name: str
    sha256: str
    projections: Projections
    """Where the maths runs."""
    n_heads: int
    d_model: int
    """Columns of what makes queries."""
    d_context: int
    """Columns of what makes keys and values."""


def open_module(path: Path, *, n_heads: int | None = None, placing: Placing = NUMPY) -> Module:
    """The module whose state dict is in a file.

    Args:
        path: npz, safetensors, or pt and pth, which are read with torch, and of which nothing is executed. The names
            are `query_linear.weight` and so on; those of `torch.nn.MultiheadAttention`, with matrices of one or of
            several widths; `Wq` or `W_q`; or lists of one matrix for each head, `W_q.0`.
        n_heads: a state dict does not say it, unless it has a matrix for each head: 4 unless given, or 1 where 4 do
            not fit.
        placing: where the maths runs; the dtype is the file's unless given.

    Raises:
        RequestError: there is no such file, it holds no such module, or its arrays do not go together.
        AttnvizError: it is damaged, or torch is needed and not installed.
    """
    check_there(path, WHAT)
    if path.suffix.lower() not in SUFFIXES:
        raise RequestError(f"{WHAT} {path} has the suffix {path.suffix!r}: {', '.join(SUFFIXES)} can be read")
    arrays = _arrays(path)
    given = read_given(heads_together(arrays))
    if not given:
        held = ", ".join(arrays) or "no arrays"
        raise RequestError(
            f"{path} holds {held}: a module has query_linear.weight and so on, in_proj_weight, or Wq, Wk and Wv"
        )
    d_model, d_context = (given[name].array.shape[0] for name in ("w_q", "w_k"))
    if (d_value := given["w_v"].array.shape[0]) != d_context:
        raise RequestError(f"{path} makes keys of {d_context} columns and values of {d_value}: they must be as wide")
    check_together(given)
    heads = heads_of(given, d_model, n_heads)
    return Module(
        path.name, sha256_of(path), as_projections(_in_one_dtype(given, placing), placing), heads, d_model, d_context
    )


def _in_one_dtype(given: Mapping[str, Matrix], placing: Placing) -> dict[str, Matrix]:
    own = np.float64 if any(matrix.array.dtype == np.float64 for matrix in given.values()) else np.float32
    runs = placing.runs(np.dtype(own).name)
    dtype = np.dtype(runs if runs in ("float32", "float64") else own)
    return {key: Matrix(m.name, finite(m.name, m.array, dtype), m.n_heads) for key, m in given.items()}


def _arrays(path: Path) -> Mapping[str, StoredArray]:
    if path.suffix.lower() in (".npz", ".safetensors"):
        return open_arrays(path).arrays
    return {name: _stored(saved) for name, saved in read_contents(path).arrays.items()}


def _stored(saved: SavedArray) -> StoredArray:
    def read() -> npt.NDArray[Any]:
        parts = saved.read()
        if saved.dtype == "bfloat16":
            return (
                np.stack([from_bfloat16(part) for part in parts]) if saved.layered else from_bfloat16(np.asarray(parts))
            )
        return np.stack(list(parts)) if saved.layered else np.asarray(parts)

    return StoredArray(saved.name, saved.shape, saved.dtype, saved.kind, read)
