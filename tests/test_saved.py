import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz import attend
from attnviz.attention import Rule
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionRecord
from attnviz.sources.masks import split_name
from attnviz.sources.saved import Saved, load, open_saved
from attnviz.sources.saved_contents import READERS
from tests.saved import SUFFIXES, Array, weights_of, write

AWKWARD = [
    "\ud83d",
    "a\0b",
    "",
    " ",
    "\t",
    "\n",
    "a\nb",
    "\r\n",
    "\u00a0",
    "\u3000",
    "x" * 5000,
    "\u202eשלום",
    "\x1b[2J",
]


def all_rows(saved: Saved) -> Array:
    """[layer, head, query, key]."""
    return np.stack([one.rows(0, len(one.query)) for one in saved.maps(saved.layers)])


def refused(kind: type[AttnvizError], path: Path, **options: Any) -> str:
    with pytest.raises(AttnvizError) as error:
        open_saved(path, **options)
    assert type(error.value) is kind
    assert error.value.exit_code == (2 if kind is RequestError else 3)
    return str(error.value)


# axes


@pytest.mark.parametrize(
    ("shape", "n_layers", "n_heads", "read_as"),
    [
        ((3, 4), 1, 1, "query, key: 3 × 4"),
        ((2, 3, 4), 1, 2, "head, query, key: 2 × 3 × 4"),
        ((5, 2, 3, 4), 5, 2, None),
        ((5, 1, 2, 3, 4), 5, 2, "layer, batch, head, query, key: 5 × 1 × 2 × 3 × 4; the batch of 1 is left out"),
    ],
)
def test_axes_are_inferred_and_said(
    tmp_path: Path, shape: tuple[int, ...], n_layers: int, n_heads: int, read_as: str | None
) -> None:
    array = weights_of(*shape)
    saved = open_saved(write(tmp_path / "a.npy", array))
    assert (saved.layers, saved.heads) == (tuple(range(n_layers)), tuple(range(n_heads)))
    assert saved.notes == (() if read_as is None else (f"a.npy is read as {read_as}",))
    assert np.array_equal(all_rows(saved), array.reshape(n_layers, n_heads, 3, 4))


@pytest.mark.parametrize("shape", [(), (3,), (1, 1, 1, 1, 2, 2)])
def test_too_few_and_too_many_axes_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    message = refused(RequestError, write(tmp_path / "a.npz", np.ones(shape)))
    axes = "1 axis" if len(shape) == 1 else f"{len(shape)} axes"
    assert f"a.npz:attention has {axes}" in message
    assert "not 2 to 5: layer, batch, head, query, key" in message


@pytest.mark.parametrize(("shape", "axis"), [((0, 2, 3, 3), "layer"), ((2, 0, 3, 3), "head"), ((3, 0), "key")])
def test_an_axis_of_nothing_is_named(tmp_path: Path, shape: tuple[int, ...], axis: str) -> None:
    for suffix in (".npy", ".npz", ".safetensors"):
        message = refused(RequestError, write(tmp_path / f"a{suffix}", np.ones(shape)))
        assert f"there is nothing on its {axis} axis" in message


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".json", ".pt"])
@pytest.mark.parametrize("n_texts", [2, 16])
def test_one_of_a_batch_is_chosen(tmp_path: Path, suffix: str, n_texts: int) -> None:
    array = weights_of(2, n_texts, 3, 4, 4)
    path = write(tmp_path / f"a{suffix}", array)
    message = refused(RequestError, path)
    assert f"holds a batch of {n_texts} (2 × {n_texts} × 3 × 4 × 4: layer, batch, head, query, key)" in message
    assert f"choose one with --batch INDEX, 0 to {n_texts - 1}" in message
    for index in (0, n_texts - 1):
        saved = open_saved(path, batch=index)
        assert np.array_equal(all_rows(saved), array[:, index])
        assert f"entry {index} of the batch of {n_texts} is shown" in saved.notes[0]
    for index in (-1, n_texts):
        assert f"no batch entry {index} in attention file {path}" in refused(RequestError, path, batch=index)


