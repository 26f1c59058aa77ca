"""Projections that a file holds beside its embeddings, under the names that people and torch give them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz.arrays import quiet
from attnviz.attention import Projections, heads_message
from attnviz.errors import RequestError
from attnviz.sources.datafiles import StoredArray, sizes

_SPELLED = {
    f"{letter}{dash}{which}": f"{letter.lower()}_{which}" for letter in "WwBb" for dash in ("", "_") for which in "qkvo"
}
_LINEAR = {"query_linear": "q", "key_linear": "k", "value_linear": "v", "output_linear": "o", "out_proj": "o"}
PARTS: Mapping[str, str] = {
    **_SPELLED,
    **{f"{name}.weight": f"w_{which}.T" for name, which in _LINEAR.items()},
    **{f"{name}.bias": f"b_{which}" for name, which in _LINEAR.items()},
    **{f"{which}_proj_weight": f"w_{which}.T" for which in "qkv"},
    "in_proj_weight": "w_in",
    "in_proj_bias": "b_in",
    "bias_k": "refused",
    "bias_v": "refused",
}
"""What each name stands for: `Wq` or `w_q`, and the state dicts of torch modules, whose matrices are [out, in]."""

DEFAULT_HEADS = 4


@dataclass(frozen=True)
class Matrix:
    """A projection or a bias of it, with the name it has in its file."""

    name: str
    array: npt.NDArray[Any]
    """[d_in, d_out], or [d_out]."""
    n_heads: int | None = None
    """Where it was given as one matrix for each head."""


def part_of(name: str) -> tuple[str, str] | None:
    """What comes before a known name, and what the name stands for; None where it is not known.

    >>> part_of("block.attn.query_linear.weight"), part_of("Wq"), part_of("embeddings")
    (('block.attn.', 'w_q.T'), ('', 'w_q'), None)
    """
    for known, part in PARTS.items():
        if name == known or name.endswith(f".{known}"):
            return name.removesuffix(known), part
    return None


def read_given(arrays: Mapping[str, StoredArray]) -> dict[str, Matrix]:
    """The projections among `arrays`, as `w_q`, `w_k`, `w_v`, and `w_o` and biases where they are there.

    Separate matrices for each head, [head, d_in, d_head], are put side by side (lists of them: `heads_together`).

    Raises:
        RequestError: some are missing, not of this kind, or of several modules.
    """
    known = [(name, *split) for name in arrays for split in [part_of(name)] if split is not None]
    if not known:
        return {}
    prefixes = sorted({prefix for _, prefix, _ in known})
    if len(prefixes) > 1:
        modules = ", ".join(prefix.removesuffix(".") or "one without a name" for prefix in prefixes)
        raise RequestError(f"the file holds projections of several modules ({modules}): one is needed")
    found: dict[str, Matrix] = {}
    for name, _, part in known:
        for key, matrix in _matrices(arrays[name], part):
            if key in found:
                raise RequestError(f"the file holds {found[key].name} and {name}, which mean the same: one is needed")
            found[key] = matrix
    missing = [f"W{which}" for which in "qkv" if f"w_{which}" not in found]
    if missing:
        there = ", ".join(name for name, _, _ in known)
        raise RequestError(f"the file holds {there} but no {' and no '.join(missing)}: Wq, Wk and Wv belong together")
    return found


def _matrices(stored: StoredArray, part: str) -> list[tuple[str, Matrix]]:
    name = stored.name
    if part == "refused" or stored.kind not in "fiu":
        what = "a key or value of its own, which is not run" if part == "refused" else f"{stored.dtype}, no numbers"
        raise RequestError(f"{name} is {what}")
    array = stored.read()
    if part in ("w_in", "b_in"):
        if array.ndim != (2 if part == "w_in" else 1) or len(array) % 3:
            raise RequestError(f"{name} is {sizes(array.shape)}: queries, keys and values are a third of its rows each")
        thirds = np.split(array, 3)
        return [(part[:2] + which, Matrix(name, third.T)) for which, third in zip("qkv", thirds, strict=True)]
    if part.endswith(".T") and array.ndim == 2:
        return [(part[:3], Matrix(name, array.T))]
    return [(part[:3], _joined(name, part, array))]


def _joined(name: str, part: str, array: npt.NDArray[Any]) -> Matrix:
    """One matrix or bias, from one for each head where it is so given."""
    own_axes = 2 if part.startswith("w") else 1
    if array.ndim == own_axes:
        return Matrix(name, array)
    if array.ndim != own_axes + 1 or len(array) < 1 or part == "b_o" or part.endswith(".T"):
        wanted = "a matrix" if own_axes == 2 else "a row of numbers"
        raise RequestError(f"{name} is {sizes(array.shape)}: {wanted} is needed, or one for each head")
    n_heads = array.shape[0]
    if part == "w_o":
        return Matrix(name, array.reshape(-1, array.shape[-1]), n_heads)
    return Matrix(name, np.concatenate(list(array), axis=-1), n_heads)


def check_given(given: Mapping[str, Matrix], d_model: int) -> None:
    """See that the projections fit embeddings of `d_model` columns, and each other.

    Raises:
        RequestError: naming two that do not go together, with both their shapes.
    """
    for which in "qkv":
        _same(given[f"w_{which}"], 0, d_model, f"the embeddings have {d_model} columns", "rows")
    check_together(given)


def check_together(given: Mapping[str, Matrix]) -> None:
    """See that the projections fit each other, whatever they project.

    Raises:
        RequestError: naming two that do not go together, with both their shapes.
    """
    q, k, v = (given[f"w_{which}"] for which in "qkv")
    _same(k, 1, q.array.shape[1], _shaped(q), "columns")
    if (o := given.get("w_o")) is not None:
        _same(o, 0, v.array.shape[1], _shaped(v), "rows")
    for which in "qkvo":
        bias, matrix = given.get(f"b_{which}"), given.get(f"w_{which}")
        if bias is not None and matrix is None:
            raise RequestError(f"the file holds {bias.name} but no W{which}")
        if bias is not None and matrix is not None:
            _same(bias, 0, matrix.array.shape[1], _shaped(matrix), "entries")


def _shaped(matrix: Matrix) -> str:
    return f"{matrix.name} is {sizes(matrix.array.shape)}"


def _same(matrix: Matrix, axis: int, wanted: int, because: str, what: str) -> None:
    if matrix.array.shape[axis] != wanted:
        raise RequestError(f"{_shaped(matrix)}, but {because}: {wanted} {what} are needed")


def mapped(given: Mapping[str, Matrix], change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> dict[str, Matrix]:
    """The same projections with each array changed."""
    return {key: replace(matrix, array=change(matrix.array)) for key, matrix in given.items()}


def as_projections(given: Mapping[str, Matrix], place: Callable[[npt.NDArray[Any]], Any]) -> Projections:
    """The projections where `place` puts them."""
    return Projections(**{key: place(matrix.array) for key, matrix in given.items()})


def heads_of(given: Mapping[str, Matrix], d_model: int, wanted: int | None) -> int:
    """How many heads the projections are split into.

    Args:
        given: the projections of a file; none where they are seeded ones [d_model, d_model].
        d_model: the columns of the embeddings.
        wanted: what was asked for; None for 4, or 1 where 4 do not fit.

    Raises:
        RequestError: the projections cannot be split so.
    """
    separate = {matrix.name: matrix.n_heads for matrix in given.values() if matrix.n_heads is not None}
    if len({*separate.values()}) > 1:
        held = ", ".join(f"{name} for {n_heads}" for name, n_heads in sorted(separate.items()))
        raise RequestError(f"one matrix for each head is given, but of several numbers of heads: {held}")
    for name, n_heads in separate.items():
        if wanted not in (None, n_heads):
            raise RequestError(f"{name} has a matrix for each of {n_heads} heads: --n-heads {wanted} cannot be")
        return n_heads
    widths = {given[key].name: given[key].array.shape[1] for key in ("w_q", "w_v")} if given else {"d_model": d_model}
    if wanted is None:
        return DEFAULT_HEADS if not any(width % DEFAULT_HEADS for width in widths.values()) else 1
    for name, width in widths.items():
        if wanted < 1 or width % wanted:
            raise RequestError(heads_message(width, wanted, name if name == "d_model" else f"{name} of width"))
    return wanted


def finite(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The array in that dtype.

    Raises:
        RequestError: an entry is no finite number in it.
    """
    with quiet(np):
        narrowed = array.astype(dtype)
    if not np.isfinite(narrowed).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(narrowed))[0])
        place, value = ", ".join(map(str, index)), array[index]
        why = f"more than {dtype.name} holds: --dtype float64" if np.isfinite(value) else "a finite number is needed"
        raise RequestError(f"{name}[{place}] is {value}: {why}")
    return narrowed
