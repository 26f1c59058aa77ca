"""Records to write and read: awkward ones, small ones, and any that can be."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attnviz import load
from attnviz.maps import AttentionMap, AttentionRecord, Head, StoredWeights
from attnviz.tokens import Tokens

PROVENANCE = {"attnviz": "0.0.0", "model": "m", "backend": "numpy", "device": "cpu", "dtype": "float32", "text": "a b"}
AWKWARD = (
    "", " ", "a", '"', "\\", "\n", "\0", "end\0", "\0\0", "</script>", "<!--", "'", "\u2028", "\x1b[31m", "\x7f", "é",
    "e\u0301", "字", "👨\u200d👩", "\U0010ffff", "שלום", "\u202e", "\ufeff", "\ud83d", "\udce9", "{", "[", "[]", "{}",
    "null", "NaN", "1", "true", "%s", "$x$", "##ly", "Ġthe", "a" * 3000,
)  # fmt: skip
Writer = Callable[[AttentionRecord, Any], None]


def a_record(
    weights: npt.NDArray[Any],
    output: npt.NDArray[Any] | None = None,
    query: Tokens | None = None,
    key: Tokens | None = None,
    heads: tuple[Head, ...] | None = None,
    **more: Any,
) -> AttentionRecord:
    n_layers, n_heads, n_queries, n_keys = weights.shape
    maps = tuple(
        AttentionMap(
            name=f"layer.{3 * i}",
            layer=3 * i,
            heads=heads or tuple(range(n_heads)),
            weights=StoredWeights(weights[i]),
            query=query or Tokens.of(f"q{j}" for j in range(n_queries)),
            key=key or Tokens.of(f"k{j}" for j in range(n_keys)),
            output=None if output is None else output[i],
        )
        for i in range(n_layers)
    )
    return AttentionRecord(maps, more.get("provenance", PROVENANCE), more.get("notes", ()))


def assert_same(a: AttentionRecord, b: AttentionRecord) -> None:
    """Equal to the last bit, NaN included."""
    assert (a.provenance, a.notes) == (b.provenance, b.notes)
    assert len(a.maps) == len(b.maps)
    for one, other in zip(a.maps, b.maps, strict=True):
        nothing = StoredWeights(np.empty(one.weights.shape))
        assert replace(one, weights=nothing, output=None) == replace(other, weights=nothing, output=None)
        assert (one.output is None) == (other.output is None)
    for ours, theirs in [(a.weights, b.weights), (outputs_of(a), outputs_of(b))]:
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes()


def outputs_of(record: AttentionRecord) -> npt.NDArray[Any]:
    return np.stack([np.empty(0) if one.output is None else one.output for one in record.maps])


def written(record: AttentionRecord, writer: Writer) -> bytes:
    stream = io.BytesIO()
    writer(record, stream)
    return stream.getvalue()


def read(content: bytes, folder: Path, suffix: str) -> AttentionRecord:
    file = folder / f"record{suffix}"
    file.write_bytes(content)
    return load(file)


texts = st.one_of(st.sampled_from(AWKWARD), st.text(st.characters(exclude_categories=()), max_size=6))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)


@st.composite
def tokens(draw: st.DrawFn, length: int) -> Tokens:
    def one_each(values: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.lists(values, min_size=length, max_size=length)))

    return Tokens(
        one_each(texts),
        one_each(texts),
        one_each(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))),
        one_each(st.booleans()),
        draw(st.none() | st.just(tuple(range(500, 500 + length)))),
        draw(st.just(())) if draw(st.booleans()) else one_each(st.booleans()),
    )


@st.composite
def records(draw: st.DrawFn, *, finite: bool) -> AttentionRecord:
    n_layers, n_heads, n_queries, n_keys, d_model = (draw(st.integers(1, 3)) for _ in range(5))
    dtype: Any = draw(st.sampled_from([np.float32, np.float64]))
    limits = np.finfo(dtype)
    numbers: st.SearchStrategy[Any] = st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, float(limits.smallest_subnormal), float(limits.max)]),
        st.floats(width=32 if dtype == np.float32 else 64, allow_nan=not finite, allow_infinity=not finite),
    )

    def array(*shape: int) -> npt.NDArray[Any]:
        return np.asarray(draw(hnp.arrays(dtype, shape, elements=numbers)))

    single = draw(st.booleans())
    record = a_record(
        array(n_layers, n_heads, n_queries, n_keys),
        array(n_layers, n_queries, d_model) if draw(st.booleans()) else None,
        draw(tokens(n_queries)),
        draw(tokens(n_keys)),
        ("single", *range(n_heads - 1)) if single else tuple(draw(st.permutations(range(n_heads)))),
        provenance={**PROVENANCE, **draw(st.dictionaries(texts, values, max_size=2)), "text": draw(texts)},
        notes=tuple(draw(st.lists(texts, max_size=2))),
    )
    options: dict[str, list[Any]] = {"stack": ["encoder", "decoder"], "kind": ["self", "cross"], "cut": [False, True]}
    chosen: dict[str, Any] = {name: draw(st.sampled_from(of)) for name, of in options.items()}
    return replace(record, maps=tuple(replace(one, **chosen) for one in record.maps))
