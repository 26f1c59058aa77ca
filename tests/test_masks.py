import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from attnviz.attention import Projections, Rule, attention_weights, multi_head_attention
from attnviz.errors import AttnvizError, RequestError
from attnviz.memory import physical_memory
from attnviz.sources.masks import read_mask, split_name

Array = npt.NDArray[Any]
ALLOWED = np.array([[True, False, True, True, False], [False] * 5, [True, True, False, True, True]])
"""Three queries, five keys; the second query may attend to nothing."""
ADDED = np.array([[0.0, -1e9, 0.5, 0.0, -np.inf], [-1e9] * 5, [0.0, -2.0, -3e9, 0.0, 0.0]])


def write(path: Path, array: Array) -> Path:
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez_compressed(path, mask=array)
    elif path.suffix == ".safetensors":
        save_file({"mask": array}, path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(array.tolist()))
    else:
        path.write_text("".join(",".join(map(repr, row)) + "\n" for row in array.tolist()))
    return path


def effect(rule: Rule, n_queries: int = 3, n_keys: int = 5) -> tuple[Array, Array]:
    """What the rule allows and adds, one row for each query."""
    scores = np.zeros((1, n_queries, n_keys))
    allowed, bias = rule.block(0, n_queries, n_keys, scores)
    shape = (n_queries, n_keys)
    return np.broadcast_to(True if allowed is None else allowed, shape), np.broadcast_to(
        0.0 if bias is None else bias, shape
    )


BINARY = [".npy", ".npz", ".safetensors"]
ALL = [*BINARY, ".json", ".csv"]


# what the values mean


@pytest.mark.parametrize("suffix", [*BINARY, ".json"])
def test_true_means_may_attend(tmp_path: Path, suffix: str) -> None:
    allowed, added = effect(read_mask(write(tmp_path / f"m{suffix}", ALLOWED), None, 3, 5))
    assert (allowed == ALLOWED).all()
    assert not added.any()


@pytest.mark.parametrize("suffix", ALL)
@pytest.mark.parametrize("dtype", ["int64", "uint8", "int32"])
def test_one_means_may_attend(tmp_path: Path, suffix: str, dtype: str) -> None:
    allowed, added = effect(read_mask(write(tmp_path / f"m{suffix}", ALLOWED.astype(dtype)), None, 3, 5))
    assert (allowed == ALLOWED).all()
    assert not added.any()


@pytest.mark.parametrize("suffix", ALL)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_floats_are_added_and_very_low_ones_forbid(tmp_path: Path, suffix: str, dtype: str) -> None:
    path = write(tmp_path / f"m{suffix}", ADDED.astype(dtype))
    allowed, added = effect(read_mask(path, None, 3, 5))
    assert (allowed == (ADDED > -1e9)).all()
    assert (added[allowed] == ADDED[allowed]).all()


@pytest.mark.parametrize("suffix", ALL)
@pytest.mark.parametrize("lowest", [-np.inf, -1e9, -1e30, float(np.finfo(np.float32).min)])
def test_a_mask_that_only_forbids_by_adding_is_booleans(tmp_path: Path, suffix: str, lowest: float) -> None:
    rule = read_mask(write(tmp_path / f"m{suffix}", np.where(ALLOWED, 0.0, lowest)), None, 3, 5)
    assert rule.mask is not None
    assert rule.mask.dtype == bool
    assert (rule.mask == ALLOWED).all()


def test_the_minimum_of_half_precision_forbids(tmp_path: Path) -> None:
    for lowest in (np.finfo(np.float16).min, np.float16(-40000), np.float16(-np.inf)):
        half = np.where(ALLOWED, np.float16(0), lowest)
        allowed, _ = effect(read_mask(write(tmp_path / "m.npy", half), None, 3, 5))
        assert (allowed == ALLOWED).all()
    brain = torch.where(torch.from_numpy(ALLOWED), 0.25, torch.finfo(torch.bfloat16).min).to(torch.bfloat16)
    save_torch({"mask": brain, "other": torch.ones(3)}, tmp_path / "m.safetensors")
    allowed, added = effect(read_mask(tmp_path / "m.safetensors", "mask", 3, 5))
    assert (allowed == ALLOWED).all()
    assert (added[ALLOWED] == 0.25).all()


