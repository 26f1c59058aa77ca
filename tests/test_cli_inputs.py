"""`attnviz heads` on saved attention and on token vectors: what is taken, what is refused, and in which words."""

import io
import json
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file
from wcwidth import wcswidth

import attnviz
from attnviz.cli.options import InputOptions
from attnviz.maps import AttentionRecord
from attnviz.render import FORMATS
from attnviz.sources.saved_contents import READERS
from tests.cli import Answer, error, run
from tests.saved import tokens_file, weights_of, write

Array = npt.NDArray[Any]

NUMBERS = ("--format", "json")
RECORD_FORMATS = ("json", "jsonl", "csv", "npz", "safetensors")
"""The formats of attnviz that read back."""


def shown(*arguments: object) -> Answer:
    """The answer of a command that succeeds, in json."""
    answer = run("heads", *map(str, arguments), *NUMBERS)
    assert answer.code == 0, answer.err
    return answer


def weights_in(answer: Answer) -> Array:
    return np.array(answer.json["weights"], dtype=np.float64)


def refused(folder: Path, *arguments: object, code: int) -> str:
    """The message of a command that fails before it has written anything, though asked for every format."""
    outputs = folder / "out"
    outputs.mkdir(exist_ok=True)
    wanted = [part for name in FORMATS for part in ("-o", str(outputs / f"x.{name}"))]
    message = error("heads", *map(str, arguments), *wanted, code=code)
    assert not list(outputs.iterdir())
    return message


# saved attention: arrays


SHAPES = [(4, 5), (3, 4, 5), (2, 3, 4, 5), (2, 1, 3, 4, 5)]
FILES = [(suffix, shape) for suffix in READERS for shape in (SHAPES[:1] if suffix == ".csv" else SHAPES)]


@pytest.mark.parametrize(("suffix", "shape"), FILES)
def test_an_array_of_any_kind_is_shown_as_it_is(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    weights = weights_of(*shape)
    answer = shown("--attention", write(tmp_path / f"saved{suffix}", weights))
    by_layer = {2: weights[None, None], 3: weights[None], 4: weights}.get(len(shape), weights[:, 0])  # a batch of one
    np.testing.assert_array_equal(weights_in(answer), by_layer)
    assert answer.json["query_tokens"] == ["0", "1", "2", "3"]
    assert answer.json["key_tokens"] == ["0", "1", "2", "3", "4"]
    assert answer.json["kind"] == "cross"
    assert ("is read as" in answer.err) == (len(shape) != 4)
    assert answer.json["notes"] == [line.removeprefix("note: ") for line in answer.err.splitlines()]


@pytest.mark.parametrize(
    ("dtype", "order"), [("float16", "C"), (">f4", "C"), (">f8", "F"), ("float32", "F"), ("bool", "C"), ("int64", "F")]
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_any_type_of_number_and_any_order_in_memory_will_do(
    tmp_path: Path, suffix: str, dtype: str, order: Any
) -> None:
    weights = np.stack([np.eye(6)[::-1], np.eye(6)]) if dtype in ("bool", "int64") else weights_of(2, 6, 6)
    stored = np.asarray(weights.astype(dtype), order=order)
    answer = shown("--attention", write(tmp_path / f"saved{suffix}", stored))
    read = weights_in(answer)[0].astype(answer.json["provenance"]["dtype"])
    np.testing.assert_array_equal(read, stored.astype(read.dtype))
    assert read.dtype == ("float64" if dtype == ">f8" else "float32")


def test_bfloat16_is_widened_and_rows_that_sum_to_about_1_are_sound(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    halves = torch.from_numpy(weights_of(2, 3, 5, 5)).to(torch.bfloat16)
    assert (halves.float().sum(-1) != 1).any()
    save_torch({"attention": halves}, tmp_path / "half.safetensors")
    answer = shown("--attention", tmp_path / "half.safetensors")
    np.testing.assert_array_equal(weights_in(answer).astype(np.float32), halves.float().numpy())
    assert answer.err == ""


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".json", ".pt"])
def test_of_several_arrays_one_is_chosen_after_a_colon(tmp_path: Path, suffix: str) -> None:
    import torch

    held, file = {"first": weights_of(2, 4, 4), "second": weights_of(3, 5, 5, seed=1)}, tmp_path / f"two{suffix}"
    if suffix == ".npz":
        np.savez(file, **held)  # type: ignore[arg-type]
    elif suffix == ".safetensors":
        save_file(held, file)
    elif suffix == ".json":
        file.write_text(json.dumps({name: array.tolist() for name, array in held.items()}))
    else:
        torch.save({name: torch.from_numpy(array) for name, array in held.items()}, file)
    np.testing.assert_array_equal(weights_in(shown("--attention", f"{file}:second"))[0], held["second"])
    for typed in (str(file), f"{file}:third"):
        message = refused(tmp_path, "--attention", typed, code=2)
        for words in ("first (2 × 4 × 4", "second (3 × 5 × 5", f"{file}:first"):
            assert words in message


def test_a_name_is_refused_where_there_is_none_to_choose(tmp_path: Path) -> None:
    file = write(tmp_path / "one.npy", weights_of(4, 4))
    assert "leave out :weights" in refused(tmp_path, "--attention", f"{file}:weights", code=2)
    np.savez(tmp_path / "none.npz")
    assert "no arrays" in refused(tmp_path, "--attention", tmp_path / "none.npz", code=2)


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".json", ".pt"])
def test_one_of_a_batch(tmp_path: Path, suffix: str, batch: int) -> None:
    weights = weights_of(2, 3, 4, 5, 5)
    file = write(tmp_path / f"batch{suffix}", weights)
    answer = shown("--attention", file, "--batch", batch)
    np.testing.assert_array_equal(weights_in(answer), weights[:, batch])
    assert f"entry {batch} of the batch of 3" in answer.err
    message = refused(tmp_path, "--attention", file, code=2)
    assert "batch of 3" in message
    assert "--batch INDEX, 0 to 2" in message
    assert "0 to 2" in refused(tmp_path, "--attention", file, "--batch", 3, code=2)
    assert "--batch" in refused(tmp_path, "--attention", file, "--batch", -1, code=2)


