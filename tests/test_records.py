import io
import json
import math
import os
import pickle
import re
import tempfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

from attnviz import attend, load
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionMap, AttentionRecord, Kind, Stack, StoredWeights
from attnviz.render import FORMATS, format_of
from attnviz.render.csvtext import write_csv
from attnviz.render.jsontext import NOT_A_NUMBER, json_bytes, write_json, write_jsonl
from attnviz.render.npz import write_npz
from attnviz.render.tensors import write_safetensors
from attnviz.schema import from_fields, to_fields
from attnviz.tokens import Tokens
from tests.nobody import run_as_nobody
from tests.records import PROVENANCE, Writer, a_record, assert_same, outputs_of, read, records, written

GOLDEN = Path(__file__).parent / "golden" / "record.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


def refused_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} in strict JSON")


def refused_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), "a key twice"
    return dict(pairs)


def strict(content: bytes) -> dict[str, Any]:
    decoded = json.loads(content.decode("utf-8"), parse_constant=refused_constant, object_pairs_hook=refused_twins)
    assert isinstance(decoded, dict)
    return decoded


# round trips


@pytest.mark.parametrize("writer", [write_npz, write_safetensors])
@given(record=records(finite=False))
def test_an_archive_reads_back_exactly(folder: Path, writer: Writer, record: AttentionRecord) -> None:
    suffix = ".npz" if writer is write_npz else ".safetensors"
    assert_same(read(written(record, writer), folder, suffix), record)


@pytest.mark.parametrize("writer", [write_json, write_jsonl])
@given(record=records(finite=True))
def test_json_reads_back_exactly(folder: Path, writer: Writer, record: AttentionRecord) -> None:
    content = written(record, writer)
    strict(content)
    assert (content.count(b"\n") == 1) == (writer is write_jsonl)
    assert_same(read(content, folder, ".json" if writer is write_json else ".jsonl"), record)


@given(record=records(finite=False))
def test_csv_reads_back_what_it_holds(folder: Path, record: AttentionRecord) -> None:
    again = read(written(record, write_csv), folder, ".csv")
    digits = 17 if again.weights.dtype == np.float64 else 9  # a csv has no dtype but that of its digits
    assert [[f"%.{digits}g" % w for w in row] for row in again.weights.reshape(1, -1).tolist()] == [
        [f"%.{digits}g" % w for w in row] for row in record.weights.reshape(1, -1).tolist()
    ]
    if again.weights.dtype == record.weights.dtype:
        assert np.array_equal(again.weights, record.weights, equal_nan=True)
    for ours, theirs in zip(again.maps, record.maps, strict=True):
        assert (ours.layer, ours.heads) == (theirs.layer, theirs.heads)
        for axis in ("query", "key"):
            written_text = [t.encode(errors="backslashreplace").decode() for t in getattr(theirs, axis).text]
            assert list(getattr(ours, axis).text) == written_text


@pytest.mark.parametrize("writer", [write_json, write_jsonl, write_npz, write_safetensors, write_csv])
@given(record=records(finite=False))
def test_the_same_record_gives_the_same_bytes(writer: Writer, record: AttentionRecord) -> None:
    assert written(record, writer) == written(record, writer)


@pytest.mark.parametrize("bits", [1, 0x007FFFFF, 0x00800000, 0x3EAAAAAB, 0x3F7FFFFF, 0x7F7FFFFF])
def test_json_holds_any_float32(folder: Path, bits: int) -> None:
    weights = np.arange(bits - 1, bits + 1, dtype=np.uint32).view(np.float32).reshape(1, 1, 1, 2)
    assert_same(read(written(a_record(weights), write_json), folder, ".json"), a_record(weights))


def test_an_archive_does_not_say_when_it_was_written() -> None:
    content = written(a_record(np.ones((1, 1, 1, 1), np.float32)), write_npz)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_an_archive_holds_the_names_of_the_json_and_no_pickle() -> None:
    record = a_record(np.ones((2, 1, 3, 2), np.float32), np.ones((2, 3, 4), np.float32), notes=("n",))
    with np.load(io.BytesIO(written(record, write_npz)), allow_pickle=False) as archive:
        names, kinds = set(archive.files), {archive[name].dtype.kind for name in archive.files}
        assert archive["query_tokens"].tolist() == ["q0", "q1", "q2"]
        assert archive["weights"].shape == (2, 1, 3, 2)
    assert names == set(strict(written(record, write_json)))
    assert kinds <= set("fiUb")