def test_a_batch_that_is_asked_for_is_found_before_the_heads(tmp_path: Path) -> None:
    one_layer, averaged = weights_of(3, 2, 4, 4), weights_of(3, 4, 4)
    saved = open_saved(write(tmp_path / "a.npy", one_layer), batch=1)
    assert np.array_equal(all_rows(saved), one_layer[1][None])
    assert saved.notes[0].startswith("a.npy is read as batch, head, query, key")
    saved = open_saved(write(tmp_path / "b.npy", averaged), batch=2)
    assert np.array_equal(all_rows(saved), averaged[2][None, None])
    message = refused(RequestError, write(tmp_path / "c.npy", averaged[0]), batch=0)
    assert "c.npy is 4 × 4 and has no batch: leave out --batch" in message


@given(
    shape=st.lists(st.integers(1, 3), min_size=2, max_size=5),
    dtype=st.sampled_from(["<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "?", "u1", ">i8", "<i4"]),
    suffix=st.sampled_from([".npy", ".npz"]),
    by_column=st.booleans(),
)
def test_any_shape_dtype_byte_order_and_memory_order_reads_back(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], dtype: str, suffix: str, by_column: bool
) -> None:
    array = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
    if "f" in dtype:
        array = (array / 3).astype(dtype)
    path = tmp_path_factory.mktemp("round") / f"a{suffix}"
    write(path, np.asfortranarray(array) if by_column else array)
    batch = 0 if len(shape) == 5 else None
    rows = all_rows(open_saved(path, batch=batch))
    wanted = array[:, 0] if batch == 0 else array
    assert rows.dtype == (np.float64 if dtype.endswith("f8") else np.float32)
    assert rows.dtype.isnative
    assert np.array_equal(rows.reshape(wanted.shape), wanted.astype(rows.dtype))


# names


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("name", ["arr_0", "foo", "weights", "layer.0.probs"])
def test_the_only_array_is_used_whatever_its_name(tmp_path: Path, suffix: str, name: str) -> None:
    array = weights_of(1, 2, 3, 3)
    saved = open_saved(write(tmp_path / f"a{suffix}", array, name))
    assert np.array_equal(all_rows(saved), array)
    assert saved.notes == ()
    assert saved.provenance["array"] == name


def test_of_several_arrays_the_one_with_a_known_name_is_shown_and_the_others_are_named(tmp_path: Path) -> None:
    for known in ("attention", "attentions", "weights"):
        arrays: Any = {"ids": np.arange(3), known: weights_of(1, 1, 3, 3), "q": np.ones((3, 2))}
        np.savez(tmp_path / "a.npz", **arrays)
        saved = open_saved(tmp_path / "a.npz")
        assert saved.provenance["array"] == known
        assert saved.notes == (f"{known} is shown; a.npz also holds ids (3, int64), q (3 × 2, float64)",)


def test_of_several_arrays_one_is_chosen_by_name(tmp_path: Path) -> None:
    arrays: Any = {"foo": weights_of(1, 2, 4, 4), "bar": weights_of(1, 2, 3, 3)}
    np.savez(tmp_path / "a.npz", **arrays)
    message = refused(RequestError, tmp_path / "a.npz")
    assert "holds foo (1 × 2 × 4 × 4, float64), bar (1 × 2 × 3 × 3, float64)" in message
    assert f"--attention {tmp_path / 'a.npz'}:foo" in message
    for name, array in arrays.items():
        assert np.array_equal(all_rows(open_saved(tmp_path / "a.npz", array=name)), array)
    message = refused(RequestError, tmp_path / "a.npz", array="baz")
    assert "holds no 'baz', but foo" in message


def test_two_arrays_of_known_names_are_not_guessed_between(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", attention=weights_of(2, 2), weights=weights_of(2, 2))
    assert "attention (2 × 2, float64), weights (2 × 2, float64): choose" in refused(RequestError, tmp_path / "a.npz")


def test_a_name_for_what_has_none_and_a_file_without_arrays_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npy", weights_of(2, 2))
    assert "holds one array, which has no name: leave out :x" in refused(RequestError, path, array="x")
    np.savez(tmp_path / "a.npz")
    assert refused(RequestError, tmp_path / "a.npz").endswith("holds no arrays")
    np.savez(tmp_path / "b.npz", tokens=np.array(["a"]))
    assert "holds no arrays, and so no 'x'" in refused(RequestError, tmp_path / "b.npz", array="x")


def test_a_file_and_a_name_are_told_apart(tmp_path: Path) -> None:
    assert split_name("a.b.pt:cross:x", READERS) == (Path("a.b.pt"), "cross:x")
    assert split_name("a.jsonl:w", READERS) == (Path("a.jsonl"), "w")
    assert split_name("a.npz", READERS) == (Path("a.npz"), None)


# what is there and what is said of it


def test_a_saved_array_is_a_source(tmp_path: Path) -> None:
    array = weights_of(3, 2, 4, 4)
    saved = open_saved(write(tmp_path / "a.npz", array))
    assert (saved.name, saved.layers, saved.heads, saved.gives_output) == ("a.npz", (0, 1, 2), (0, 1), False)
    assert saved.tokens is saved.key_tokens
    assert saved.tokens.text == ("0", "1", "2", "3")
    maps = list(saved.maps([2, 0]))
    assert [one.layer for one in maps] == [0, 2]
    assert np.array_equal(maps[1].rows(1, 3), array[2][:, 1:3])
    assert all(one.kind == "self" and one.output is None and one.heads == (0, 1) for one in maps)
    found = dict(saved.provenance)
    assert len(str(found.pop("sha256"))) == 64
    assert found.pop("attnviz")
    assert found == {
        "source": "saved", "model": "a.npz", "array": "attention", "shape": [3, 2, 4, 4], "stored_dtype": "float64",
        "backend": "numpy", "device": "cpu", "dtype": "float64", "text": "",
    }  # fmt: skip


def test_nothing_written_names_the_folder(tmp_path: Path) -> None:
    saved = open_saved(write(tmp_path / "a.npz", weights_of(2, 2)))
    assert str(tmp_path) not in repr((saved.provenance, saved.notes))


@pytest.mark.parametrize(
    "asked",
    [
        {"single": True},
        {"rule": Rule(causal=True)},
        {"rule": Rule(window=2)},
        {"rule": Rule(keys=np.ones(3, bool))},
        {"rule": Rule(mask=np.ones((3, 3), bool))},
    ],
)
def test_what_needs_projections_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    saved = open_saved(write(tmp_path / "a.npy", weights_of(3, 3)))
    with pytest.raises(RequestError, match=r"a\.npy holds weights, and .* needs projections: use a model"):
        saved.maps([0], **asked)


def test_a_layer_or_an_output_that_is_not_there_is_refused(tmp_path: Path) -> None:
    saved = open_saved(write(tmp_path / "a.npy", weights_of(2, 1, 3, 3)))
    with pytest.raises(RequestError, match=r"a\.npy does not hold layer 2: choose from --layer 0,1"):
        saved.maps([2])
    with pytest.raises(RequestError, match="holds no attention output: leave out --with-output"):
        saved.maps([0], output=True)


def test_weights_that_are_not_square_are_cross_attention(tmp_path: Path) -> None:
    array = weights_of(2, 3, 4, 6)
    saved = open_saved(write(tmp_path / "a.npz", array))
    assert (len(saved.tokens), len(saved.key_tokens)) == (4, 6)
    assert all(one.kind == "cross" for one in saved.maps([0, 1]))
    assert np.array_equal(all_rows(saved), array)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "<U1", "S3", "M8[s]"])