# saved attention: tokens


@pytest.fixture
def square(tmp_path: Path) -> Path:
    return write(tmp_path / "square.npz", weights_of(2, 3, 3))


@pytest.fixture
def oblong(tmp_path: Path) -> Path:
    return write(tmp_path / "oblong.npz", weights_of(2, 3, 5))


def test_tokens_from_a_list_from_lines_and_from_two_files(tmp_path: Path, square: Path, oblong: Path) -> None:
    queries = tokens_file(tmp_path, ["o", "cão", "[/INST]"])
    keys = tokens_file(tmp_path, "the\n\n dog \n漢字\n:smile:\n", "keys.txt")
    answer = shown("--attention", square, "--tokens", queries)
    assert answer.json["query_text"] == answer.json["key_text"] == ["o", "cão", "[/INST]"]
    assert answer.json["kind"] == "self"
    answer = shown("--attention", oblong, "--tokens", queries, "--key-tokens", keys)
    assert answer.json["query_text"] == ["o", "cão", "[/INST]"]
    assert answer.json["key_text"] == ["the", "", " dog ", "漢字", ":smile:"]
    both = tokens_file(tmp_path, {"queries": list("abc"), "keys": list("vwxyz")}, "both.json")
    answer = shown("--attention", oblong, "--tokens", both)
    assert (answer.json["query_text"], answer.json["key_text"]) == (list("abc"), list("vwxyz"))


def test_queries_alone_leave_the_keys_numbered(tmp_path: Path, oblong: Path) -> None:
    answer = shown("--attention", oblong, "--tokens", tokens_file(tmp_path, list("abc")))
    assert (answer.json["query_text"], answer.json["key_text"]) == (list("abc"), list("01234"))


@pytest.mark.parametrize("n_tokens", [2, 4])
def test_tokens_of_another_number_name_both_numbers_and_both_files(tmp_path: Path, square: Path, n_tokens: int) -> None:
    file = tokens_file(tmp_path, [f"t{i}" for i in range(n_tokens)])
    message = refused(tmp_path, "--attention", square, "--tokens", file, code=2)
    for words in (f"{n_tokens}", "3", file.name, square.name):
        assert words in message


@pytest.mark.parametrize(
    ("content", "name", "code", "words"),
    [
        (["a", 1, "c"], "t.json", 2, "at position 1, which is no string"),
        ({"words": ["a"]}, "t.json", 2, "no tokens"),
        ("[", "t.json", 3, "is not JSON"),
        ("[" * 100_000, "t.json", 3, "is not JSON"),
        (None, "missing.json", 2, "does not exist"),
        (None, "", 2, "folder"),
    ],
)
def test_tokens_that_are_none(tmp_path: Path, square: Path, content: object, name: str, code: int, words: str) -> None:
    file = tmp_path / name if content is None else tokens_file(tmp_path, content, name)
    message = refused(tmp_path, "--attention", square, "--tokens", file, code=code)
    assert words in message
    assert str(file) in message