def test_what_a_model_gives_reads_back(tmp_path: Path) -> None:
    record = attend("The cat isn't “naïve” 😀", layers=[0, 5], heads=[1, 3], single=True, hide_special=True)
    for name in ("a.json", "a.npz"):
        record.save(tmp_path / name)
        again = load(tmp_path / name)
        assert_same(again, record)
        again.save(tmp_path / f"again-{name}")
        assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


# json


def test_json_is_laid_out_as_documented() -> None:
    weights = np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3) / 12
    query = Tokens(("[CLS]", "##a"), ("[CLS]", "##A"), ((0, 0), (3, 4)), (True, False))
    record = a_record(weights, np.ones((2, 2, 4), np.float32), query, notes=("a note",))
    found = strict(written(record, write_json))
    assert list(found) == [
        "schema", "provenance", "notes", "layers", "heads", "names", "stack", "kind", "keys_left_out", "dtype",
        "query_tokens", "query_text", "query_spans", "query_special", "key_tokens", "key_text", "key_spans",
        "key_special", "weights", "output",
    ]  # fmt: skip
    assert found["schema"] == "attnviz/1"
    assert found["provenance"] == PROVENANCE
    assert found["notes"] == ["a note"]
    assert (found["layers"], found["heads"]) == ([0, 3], [0])
    assert found["query_tokens"] == ["[CLS]", "##a"]
    assert found["query_text"] == ["[CLS]", "##A"]
    assert found["query_spans"] == [[0, 0], [3, 4]]
    assert found["query_special"] == [True, False]
    assert np.array_equal(np.array(found["weights"], np.float32), weights)
    assert np.array(found["output"]).shape == (2, 2, 4)


def test_numbers_have_nine_significant_digits_or_seventeen() -> None:
    third = np.full((1, 1, 1, 1), 1 / 3)
    assert b"[0.333333343]" in written(a_record(third.astype(np.float32)), write_json)
    assert b"[0.33333333333333331]" in written(a_record(third), write_json)
    for dtype, most in [(np.float32, 9), (np.float64, 17)]:
        rng = np.random.default_rng(1)
        text = written(a_record(rng.random((1, 1, 20, 20)).astype(dtype)), write_json).split(b'"weights": ')[1]
        digits = [len(re.sub(rb"^0\.0*|e.*", b"", number)) for number in re.findall(rb"[\d.e-]+", text)]
        assert len(digits) == 400
        assert max(digits) == most


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["weights", "output"])
def test_what_is_no_number_is_null_with_a_note_and_reads_back_as_such(tmp_path: Path, value: float, where: str) -> None:
    arrays = {"weights": np.ones((1, 1, 2, 2), np.float32), "output": np.ones((1, 2, 2), np.float32)}
    arrays[where][..., 1] = value
    record = a_record(arrays["weights"], arrays["output"], notes=("first",))
    content = written(record, write_json)
    assert strict(content)["notes"] == ["first", NOT_A_NUMBER]
    assert content.split(b'"weights":')[1].count(b"null") == 2
    again = read(content, tmp_path, ".json")
    found = again.weights if where == "weights" else outputs_of(again)
    assert np.isnan(found[..., 1]).all()
    assert (found[..., 0] == 1).all()
    assert written(again, write_json) == content  # the note is not put there twice
    assert record.notes == ("first",)


def test_only_what_is_no_number_has_the_note() -> None:
    assert strict(written(a_record(np.ones((1, 1, 2, 2), np.float32)), write_json))["notes"] == []


def test_the_size_of_the_json_is_foretold() -> None:
    record = attend("The cat sat on the mat and looked at the bird", model="scratch")
    assert 0.7 < json_bytes(record) / len(written(record, write_json)) < 1.4


def test_json_is_the_same_as_ever() -> None:
    assert written(golden_record(), write_json) == GOLDEN.read_bytes()
    assert_same(load(GOLDEN), golden_record())


