import io
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from attnviz import attend, load
from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.saved import Saved, open_saved
from attnviz.sources.saved_contents import READERS
from tests.saved import Array, weights_of, write


def all_rows(saved: Saved) -> Array:
    return np.stack([one.rows(0, len(one.query)) for one in saved.maps(saved.layers)])


def refused(path: Path, kind: type[AttnvizError] = AttnvizError, **options: Any) -> str:
    with pytest.raises(AttnvizError) as error:
        open_saved(path, **options)
    assert type(error.value) is kind
    message = str(error.value)
    assert str(path) in message
    assert len(message) < 600
    assert "allow_pickle" not in message
    assert "weights_only" not in message
    return message


def holding(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# whatever the format


@pytest.mark.parametrize("suffix", READERS)
def test_a_file_cut_anywhere_is_refused_or_read(tmp_path: Path, suffix: str) -> None:
    content = write(tmp_path / f"a{suffix}", weights_of(4, 4)).read_bytes()
    n_read = 0
    for length in np.linspace(0, len(content) - 1, 30).astype(int).tolist():
        path = holding(tmp_path / f"cut{suffix}", content[:length])
        try:
            open_saved(path)
        except AttnvizError as error:
            assert f"cut{suffix}" in str(error)
        else:
            n_read += 1
    most = {".csv": 30, ".jsonl": 1}  # a table without its last rows is a table, and a line end is no part of a record
    assert n_read <= most.get(suffix, 0)


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("content", [b"", b"hello, this is a text\n", b"\x80\x04\x95", b"PK\x03\x04", b"\x93NUMPY"])
def test_what_is_not_what_its_name_says_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    with pytest.raises(AttnvizError, match=f"a{suffix}"):
        open_saved(holding(tmp_path / f"a{suffix}", content))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".pt", ".json"])
def test_damage_anywhere_is_refused_or_harmless(tmp_path: Path, suffix: str) -> None:
    content = write(tmp_path / f"a{suffix}", weights_of(1, 2, 3, 3)).read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 60).tolist():
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        try:
            all_rows(open_saved(holding(tmp_path / f"b{suffix}", bytes(damaged))))
        except AttnvizError as error:
            assert f"b{suffix}" in str(error)


# numpy and safetensors


def test_a_wrong_checksum_names_file_and_array(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, attention=weights_of(1, 2, 4, 4))
    content = bytearray(stream.getvalue())
    content[300] ^= 1
    assert "Bad CRC-32 for file 'attention.npy'" in refused(holding(tmp_path / "bad.npz", bytes(content)))