def test_what_is_no_number_is_refused_with_its_dtype(tmp_path: Path, dtype: str) -> None:
    array = np.zeros((1, 1, 2, 2), dtype)
    message = refused(RequestError, write(tmp_path / "a.npz", array))
    assert f"a.npz:attention has dtype {array.dtype.name}" in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no.npz", "attention file {} does not exist"),
        ("folder.npz", "attention file {} is a folder"),
        ("a.txt", "has the suffix '.txt': .npy, .npz, .safetensors, .json, .jsonl, .csv, .pt, .pth can be read"),
        ("a", "has the suffix ''"),
    ],
)
def test_a_file_that_is_not_there_or_of_no_known_kind_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder.npz").mkdir()
    for there in ("a.txt", "a"):
        (tmp_path / there).write_text("x")
    assert words.format(tmp_path / name) in refused(RequestError, tmp_path / name)


# tokens


@pytest.fixture
def square(tmp_path: Path) -> Path:
    return write(tmp_path / "square.npz", weights_of(1, 2, 3, 3))


@pytest.fixture
def oblong(tmp_path: Path) -> Path:
    return write(tmp_path / "oblong.npz", weights_of(1, 2, 3, 2))


def tokens_file(folder: Path, value: Any, name: str = "tokens.json") -> Path:
    path = folder / name
    path.write_bytes(value.encode() if isinstance(value, str) else json.dumps(value).encode())
    return path