def test_repeated_tokens_stay_apart(tmp_path: Path) -> None:
    words = ["the", "cat", "saw", "the", "cat", "the"]
    file, weights = tokens_file(tmp_path, words), weights_of(2, 6, 6)
    saved = write(tmp_path / "six.npz", weights)
    answer = shown("--attention", saved, "--tokens", file, "--query", "the")
    assert answer.json["query_text"] == ["the"] * 3
    np.testing.assert_array_equal(weights_in(answer)[0], weights[:, [0, 3, 5]])
    rows = run("heads", "--attention", str(saved), "--tokens", str(file), "--width", "100").text
    assert [line[:5].strip() for line in rows.splitlines()[6:12]] == [
        "the 0",
        "cat 1",
        "saw",
        "the 3",
        "cat 4",
        "the 5",
    ]


def test_queries_stand_down_the_side_and_keys_along_the_top(tmp_path: Path, oblong: Path) -> None:
    both = tokens_file(tmp_path, {"queries": ["uno", "due", "tre"], "keys": ["k1", "k2", "k3", "k4", "k5"]})
    text = run("heads", "--attention", str(oblong), "--tokens", str(both), "--width", "100").text
    weights = weights_of(2, 3, 5)
    for name, row in zip(("uno", "due", "tre"), weights[0], strict=True):
        cells = " ".join(f"{round(100 * weight):2d}" for weight in row)
        assert re.search(rf"^{name} +{re.escape(cells.strip())}", text.replace(".", " "), re.MULTILINE), text
    assert "rows: query, columns: key" in text


# saved attention: records


@pytest.fixture(scope="module")
def record() -> AttentionRecord:
    """Two layers out of the middle, three heads of different numbers."""
    return attnviz.attend("the cat sat", layers=[1, 4], heads=[2, 7, 11])


@pytest.mark.parametrize("name", RECORD_FORMATS)
def test_a_record_of_chosen_layers_and_heads(tmp_path: Path, record: AttentionRecord, name: str) -> None:
    file = tmp_path / f"record.{name}"
    record.save(file)
    answer = shown("--attention", file)
    assert (answer.json["layers"], answer.json["heads"]) == ([1, 4], [2, 7, 11])
    np.testing.assert_array_equal(np.array(answer.json["weights"], np.float32), record.weights)
    assert answer.json["query_text"] == list(record.maps[0].query.text)
    every = shown("--attention", file, "--layer", "all")
    assert every.json["layers"] == [1, 4]
    last = shown("--attention", file, "--layer", "-1", "--head", "7")
    assert (last.json["layers"], last.json["heads"]) == ([4], [7])
    np.testing.assert_array_equal(np.array(last.json["weights"], np.float32)[0, 0], record.weights[1, 1])
    one = shown("--attention", file, "--head", "4.11")
    assert (one.json["layers"], one.json["heads"]) == ([4], [11])


def test_people_see_the_first_layer_that_a_record_holds(tmp_path: Path, record: AttentionRecord) -> None:
    file = str(tmp_path / "record.npz")
    record.save(file)
    text = run("heads", "--attention", file).text
    assert "layer 1" in text
    assert "layer 4" not in text
    assert "layer 4" in run("heads", "--attention", file, "--layer", "all").text
    assert re.findall(r"\bhead (\d+)", text)[:3] == ["2", "7", "11"]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--layer", "0", ["no layer 0", "1", "4"]),
        ("--layer", "99", ["no layer 99"]),
        ("--layer", "1-3", ["no layer 3"]),
        ("--head", "0", ["no head 0", "2", "7", "11"]),
        ("--head", "3.2", ["no layer 3"]),
        ("--query", "dog", ["'dog'", "cat"]),
        ("--batch", "0", ["--batch", "record"]),
    ],
)
def test_what_a_record_does_not_hold(
    tmp_path: Path, record: AttentionRecord, option: str, value: str, words: list[str]
) -> None:
    file = tmp_path / "record.npz"
    record.save(file)
    message = refused(tmp_path, "--attention", file, option, value, code=2)
    for word in words:
        assert word in message


def test_a_record_keeps_its_provenance_and_says_where_it_was(tmp_path: Path, record: AttentionRecord) -> None:
    file = tmp_path / "record.json"
    record.save(file)
    said = shown("--attention", file).json["provenance"]
    assert {**record.provenance, "saved_in": "record.json"}.items() <= said.items()
    assert str(tmp_path) not in json.dumps(said)
    assert "the cat sat" in run("heads", "--attention", str(file)).text


def test_the_output_of_a_record_is_kept_and_a_missing_one_refused(tmp_path: Path, record: AttentionRecord) -> None:
    full = attnviz.attend("the cat", layers=[2], with_output=True)
    full.save(tmp_path / "full.npz")
    answer = shown("--attention", tmp_path / "full.npz")
    np.testing.assert_array_equal(np.array(answer.json["output"], np.float32)[0], full.maps[0].output)
    record.save(tmp_path / "bare.npz")
    message = refused(tmp_path, "--attention", tmp_path / "bare.npz", "--with-output", code=2)
    assert "--with-output" in message