class Canary:
    """What is pickled as a call that makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", ".pth"])
def test_nothing_pickled_is_run(tmp_path: Path, suffix: str) -> None:
    path, canary = tmp_path / f"a{suffix}", Canary(tmp_path / "canary")
    bomb = np.array([canary], dtype=object)
    if suffix == ".npy":
        np.save(path, bomb, allow_pickle=True)
    elif suffix == ".npz":
        np.savez(path, attention=bomb)
    else:
        torch.save({"attention": torch.eye(2), "more": canary}, path)
    assert "objects" in refused(path)
    assert "damaged" in refused(holding(path, pickle.dumps(canary)))
    assert not canary.path.exists()


def test_objects_beside_the_weights_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", attention=weights_of(2, 2), tokens=np.array(["a", None], dtype=object))
    assert "tokens: it holds Python objects, which are never unpickled" in refused(tmp_path / "a.npz")


def absurd_npy(side: int = 10**6) -> bytes:
    header = (
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1, {side}, {side}), }}".encode().ljust(117) + b"\n"
    )
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def absurd_npz(side: int = 10**6) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("attention.npy", absurd_npy(side))
    return stream.getvalue()


def absurd_safetensors() -> bytes:
    header = json.dumps({"a": {"dtype": "F64", "shape": [10**6, 10**6], "data_offsets": [0, 8 * 10**12]}}).encode()
    return len(header).to_bytes(8, "little") + header


def lying_npz() -> bytes:
    """An archive whose directory also claims what the header claims."""
    content = bytearray(absurd_npz(20_000))
    entry = content.index(b"PK\x01\x02")
    content[entry + 20 : entry + 28] = (0xFFFFFFF0).to_bytes(4, "little") * 2
    return bytes(content)


ABSURD = {
    "a.npy": absurd_npy, "a.npz": absurd_npz, "lying.npz": lying_npz, "a.safetensors": absurd_safetensors,
}  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
def test_nothing_is_allocated_on_a_headers_word(tmp_path: Path, name: str) -> None:
    path = holding(tmp_path / name, ABSURD[name]())
    assert path.stat().st_size < 500
    tracemalloc.start()
    try:
        message = refused(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert "nable to allocate" not in message


def test_a_part_that_holds_more_than_its_header_says_is_damaged(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, weights_of(2, 2))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("attention.npy", array.getvalue() + b"more")
    assert "attention.npy holds more than its header says" in refused(tmp_path / "a.npz")


def test_an_archive_under_the_name_of_an_array_and_the_other_way_round(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", weights_of(2, 2))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    assert "it is a single array, whose name ends in .npy" in refused(tmp_path / "a.npz")


@pytest.mark.parametrize("n_heads", [2, 6])
def test_bfloat16_is_widened_exactly(tmp_path: Path, n_heads: int) -> None:
    weights = torch.from_numpy(weights_of(1, n_heads, 4, 4)).to(torch.bfloat16)
    save_torch({"attention": weights}, tmp_path / "a.safetensors")
    torch.save(weights, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        saved = open_saved(tmp_path / name)
        assert np.array_equal(all_rows(saved), weights.float().numpy())
        assert all_rows(saved).dtype == np.float32
        assert (saved.provenance["stored_dtype"], saved.provenance["dtype"]) == ("bfloat16", "float32")


@pytest.mark.parametrize("bits", [0x0000, 0x8000, 0x0001, 0x3F80, 0x7F80, 0x7FC0, 0xFF7F])
def test_any_bfloat16_is_widened_as_torch_does(tmp_path: Path, bits: int) -> None:
    value = torch.tensor([[bits - (bits >> 15 << 16)]], dtype=torch.int16).view(torch.bfloat16)
    save_torch({"a": value}, tmp_path / "a.safetensors")
    found = all_rows(open_saved(tmp_path / "a.safetensors"))
    assert found.tobytes() == value.float().numpy().tobytes()


def test_tokens_lie_beside_the_weights(tmp_path: Path) -> None:
    arrays: Any = {"attention": weights_of(2, 3)}
    np.savez(tmp_path / "a.npz", **arrays, query_tokens=np.array(["das", "é"]), key_tokens=np.array([b"a", b"b", b"c"]))
    save_file(arrays, tmp_path / "a.safetensors", {"queries": '["das", "é"]', "keys": '["a", "b", "c"]'})
    lists = {"queries": ["das", "é"], "keys": ["a", "b", "c"]}
    holding(tmp_path / "a.json", json.dumps({"weights": arrays["attention"].tolist(), **lists}))
    torch.save({"attentions": torch.from_numpy(arrays["attention"]), **lists}, tmp_path / "a.pt")
    for name in ("a.npz", "a.safetensors", "a.json", "a.pt"):
        saved = open_saved(tmp_path / name)
        assert (saved.tokens.text, saved.key_tokens.text) == (("das", "é"), ("a", "b", "c"))
        assert np.array_equal(all_rows(saved)[0, 0], arrays["attention"])


def test_metadata_that_are_no_tokens_are_refused(tmp_path: Path) -> None:
    for metadata, words in [({"tokens": "[a"}, "text that is not JSON"), ({"attnviz": "[]"}, "no JSON object")]:
        save_file({"attention": weights_of(2, 2)}, tmp_path / "a.safetensors", metadata)
        assert words in refused(tmp_path / "a.safetensors")
    save_file({"attention": weights_of(2, 2)}, tmp_path / "a.safetensors", {"tokens": "[" * 100_000, "format": "pt"})
    assert "nested too deeply" in refused(tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", attention=weights_of(2, 2), tokens=np.array([b"\xff", b"a"]))
    assert "tokens that are not UTF-8" in refused(tmp_path / "a.npz", RequestError)


# json


@pytest.mark.parametrize("name", ["attention", "weights", "attentions", "layer_0"])
def test_json_is_a_list_or_an_object_with_one(tmp_path: Path, name: str) -> None:
    nested = [[[[1, 0], [0.25, 0.75]]]]
    bare = open_saved(holding(tmp_path / "a.json", json.dumps(nested)))
    named = open_saved(holding(tmp_path / "b.json", json.dumps({"tokens": ["\ud83d", "b"], name: nested, "n": [1]})))
    assert all_rows(bare).tolist() == all_rows(named).tolist() == nested
    assert bare.tokens.text == ("0", "1")
    assert named.tokens.text == ("\ud83d", "b")


def test_json_of_booleans_and_nulls(tmp_path: Path) -> None:
    rows = all_rows(open_saved(holding(tmp_path / "a.json", "[[true, false], [null, 1]]")))[0, 0]
    assert rows[0].tolist() == [1, 0]
    assert np.isnan(rows[1, 0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"attention": [[[[1,0],[NaN,NaN]]]]}', "not strict JSON (NaN is not JSON: write null"),
        ("[[-Infinity]]", "-Infinity is not JSON"),
        ("[[1, 2], [3]]", "its list[1] is a row of 1, where 2 numbers are expected as in the first"),
        ('{"attention": [[[[1,0],[1]]]]}', "attention[0][0][1] is a row of 1, where 2 numbers are expected"),
        ("[[[1], [2]], [[3]]]", "its list[1] is a row of 1, where 2 rows are expected"),
        ("[[1, [2]], [3, 4]]", "its list[0][1] is a row of 1, not a number"),
        ("[[1, 2], 3]", "its list[1] is 3, where 2 numbers are expected"),
        ('[[1, 2], [3, "4"]]', 'its list[1][1] is "4", not a number'),
        ("[[1" + "0" * 400 + ", 2]]", "no array of numbers"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 20 + "]" * 20, "its lists are nested 8 deep and deeper"),
        ("5", "holds no JSON object or list"),
        ("[[1, 2], [3, 4]] x", "not strict JSON"),
    ],
    ids=range(15),
)
def test_json_that_is_no_array_is_refused(tmp_path: Path, content: str, words: str) -> None:
    for suffix in (".json", ".jsonl"):
        assert words in refused(holding(tmp_path / f"a{suffix}", content))


# csv


MATRIX = [[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.0, 0.0, 1.0]]
NUMBERS = "0.5,0.25,0.25\n0.125,0.75,0.125\n0,0,1e0\n"


@pytest.mark.parametrize(
    ("content", "queries", "keys"),
    [
        (NUMBERS, ("0", "1", "2"), None),
        (",the,cat,sat\nthe,0.5,0.25,0.25\ncat,0.125,0.75,0.125\nsat,0,0,1\n", ("the", "cat", "sat"), None),
        ("the,cat,sat\n" + NUMBERS, ("the", "cat", "sat"), None),
        ("the,0.5,0.25,0.25\ncat,0.125,0.75,0.125\nsat,0,0,1", ("the", "cat", "sat"), None),
        ("q\\k,x,y,z\nthe,0.5,0.25,0.25\ncat,0.125,0.75,0.125\nsat,0,0,1", ("the", "cat", "sat"), ("x", "y", "z")),
        ("x,y,z\nthe,0.5,0.25,0.25\ncat,0.125,0.75,0.125\nsat,0,0,1", ("the", "cat", "sat"), ("x", "y", "z")),
        (",1,2,3\n1,0.5,0.25,0.25\n2,0.125,0.75,0.125\n3,0,0,1", ("1", "2", "3"), None),
        (",nan,1,\nnan,0.5,0.25,0.25\n1,0.125,0.75,0.125\n,0,0,1", ("nan", "1", ""), None),
        ('"a,b","say ""hi""","new\nline"\n' + NUMBERS, ("a,b", 'say "hi"', "new\nline"), None),
        ('," "," x","\n"\n" ",0.5,0.25,0.25\n" x",0.125,0.75,0.125\n"\n",0,0,1', (" ", " x", "\n"), None),
    ],
    ids=range(10),
)
@pytest.mark.parametrize("spreadsheet", [False, True])
def test_a_matrix_with_or_without_tokens(
    tmp_path: Path, content: str, queries: tuple[str, ...], keys: tuple[str, ...] | None, spreadsheet: bool
) -> None:
    if spreadsheet:
        inside = "new\nline" in content or '"\n"' in content
        content = "\ufeff" + (content if inside else content.replace("\n", "\r\n"))
    saved = open_saved(holding(tmp_path / "a.csv", content))
    assert all_rows(saved)[0, 0].tolist() == MATRIX
    assert saved.tokens.text == queries
    assert saved.key_tokens.text == (keys or queries)


