import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.checkpoint import Checkpoint, widen_into
from attnviz.sources.encoder import open_folder
from tests.models import make_bert, random_tensors


def checkpoint_of(folder: Path, **tensors: npt.NDArray[Any]) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    save_file(tensors, folder / "model.safetensors")
    return Checkpoint(folder)


def raw(folder: Path, header: bytes, data: bytes = b"") -> Path:
    """A weight file put together by hand."""
    make_bert(folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    return folder


def fails(folder: Path) -> AttnvizError:
    """The error of opening and running the model in `folder`."""
    with pytest.raises(AttnvizError) as error:
        list(open_folder(folder).prepare("the cat sat").maps([0, 1, 2]))
    return error.value


# tensors


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tensors_come_as_float32_whatever_they_are_stored_as(tmp_path: Path, dtype: type[Any]) -> None:
    matrix = (np.arange(15).reshape(5, 3) / 7 - 1).astype(dtype)
    vector = matrix[0].copy()
    checkpoint = checkpoint_of(tmp_path, matrix=matrix, vector=vector)
    for read in (checkpoint.tensor("matrix"), checkpoint.lent("matrix"), checkpoint.rows("matrix", list(range(5)))):
        assert read.dtype == np.float32
        assert np.array_equal(read, matrix.astype(np.float32))
    assert np.array_equal(checkpoint.tensor("vector"), vector.astype(np.float32))
    assert checkpoint.shape("matrix") == (5, 3)
    assert checkpoint.names == {"matrix", "vector"}


def test_rows_come_in_the_order_asked_for_and_as_often(tmp_path: Path) -> None:
    matrix = np.arange(15, dtype=np.float16).reshape(5, 3)
    assert np.array_equal(checkpoint_of(tmp_path, a=matrix).rows("a", [4, 0, 4, 2]), matrix[[4, 0, 4, 2]])


def test_a_tensor_lent_is_right_until_the_next_of_its_shape(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    tensors = {name: rng.standard_normal((3, 4)).astype(np.float16) for name in "ab"}
    checkpoint = checkpoint_of(tmp_path, **tensors, c=np.ones((4, 3), np.float16))
    first = checkpoint.lent("a")
    checkpoint.lent("c")
    assert np.array_equal(first, tensors["a"].astype(np.float32))
    assert np.array_equal(checkpoint.lent("b"), tensors["b"].astype(np.float32))


halves = hnp.arrays(np.uint16, hnp.array_shapes(max_dims=2, max_side=9), elements=st.integers(0, 0xFFFF))


@given(halves)
def test_widening_is_exact_for_any_bits(bits: npt.NDArray[np.uint16]) -> None:
    half = bits.view(np.float16)
    wide = widen_into(half, np.empty(half.shape, np.float32))
    expected = half.astype(np.float32)
    assert np.array_equal(np.isnan(wide), np.isnan(expected))
    number = ~np.isnan(expected)
    assert np.array_equal(wide[number].view(np.int32), expected[number].view(np.int32))


def test_every_finite_half_is_widened_exactly() -> None:
    bits = np.arange(0x10000, dtype=np.uint32).astype(np.uint16)
    half = bits[(bits & 0x7C00) != 0x7C00].view(np.float16)
    wide = widen_into(half, np.empty(half.shape, np.float32))
    assert np.array_equal(wide.view(np.int32), half.astype(np.float32).view(np.int32))


def test_a_matrix_that_is_not_contiguous_is_widened() -> None:
    half = np.arange(12, dtype=np.float16).reshape(3, 4).T
    assert np.array_equal(widen_into(half, np.empty((4, 3), np.float32)), half.astype(np.float32))


def test_the_hash_is_that_of_the_weight_file(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, a=np.ones(2, np.float32))
    assert checkpoint.sha256 == hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, a=np.ones(2, np.float32))
    with pytest.raises(AttnvizError, match=r"model\.safetensors has no tensor b"):
        checkpoint.tensor("b")


def test_the_shape_that_is_there_and_the_one_wanted_are_named(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, a=np.ones((2, 3), np.float32))
    checkpoint.check("a", (2, 3))
    with pytest.raises(AttnvizError, match=r"a in .* has shape 2 × 3, where config\.json asks for 3 × 2"):
        checkpoint.check("a", (3, 2))


@pytest.mark.parametrize("dtype", ["BF16", "I16", "F8_E4M3"])
def test_a_type_that_needs_torch_is_named(tmp_path: Path, dtype: str) -> None:
    make_bert(tmp_path)
    tensors = random_tensors()
    name, header, data = "encoder.layer.1.attention.self.key.weight", {}, b""
    for key, tensor in tensors.items():
        content = tensor.tobytes()
        kind = "F32"
        if key == name:
            kind, content = dtype, b"\0" * (tensor.size * (1 if dtype == "F8_E4M3" else 2))
        header[key] = {
            "dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(content)]
        }  # fmt: skip
        data += content
    error = fails(raw(tmp_path, json.dumps(header).encode(), data))
    assert f"tensor {name} in " in str(error)
    assert f"is {dtype}: F16, F32 or F64 can be read without torch" in str(error)
    assert error.exit_code == 3


# folders


@pytest.mark.parametrize("name", ["no/such/folder", "nothing", "x" * 300, "a\0b"])
def test_a_folder_that_does_not_exist_is_said_to(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="does not exist") as error:
        open_folder(tmp_path / name)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("name", ["model.safetensors", "notes.txt"])
def test_a_file_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(RequestError, match="is a file, not a checkpoint folder"):
        open_folder(tmp_path / name)


@pytest.mark.parametrize("files", [[], ["model.safetensors", "tokenizer.json"], ["Config.json"]])
def test_a_folder_without_configuration_is_no_checkpoint(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(RequestError, match=r"it has no config\.json") as error:
        open_folder(tmp_path)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"model_type: bert",
        b"\xff\xfe{\x00}\x00",
        b"\x00" * 100,
        b'{"model_type": "bert"}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"num_hidden_layers": ' + b"9" * 10_000 + b"}",
    ],
    ids=range(9),
)
def test_a_configuration_that_is_not_json_is_said_to(tmp_path: Path, content: bytes) -> None:
    folder = make_bert(tmp_path)
    (folder / "config.json").write_bytes(content)
    error = fails(folder)
    assert "config.json cannot be read: " in str(error)
    assert len(str(error)) < 1000
    assert error.exit_code == 3