# saved attention: faults


def npz_of(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy_of(array: Any, *, pickled: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=pickled)
    return stream.getvalue()


def absurd() -> bytes:
    """The header of 8 TB, and nothing behind it."""
    stream = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


def archive_of(member: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("attention.npy", member)
    return stream.getvalue()


def safetensors_of(**arrays: Array) -> bytes:
    from safetensors.numpy import save

    return save(arrays)


def with_a_wrong_checksum() -> bytes:
    whole = npz_of(attention=weights_of(2, 4, 4))
    place = whole.index(weights_of(2, 4, 4).tobytes())
    return whole[: place + 9] + bytes([whole[place + 9] ^ 1]) + whole[place + 10 :]


class Canary:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, int]]:
        return os.open, ("canary", os.O_CREAT | os.O_WRONLY)


OBJECTS = np.array([Canary(), None], dtype=object)
SOUND = weights_of(2, 4, 4)

DAMAGED: dict[str, tuple[str, bytes, int, str]] = {
    "npz cut short": ("x.npz", npz_of(attention=SOUND)[:-40], 3, "damaged"),
    "npz cut in the middle": ("x.npz", npz_of(attention=SOUND)[:200], 3, "damaged"),
    "npz of nothing": ("x.npz", b"", 3, "damaged"),
    "npz of text": ("x.npz", b"attention: 0.5 0.5\n", 3, "damaged"),
    "npz that is an npy": ("x.npz", npy_of(SOUND), 3, ".npy"),
    "npz with a wrong checksum": ("x.npz", with_a_wrong_checksum(), 3, "CRC"),
    "npz pickled": ("x.npz", archive_of(npy_of(OBJECTS, pickled=True)), 3, "objects"),
    "npz absurd": ("x.npz", archive_of(absurd()), 3, "1000000 × 1000000"),
    "npy cut short": ("x.npy", npy_of(SOUND)[:-8], 3, "damaged"),
    "npy pickled": ("x.npy", npy_of(OBJECTS, pickled=True), 3, "objects"),
    "npy absurd": ("x.npy", absurd(), 3, "1000000 × 1000000"),
    "safetensors cut in the data": ("x.safetensors", safetensors_of(attention=SOUND)[:-8], 3, "damaged"),
    "safetensors cut in the header": ("x.safetensors", safetensors_of(attention=SOUND)[:20], 3, "damaged"),
    "safetensors of nothing": ("x.safetensors", b"", 3, "damaged"),
    "safetensors absurd": ("x.safetensors", (1 << 60).to_bytes(8, "little") + b"{}", 3, "damaged"),
    "json with NaN": ("x.json", b"[[0.5, NaN], [0.5, 0.5]]", 3, "NaN"),
    "json of uneven rows": ("x.json", b"[[0.5, 0.5], [1.0]]", 3, "a row of 1"),
    "json nested too deeply": ("x.json", b"[" * 100_000, 3, "nested"),
    "json cut short": ("x.json", b"[[0.5, 0.5], [1.0", 3, "JSON"),
    "json of one number": ("x.json", b"0.5", 3, "list"),
    "csv of uneven rows": ("x.csv", b"0.5,0.5\n1.0\n", 2, "line 2"),
    "csv of words": ("x.csv", b"0.5,0.5\n0.5,half\n", 2, "'half'"),
    "csv not in utf-8": ("x.csv", b",caf\xe9\na,1\n", 2, "UTF-8"),
    "pt that is a pickle": ("x.pt", pickle.dumps(Canary()), 3, "x.pt"),
    "pt of text": ("x.pt", b"weights", 3, "x.pt"),
}  # fmt: skip
USELESS: dict[str, tuple[str, bytes, int, str]] = {
    "complex": ("x.npy", npy_of(SOUND.astype(np.complex64)), 2, "complex64"),
    "strings": ("x.npy", npy_of(np.array([["a", "b"]])), 2, "str32"),
    "dates": ("x.npy", npy_of(np.zeros((2, 2), "M8[s]")), 2, "datetime64"),
    "one axis": ("x.npy", npy_of(np.ones(3)), 2, "1 axis"),
    "six axes": ("x.npy", npy_of(np.ones((1,) * 6)), 2, "6 axes"),
    "no keys": ("x.npy", npy_of(np.ones((2, 3, 0))), 2, "nothing on its key axis"),
    "scores": ("x.npy", npy_of(9 * np.random.default_rng(0).standard_normal((2, 6, 6))), 2, "scores"),
    "another suffix": ("x.h5", b"", 2, ".safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("fault", [*DAMAGED, *USELESS])
def test_a_file_that_is_no_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name, content, code, words = (DAMAGED | USELESS)[fault]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    message = refused(tmp_path, "--attention", tmp_path / name, code=code)
    assert words in message
    assert name in message or "look like scores" in message
    assert "allow_pickle" not in message
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(("name", "words"), [("missing.npz", "does not exist"), ("", "is a folder")])
def test_a_file_that_is_not_there(tmp_path: Path, name: str, words: str) -> None:
    message = refused(tmp_path, "--attention", tmp_path / name, code=2)
    assert words in message
    assert str(tmp_path / name) in message


def dropped(p: float) -> Array:
    """Weights as they are in training, with dropout on."""
    weights = weights_of(2, 6, 6)
    return weights * (np.random.default_rng(4).random(weights.shape) >= p) / (1 - p)


def with_value(value: float, row: int) -> Array:
    weights = weights_of(3, 5, 5)
    weights[1, row, 2] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (with_value(np.nan, 3), ["layer 0 head 1 row 3 is not a number"]),
        (with_value(np.inf, 0), ["layer 0 head 1 row 0 holds an infinite value"]),
        (with_value(-np.inf, 4), ["layer 0 head 1 row 4 holds an infinite value"]),
        (with_value(-0.4, 2), ["layer 0 head 1 row 2 holds a negative weight"]),
        (0.8 * weights_of(3, 5, 5), ["layer 0 head 0 row 0 sums to less than 1", "sink", "15 of 15 rows"]),
        (weights_of(3, 5, 6)[:, :, 1:], ["sums to less than 1", "sink"]),
        (np.where(weights_of(3, 5, 5) > 0.2, 1.25 * weights_of(3, 5, 5), 0), ["sum", "dropout is the usual cause"]),
        (dropped(0.5), ["sum", "dropout is the usual cause"]),
        (np.swapaxes(weights_of(3, 5, 5), 1, 2), ["columns that sum to 1", "may be transposed", "rows are queries"]),
        (weights_of(3, 5, 5) * (np.arange(5) != 1)[:, None], ["row 1 is 0 throughout: it attends to nothing"]),
    ],
    ids=[
        "nan",
        "infinite",
        "minus infinite",
        "negative",
        "sink",
        "sink left out",
        "dropout",
        "more dropout",
        "transposed",
        "masked row",
    ],
)
def test_rows_that_are_no_distribution_are_shown_as_they_are_and_said(
    tmp_path: Path, weights: Array, words: list[str]
) -> None:
    file = write(tmp_path / "odd.npz", weights)
    answer = shown("--attention", file)
    for word in words:
        assert word in answer.err
        assert any(word in line for line in answer.json["notes"])
    kept = weights_in(answer)[0]
    np.testing.assert_array_equal(kept, np.where(np.isfinite(weights), weights, np.nan))
    outputs = [tmp_path / f"x.{name}" for name in FORMATS]
    done = run("heads", "--attention", str(file), *(part for path in outputs for part in ("-o", str(path))))
    assert (done.code, done.err) == (0, answer.err)
    assert all(path.stat().st_size > 0 for path in outputs)