def test_a_matrix_of_one_and_of_other_tokens_across(tmp_path: Path) -> None:
    assert open_saved(holding(tmp_path / "a.csv", "the,1.0")).tokens.text == ("the",)
    assert all_rows(open_saved(holding(tmp_path / "b.csv", "1"))).tolist() == [[[[1]]]]
    saved = open_saved(holding(tmp_path / "c.csv", ",x,y,z\na,0.5,0.25,0.25\n"))
    assert (saved.tokens.text, saved.key_tokens.text) == (("a",), ("x", "y", "z"))
    saved = open_saved(holding(tmp_path / "d.csv", "x\n1\n1\n"))
    assert (saved.tokens.text, saved.key_tokens.text) == (("0", "1"), ("x",))


def test_an_empty_cell_is_not_a_number(tmp_path: Path) -> None:
    rows = all_rows(open_saved(holding(tmp_path / "a.csv", ",x,y\nx,,\ny,nan,1\n")))[0, 0]
    assert np.isnan(rows).tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (",a,b\na,1,0\nb,1\n", "line 3 has 2 cells, where the rows before it have 3"),
        ("1,0\n1\n", "line 2 has 1 cells"),
        (",a,b,c\na,1,0\nb,0,1\n", "line 2 has 3 cells, and line 1 has 4"),
        (",a,b\na,1,0\nb,0,l\n", "line 3, cell 3: 'l' is no number"),
        ("0;1\n1;0\n", "line 2: '1;0' is no number"),
        ("1,0\n0,1_0\n", "'1_0' is no number"),
    ],
)
def test_a_matrix_that_is_none_is_refused_with_the_line(tmp_path: Path, content: str, words: str) -> None:
    assert words in refused(holding(tmp_path / "a.csv", content), RequestError)