def test_byte_and_memory_order_do_not_matter(tmp_path: Path) -> None:
    for i, array in enumerate([ADDED.astype(">f8"), np.asfortranarray(ADDED), ALLOWED.astype(">i4"), ADDED[:, ::-1]]):
        path = write(tmp_path / f"{i}.npz", array)
        allowed, added = effect(read_mask(path, None, 3, 5))
        assert (allowed == ((array > -1e9) if array.dtype.kind == "f" else array > 0)).all()
        assert array.dtype.kind != "f" or (added[allowed] == array[allowed]).all()


# which shapes


@pytest.mark.parametrize("suffix", BINARY)
@pytest.mark.parametrize("array", [ALLOWED[0], ALLOWED[:1], ALLOWED[0].astype(int), ADDED[0]], ids=["1", "2", "3", "4"])
def test_one_row_stands_for_all_queries(tmp_path: Path, suffix: str, array: Array) -> None:
    for n_queries in (3, 7):
        allowed, added = effect(read_mask(write(tmp_path / f"m{suffix}", array), None, n_queries, 5), n_queries)
        assert (allowed == ALLOWED[0]).all()
        assert (added[0] == (np.where(ALLOWED[0], ADDED[0], 0) if array.dtype.kind == "f" else 0)).all()


@pytest.mark.parametrize("suffix", [*BINARY, ".json"])
def test_each_head_may_have_its_own(tmp_path: Path, suffix: str) -> None:
    array = np.random.default_rng(0).random((2, 3, 5)) < 0.5
    rule = read_mask(write(tmp_path / f"m{suffix}", array), None, 3, 5)
    assert rule.mask is not None
    assert (rule.mask == array).all()
    batched = read_mask(write(tmp_path / f"b{suffix}", array[None, None]), None, 3, 5)
    assert batched.mask is not None
    assert (batched.mask == array).all()


@pytest.mark.parametrize("suffix", [*BINARY, ".json"])
@pytest.mark.parametrize(
    ("shape", "there"),
    [
        ((3, 4), "3 × 4"),
        ((5, 3), "5 × 3"),
        ((2, 5), "2 × 5"),
        ((4,), "4"),
        ((3,), "3"),
        ((2, 5, 5), "2 × 5 × 5"),
        ((2, 2, 3, 5), "2 × 2 × 3 × 5"),
        ((5, 1), "5 × 1"),
    ],
)
def test_another_size_is_refused_with_both(tmp_path: Path, suffix: str, shape: tuple[int, ...], there: str) -> None:
    path = write(tmp_path / f"m{suffix}", np.ones(shape, bool))
    words = f"is {there}, but there are 3 queries and 5 keys: it must be 3 × 5, heads × 3 × 5, or 5 for padding"
    with pytest.raises(RequestError, match=words) as error:
        read_mask(path, None, 3, 5)
    assert str(path) in str(error.value)


def test_a_single_value_is_no_mask(tmp_path: Path) -> None:
    for n in (1, 3):
        with pytest.raises(RequestError, match="is a single value"):
            read_mask(write(tmp_path / "m.npy", np.array(True)), None, n, n)
    with pytest.raises(RequestError, match="is 2 × 0"):
        read_mask(write(tmp_path / "m.npy", np.ones((2, 0), bool)), None, 2, 0)


# files of several arrays