def golden_record() -> AttentionRecord:
    query = Tokens(
        ("[CLS]", 'say "hi"', "a\nb"),
        ("[CLS]", "</script>", "👨\u200d👩"),
        ((0, 0), (0, 8), (8, 11)),
        (True, False, False),
    )
    key = Tokens(("Ġthe", "end\0"), ("\u202eשלום", "字\\"), ((0, 4), (4, 8)), (False, False))
    weights = np.array(
        [[[0, 1], [-0.0, 1e-45], [1 / 3, 2 / 3]], [[1e-38, 1], [0.1, 0.9], [np.float32(3.4028235e38), 0.5]]], np.float32
    )
    output = np.array([[1.5, -2, 1e10], [0, 1e-7, 123456792], [-0.0, 1, 16777216]], np.float32)
    provenance = {**PROVENANCE, "text": 'say "hi"\u2028a\nb', "seed": 2**63, "scale": False, "rate": 0.1, "none": None}
    record = a_record(
        weights[None], output[None], query, key, ("single", 0), provenance=provenance, notes=("a “note”",)
    )
    return replace(record, maps=tuple(replace(one, stack="decoder", kind="cross", cut=True) for one in record.maps))


# what one array cannot hold


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_record_without_maps_is_not_written(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(AttnvizError, match="the record holds no maps") as error:
        AttentionRecord((), PROVENANCE).save(tmp_path / f"a.{suffix}")
    assert error.value.exit_code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_record_that_was_read_is_written_in_every_format(tmp_path: Path, suffix: str) -> None:
    attend("The cat sat", layers=[1]).save(tmp_path / "a.npz")
    load(tmp_path / "a.npz").save(tmp_path / f"b.{suffix}")
    assert (tmp_path / f"b.{suffix}").stat().st_size > 100


@pytest.mark.parametrize(
    "change",
    [
        {"heads": (0, 2)},
        {"query": Tokens.of(["q0", "x"])},
        {"key": Tokens.of(["x", "k1"])},
        {"stack": "decoder"},
        {"kind": "cross"},
        {"cut": True},
    ],
)
def test_maps_of_different_heads_or_tokens_are_written_by_stack(tmp_path: Path, change: dict[str, Any]) -> None:
    record = a_record(np.random.default_rng(3).random((3, 2, 2, 2), np.float32))
    mixed = replace(record, maps=(record.maps[0], replace(record.maps[1], **change), record.maps[2]))
    for suffix in ("json", "jsonl", "npz", "safetensors"):
        mixed.save(tmp_path / f"a.{suffix}")
        assert_same_maps(load(tmp_path / f"a.{suffix}"), mixed)
    stacks = json.loads((tmp_path / "a.json").read_bytes())["stacks"]
    second = {"stack": "decoder", "kind": "cross"}.get(next(iter(change)), "encoder-2")
    assert list(stacks) == ["encoder", second]
    assert (stacks["encoder"]["layers"], stacks[second]["layers"]) == ([0, 6], [3])
    assert np.array(stacks["encoder"]["weights"]).shape == (2, 2, 2, 2)


def test_stacks_hold_what_a_record_holds(tmp_path: Path) -> None:
    """Encoder, decoder and cross-attention of distinct sizes, in the order in which they ran, some of them wide."""
    rng = np.random.default_rng(5)
    read, written = Tokens.of(["r0", "r,1", 'r"2', "\ud83d", ""]), Tokens.of(["w0", "Ġw", "é"])
    rows: list[tuple[Stack, Kind, int, int, Tokens, Tokens, type[np.floating[Any]]]] = [
        ("encoder", "self", 0, 2, read, read, np.float32), ("encoder", "self", 1, 2, read, read, np.float32),
        ("decoder", "self", 0, 4, written, written, np.float64),
        ("decoder", "cross", 0, 4, written, read, np.float32),
        ("decoder", "self", 2, 4, written, written, np.float64),
        ("decoder", "cross", 2, 4, written, read, np.float32),
    ]  # fmt: skip
    maps = tuple(
        AttentionMap(
            f"{stack}.{layer}.{kind}", layer, tuple(range(n_heads)),
            StoredWeights(rng.random((n_heads, len(query), len(key))).astype(dtype)), query, key,
            stack=stack, kind=kind, output=rng.random((len(query), 7)).astype(dtype) if kind == "self" else None,
        )
        for stack, kind, layer, n_heads, query, key, dtype in rows
    )  # fmt: skip
    record = AttentionRecord(maps, PROVENANCE, ("a note",))
    for suffix in ("json", "jsonl", "npz", "safetensors"):
        record.save(tmp_path / f"a.{suffix}")
        assert_same_maps(load(tmp_path / f"a.{suffix}"), record)
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["stacks"].tolist() == ["encoder", "decoder", "cross"]
        assert (archive["cross.weights"].shape, archive["encoder.output"].shape) == ((2, 4, 3, 5), (2, 5, 7))
        assert archive["cross.key_text"].tolist() == list(read.text)
    record.save(tmp_path / "a.csv")
    again = load(tmp_path / "a.csv")
    found = [(one.stack, one.kind, one.layer, one.heads) for one in again.maps]
    assert found == [(one.stack, one.kind, one.layer, one.heads) for one in maps]
    for one, other in zip(again.maps, maps, strict=True):
        ours, theirs = one.rows(0, len(one.query)), other.rows(0, len(other.query))
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes()
    lines = (tmp_path / "a.csv").read_text("utf-8").replace("encoder,", "middle,")
    (tmp_path / "b.csv").write_text(lines, "utf-8")
    with pytest.raises(AttnvizError, match="line 2: the stack 'middle' is none of encoder, decoder, cross"):
        load(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda stacks: stacks.update(cross=[]), "the stack cross is no JSON object"),
        (lambda stacks: stacks["cross"].pop("weights"), "its stack cross has no 'weights'"),
        (lambda stacks: stacks["cross"].pop("places"), "its stack cross has no 'places'"),
        (lambda stacks: stacks["cross"].update(places=[0]), "the places in its stacks are not those of 2 maps"),
        (lambda stacks: stacks["cross"].update(places=[1, 2]), "its stack cross has 1 layers, but 2 places"),
        (lambda stacks: stacks.clear(), "the places in its stacks are not those of 0 maps"),
    ],
)
def test_damaged_stacks_are_refused(tmp_path: Path, damage: Callable[[Any], None], words: str) -> None:
    record = a_record(np.ones((2, 2, 2, 2), np.float32))
    replace(record, maps=(record.maps[0], replace(record.maps[1], kind="cross"))).save(tmp_path / "a.json")
    held = json.loads((tmp_path / "a.json").read_bytes())
    damage(held["stacks"])
    (tmp_path / "b.json").write_text(json.dumps(held), "utf-8")
    with pytest.raises(AttnvizError, match=words):
        load(tmp_path / "b.json")