# options that say nothing

VALUES: dict[str, list[str]] = {
    "text": ["a b"], "file": ["-f", "text.txt"], "model": ["--model", "scratch"], "tokens": ["--tokens", "t.json"],
    "key_tokens": ["--key-tokens", "t.json"], "batch": ["--batch", "0"], "truncate": ["--truncate"],
    "stride": ["--stride", "5"], "n_heads": ["--n-heads", "2"], "d_model": ["--d-model", "8"], "seed": ["--seed", "1"],
    "no_positions": ["--no-positions"], "no_scale": ["--no-scale"], "shared_projections": ["--shared-projections"],
    "causal": ["--causal"], "window": ["--window", "2"], "mask": ["--mask", "mask.npy"],
    "backend": ["--backend", "torch"], "device": ["--device", "cuda"], "dtype": ["--dtype", "float64"],
    "attention": ["--attention", "saved.npy"], "embeddings": ["--embeddings", "own.npz"],
    "probe": ["--probe", "repeat"], "probe_words": ["--probe-words", "3"], "pair": ["--pair", "c d"],
    "target": ["--target", "c d"], "chat": ["--chat"], "generate": ["--generate", "2"],
    "source": ["--source", "pytorch"], "allow_download": ["--allow-download"],
    "allow_bin": ["--allow-bin"],
}  # fmt: skip
"""Every option that says whose attention is looked at, with a value other than its default."""