def several(path: Path) -> Path:
    arrays = {"one": ALLOWED, "pad.two": ALLOWED[0]}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file(arrays, path)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_of_several_arrays_one_is_named(tmp_path: Path, suffix: str) -> None:
    path = several(tmp_path / f"m{suffix}")
    assert (effect(read_mask(path, "one", 3, 5))[0] == ALLOWED).all()
    assert (read_mask(path, "pad.two", 3, 5).keys == ALLOWED[0]).all()
    listed = rf"one \(3 × 5, bool\), pad.two \(5, bool\): choose one with --mask {path}:one"
    with pytest.raises(RequestError, match=f"m{suffix} holds {listed}"):
        read_mask(path, None, 3, 5)
    with pytest.raises(RequestError, match=f"m{suffix} holds no 'three', but {listed}"):
        read_mask(path, "three", 3, 5)


@pytest.mark.parametrize("suffix", [".npy", ".json", ".csv"])
def test_one_array_without_a_name_has_none_to_choose(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(RequestError, match="holds one array, which has no name: leave out :one"):
        read_mask(write(tmp_path / f"m{suffix}", ALLOWED.astype(int)), "one", 3, 5)


def test_a_file_without_arrays_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w"):
        pass
    with pytest.raises(RequestError, match="holds no arrays"):
        read_mask(tmp_path / "m.npz", None, 3, 5)


@pytest.mark.parametrize(
    ("typed", "file", "name"),
    [
        ("a.npz", "a.npz", None),
        ("a.npz:b", "a.npz", "b"),
        ("a/b.safetensors:enc.npz:x", "a/b.safetensors", "enc.npz:x"),
        ("A.NPZ:b c", "A.NPZ", "b c"),
        ("a.npz:", "a.npz", ""),
        ("x:a.npz", "x:a.npz", None),
        ("a.txt:b", "a.txt:b", None),
    ],
)
def test_the_name_comes_after_the_suffix(typed: str, file: str, name: str | None) -> None:
    assert split_name(typed) == (Path(file), name)


def test_a_file_whose_own_name_has_a_colon_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz:b"
    path.touch()
    assert split_name(str(path)) == (path, None)


# what is no mask


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([[1, 0, 2, 0, 1]]), r"\[0, 2\] is 2: integers are 1 \(may attend\) and 0"),
        (np.array([1, -1, 0, 0, 0]), r"\[1\] is -1: integers are 1"),
        (np.array([[0.0, 0.5, 0, np.nan, 0]]), r"\[0, 3\] is nan: what is added to a score is a number or -inf"),
        (np.array([0.0, np.inf, 0, 0, 0]), r"\[1\] is inf: what is added"),
        (np.array([1.0, 0, 0, 1, 1]), "holds 0 and 1 as floats, and floats are added to the scores: if 1 means"),
        (np.ones((3, 5), np.float32), "holds 0 and 1 as floats"),
        (np.ones((3, 5), complex), "holds complex128: booleans, integers 0 and 1, or floats"),
        (np.full((3, 5), "x"), "holds str32: booleans"),
        (np.zeros((3, 5), [("a", "i4")]), "booleans, integers 0 and 1"),
        (np.zeros((3, 5), "M8[s]"), "booleans, integers 0 and 1"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_values_that_are_none_of_these_are_refused(tmp_path: Path, suffix: str, array: Array, words: str) -> None:
    with pytest.raises(RequestError, match=words) as error:
        read_mask(write(tmp_path / f"m{suffix}", array), None, 3, 5)
    assert f"m{suffix}" in str(error.value)


@pytest.mark.parametrize("content", ["1,1.0,0,0,1", "1.0,0.0,0.0,1.0,1.0", "1e0,0,0,0,0"])
def test_zero_and_one_with_a_point_are_not_guessed_at(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.csv").write_text(content)
    (tmp_path / "m.json").write_text(f"[{content}]")
    for name in ("m.csv", "m.json"):
        with pytest.raises(RequestError, match="holds 0 and 1 as floats"):
            read_mask(tmp_path / name, None, 3, 5)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.csv", "1,0\n1\n", "line 2: 1 numbers, not 2"),
        ("m.csv", "1,0\n\n1,0,0\n", "line 3: 3 numbers, not 2"),
        ("m.csv", "1,x\n", "holds what is no number: could not convert string to float: 'x'"),
        ("m.csv", "1,\n", "holds what is no number"),
        ("m.csv", "", "is 0, but there are 2 queries"),
        ("m.csv", "1,0\n\xe9", "is not UTF-8: byte 0xE9 in line 2"),
        ("m.json", '{"a": [1, 0]}', "holds no list: nested lists of one length are needed"),
        ("m.json", '"10"', "holds no list"),
        ("m.json", '[["a", "b"]]', "holds str32: booleans"),
        ("m.json", "[[null, 1]]", "holds object: booleans"),
        ("m.txt", "1 0", "has the suffix '.txt': .npy, .npz, .safetensors, .json, .csv can be read"),
        ("m", "1 0", "has the suffix ''"),
    ],
)
def test_a_text_that_is_no_mask_is_refused(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(RequestError, match=words):
        read_mask(tmp_path / name, None, 2, 2)


@pytest.mark.parametrize("content", ["[[1, 0], [1]]", "[" * 100_000, "[1, 0", "", "[" * 70 + "1" + "]" * 70])
def test_json_that_is_damaged_or_ragged_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(AttnvizError, match="is no JSON of nested lists of one length") as error:
        read_mask(tmp_path / "m.json", None, 2, 2)
    assert error.value.exit_code == 3


def test_csv_as_spreadsheets_write_it(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"\xef\xbb\xbf1, 0\r\n\r\n0,1\r\n")
    rule = read_mask(tmp_path / "m.csv", None, 2, 2)
    assert rule.mask is not None
    assert rule.mask.tolist() == [[True, False], [False, True]]


def test_what_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"mask file no\.npz does not exist"):
        read_mask(Path("no.npz"), None, 2, 2)
    (tmp_path / "f.npz").mkdir()
    with pytest.raises(RequestError, match=r"f\.npz is a folder: name a file in it"):
        read_mask(tmp_path / "f.npz", None, 2, 2)