def test_a_csv_that_is_damaged_is_refused(tmp_path: Path) -> None:
    assert "is no csv: line 1" in refused(holding(tmp_path / "a.csv", '"a"b,1\n'))
    assert "is empty" in refused(holding(tmp_path / "a.csv", "\n\n"))
    assert "byte 0xFF in line 2" in refused(holding(tmp_path / "a.csv", b"1,0\n\xff,1\n"), RequestError)


HEADER = "layer,head,query,key,query_text,key_text,weight\n"
TABLE = HEADER + "".join(
    f'{layer},{head},{q},{k},"q,{q}",k{k},{(layer + q + k) / 8}\n'
    for layer in (2, 5) for head in ("single", 1) for q in range(3) for k in range(2)
)  # fmt: skip


def test_the_long_form_is_a_record(tmp_path: Path) -> None:
    saved = open_saved(holding(tmp_path / "a.csv", TABLE))
    assert (saved.layers, saved.held[0].heads) == ((2, 5), ("single", 1))
    assert (saved.tokens.text, saved.key_tokens.text) == (("q,0", "q,1", "q,2"), ("k0", "k1"))
    assert all_rows(saved)[1, 0].tolist() == [[0.625, 0.75], [0.75, 0.875], [0.875, 1.0]]
    lines = TABLE.splitlines()[1:]
    shuffled = HEADER + "\r\n".join(lines[i] for i in [0, *np.random.default_rng(0).permutation(23) + 1])
    assert np.array_equal(all_rows(open_saved(holding(tmp_path / "b.csv", "\ufeff" + shuffled))), all_rows(saved))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_long_form_reads_back_exactly(tmp_path: Path, dtype: type[np.floating[Any]]) -> None:
    attend("a b c", model="scratch", single=True).save(tmp_path / "a.npz")
    held = np.load(tmp_path / "a.npz")
    weights = held["weights"].astype(dtype)
    weights[0, 0, 1] = [np.nan, np.inf, 1e-42]
    members: Any = {**held, "weights": weights}
    np.savez(tmp_path / "b.npz", **members)
    load(tmp_path / "b.npz").save(tmp_path / "b.csv")
    again = load(tmp_path / "b.csv").weights
    assert again.dtype == dtype
    assert np.array_equal(again, weights, equal_nan=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEADER, "holds no weights"),
        (TABLE[: TABLE.rindex("5,1,2,1")], "has 23 lines, not one for each weight: 2 layers, 2 heads, 3 queries and 2"),
        (TABLE + TABLE.splitlines()[-1], "lines were lost or are there twice"),
        (HEADER + "0,0,0,0,a,b,1\n0,1,0,0,x,b,1\n", "line 3: the query_text 'x' is of query 0, which is also 'a'"),
        (HEADER + "0,0,0,0,a,b\n", "line 2 has 6 cells, not 7"),
        (HEADER + "-1,0,0,0,a,b,1\n", "line 2: the layer '-1' is no whole number"),
        (HEADER + "0,x,0,0,a,b,1\n", "the head 'x' is no whole number"),
        (HEADER + "0,0,0,0,a,b,\n", "the weight '' is no number"),
        (HEADER + "0,0,0,0,a,b,half\n", "the weight 'half' is no number"),
    ],
    ids=range(9),
)
def test_a_long_form_with_faults_is_refused_with_the_line(tmp_path: Path, content: str, words: str) -> None:
    assert words in refused(holding(tmp_path / "a.csv", content), RequestError)