def test_one_list_names_both_axes_where_they_are_equally_long(tmp_path: Path, square: Path, oblong: Path) -> None:
    path = tokens_file(tmp_path, ["the", "cat", "the"])
    saved = open_saved(square, tokens=path)
    assert saved.tokens.pieces == saved.tokens.text == ("the", "cat", "the")
    assert saved.key_tokens is saved.tokens
    saved = open_saved(oblong, tokens=path)
    assert (saved.tokens.text, saved.key_tokens.text) == (("the", "cat", "the"), ("0", "1"))


@pytest.mark.parametrize("names", [("queries", "keys"), ("query_tokens", "key_tokens")])
def test_one_file_names_queries_and_keys(tmp_path: Path, oblong: Path, names: tuple[str, str]) -> None:
    lists = {names[0]: ["<s>", "das", "</s>"], names[1]: ["the", "."]}
    saved = open_saved(oblong, tokens=tokens_file(tmp_path, lists))
    assert (saved.tokens.text, saved.key_tokens.text) == (("<s>", "das", "</s>"), ("the", "."))


def test_keys_have_a_file_of_their_own(tmp_path: Path, square: Path, oblong: Path) -> None:
    queries, keys = (tokens_file(tmp_path, value, f"{value}.json") for value in (["a", "b", "c"], ["d", "e"]))
    saved = open_saved(oblong, tokens=queries, key_tokens=keys)
    assert (saved.tokens.text, saved.key_tokens.text) == (("a", "b", "c"), ("d", "e"))
    saved = open_saved(square, key_tokens=queries)
    assert (saved.tokens.text, saved.key_tokens.text) == (("0", "1", "2"), ("a", "b", "c"))
    assert next(iter(saved.maps([0]))).kind == "cross"
    both = tokens_file(tmp_path, {"queries": ["x"], "keys": ["k", "l"]}, "both.json")
    assert open_saved(oblong, key_tokens=both).key_tokens.text == ("k", "l")


def test_any_string_is_a_token(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npy", weights_of(len(AWKWARD), len(AWKWARD)))
    saved = open_saved(path, tokens=tokens_file(tmp_path, AWKWARD))
    assert list(saved.tokens.pieces) == list(saved.tokens.text) == AWKWARD


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("a\nb\nc\n", ("a", "b", "c")),
        ("a\nb\nc", ("a", "b", "c")),
        ("\ufeffa\r\nb\r\nc\r\n", ("a", "b", "c")),
        (" \n\n\tc \n", (" ", "", "\tc ")),
        ("a\u2028b\nc\x0bd\n\rx", ("a\u2028b", "c\x0bd", "\rx")),
    ],
)
def test_a_text_has_one_token_a_line(tmp_path: Path, square: Path, content: str, tokens: tuple[str, ...]) -> None:
    assert open_saved(square, tokens=tokens_file(tmp_path, content, "t.txt")).tokens.text == tokens


@pytest.mark.parametrize(("n_tokens", "n_queries"), [(3, 4), (6, 4), (0, 2)])
def test_tokens_that_do_not_fit_are_refused_with_both_numbers_and_files(
    tmp_path: Path, n_tokens: int, n_queries: int
) -> None:
    path = write(tmp_path / "a.npz", weights_of(1, 2, n_queries, n_queries))
    tokens = tokens_file(tmp_path, ["x"] * n_tokens)
    message = refused(RequestError, path, tokens=tokens)
    assert message == f"attention file {path} has {n_queries} queries, but tokens file {tokens} has {n_tokens} tokens"
    message = refused(RequestError, path, key_tokens=tokens)
    assert message == f"attention file {path} has {n_queries} keys, but tokens file {tokens} has {n_tokens} tokens"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('["a", 5, "c"]', "holds 5 at position 1, which is no string"),
        ('["a", null, "c"]', "holds null at position 1"),
        ('"abc"', "holds no list of strings"),
        ("{}", "holds no tokens: a list of strings is needed, or an object with queries and keys"),
        ('{"tokens": "abc"}', "tokens, holds no list of strings"),
    ],
)
def test_tokens_that_are_no_strings_are_refused(tmp_path: Path, square: Path, content: str, words: str) -> None:
    assert words in refused(RequestError, square, tokens=tokens_file(tmp_path, content))