# files that are damaged or would do harm


class Harm:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_nothing_in_a_file_is_executed(tmp_path: Path, suffix: str) -> None:
    harm = np.array([[Harm(tmp_path / "canary")] * 5] * 3)
    path = write(tmp_path / f"m{suffix}", harm)
    with pytest.raises(AttnvizError, match="it holds Python objects, which are never unpickled") as error:
        read_mask(path, None, 3, 5)
    assert error.value.exit_code == 3
    path.write_bytes(pickle.dumps(Harm(tmp_path / "canary")))
    with pytest.raises(AttnvizError, match="is damaged, or not what its name says"):
        read_mask(path, None, 3, 5)
    assert not (tmp_path / "canary").exists()


def header(shape: tuple[int, ...], dtype: str = "<f8", version: int = 1) -> bytes:
    text = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 * version, "little") + text


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header((10**6, 10**6)), "its header promises 1000000 × 1000000 of float64, 8000000000000 bytes; there are 0"),
        (header((3, 5)) + b"\0" * 119, "its header promises 3 × 5 of float64, 120 bytes; there are 119"),
        (header((-3, -5)) + b"\0" * 120, "its header promises -3 × -5"),
        (header((3, 5), version=3) + b"\0" * 120, "npy format 3.0 is not known"),
        (b"\x93NUM", "is damaged"),
        (b"", "is damaged"),
        (b"a,b\n1,2\n", "is damaged"),
    ],
)
def test_no_more_is_believed_than_is_there(tmp_path: Path, suffix: str, content: bytes, words: str) -> None:
    path = tmp_path / f"m{suffix}"
    if suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("mask.npy", content)
    else:
        path.write_bytes(content)
    with pytest.raises(AttnvizError, match=words) as error:
        read_mask(path, None, 3, 5)
    assert error.value.exit_code == 3