# torch


LAYERS = tuple(torch.from_numpy(weights_of(1, 2, 4, 4, seed=seed)).float() for seed in range(3))


@pytest.mark.parametrize("legacy", [False, True])
def test_the_attentions_of_transformers(tmp_path: Path, legacy: bool) -> None:
    torch.save(LAYERS, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    saved = open_saved(tmp_path / "a.pt")
    assert (saved.layers, saved.heads) == ((0, 1, 2), (0, 1))
    assert np.array_equal(all_rows(saved), torch.cat(LAYERS).numpy())
    assert saved.notes == (
        "a.pt is read as layer, batch, head, query, key: 3 × 1 × 2 × 4 × 4; the batch of 1 is left out",
    )


def test_a_list_has_one_tensor_for_each_layer(tmp_path: Path) -> None:
    torch.save([layer[0] for layer in LAYERS], tmp_path / "a.pth")
    assert np.array_equal(all_rows(open_saved(tmp_path / "a.pth")), torch.cat(LAYERS).numpy())
    torch.save([layer[0, 1] for layer in LAYERS], tmp_path / "b.pth")
    saved = open_saved(tmp_path / "b.pth")
    assert (saved.layers, saved.heads) == ((0, 1, 2), (0,))
    assert saved.notes == ("b.pth is read as layer, query, key: 3 × 4 × 4",)
    torch.save([layer[:, 1].repeat(2, 1, 1) for layer in LAYERS], tmp_path / "c.pth")
    assert np.array_equal(all_rows(open_saved(tmp_path / "c.pth", batch=1)), all_rows(saved))
    torch.save([torch.cat([layer, layer + 1]) for layer in LAYERS], tmp_path / "d.pth")
    assert "holds a batch of 2" in refused(tmp_path / "d.pth", RequestError)
    assert np.array_equal(all_rows(open_saved(tmp_path / "d.pth", batch=1)), torch.cat(LAYERS).numpy() + 1)


def test_what_a_dict_holds_is_chosen_by_name(tmp_path: Path) -> None:
    held = {"encoder_attentions": LAYERS, "cross_attentions": LAYERS[:2], "loss": 0.5, "tokens": list("abcd")}
    torch.save(held, tmp_path / "a.pt")
    message = refused(tmp_path / "a.pt", RequestError)
    assert "encoder_attentions (3 × 1 × 2 × 4 × 4, float32), cross_attentions (2 × 1 × 2 × 4 × 4, float32)" in message
    saved = open_saved(tmp_path / "a.pt", array="cross_attentions")
    assert (saved.layers, saved.tokens.text) == ((0, 1), ("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ((torch.ones(4, 8), torch.ones(4, 4)), "a list of unlike tensors, 0 and 1: 4 × 8 float32 and 4 × 4 float32"),
        ((torch.ones(4, 4), torch.ones(4, 4).double()), "4 × 4 float32 and 4 × 4 float64"),
        (torch.eye(4).to_sparse(), "holds a torch.sparse_coo tensor"),
        (torch.eye(4, device="meta"), "tensor on meta"),
        (torch.eye(4).to(torch.complex64), "a.pt has dtype complex64"),
        (torch.eye(4).to(torch.float8_e4m3fn), "a.pt has dtype float8_e4m3fn"),
        ({"a": 1}, "holds no arrays"),
    ],
    ids=range(7),
)
def test_tensors_that_are_no_attention_are_refused(tmp_path: Path, held: Any, words: str) -> None:
    torch.save(held, tmp_path / "a.pt")
    with pytest.raises(RequestError) as error:
        open_saved(tmp_path / "a.pt")
    assert words in str(error.value)


@pytest.mark.parametrize("held", [5, [], "text", [LAYERS, LAYERS], [torch.eye(2), None]])
def test_what_is_not_of_tensors_is_refused(tmp_path: Path, held: Any) -> None:
    torch.save(held, tmp_path / "a.pt")
    assert "not tensors: save tuple(outputs.attentions)" in refused(tmp_path / "a.pt")


def test_other_tensors_are_read_as_what_they_are(tmp_path: Path) -> None:
    for tensor in (torch.eye(3, requires_grad=True), torch.eye(3).bool(), torch.eye(3).long(), torch.eye(3).half()):
        torch.save(tensor, tmp_path / "a.pt")
        assert all_rows(open_saved(tmp_path / "a.pt"))[0, 0].tolist() == np.eye(3).tolist()
    torch.save(torch.eye(3).expand(2, 3, 3).mT, tmp_path / "b.pt")
    assert all_rows(open_saved(tmp_path / "b.pt")).shape == (1, 2, 3, 3)


def test_without_torch_what_to_install_is_said(tmp_path: Path) -> None:
    torch.save(torch.eye(2), tmp_path / "a.pt")
    program = """
import sys
sys.modules["torch"] = None
from pathlib import Path
from attnviz.sources.saved import open_saved
from attnviz.errors import AttnvizError
try:
    open_saved(Path(sys.argv[1]))
except AttnvizError as error:
    print(error.exit_code, error)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a.pt")]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out == f"3 {tmp_path / 'a.pt'} is read with torch: pip install 'attnviz[torch]'\n"


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".json", ".csv", ".safetensors"])
def test_other_formats_need_no_torch(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", weights_of(3, 3))
    program = (
        "import sys; from pathlib import Path; from attnviz.sources.saved import open_saved; "
        "open_saved(Path(sys.argv[1])); print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