@pytest.mark.parametrize("content", ["[]", '"bert"', "null", "5", "true", '[{"model_type": "bert"}]'])
def test_a_configuration_that_is_no_object_is_said_to(tmp_path: Path, content: str) -> None:
    folder = make_bert(tmp_path)
    (folder / "config.json").write_text(content)
    error = fails(folder)
    assert "config.json holds no JSON object" in str(error)
    assert error.exit_code == 3


def test_a_configuration_that_is_a_folder_is_said_to(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert "config.json cannot be read: " in str(fails(tmp_path))


# weight files


@pytest.mark.parametrize("other", ["pytorch_model.bin", "tf_model.h5", "model.safetensors.index.json"])
def test_weights_in_another_format_are_refused(tmp_path: Path, other: str) -> None:
    folder = make_bert(tmp_path)
    (folder / "model.safetensors").rename(folder / other)
    error = fails(folder)
    assert "has no model.safetensors: attnviz reads weights in safetensors format only" in str(error)
    assert error.exit_code == 3


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "model")
    canary = tmp_path / "canary"
    program = f"cbuiltins\nopen\n(V{canary}\nVw\ntR.".encode()
    for name in ("model.safetensors", "pytorch_model.bin"):
        (folder / name).write_bytes(program)
    assert "model.safetensors is damaged or incomplete" in str(fails(folder))
    assert not canary.exists()


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 0.5, 0.9, -1])
def test_a_truncated_weight_file_is_said_to_be_damaged(tmp_path: Path, kept: float) -> None:
    folder = make_bert(tmp_path)
    file = folder / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))] if 0 < kept < 1 else content[: int(kept)])
    error = fails(folder)
    assert f"{file} is damaged or incomplete: " in str(error)
    assert error.exit_code == 3


@pytest.mark.parametrize(
    "header",
    [
        b"{}" * 3,
        b"\xff\xfe",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [9223372036854775807, 9], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "X99", "shape": [2], "data_offsets": [0, 8]}}',
        b"[" * 100_000,
    ],
    ids=range(8),
)
def test_a_damaged_header_is_said_to_be_damaged(tmp_path: Path, header: bytes) -> None:
    error = fails(raw(tmp_path, header, b"\0" * 8))
    assert "model.safetensors is damaged or incomplete: " in str(error)
    assert error.exit_code == 3


def test_a_header_of_absurd_length_is_said_to_be_damaged(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**63 - 1) + b"{}")
    assert "is damaged or incomplete: " in str(fails(folder))


def test_a_weight_file_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = make_bert(tmp_path, {"lm_head.weight": np.ones((2, 3), np.float32)})
    error = fails(folder)
    assert "num_hidden_layers is 3, but model.safetensors holds 0 layers" in str(error)
