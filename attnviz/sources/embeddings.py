"""Token vectors of one's own, from a file, under one layer of multi-head self-attention."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz._version import __version__
from attnviz.attention import EVERYTHING, Projections, Rule
from attnviz.backend import NUMPY, Placing
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, Provenance
from attnviz.memory import check_room
from attnviz.sources.datafiles import ArrayFile, StoredArray, check_there, open_arrays, sha256_of, sizes
from attnviz.sources.given import Matrix, as_projections, check_given, finite, heads_of, mapped, part_of, read_given
from attnviz.sources.per_head import heads_together
from attnviz.sources.projected import TokenVectors, layer_map
from attnviz.sources.scratch import first_head_for_all, seeded_projections
from attnviz.sources.vectors import WHAT, Vectors, read_csv, read_word_vectors
from attnviz.tokens import Tokens

NAME = "embeddings"
SUFFIXES = (".npz", ".safetensors", ".csv", ".txt", ".vec")


@dataclass(frozen=True)
class Embeddings:
    """Vectors and projections made ready: a model and its text in one."""

    name: str
    n_heads: int
    tokens: Tokens
    notes: tuple[str, ...]
    provenance: Provenance
    x: npt.NDArray[Any]
    """[token, d_model], finite; no positions are added to it."""
    projections: Projections
    """Where the maths runs."""
    scale: bool
    placing: Placing

    n_layers = 1
    gives_output = True

    @property
    def key_tokens(self) -> Tokens:
        """The same tokens."""
        return self.tokens

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """The one layer's map; its output is projected where the file has an output projection.

        Raises:
            RequestError: the rule does not fit, or the scores are too large for the dtype.
        """
        if 0 in layers:
            own = TokenVectors(self.placing(self.x), self.tokens)
            yield layer_map(
                own,
                own,
                self.projections,
                self.n_heads,
                rule=rule.placed(self.placing),
                scale=None if self.scale else 1.0,
                single=single,
                output=output,
            )


def open_embeddings(
    path: Path,
    *,
    n_heads: int | None = None,
    seed: int = 0,
    scale: bool = True,
    shared_projections: bool = False,
    placing: Placing = NUMPY,
) -> Embeddings:
    """The token vectors in a file, with the projections in it or, where it has none, seeded ones.

    Args:
        path: npz or safetensors (`embeddings`, or the only matrix; `tokens`; `Wq`, `Wk`, `Wv`, `Wo`, `bq`, …, or
            the state dict of a torch module); csv with one token a row; word2vec or GloVe text (txt, vec).
        n_heads: 4 unless given, or 1 where 4 do not fit.
        seed: for projections that the file does not have.
        scale: divide the scores by √d_head.
        shared_projections: every head uses the first head's projections.
        placing: where the maths runs; the dtype is the file's unless given.

    Raises:
        RequestError: there is no such file, its arrays do not go together, or hold what is no finite number.
        AttnvizError: it is damaged or cannot be read.
    """
    check_there(path, WHAT)
    vectors, given, dtype = _read(path, placing)
    x = vectors.rows
    if given:
        check_given(given, x.shape[1])
    heads = heads_of(given, x.shape[1], n_heads)
    origin = {"attnviz": __version__, "source": NAME, "model": path.name, "model_sha256": sha256_of(path)}
    options = {"n_heads": heads, "d_model": x.shape[1], "scale": scale, "shared_projections": shared_projections}
    return Embeddings(
        name=path.name,
        n_heads=heads,
        tokens=Tokens.of(vectors.tokens or map(str, range(len(x)))),
        notes=_notes(path.name, vectors, given, None if given else seed, None if n_heads else heads),
        provenance={
            **origin,
            **options,
            **({"projections": "file"} if given else {"projections": "seeded", "seed": seed}),
            **placing.provenance(dtype),
        },
        x=x,
        projections=_projections(given, x, heads, seed, placing, shared=shared_projections),
        scale=scale,
        placing=placing,
    )


def _notes(
    name: str, vectors: Vectors, given: Mapping[str, Matrix], seed: int | None, n_heads: int | None
) -> tuple[str, ...]:
    """What was not in the file; `seed` and `n_heads` are given where they stand for what nobody said."""
    notes = []
    if vectors.tokens is None:
        notes.append(f"{name} has no tokens: they are numbered")
    if seed is not None:
        notes.append(f"{name} has no projections: they are drawn from seed {seed}, nothing in them is trained")
    if n_heads is not None and all(matrix.n_heads is None for matrix in given.values()):
        notes.append(f"{n_heads} {'head' if n_heads == 1 else 'heads'}, unless --n-heads says otherwise")
    return tuple(notes)


def _projections(
    given: Mapping[str, Matrix], x: npt.NDArray[Any], n_heads: int, seed: int, placing: Placing, *, shared: bool
) -> Projections:
    if not given:
        d_model = x.shape[1]
        check_room(20 * d_model**2, f"projections for embeddings of {d_model} columns", "give narrower ones")
        return seeded_projections(d_model, n_heads, seed, lambda w: placing(w.astype(x.dtype)), shared=shared)
    if shared:
        own = {key: matrix for key, matrix in given.items() if not key.endswith("_o")}
        given = {**given, **mapped(own, lambda w: first_head_for_all(w, n_heads))}
    return as_projections(given, placing)


def _read(path: Path, placing: Placing) -> tuple[Vectors, dict[str, Matrix], str]:
    """Vectors and projections of a file in their one dtype, finite, and its name."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"{WHAT} {path} has the suffix {suffix!r}: {', '.join(SUFFIXES)} can be read")
    given: dict[str, Matrix] = {}
    own: npt.DTypeLike = np.float32  # a text has no dtype
    if suffix == ".csv":
        vectors = read_csv(path)
    elif suffix in (".txt", ".vec"):
        vectors = read_word_vectors(path)
    else:
        file = open_arrays(path)
        file = replace(file, arrays=heads_together(file.arrays))
        vectors = _vectors_in(file, path)
        given = read_given(file.arrays)
        wide = any(array.dtype == np.float64 for array in (vectors.rows, *(m.array for m in given.values())))
        own = np.float64 if wide else np.float32
    runs = placing.runs(np.dtype(own).name)
    dtype = np.dtype(runs if runs in ("float32", "float64") else own)  # half precision is narrowed where it is placed
    x = finite(NAME, vectors.rows, dtype)
    given = {key: Matrix(m.name, finite(m.name, m.array, dtype), m.n_heads) for key, m in given.items()}
    return Vectors(x, vectors.tokens), given, dtype.name