OF_MODELS = {"probe", "probe_words", "pair", "target", "chat", "generate", "source", "allow_download", "allow_bin"}

NO_USE = {
    "attention": {"text", "file", "model", "embeddings", "truncate", "stride", "n_heads", "d_model", "seed",
                  "no_positions", "no_scale", "shared_projections", "causal", "window", "mask", "device",
                  "dtype"} | OF_MODELS,
    "embeddings": {"text", "file", "model", "tokens", "key_tokens", "batch", "truncate", "stride", "d_model",
                   "no_positions"} | OF_MODELS,
    "model": {"tokens", "key_tokens", "batch", "probe", "probe_words", "target", "chat", "generate"},
}  # fmt: skip
"""What no source of a kind can use."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file for each option."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b")
    Path("t.json").write_text('["a", "b", "c"]')
    np.save("saved.npy", weights_of(2, 3, 3))
    np.save("mask.npy", np.ones((3, 3), bool))
    np.savez("own.npz", embeddings=np.random.default_rng(0).standard_normal((3, 8)))
    return tmp_path


def test_every_option_is_looked_at_here() -> None:
    assert set(VALUES) == {field.name for field in fields(InputOptions)}


def test_a_backend_changes_nothing_of_saved_weights_and_that_is_said(tmp_path: Path) -> None:
    file = write(tmp_path / "saved.npz", weights_of(2, 3, 4, 4))
    plain, placed = (shown("--attention", file, "--backend", name) for name in ("numpy", "torch"))
    assert placed.json == plain.json
    assert placed.err == plain.err + "note: nothing is computed of saved attention: --backend torch changes nothing\n"


@pytest.mark.parametrize(("kind", "option"), [(kind, name) for kind, names in NO_USE.items() for name in sorted(names)])
def test_an_option_without_use_is_refused_by_its_name(here: Path, kind: str, option: str) -> None:
    whose = ["a b"] if kind == "model" else VALUES[kind]
    message = refused(here, *whose, *VALUES[option], code=2)
    said = {"text": "text", "file": "--file"}.get(option, VALUES[option][0])
    assert said in message


@pytest.mark.parametrize("kind", ["attention", "embeddings"])
def test_every_other_option_has_a_use(here: Path, kind: str) -> None:
    for option in set(VALUES) - NO_USE[kind] - {kind, "attention", "device"}:
        shown(*VALUES[kind], *VALUES[option])


@pytest.mark.parametrize("option", ["--single", "--with-output"])
def test_what_needs_projections_is_refused_on_saved_weights(here: Path, option: str) -> None:
    message = refused(here, *VALUES["attention"], option, code=2)
    assert option in message


def test_a_seed_is_refused_where_the_file_has_projections(tmp_path: Path) -> None:
    own = {name: np.eye(4) for name in ("embeddings", "Wq", "Wk", "Wv")}
    np.savez(tmp_path / "own.npz", **own)  # type: ignore[arg-type]
    assert "--seed" in refused(tmp_path, "--embeddings", tmp_path / "own.npz", "--seed", 3, code=2)


# token vectors


def projected(folder: Path, suffix: str = ".npz", *, wide: bool = True) -> tuple[Path, dict[str, Array]]:
    """Six tokens of width 10, values narrower than queries, an output projection and biases."""
    rng, dtype = np.random.default_rng(2), np.float64 if wide else np.float32
    shapes = {"embeddings": (6, 10), "Wq": (10, 12), "Wk": (10, 12), "Wv": (10, 9), "Wo": (9, 7),
              "bq": (12,), "bk": (12,), "bv": (9,), "bo": (7,)}  # fmt: skip
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    if suffix == ".npz":
        np.savez(folder / "own.npz", **arrays)  # type: ignore[arg-type]
    else:
        save_file(arrays, folder / f"own{suffix}")
    return folder / f"own{suffix}", arrays


def attention_of(arrays: dict[str, Array], n_heads: int, scale: float | None = None) -> tuple[Array, Array]:
    """Weights [head, query, key] and the projected output [query, d_out], each head on its own columns."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    q, k, v = (wide["embeddings"] @ wide[f"W{x}"] + wide[f"b{x}"] for x in "qkv")
    weights, parts = [], []
    for head in range(n_heads):
        d, d_v = q.shape[1] // n_heads, v.shape[1] // n_heads
        own, own_v = slice(head * d, (head + 1) * d), slice(head * d_v, (head + 1) * d_v)
        scores = q[:, own] @ k[:, own].T * (d**-0.5 if scale is None else scale)
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights.append(exponentials / exponentials.sum(axis=1, keepdims=True))
        parts.append(weights[-1] @ v[:, own_v])
    return np.stack(weights), np.hstack(parts) @ wide["Wo"] + wide["bo"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(("options", "scale"), [([], None), (["--no-scale"], 1.0)])
def test_own_projections_give_the_attention_of_the_formula(
    tmp_path: Path, suffix: str, wide: bool, options: list[str], scale: float | None
) -> None:
    file, arrays = projected(tmp_path, suffix, wide=wide)
    answer = shown("--embeddings", file, "--n-heads", 3, *options)
    weights, output = attention_of(arrays, 3, scale)
    tolerance = 1e-13 if wide else 2e-6
    np.testing.assert_allclose(weights_in(answer)[0], weights, rtol=0, atol=tolerance)
    np.testing.assert_allclose(np.array(answer.json["output"])[0], output, rtol=0, atol=20 * tolerance)
    assert answer.json["provenance"]["dtype"] == ("float64" if wide else "float32")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("own.csv", 'token,x,y,z,w\nthe,1,0,0,2\n漢字,0,1,0,-1\n"a, b",0.5,0.5,0,0\n'),
        ("own.csv", '\ufeffthe,1,0,0,2\r\n漢字,0,1,0,-1\r\n"a, b",0.5,0.5,0,0\r\n'),
        ("own.txt", "the 1 0 0 2\n漢字 0 1 0 -1\na, b 0.5 0.5 0 0\n"),
        ("own.vec", "3 4\nthe 1 0 0 2\n漢字 0 1 0 -1\na, b 0.5 0.5 0 0\n"),
    ],
    ids=["csv", "csv of a spreadsheet", "glove", "word2vec"],
)
def test_vectors_in_text_files(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    answer = shown("--embeddings", tmp_path / name, "--n-heads", 2)
    assert answer.json["query_text"] == ["the", "漢字", "a, b"]
    assert "drawn from seed 0" in answer.err
    same = tmp_path / "same.npz"
    np.savez(same, embeddings=np.array([[1, 0, 0, 2], [0, 1, 0, -1], [0.5, 0.5, 0, 0]], np.float32))
    expected = shown("--embeddings", same, "--n-heads", 2)
    assert (answer.json["weights"], answer.json["output"]) == (expected.json["weights"], expected.json["output"])
    other = shown("--embeddings", tmp_path / name, "--n-heads", 2, "--seed", 1)
    assert other.json["weights"] != answer.json["weights"]


def changed(**changes: Any) -> bytes:
    arrays: dict[str, Any] = {name: np.eye(4) for name in ("embeddings", "Wq", "Wk", "Wv")}
    return npz_of(**{name: array for name, array in (arrays | changes).items() if array is not None})


def one_off(value: float) -> Array:
    embeddings = np.eye(4)
    embeddings[3, 0] = value
    return embeddings


@pytest.mark.parametrize(
    ("name", "content", "code", "words"),
    [
        ("x.npz", changed()[:-30], 3, "damaged"),
        ("x.npz", b"", 3, "damaged"),
        ("x.npz", npz_of(tokens=OBJECTS), 3, "objects"),
        ("x.npz", archive_of(absurd()), 3, "1000000 × 1000000"),
        ("x.npz", changed(embeddings=one_off(np.nan)), 2, "embeddings[3, 0] is nan"),
        ("x.npz", changed(embeddings=one_off(np.inf)), 2, "embeddings[3, 0] is inf"),
        ("x.npz", changed(Wk=one_off(-np.inf)), 2, "Wk[3, 0] is -inf"),
        ("x.npz", changed(Wq=np.eye(3)), 2, "Wq"),
        ("x.npz", changed(Wv=None), 2, "Wv"),
        ("x.npz", changed(tokens=np.array(["a", "b"])), 2, "2 tokens"),
        ("x.npz", changed(embeddings=np.zeros((0, 4))), 2, "0 × 4"),
        ("x.npz", npz_of(a=np.eye(3), b=np.eye(4)), 2, "embeddings"),
        ("x.safetensors", safetensors_of(embeddings=np.eye(4))[:-8], 3, "damaged"),
        ("x.csv", b"the,1,2\ncat,3\n", 2, "line 2"),
        ("x.csv", b"the,1,2\ncat,3,four\n", 2, "four"),
        ("x.csv", b"the,1,2\ncat,3,nan\n", 2, "nan"),
        ("x.csv", b"", 2, "empty"),
        ("x.txt", b"caf\xe9 1 2\n", 2, "UTF-8"),
        ("x.txt", b"the 1 2\ncat 3\nsat 4 5\n", 2, "line 2"),
        ("x.vec", b"5 2\nthe 1 2\ncat 3 4\n", 2, "5 tokens"),
        ("x.json", b"[[1, 2]]", 2, ".safetensors"),
    ],
)  # fmt: skip
def test_vectors_that_are_none(tmp_path: Path, name: str, content: bytes, code: int, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in refused(tmp_path, "--embeddings", tmp_path / name, code=code)


@pytest.mark.parametrize(("name", "words"), [("missing.npz", "does not exist"), ("", "is a folder")])
def test_vectors_that_are_not_there(tmp_path: Path, name: str, words: str) -> None:
    assert words in refused(tmp_path, "--embeddings", tmp_path / name, code=2)


@pytest.mark.parametrize(("n_heads", "width"), [(4, 10), (7, 12), (3, 8)])
def test_heads_that_do_not_divide_the_width_of_vectors(tmp_path: Path, n_heads: int, width: int) -> None:
    np.savez(tmp_path / "own.npz", embeddings=np.eye(3, width))
    message = refused(tmp_path, "--embeddings", tmp_path / "own.npz", "--n-heads", n_heads, code=2)
    assert str(n_heads) in message
    assert str(width) in message
    assert "or" in message


@pytest.mark.parametrize("kind", ["attention", "embeddings", "tokens", "key_tokens", "mask"])
def test_no_output_replaces_a_file_that_is_read(here: Path, kind: str) -> None:
    name = {"attention": "saved.npy", "embeddings": "own.npz", "mask": "mask.npy"}.get(kind, "t.json")
    target = Path(f"{name}.npz")  # a link, so that the suffix is one that can be written
    target.symlink_to(name)
    before = Path(name).read_bytes()
    whose = VALUES["embeddings" if kind in ("embeddings", "mask") else "attention"]
    arguments = [*whose, *([] if kind in ("attention", "embeddings") else VALUES[kind])]
    assert "also the input" in error("heads", *arguments, "-o", str(target), code=2)
    assert Path(name).read_bytes() == before


@pytest.mark.parametrize("suffix", [".npz", ".json", ".jsonl", ".csv", ".safetensors"])
def test_a_file_is_not_read_and_written_at_once(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"saved{suffix}", weights_of(4, 4))
    before = file.read_bytes()
    assert "also the input" in error("heads", "--attention", str(file), "-o", str(file), code=2)
    assert file.read_bytes() == before


# much of it


@pytest.mark.parametrize("n", [300, 1000])
def test_many_tokens_are_drawn_in_tiles_that_say_what_they_are(tmp_path: Path, n: int) -> None:
    file = write(tmp_path / "long.npy", np.tril(np.ones((n, n), np.float32)) / np.arange(1, n + 1, dtype="f4")[:, None])
    answer = run("heads", "--attention", str(file), env={"COLUMNS": "80"})
    assert answer.code == 0
    lines = answer.text.splitlines()
    assert len(lines) < 90
    assert max(wcswidth(line) for line in lines) <= 80
    assert "each cell is the mean of" in " ".join(lines)
    assert f"{n} tokens" in lines[0]
    assert any(line.lstrip().startswith("0–") for line in lines)


@pytest.mark.parametrize("shape", [(5, 30, 4, 4), (24, 16, 3, 3)])
def test_of_many_layers_the_first_is_shown_and_named(tmp_path: Path, shape: tuple[int, ...]) -> None:
    file = write(tmp_path / "many.npz", weights_of(*shape))
    answer = run("heads", "--attention", str(file))
    titles = [line.split()[1] for line in answer.text.splitlines() if re.fullmatch(r"layer \d+", line.strip())]
    assert titles == ["0"]
    assert len(answer.text.splitlines()) < 200
    assert len(set(re.findall(r"\bhead (\d+)", answer.text))) == shape[1]
    last = run("heads", "--attention", str(file), "--layer", "-1", "--head", "2").text
    assert f"layer {shape[0] - 1}" in last
    assert re.findall(r"\bhead (\d+)", last) == ["2"]


@pytest.mark.parametrize("kind", [one.name for one in FORMATS.values() if one.holds == "picture"])
def test_a_picture_for_each_of_many_heads(tmp_path: Path, kind: str) -> None:
    file = write(tmp_path / "many.npy", weights_of(3, 8, 2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = run(
            "heads", "--attention", str(file), "--layer", "all", "-o", f"{tmp_path}/p/{{layer}}.{{head}}.{kind}"
        )
    assert (answer.code, answer.err) == (0, "")
    names = sorted(path.name for path in (tmp_path / "p").iterdir())
    assert names == sorted(f"{layer}.{head}.{kind}" for layer in range(3) for head in range(8))
    assert "matplotlib.pyplot" not in sys.modules