def assert_same_maps(a: AttentionRecord, b: AttentionRecord) -> None:
    """Equal to the last bit, map by map."""
    assert (a.provenance, a.notes) == (b.provenance, b.notes)
    for one, other in zip(a.maps, b.maps, strict=True):
        nothing = StoredWeights(np.empty(one.weights.shape))
        assert replace(one, weights=nothing, output=None) == replace(other, weights=nothing, output=None)
        ours, theirs = one.rows(0, len(one.query)), other.rows(0, len(other.query))
        assert (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes())
        assert (one.output is None) == (other.output is None)
        if one.output is not None and other.output is not None:
            assert one.output.tobytes() == other.output.tobytes()


def test_an_output_that_only_some_maps_have_is_left_out() -> None:
    record = a_record(np.ones((2, 1, 2, 2), np.float32), np.ones((2, 2, 3), np.float32))
    mixed = replace(record, maps=(record.maps[0], replace(record.maps[1], output=None)))
    assert set(to_fields(mixed).arrays) == {"weights"}


# files that are none of ours


def fields_of(record: AttentionRecord) -> dict[str, Any]:
    return strict(written(record, write_json))


def fails(folder: Path, content: bytes, suffix: str) -> str:
    with pytest.raises(AttnvizError) as error:
        read(content, folder, suffix)
    message = str(error.value)
    assert message.startswith(f"{folder / 'record'}{suffix} is no record of attnviz: ")
    assert error.value.exit_code == 3
    assert len(message) < 1000
    return message


SMALL = a_record(np.ones((2, 1, 3, 2), np.float32), np.ones((2, 3, 4), np.float32), notes=("n",))
FIELDS = [name for name in fields_of(SMALL) if name not in ("output", "dtype")]


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_is_missing_is_named(tmp_path: Path, suffix: str, name: str) -> None:
    assert name in fails(tmp_path, without(name, suffix), suffix)