def _vectors_in(file: ArrayFile, path: Path) -> Vectors:
    stored = _embeddings_in(file, path)
    shape = stored.shape
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) != 2 or 0 in shape:
        raise RequestError(f"{stored.name} in {path} is {sizes(stored.shape)}: [token, d_model] is needed")
    tokens = _tokens_in(file, path)
    if tokens is not None and len(tokens) != shape[0]:
        raise RequestError(f"{path} has {len(tokens)} tokens, but {stored.name} is {sizes(shape)}: one row for each")
    return Vectors(stored.read().reshape(shape), tokens)


def _embeddings_in(file: ArrayFile, path: Path) -> StoredArray:
    named = file.arrays.get(NAME)
    if named is not None and named.kind in "fiu":
        return named
    rest = [one for name, one in file.arrays.items() if part_of(name) is None]
    matrices = [one for one in rest if one.kind == "f" and len(one.shape) >= 2 and named is None]
    if len(matrices) == 1:
        return matrices[0]
    held = ", ".join(map(str, file.arrays.values())) or "no arrays"
    raise RequestError(f"{path} holds {held}: the vectors must be an array named {NAME}, [token, d_model]")


def _tokens_in(file: ArrayFile, path: Path) -> tuple[str, ...] | None:
    """An array of text, or a JSON list of texts as a single text or in the header."""
    stored = file.arrays.get("tokens")
    listed: Any = None
    if stored is not None:
        if stored.kind not in "US":
            raise RequestError(f"tokens in {path} are {stored.dtype}: text is needed")
        listed = (
            np.char.decode(stored.read(), "utf-8", "replace").tolist() if stored.kind == "S" else stored.read().tolist()
        )
    elif "tokens" in file.texts:
        listed = file.texts["tokens"]
    if isinstance(listed, str):
        try:
            listed = json.loads(listed)
        except (ValueError, RecursionError):
            listed = [listed]
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(token, str) for token in listed):
        raise RequestError(f"tokens in {path} are no list of texts")
    for i, token in enumerate(listed):
        if not token.isascii() and any("\ud800" <= character <= "\udfff" for character in token):
            raise RequestError(f"tokens[{i}] in {path} is not valid Unicode: it holds half a surrogate pair")
    return tuple(listed)