def test_tokens_that_cannot_be_read_are_said_to(tmp_path: Path, square: Path) -> None:
    assert "is not JSON" in refused(AttnvizError, square, tokens=tokens_file(tmp_path, "[" * 100_000))
    assert "is not JSON" in refused(AttnvizError, square, tokens=tokens_file(tmp_path, "a\nb"))
    assert "does not exist" in refused(RequestError, square, tokens=tmp_path / "no.json")
    (tmp_path / "t.txt").write_bytes(b"a\n\xff\nc")
    assert "is not UTF-8: byte 0xFF in line 2" in refused(RequestError, square, tokens=tmp_path / "t.txt")


def test_the_files_own_tokens_come_last(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", attention=weights_of(2, 2), tokens=np.array(["a", "b"]))
    assert open_saved(tmp_path / "a.npz").tokens.text == ("a", "b")
    given = tokens_file(tmp_path, ["c", "d"])
    assert open_saved(tmp_path / "a.npz", tokens=given).key_tokens.text == ("c", "d")
    saved = open_saved(tmp_path / "a.npz", key_tokens=given)
    assert (saved.tokens.text, saved.key_tokens.text) == (("a", "b"), ("c", "d"))
    np.savez(tmp_path / "b.npz", attention=weights_of(2, 2), tokens=np.array([101, 102]))
    assert "tokens, holds 101 at position 0, which is no string" in refused(RequestError, tmp_path / "b.npz")
    assert open_saved(tmp_path / "b.npz", tokens=given).tokens.text == ("c", "d")


def test_the_files_own_tokens_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", attention=weights_of(2, 3), query_tokens=["a", "b"], key_tokens=["c", "d"])
    message = refused(RequestError, tmp_path / "a.npz")
    assert message.endswith("has 3 keys, but its own list has 2 tokens: give --key-tokens FILE")


# records


RECORD_SUFFIXES = (".npz", ".json", ".jsonl", ".safetensors", ".csv")


@pytest.fixture(scope="module")
def record() -> AttentionRecord:
    return attend("The cat, “sat”", model="minilm", layers=[1, 4], heads=[2, 3])


@pytest.mark.parametrize("suffix", RECORD_SUFFIXES)
def test_a_record_is_attention(tmp_path: Path, record: AttentionRecord, suffix: str) -> None:
    record.save(tmp_path / f"a{suffix}")
    saved = open_saved(tmp_path / f"a{suffix}")
    assert (saved.layers, saved.heads) == ((1, 4), (2, 3))
    maps = list(saved.maps([4]))
    assert [(one.layer, one.heads) for one in maps] == [(4, (2, 3))]
    assert np.array_equal(all_rows(saved), record.weights)
    assert all_rows(saved).dtype == np.float32
    assert saved.tokens.text == record.maps[0].query.text
    assert saved.key_tokens is saved.tokens
    assert saved.notes == record.notes
    assert saved.provenance["saved_in"] == f"a{suffix}"
    if suffix != ".csv":
        assert {**record.provenance, "text": "The cat, “sat”"}.items() <= dict(saved.provenance).items()
        assert saved.tokens == record.maps[0].query
    with pytest.raises(RequestError, match="does not hold layer 0: choose from --layer 1,4"):
        saved.maps([0])


@pytest.mark.parametrize("suffix", RECORD_SUFFIXES)
def test_a_record_is_loaded_from_any_format(tmp_path: Path, record: AttentionRecord, suffix: str) -> None:
    record.save(tmp_path / f"a{suffix}")
    loaded = load(tmp_path / f"a{suffix}")
    assert np.array_equal(loaded.weights, record.weights)
    assert loaded.weights.dtype == record.weights.dtype
    loaded.save(tmp_path / f"b{suffix}")
    assert (tmp_path / f"b{suffix}").read_bytes() == (tmp_path / f"a{suffix}").read_bytes()
    if suffix != ".csv":
        assert loaded.provenance == record.provenance


@pytest.mark.parametrize("suffix", [".npz", ".json", ".safetensors"])
def test_the_output_of_a_record_is_there_where_it_is_asked_for(tmp_path: Path, suffix: str) -> None:
    record = attend("a b", model="scratch", single=True)
    record.save(tmp_path / f"a{suffix}")
    saved = open_saved(tmp_path / f"a{suffix}")
    assert saved.gives_output
    assert next(saved.maps([0])).output is None
    output, wanted = next(saved.maps([0], output=True)).output, record.maps[0].output
    assert output is not None
    assert wanted is not None
    assert np.array_equal(output, wanted)
    assert next(saved.maps([0])).heads[0] == "single"


def test_other_tokens_take_the_place_of_a_records(tmp_path: Path) -> None:
    attend("a b", model="scratch").save(tmp_path / "a.npz")
    saved = open_saved(tmp_path / "a.npz", tokens=tokens_file(tmp_path, ["x", "y"]))
    assert saved.tokens.text == saved.key_tokens.text == ("x", "y")
    assert all(one.query.text == ("x", "y") for one in saved.maps([0]))
    assert "has 2 queries" in refused(RequestError, tmp_path / "a.npz", tokens=tokens_file(tmp_path, ["x"]))


def test_a_record_names_the_tokens_of_an_array(tmp_path: Path) -> None:
    attend("a b", model="scratch").save(tmp_path / "a.json")
    path = write(tmp_path / "b.npy", weights_of(2, 2))
    assert open_saved(path, tokens=tmp_path / "a.json").tokens.text == ("a", "b")


def test_a_record_has_no_batch_and_one_array_of_weights(tmp_path: Path) -> None:
    attend("a b", model="scratch").save(tmp_path / "a.npz")
    assert "is a record of attnviz: leave out --batch" in refused(RequestError, tmp_path / "a.npz", batch=0)
    assert "leave out :output" in refused(RequestError, tmp_path / "a.npz", array="output")
    assert open_saved(tmp_path / "a.npz", array="weights").layers == (0,)


def test_several_records_are_not_chosen_between(tmp_path: Path) -> None:
    attend("a b", model="scratch").save(tmp_path / "a.jsonl")
    line = (tmp_path / "a.jsonl").read_text()
    (tmp_path / "b.jsonl").write_text(f"{line}\n\n{line}")
    message = refused(RequestError, tmp_path / "b.jsonl")
    assert "holds 2 records, and one is read; to take the last one: sed -n 4p b.jsonl > one.json" in message
    with pytest.raises(AttnvizError, match="holds 2 records"):
        load(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text("\n \n")
    assert "holds 0 records" in refused(RequestError, tmp_path / "c.jsonl")


@pytest.mark.parametrize("suffix", [".npz", ".json", ".safetensors"])
def test_a_record_whose_parts_do_not_fit_is_refused(tmp_path: Path, suffix: str, record: AttentionRecord) -> None:
    write(tmp_path / f"a{suffix}", weights_of(1, 1, 2, 2))
    with pytest.raises(AttnvizError, match="is no record of attnviz: its schema is None"):
        load(tmp_path / f"a{suffix}")


# memory


def peak(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


NATIVE = [(suffix, dtype) for suffix in (".npy", ".npz", ".safetensors", ".pt") for dtype in ("<f2", "<f4", "<f8")]


@pytest.mark.parametrize(("suffix", "dtype"), [*NATIVE, (".npy", ">f4"), (".npz", ">f4")])
def test_no_more_memory_than_the_array_and_a_block_of_rows(tmp_path: Path, suffix: str, dtype: str) -> None:
    array = np.full((2, 2, 1500, 1500), 1 / 1500, dtype)
    path = write(tmp_path / f"a{suffix}", array)
    open_saved(path)  # imports what it needs

    def read() -> None:
        saved = open_saved(path)
        for one in saved.maps(saved.layers):
            for _, block in one.blocks():
                assert block.dtype == (np.float64 if dtype == "<f8" else np.float32)

    mapped = suffix in (".npy", ".safetensors", ".pt")
    blocks = 3 * 4 * 256 * 2 * 1500
    assert peak(read) < (0 if mapped else array.nbytes) + blocks + 0.2 * array.nbytes


def test_rows_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    saved = open_saved(write(tmp_path / "a.npy", weights_of(2, 3, 64, 64, dtype=np.float16)))
    one = next(saved.maps([1]))
    assert one.rows(3, 5).dtype == np.float32
    assert one.rows(3, 5).shape == (3, 2, 64)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_weights_are_read_from_every_format(tmp_path: Path, suffix: str) -> None:
    array = weights_of(5, 5, seed=3)
    assert np.array_equal(all_rows(open_saved(write(tmp_path / f"a{suffix}", array))), array[None, None])