def without(name: str, suffix: str) -> bytes:
    if suffix == ".json":
        fields = fields_of(SMALL)
        del fields[name]
        return json.dumps(fields).encode()
    stream, kept = io.BytesIO(), io.BytesIO(written(SMALL, write_npz))
    with zipfile.ZipFile(kept) as old, zipfile.ZipFile(stream, "w") as new:
        for member in old.namelist():
            if member != f"{name}.npy":
                new.writestr(member, old.read(member))
    return stream.getvalue()


WRONG: list[Any] = [
    None,
    5,
    0.5,
    "x",
    "",
    True,
    [],
    {},
    [None],
    [0.5],
    [True, 1],
    ["a"],
    [[1]],
    [[1, 2, 3]],
    {"a": 1},
    [[]],
]


@pytest.mark.parametrize("name", [*FIELDS, "output"])
def test_a_field_of_another_kind_is_refused_or_harmless(tmp_path: Path, name: str) -> None:
    refused = 0
    for wrong in WRONG:
        try:
            record = read(json.dumps({**fields_of(SMALL), name: wrong}).encode(), tmp_path, ".json")
        except AttnvizError as error:
            assert "is no record of attnviz" in str(error)
            refused += 1
        else:
            assert_same(read(written(record, write_json), tmp_path, ".json"), record)
    assert refused >= len(WRONG) - 2


@pytest.mark.parametrize("name", ["attnviz", "model", "backend", "device", "dtype", "text"])
def test_a_provenance_without_what_is_always_printed_is_refused(tmp_path: Path, name: str) -> None:
    fields = fields_of(SMALL)
    del fields["provenance"][name]
    assert f"it has no {name!r}" in fails(tmp_path, json.dumps(fields).encode(), ".json")
    fields["provenance"][name] = 5
    assert name in fails(tmp_path, json.dumps(fields).encode(), ".json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "attnviz/2"}, "its schema is 'attnviz/2': this version of attnviz reads 'attnviz/1'"),
        ({"layers": [0]}, "its layers are 1, but there are 2 names and 2 weights"),
        ({"layers": [0, 1, 2]}, "its layers are 3"),
        ({"names": ["a"]}, "there are 1 names"),
        ({"heads": [0, 1]}, "do not fit together"),
        ({"heads": ["double"]}, "its heads is no list of numbers and 'single', 'mean', 'max', 'rollout'"),
        ({"query_tokens": ["a"]}, "do not fit together"),
        ({"key_text": ["a", "b", "c"]}, "do not fit together"),
        ({"query_spans": [[0, 0], [0, 0], [0]]}, "query_spans is no list of pairs"),
        ({"stack": "middle"}, "its stack is 'middle'"),
        ({"kind": "selfish"}, "its kind is 'selfish'"),
        ({"weights": [[[[1, 2], [3]]]]}, "weights is no array of numbers"),
        ({"weights": [[[["a"]]]]}, "weights is no array of numbers"),
        ({"weights": [[[1, 2]]]}, "weights have 3 axes, not 4"),
        ({"weights": [[[[1] * 9] * 3]] * 2}, "do not fit together"),
        ({"output": [[1, 2]]}, "output have 2 axes, not 3"),
        ({"output": [[[1]] * 3]}, "its output is 1 × 3 × 1, but there are 2 layers and 3 queries"),
        ({"output": [[[1, 2]]] * 2}, "its output is 2 × 1 × 2, but there are 2 layers and 3 queries"),
    ],
)
def test_parts_that_do_not_fit_are_said_to(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert words in fails(tmp_path, json.dumps({**fields_of(SMALL), **changes}).encode(), ".json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not strict JSON"),
        (b"\xff", "is not UTF-8: byte 0xFF in line 1"),
        (b"[1, 2]", "its schema is None"),
        (b"null", "holds no JSON object"),
        (b"{}", "its schema is None"),
        (b'{"tokens": ["a"], "attention": [[1]]}', "its schema is None"),
        (b'{"weights": [[[[NaN]]]]}', "NaN is not JSON"),
        (b'{"weights": [[[[-Infinity]]]]}', "-Infinity is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"weights": ' + b"[" * 900 + b"]" * 900 + b"}", "weights is no array"),
        (b'{"weights": ' + b"9" * 10_000 + b"}", "not strict JSON"),
        (b'{"weights": [[[[1' + b"0" * 400 + b"]]]]}", "weights is no array of numbers"),
        (b"PK\x03\x04", "not strict JSON"),
    ],
    ids=range(14),
)
def test_json_that_is_none_of_ours_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in fails(tmp_path, content, ".json")