def test_an_archive_that_promises_more_than_it_can_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mask.npy", header((2**20, 2**10)) + b"\0" * 100)
    damaged = path.read_bytes()
    size = (228).to_bytes(4, "little")
    assert damaged.count(size) == 2
    path.write_bytes(damaged.replace(size, (2**32 - 2).to_bytes(4, "little")))
    with pytest.raises(AttnvizError, match="promises 4294967294 bytes, more than its part of the file can hold"):
        read_mask(path, None, 2**20, 2**10)


@pytest.mark.skipif(physical_memory() is None, reason="the system does not tell how much memory there is")
def test_a_mask_larger_than_the_memory_is_refused_by_its_size(tmp_path: Path) -> None:
    rows = 2 * (physical_memory() or 0) // 2**20
    path = tmp_path / "m.npy"
    path.write_bytes(header((rows, 2**20), "|b1"))
    os.truncate(path, path.stat().st_size + rows * 2**20)  # with nothing in it, it takes no room on the disk
    with pytest.raises(RequestError, match=f"an array of {rows} × 1048576 would take"):
        read_mask(path, None, rows, 2**20)


@pytest.mark.parametrize("suffix", BINARY)
@pytest.mark.parametrize("kept", [0, 0.3, 0.7, 0.95])
def test_a_truncated_file_is_told(tmp_path: Path, suffix: str, kept: float) -> None:
    path = write(tmp_path / f"m{suffix}", ADDED)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(AttnvizError, match="is damaged, or not what its name says") as error:
        read_mask(path, None, 3, 5)
    assert error.value.exit_code == 3


def test_a_damaged_member_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, mask=ADDED)
    path.write_bytes(path.read_bytes().replace(np.float64(0.5).tobytes(), np.float64(0.25).tobytes()))
    with pytest.raises(AttnvizError, match="Bad CRC-32"):
        read_mask(path, None, 3, 5)


def test_safetensors_of_an_unknown_type_are_told(tmp_path: Path) -> None:
    save_torch({"mask": torch.zeros((3, 5), dtype=torch.float8_e4m3fn)}, tmp_path / "m.safetensors")
    with pytest.raises(AttnvizError, match="mask is stored as F8_E4M3, which is not read here"):
        read_mask(tmp_path / "m.safetensors", None, 3, 5)


# on attention


Expected = Callable[[str], dict[str, Any]]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("name", ["causal", "keypad_last", "causal_keypad_last", "leftpad_causal", "row1_fully_masked"])
def test_the_lesson_under_masks_from_files(tmp_path: Path, expected: Expected, suffix: str, name: str) -> None:
    data = expected("toy4.json")
    x, *matrices = (np.array(data[part]) for part in ("embeddings", "w_q", "w_k", "w_v"))
    wanted = data[name]
    rule = read_mask(write(tmp_path / f"m{suffix}", np.array(wanted["allow"])), None, 4, 4)
    result = multi_head_attention(x, Projections(*matrices), 2, rule=rule)
    assert np.abs(result.weights - wanted["weights"]).max() < 1e-11
    assert np.abs(result.output - wanted["output"]).max() < 1e-11
    empty = [i for i in range(4) if (result.weights[:, i] == 0).all()]
    assert empty == wanted["fully_masked_rows"]


@pytest.mark.parametrize("lowest", [-1e9, float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize("n", [3, 6])
def test_a_row_forbidden_by_adding_is_zeros_and_never_one_nth(tmp_path: Path, lowest: float, n: int) -> None:
    mask = np.zeros((n, n), np.float32)
    mask[1], mask[0, 2] = lowest, lowest
    q = np.random.default_rng(n).standard_normal((2, n, 4)).astype(np.float32)
    weights = attention_weights(q, q, read_mask(write(tmp_path / "m.npy", mask), None, n, n))
    assert (weights[:, 1] == 0).all()
    assert (weights[:, 0, 2] == 0).all()
    assert np.array_equal(weights[:, 2:], attention_weights(q, q)[:, 2:])
    assert np.abs(weights[:, 0].sum(-1) - 1).max() < 1e-6