def test_a_number_too_large_for_float32_is_infinite(tmp_path: Path) -> None:
    content = json.dumps({**fields_of(SMALL), "weights": [[[[1e39, -1e39]] * 3]] * 2}).encode()
    assert np.isinf(read(content, tmp_path, ".json").weights).all()


def test_truncated_json_is_refused(tmp_path: Path) -> None:
    content = written(SMALL, write_json)
    for length in range(0, len(content) - 2, 37):
        fails(tmp_path, content[:length], ".json")


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


class Canary:
    """What is pickled as a call that makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_nothing_pickled_is_ever_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    bomb = np.array([Canary(canary)], dtype=object)
    single = io.BytesIO()
    np.save(single, bomb, allow_pickle=True)
    for content in (npz(weights=bomb, schema=np.array("attnviz/1")), pickle.dumps(Canary(canary)), single.getvalue()):
        assert "damaged, or not what its name says" in fails(tmp_path, content, ".npz")
        fails(tmp_path, content, ".json")
    assert not canary.exists()


def single_array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones((1, 1, 2, 2), np.float32))
    return stream.getvalue()


def absurd_header() -> bytes:
    stream = io.BytesIO()
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("weights.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return stream.getvalue()


def without_maps() -> bytes:
    with np.load(io.BytesIO(written(SMALL, write_npz))) as archive:
        arrays = {name: archive[name] for name in archive.files}
    empty = np.array("[]")
    return npz(**{**arrays, "weights": arrays["weights"][:0], "layers": empty, "names": empty})


def damaged_deflate() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, weights=np.zeros((1, 1, 50, 50), np.float32))
    content = bytearray(stream.getvalue())
    content[80:100] = b"\xff" * 20
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged"),
        (b"PK\x03\x04", "damaged"),
        (b"PK\x05\x06" + b"\0" * 18, "its schema is None"),
        (b"\x93NUMPY", "damaged"),
        (single_array(), "it is a single array"),
        (absurd_header(), "damaged"),
        (damaged_deflate(), "damaged"),
        (npz(attention=np.ones(3)), "its schema is None"),
        (npz(schema=np.array("[" * 100_000)), "nested too deeply"),
        (npz(schema=np.array('{"a"')), "text that is not JSON"),
        (npz(schema=np.array(b"attnviz/1")), "its schema is b'attnviz/1'"),
        (npz(schema=np.ones((3, 3))), "its schema is"),
        (npz(schema=np.array("x" * 10_000)), "its schema is"),
        (without_maps(), "its layers are 0"),
    ],
    ids=range(14),
)
def test_an_archive_that_is_none_of_ours_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in fails(tmp_path, content, ".npz")


@pytest.mark.parametrize("dtype", ["i8", "c8", "U1", "?", "M8[s]", "S1"])
def test_weights_that_are_no_floats_are_refused(tmp_path: Path, dtype: str) -> None:
    with np.load(io.BytesIO(written(SMALL, write_npz))) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["weights"] = np.zeros((2, 1, 3, 2), dtype)
    assert "not floating-point numbers" in fails(tmp_path, npz(**arrays), ".npz")


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
def test_weights_of_any_width_and_byte_order_are_read(tmp_path: Path, dtype: str) -> None:
    with np.load(io.BytesIO(written(SMALL, write_npz))) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["weights"] = np.full((2, 1, 3, 2), 0.25, dtype)
    weights = read(npz(**arrays), tmp_path, ".npz").weights
    assert weights.dtype == (np.float64 if dtype.endswith("8") else np.float32)
    assert (weights == 0.25).all()


def test_a_damaged_archive_is_refused_or_reads_as_it_was(tmp_path: Path) -> None:
    content = written(SMALL, write_npz)
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(content), 300).tolist():
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        try:
            record = read(bytes(damaged), tmp_path, ".npz")
        except AttnvizError as error:
            assert "is no record of attnviz" in str(error)
            refused += 1
        else:
            assert_same(record, SMALL)
    assert refused > 150


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    content = written(SMALL, write_npz)
    for length in range(1, len(content), 101):
        fails(tmp_path, content[:length], ".npz")


@pytest.mark.parametrize("name", ["no.json", "no/such.npz", "x" * 300 + ".json", "a\0.json"])
def test_a_file_that_does_not_exist_is_said_to(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="does not exist: name a saved record") as error:
        load(tmp_path / name)
    assert error.value.exit_code == 2


def test_a_folder_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(RequestError, match="is a folder: name a saved record"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.txt", "a", "a.jsn", "a.npy", ".json"])
def test_a_suffix_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        RequestError, match=r"cannot be read by its suffix '.*': \.npz, \.json, \.jsonl, \.csv or \.safetensors"
    ):
        load(tmp_path / name)


def test_suffixes_are_read_in_any_case(tmp_path: Path) -> None:
    SMALL.save(tmp_path / "a.JSON")
    SMALL.save(tmp_path / "b.Npz")
    assert_same(load(str(tmp_path / "a.JSON")), load(str(tmp_path / "b.Npz")))


def test_fields_come_apart_and_together_again() -> None:
    fields = to_fields(SMALL)
    assert_same(from_fields(fields.plain, fields.arrays), SMALL)


# saving


@pytest.mark.parametrize("name", ["a.jsn", "a", "a.docx", "a.json.bak", "a."])
def test_a_suffix_that_no_format_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError) as error:
        SMALL.save(tmp_path / name)
    for suffix in FORMATS:
        assert f".{suffix}" in str(error.value)
    assert error.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_suffix_mistyped_is_corrected() -> None:
    with pytest.raises(RequestError, match=r"did you mean \.json\?"):
        format_of(Path("a.jsn"))


def test_a_record_is_saved_over_the_file_it_came_from(tmp_path: Path) -> None:
    for name in ("a.json", "a.npz"):
        SMALL.save(tmp_path / name)
        load(tmp_path / name).save(tmp_path / name)
        assert_same(load(tmp_path / name), SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.npz"]


def test_a_record_is_saved_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("a.json")
    SMALL.save(str(tmp_path / "link.json"))
    assert (tmp_path / "link.json").is_symlink()
    assert_same(load(tmp_path / "a.json"), SMALL)


def test_a_folder_that_is_missing_or_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    for path in (tmp_path / "no" / "a.json", tmp_path / "a.json"):
        with pytest.raises(RequestError, match="folder"):
            SMALL.save(path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("name", ["a.json", "a.npz"])
def test_a_record_that_cannot_be_written_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    class Failing(StoredWeights):
        def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
            raise MemoryError

    (tmp_path / name).write_bytes(b"old")
    failing = replace(SMALL, maps=tuple(replace(one, weights=Failing(one.rows(0, 3))) for one in SMALL.maps))
    with pytest.raises(MemoryError):
        failing.save(tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_record_is_saved_into_a_pipe(tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    SMALL.save(pipe)
    reader.join(timeout=20)
    (tmp_path / "whole").mkdir()
    assert_same(read(found[0], tmp_path / "whole", suffix), SMALL)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_is_full_is_said_to_be() -> None:
    imports = """
from attnviz import AttnvizError, attend
os.chdir(sys.argv[1])
record = attend("a b", model="scratch")
for suffix in ("json", "npz"):
    record.save(f"plain.{suffix}")  # imports what it needs
"""
    program = """
for suffix in ("json", "npz"):
    for device in ("null", "full"):
        os.symlink(f"/dev/{device}", f"{device}.{suffix}")
        try:
            record.save(f"{device}.{suffix}")
        except AttnvizError as error:
            print(error.exit_code, error)
        else:
            print("written")
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        lines = run_as_nobody(imports, program, folder)
    full = "3 output full.{} cannot be written: No space left on device"
    assert lines == ["written", full.format("json"), "written", full.format("npz")]


def test_weights_are_rows_that_sum_to_one(tmp_path: Path) -> None:
    attend("The cat sat on the mat").save(tmp_path / "a.json")
    weights = np.array(strict((tmp_path / "a.json").read_bytes())["weights"])
    assert weights.shape == (6, 12, 8, 8)
    assert math.isclose(float(weights.sum()), 6 * 12 * 8, rel_tol=1e-6)
