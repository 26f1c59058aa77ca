import hashlib
import json
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

from attnviz.attention import Rule
from attnviz.backend import placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.embeddings import Embeddings, open_embeddings
from attnviz.sources.scratch import Scratch, ScratchOptions

Array = npt.NDArray[Any]
Expected = Callable[[str], dict[str, Any]]
SUFFIXES = [".npz", ".safetensors"]


def write(path: Path, arrays: dict[str, Array], tokens: list[str] | None = None) -> Path:
    if path.suffix == ".npz":
        everything: dict[str, Any] = {**arrays, **({} if tokens is None else {"tokens": np.array(tokens)})}
        np.savez(path, **everything)
    else:
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(whole, path, None if tokens is None else {"tokens": json.dumps(tokens)})
    return path


def run(one: Embeddings, **options: Any) -> tuple[Array, Array]:
    (made,) = one.maps([0], output=True, **options)
    assert made.output is not None
    assert made.query is made.key is one.tokens is one.key_tokens
    return made.rows(0, len(made.query)), made.output


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def attention(x: Array, w: dict[str, Array], n_heads: int, scale: float | None = None) -> tuple[Array, Array]:
    """Head by head, by the formula."""
    q, k, v = (x @ w[f"W{c}"] + w.get(f"b{c}", 0) for c in "qkv")
    width, wide = q.shape[1] // n_heads, v.shape[1] // n_heads
    weights, outputs = [], []
    for h in range(n_heads):
        columns = slice(h * width, (h + 1) * width)
        scores = q[:, columns] @ k[:, columns].T * (width**-0.5 if scale is None else scale)
        weights.append(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True))
        outputs.append(weights[-1] @ v[:, h * wide : (h + 1) * wide])
    output = np.concatenate(outputs, axis=1)
    return np.stack(weights), output @ w["Wo"] + w.get("bo", 0) if "Wo" in w else output


# the numbers


def toy(expected: Expected) -> tuple[dict[str, Any], dict[str, Array]]:
    data = expected("toy4.json")
    names = {"embeddings": "embeddings", "Wq": "w_q", "Wk": "w_k", "Wv": "w_v"}
    return data, {name: np.array(data[key]) for name, key in names.items()}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_the_lesson_with_1_2_and_4_heads(
    tmp_path: Path, expected: Expected, suffix: str, n_heads: int, backend: str
) -> None:
    data, arrays = toy(expected)
    path = write(tmp_path / f"toy{suffix}", arrays)
    for dtype, tolerance in ((None, 1e-11), ("float64", 1e-11), ("float32", 1e-5)):
        weights, output = run(open_embeddings(path, n_heads=n_heads, placing=placing(backend, "cpu", dtype)))
        assert weights.dtype == output.dtype == (dtype or "float64")
        assert np.abs(weights - data[f"heads{n_heads}"]["weights"]).max() < tolerance
        assert np.abs(output - data[f"heads{n_heads}"]["output"]).max() < tolerance


TOY_RULES = {
    "causal": Rule(causal=True),
    "keypad_last": Rule(keys=np.array([True, True, True, False])),
    "causal_keypad_last": Rule(causal=True, keys=np.array([True, True, True, False])),
    "leftpad_causal": Rule(causal=True, keys=np.array([False, True, True, True])),
    "row1_fully_masked": Rule(mask=np.array([[True] * 4, [False] * 4, [True] * 4, [True] * 4])),
}


@pytest.mark.parametrize("name", TOY_RULES)
def test_the_lesson_under_masks(tmp_path: Path, expected: Expected, name: str) -> None:
    data, arrays = toy(expected)
    weights, output = run(open_embeddings(write(tmp_path / "toy.npz", arrays), n_heads=2), rule=TOY_RULES[name])
    assert np.abs(weights - data[name]["weights"]).max() < 1e-11
    assert np.abs(output - data[name]["output"]).max() < 1e-11
    assert (weights[:, ~np.array(data[name]["allow"], bool)] == 0).all()


@pytest.mark.parametrize(("n_tokens", "d_model", "n_heads", "d_head", "d_value"), [(5, 6, 3, 2, 4), (1, 7, 2, 5, 1)])
@pytest.mark.parametrize("with_biases", [False, True])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_projections_of_any_width_with_biases_and_an_output_projection(
    tmp_path: Path, n_tokens: int, d_model: int, n_heads: int, d_head: int, d_value: int, with_biases: bool, suffix: str
) -> None:
    x, width, wide = normal(n_tokens, d_model), n_heads * d_head, n_heads * d_value
    sizes = {"Wq": (d_model, width), "Wk": (d_model, width), "Wv": (d_model, wide), "Wo": (wide, 9)}
    w = {name: normal(*size, seed=i) for i, (name, size) in enumerate(sizes.items())}
    if with_biases:
        w |= {"bq": normal(width, seed=5), "bk": normal(width, seed=6), "bv": normal(wide, seed=7), "bo": normal(9)}
    weights, output = attention(x, w, n_heads)
    path = write(tmp_path / f"own{suffix}", {"embeddings": x, **w})
    ours, our_output = run(open_embeddings(path, n_heads=n_heads))
    assert np.abs(ours - weights).max() < 1e-12
    assert output.shape == our_output.shape == (n_tokens, 9)
    assert np.abs(our_output - output).max() < 1e-12
    unscaled, _ = run(open_embeddings(path, n_heads=n_heads, scale=False))
    assert np.abs(unscaled - attention(x, w, n_heads, 1.0)[0]).max() < 1e-12
    single, _ = run(open_embeddings(path, n_heads=n_heads), single=True)
    assert np.abs(single[:1] - attention(x, w, 1)[0]).max() < 1e-12
    assert np.array_equal(single[1:], ours)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("names", ["W{}", "w{}", "W_{}", "w_{}"])
def test_one_matrix_for_each_head_is_the_same_as_all_side_by_side(tmp_path: Path, suffix: str, names: str) -> None:
    x, rng = normal(4, 5), np.random.default_rng(8)
    heads = {c: rng.standard_normal((3, 5, 2)) for c in "qkv"} | {"o": rng.standard_normal((3, 2, 5))}
    bias = rng.standard_normal((3, 2))
    w = {f"W{c}": np.concatenate(list(heads[c]), axis=1) for c in "qkv"}
    w |= {"Wo": np.concatenate(list(heads["o"])), "bk": bias.reshape(-1), "bv": bias.reshape(-1)}
    given = {names.format(c): heads[c] for c in "qkvo"}
    biases = {names.format(c).replace("W", "b").replace("w", "b"): bias for c in "kv"}
    one = open_embeddings(write(tmp_path / f"own{suffix}", {"embeddings": x, **given, **biases}))
    assert one.n_heads == 3
    for ours, theirs in zip(run(one), attention(x, w, 3), strict=True):
        assert np.abs(ours - theirs).max() < 1e-12
    assert not any("--n-heads" in note for note in one.notes)
    with pytest.raises(RequestError, match=r"Wq has a matrix for each of 3 heads: --n-heads 1 cannot be"):
        open_embeddings(write(tmp_path / "two.npz", {"embeddings": x, **{f"W{c}": heads[c] for c in "qkv"}}), n_heads=1)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("prefix", ["", "layers.0.self_attn."])
def test_the_state_dict_of_a_published_module(tmp_path: Path, expected: Expected, suffix: str, prefix: str) -> None:
    data = {name: np.array(value, np.float32) for name, value in expected("torch_mha.json").items()}
    state = {f"{prefix}{name}": data[name] for name in data if "proj" in name}
    path = write(tmp_path / f"mha{suffix}", {"x": data["x"], **state})
    weights, output = run(open_embeddings(path, n_heads=2))
    assert weights.dtype == np.float32
    assert np.abs(weights - data["weights"]).max() < 1e-5
    assert np.abs(output - data["output"]).max() < 1e-5
    assert np.abs(weights - data["averaged"]).max() > 0.01


@pytest.mark.parametrize(("d_model", "n_heads", "bias"), [(6, 3, True), (10, 2, False)])
def test_the_state_dict_of_a_torch_module_gives_what_the_module_gives(
    tmp_path: Path, d_model: int, n_heads: int, bias: bool
) -> None:
    torch.manual_seed(d_model)
    module = torch.nn.MultiheadAttention(d_model, n_heads, bias=bias, batch_first=True, dtype=torch.float64).eval()
    x = torch.randn(1, 5, d_model, dtype=torch.float64)
    with torch.no_grad():
        output, weights = module(x, x, x, average_attn_weights=False)
    save_torch({"embeddings": x[0], **module.state_dict()}, tmp_path / "m.safetensors")
    ours, our_output = run(open_embeddings(tmp_path / "m.safetensors", n_heads=n_heads))
    assert np.abs(ours - weights[0].numpy()).max() < 1e-12
    assert np.abs(our_output - output[0].numpy()).max() < 1e-12


def test_the_state_dict_of_a_module_of_four_linear_layers(tmp_path: Path) -> None:
    x, w = normal(4, 6), {name: normal(6, 6, seed=i) for i, name in enumerate(["Wq", "Wk", "Wv", "Wo"])}
    w |= {f"b{c}": normal(6, seed=9 + i) for i, c in enumerate("qkvo")}
    names = {"q": "query_linear", "k": "key_linear", "v": "value_linear", "o": "output_linear"}
    state = {f"block.{names[c]}.weight": w[f"W{c}"].T for c in "qkvo"}
    state |= {f"block.{names[c]}.bias": w[f"b{c}"] for c in "qkvo"}
    path = write(tmp_path / "m.safetensors", {"embeddings": x, **state})
    for ours, theirs in zip(run(open_embeddings(path, n_heads=2)), attention(x, w, 2), strict=True):
        assert np.abs(ours - theirs).max() < 1e-12


# no projections in the file


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", [0, 7])
def test_without_projections_they_are_those_of_the_scratch_model(tmp_path: Path, seed: int, shared: bool) -> None:
    model = Scratch(ScratchOptions(n_heads=3, d_model=15, seed=seed, positions=False, shared_projections=shared))
    prepared = model.prepare("the cat sat on the mat")
    x = model.embeddings(prepared.tokens)
    path = write(tmp_path / "x.npz", {"embeddings": x}, list(prepared.tokens.pieces))
    one = open_embeddings(path, n_heads=3, seed=seed, shared_projections=shared)
    (wanted,) = prepared.maps([0], output=True)
    weights, output = run(one)
    assert np.array_equal(weights, wanted.rows(0, 6))
    assert np.array_equal(output, np.asarray(wanted.output))
    assert one.tokens.pieces == prepared.tokens.pieces
    assert one.notes == (f"x.npz has no projections: they are drawn from seed {seed}, nothing in them is trained",)
    assert one.provenance["seed"] == seed


def test_no_positions_are_added(tmp_path: Path) -> None:
    x = normal(3, 8)
    weights, _ = run(open_embeddings(write(tmp_path / "x.npz", {"embeddings": x[[0, 1, 0, 2]]})))
    assert np.array_equal(weights[:, 0], weights[:, 2])
    assert np.array_equal(weights[:, :, 0], weights[:, :, 2])


@pytest.mark.parametrize("shared", [False, True])
def test_shared_projections_are_the_first_heads_for_all(tmp_path: Path, shared: bool) -> None:
    arrays = {"embeddings": normal(4, 5), "bq": normal(6)} | {
        f"W{c}": normal(5, 6, seed=i) for i, c in enumerate("qkv")
    }
    one = open_embeddings(write(tmp_path / "x.npz", arrays), n_heads=3, shared_projections=shared)
    weights, _ = run(one)
    assert np.array_equal(weights[0], weights[1]) == np.array_equal(weights[0], weights[2]) == shared
    assert one.provenance["shared_projections"] is shared


def test_a_shared_projection_leaves_the_output_projection_as_it_is(tmp_path: Path) -> None:
    x, w = normal(4, 5), {f"W{c}": normal(5, 6, seed=i) for i, c in enumerate("qkv")}
    w |= {"Wo": normal(6, 7), "bv": normal(6)}
    first = {name: np.concatenate([w[name][..., :2]] * 3, axis=-1) for name in ("Wq", "Wk", "Wv", "bv")}
    path = write(tmp_path / "x.npz", {"embeddings": x, **w})
    for ours, theirs in zip(
        run(open_embeddings(path, n_heads=3, shared_projections=True)), attention(x, {**w, **first}, 3), strict=True
    ):
        assert np.abs(ours - theirs).max() < 1e-12


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_seeded_projections_take_the_dtype_of_the_embeddings(tmp_path: Path, dtype: str) -> None:
    path = write(tmp_path / "x.npz", {"embeddings": normal(3, 4).astype(dtype)})
    ours, theirs = (run(open_embeddings(path, placing=placing(backend))) for backend in ("numpy", "torch"))
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype == dtype
        assert np.abs(a - b).max() < (1e-5 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize(
    ("d_model", "wanted", "heads"), [(8, None, 4), (6, None, 1), (2, None, 1), (6, 3, 3), (8, 1, 1)]
)
def test_heads_unsaid_are_4_or_1_and_told(tmp_path: Path, d_model: int, wanted: int | None, heads: int) -> None:
    path = write(tmp_path / "x.npz", {"embeddings": normal(3, d_model)})
    one = open_embeddings(path, n_heads=wanted)
    assert one.n_heads == one.provenance["n_heads"] == heads
    told = f"{heads} {'heads' if heads > 1 else 'head'}, unless --n-heads says otherwise"
    assert (told in one.notes) == (wanted is None)


# what a file may hold


def test_what_is_said_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "my own.npz", {"embeddings": normal(3, 4)})
    one = open_embeddings(path, n_heads=2)
    assert (one.name, one.n_layers, one.n_heads, one.gives_output) == ("my own.npz", 1, 2, True)
    assert one.tokens.text == ("0", "1", "2")
    assert one.notes[0] == "my own.npz has no tokens: they are numbered"
    assert one.provenance["model"] == "my own.npz"
    assert one.provenance["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert one.provenance["projections"] == "seeded"
    assert str(tmp_path) not in json.dumps(one.provenance)
    given = write(tmp_path / "given.npz", {"embeddings": normal(3, 4), **{f"W{c}": np.eye(4) for c in "qkv"}})
    provenance = open_embeddings(given).provenance
    assert provenance["projections"] == "file"
    assert "seed" not in provenance
    assert list(one.maps([1])) == []


TOKENS = ["the", "猫 a", "[/INST]", "👍🏽"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tokens_come_from_the_file(tmp_path: Path, suffix: str) -> None:
    one = open_embeddings(write(tmp_path / f"x{suffix}", {"embeddings": normal(4, 4)}, TOKENS))
    assert list(one.tokens.pieces) == TOKENS
    assert not any("tokens" in note for note in one.notes)


@pytest.mark.parametrize(
    "tokens",
    [np.array(json.dumps(TOKENS)), np.array([token.encode() for token in TOKENS]), np.array(TOKENS, ">U9")],
    ids=["json", "bytes", "big-endian"],
)
def test_tokens_may_be_json_or_bytes(tmp_path: Path, tokens: Array) -> None:
    one = open_embeddings(write(tmp_path / "x.npz", {"embeddings": normal(4, 4), "tokens": tokens}))
    assert list(one.tokens.pieces) == TOKENS


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (np.array(["a", "b"]), r"has 2 tokens, but embeddings is 4 × 4: one row for each"),
        (np.array("just text"), r"has 1 tokens, but embeddings is 4 × 4"),
        (np.arange(4), "tokens in .* are int64: text is needed"),
        (np.array([["a", "b"], ["c", "d"]]), "are no list of texts"),
        (np.array("[1, 2, 3, 4]"), "are no list of texts"),
        (np.array('{"a": 1}'), "are no list of texts"),
        (np.array(["a", "b", "c\ud800", "d"]), r"tokens\[2\] in .* is not valid Unicode"),
        (np.array("[" * 5000), "has 1 tokens"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(tmp_path: Path, tokens: Array, words: str) -> None:
    path = write(tmp_path / "x.npz", {"embeddings": normal(4, 4), "tokens": tokens})
    with pytest.raises(RequestError, match=words):
        open_embeddings(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["vectors", "model.embed.weight", "E"])
def test_the_only_matrix_needs_no_name(tmp_path: Path, suffix: str, name: str) -> None:
    arrays = {name: normal(3, 4), "scale": np.ones(5), "ids": np.ones((3, 2), np.int64)}
    one = open_embeddings(write(tmp_path / f"x{suffix}", arrays | {f"W{c}": np.eye(4) for c in "qkv"}))
    assert np.array_equal(one.x, arrays[name])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", ">f8", "int64", "uint8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_of_any_type_are_read(tmp_path: Path, dtype: str, order: str) -> None:
    x = np.array([[1, 2, 0], [0, 5, 3]], dtype, order=order)  # type: ignore[call-overload]
    one = open_embeddings(write(tmp_path / "x.npz", {"embeddings": x}))
    assert one.x.tolist() == [[1, 2, 0], [0, 5, 3]]
    wanted = "float64" if dtype.endswith(("64", "8")) and "f" in dtype else "float32"
    assert one.x.dtype == one.provenance["dtype"] == wanted


def test_bfloat16_is_read(tmp_path: Path) -> None:
    x = torch.tensor([[1.5, -2.0, 3.0], [0.0, 1e30, -0.125]], dtype=torch.bfloat16)
    save_torch({"a": torch.ones(7), "embeddings": x}, tmp_path / "x.safetensors")
    assert np.array_equal(open_embeddings(tmp_path / "x.safetensors").x, x.float().numpy())


def test_one_float64_array_makes_all_of_it_float64(tmp_path: Path) -> None:
    arrays = {"embeddings": normal(3, 4).astype(np.float32), **{f"W{c}": normal(4, 4) for c in "qkv"}}
    one = open_embeddings(write(tmp_path / "x.npz", arrays))
    assert one.provenance["dtype"] == "float64"
    assert run(one)[0].dtype == np.float64


# texts


CSV = {
    "tokens": ("the,1,0.5\ncat,-2e-1,3\n", ["the", "cat"]),
    "numbers": ("1,0.5\n-0.2,3\n", None),
    "heading": ("token,x,y\n7,1,0.5\n8,-.2,3\n", ["7", "8"]),
    "heading of numbers": ("a,b\n1,0.5\n-0.2,3\n", None),
    "quoted": ('"a,b",1,0.5\n"say ""hi""\nnow", -0.2 ,3\n', ["a,b", 'say "hi"\nnow']),
    "spreadsheet": ("\ufeffthe,1,0.5\r\n\r\n,,\r\n中文,-0.2,3\r\n", ["the", "中文"]),
    "some numbers": ("nan,1,0.5\nword,-0.2,3", ["nan", "word"]),
}


@pytest.mark.parametrize("name", CSV)
def test_csv_has_one_token_a_row(tmp_path: Path, name: str) -> None:
    content, tokens = CSV[name]
    (tmp_path / "x.csv").write_bytes(content.encode())
    one = open_embeddings(tmp_path / "x.csv")
    assert one.x.tolist() == np.array([[1, 0.5], [-0.2, 3]], np.float32).tolist()
    assert list(one.tokens.pieces) == (tokens or ["0", "1"])
    assert one.provenance["dtype"] == "float32"


WORD_VECTORS = {
    "word2vec": ("2 3\nthe 1 0.5 0\ncat -0.2 3 1e2 \n", ["the", "cat"]),
    "glove": ("the 1 0.5 0\ncat -0.2 3 1e2", ["the", "cat"]),
    "tabs": ("the\t1\t0.5\t0\r\ncat\t-0.2\t3\t1e2\r\n", ["the", "cat"]),
    "blanks": ("new york 1 0.5 0\ncat -0.2 3 1e2\n", ["new york", "cat"]),
    "numbers as tokens": ("7 1 0.5 0\n1e3 -0.2 3 1e2\n", ["7", "1e3"]),
    "dots": (". . . 1 0.5 0\n1 2 -0.2 3 1e2\nx 0 0 0\ny 0 0 0\n", [". . .", "1 2", "x", "y"]),
    "a token of two numbers": ("1 2 1 0.5 0\ncat -0.2 3 1e2\n", ["1 2", "cat"]),
    "other blanks": ("a\u00a0b 1 0.5 0\nc\u2028d -0.2 3 1e2\n", ["a\u00a0b", "c\u2028d"]),
}


@pytest.mark.parametrize("suffix", [".txt", ".vec", ".VEC"])
@pytest.mark.parametrize("name", WORD_VECTORS)
def test_word2vec_and_glove_have_one_token_a_line(tmp_path: Path, name: str, suffix: str) -> None:
    content, tokens = WORD_VECTORS[name]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content.encode())
    one = open_embeddings(path, placing=placing("numpy", "cpu", "float64"))
    assert list(one.tokens.pieces) == tokens
    assert one.x[:2].tolist() == [[1, 0.5, 0], [-0.2, 3, 100]]


@pytest.mark.parametrize(("content", "rows"), [("2 1\na 0.5\nb 2\n", 2), ("2 1\n3 4\n", 2), ("1 2\na 3 4\n", 1)])
def test_a_first_line_of_two_numbers_is_a_count_where_it_can_be_one(tmp_path: Path, content: str, rows: int) -> None:
    (tmp_path / "x.txt").write_text(content)
    assert len(open_embeddings(tmp_path / "x.txt").tokens) == rows


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", "a,1,2\nb,1\n", "x.csv, line 2: 2 cells, where line 1 has 3"),
        ("x.csv", "token,x\n\na,1\nb,1,2\n", "x.csv, line 4: 3 cells, where line 3 has 2"),
        ("x.csv", "a,1,2\nb,1,x\n", "x.csv, line 2: 'x' is no number"),
        ("x.csv", "a,1,2\nb,,1\n", "x.csv, line 2: '' is no number"),
        ("x.csv", "", "x.csv is empty: it gives no tokens"),
        ("x.csv", "token,x\n", "x.csv is empty: it gives no tokens"),
        ("x.csv", "a\nb\n", "x.csv has tokens, but no numbers after them"),
        ("x.csv", "a,1\nb,\xff\n", "x.csv is not UTF-8: byte 0xFF in line 2"),
        ("x.csv", "a,1\n" + "b" * 200_000 + ",1\n", "line 2: field larger than field limit"),
        ("x.txt", "\n \n", "x.txt is empty"),
        ("x.txt", "3 2\na 1 2\nb 3 4\n", "x.txt says 3 tokens in line 1, but holds 2"),
        ("x.txt", "2 3\na 1 2 3\nb 3 4\n", "x.txt, line 3: a token and 3 numbers are expected, got 3 parts"),
        ("x.txt", "a 1 2\nb 1 2\n\nc 1\n", "x.txt, line 4: a token and 2 numbers are expected, got 2 parts"),
        ("x.txt", "a 1 2\nb 1 2\nc 1 x\n", "x.txt, line 3: 'x' is no number"),
        ("x.txt", "just some words\n", "x.txt, line 1: 'words' is no number"),
        ("x.md", "a 1 2\n", "has the suffix '.md': .npz, .safetensors, .csv, .txt, .vec can be read"),
    ],
)
def test_a_text_that_holds_no_vectors_is_refused_by_its_line(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(RequestError, match=words) as error:
        open_embeddings(tmp_path / name)
    assert error.value.exit_code == 2


# what does not go together


def square(**changes: Array) -> dict[str, Array]:
    arrays = {"embeddings": normal(3, 4), **{f"W{c}": normal(4, 6) for c in "qkv"}}
    return {**arrays, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Wq": normal(5, 6)}, r"Wq is 5 × 6, but the embeddings have 4 columns: 4 rows are needed"),
        ({"Wv": normal(6, 4)}, r"Wv is 6 × 4, but the embeddings have 4 columns"),
        ({"Wk": normal(4, 5)}, r"Wk is 4 × 5, but Wq is 4 × 6: 6 columns are needed"),
        ({"Wo": normal(4, 6)}, r"Wo is 4 × 6, but Wv is 4 × 6: 6 rows are needed"),
        ({"bq": normal(4)}, r"bq is 4, but Wq is 4 × 6: 6 entries are needed"),
        ({"bo": normal(6)}, r"the file holds bo but no Wo"),
        ({"bq": normal(6, 1, 1)}, r"bq is 6 × 1 × 1: a row of numbers is needed"),
        ({"Wq": normal(6)}, r"Wq is 6: a matrix is needed"),
        ({"Wq": normal(3, 4, 2), "Wk": normal(2, 4, 3)}, "of several numbers of heads: Wk for 2, Wq for 3"),
        ({"wq": normal(4, 6)}, r"the file holds Wq and wq, which mean the same: one is needed"),
        ({"enc.Wq": normal(4, 6)}, r"projections of several modules \(one without a name, enc\)"),
        ({"bias_k": normal(1, 1, 4)}, r"bias_k is a key or value of its own, which is not run"),
        ({"Wq": np.ones((4, 6), bool)}, r"Wq is bool, no numbers"),
        ({"in_proj_bias": normal(4)}, r"in_proj_bias is 4: queries, keys and values are a third"),
        ({"embeddings": normal(2, 3, 4)}, r"embeddings in .* is 2 × 3 × 4: \[token, d_model\] is needed"),
        ({"embeddings": normal(4)}, r"embeddings in .* is 4: \[token, d_model\] is needed"),
        ({"embeddings": normal(0, 4)}, r"embeddings in .* is 0 × 4: \[token, d_model\] is needed"),
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_arrays_that_do_not_go_together_are_refused_with_both(
    tmp_path: Path, suffix: str, changes: dict[str, Array], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        open_embeddings(write(tmp_path / f"x{suffix}", square(**changes)), n_heads=None)


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (["embeddings", "Wq"], "the file holds Wq but no Wk and no Wv: Wq, Wk and Wv belong together"),
        (["embeddings", "Wk", "Wv"], "the file holds Wk, Wv but no Wq: "),
        (["Wq", "Wk", "Wv"], r"the vectors must be an array named embeddings, \[token, d_model\]"),
        ([], "holds no arrays: the vectors must be"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, kept: list[str], words: str) -> None:
    arrays = {name: array for name, array in square().items() if name in kept}
    with zipfile.ZipFile(tmp_path / "x.npz", "w"):
        pass
    with pytest.raises(RequestError, match=words):
        open_embeddings(write(tmp_path / "x.npz", arrays) if arrays else tmp_path / "x.npz")


def test_of_several_matrices_none_is_guessed_at(tmp_path: Path) -> None:
    path = write(tmp_path / "x.npz", {"a": normal(3, 4), "b": normal(5, 4)})
    with pytest.raises(RequestError, match=r"holds a \(3 × 4, float64\), b \(5 × 4, float64\): the vectors must be"):
        open_embeddings(path)
    assert open_embeddings(write(path, {"a": normal(3, 4), "embeddings": normal(5, 4)})).x.shape == (5, 4)


@pytest.mark.parametrize(
    ("arrays", "n_heads", "words"),
    [
        ({"embeddings": normal(2, 6)}, 4, "d_model 6 cannot be split into 4 heads: .* divide it \\(1, 2, 3 or 6\\)"),
        (square(), 4, "Wq of width 6 cannot be split into 4 heads"),
        (square(Wv=normal(4, 5)), 3, "Wv of width 5 cannot be split into 3 heads"),
        ({"embeddings": normal(2, 6)}, 0, "cannot be split into 0 heads"),
    ],
)
def test_heads_that_do_not_divide_are_refused(
    tmp_path: Path, arrays: dict[str, Array], n_heads: int, words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        open_embeddings(write(tmp_path / "x.npz", arrays), n_heads=n_heads)


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--seed must be 0 or more, got -1"):
        open_embeddings(write(tmp_path / "x.npz", {"embeddings": normal(2, 4)}), seed=-1)


# what is no finite number


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("name", "index"), [("embeddings", (2, 1)), ("Wk", (0, 5)), ("Wo", (3, 0)), ("bv", (4,))])
def test_a_number_that_is_not_finite_is_named_with_its_place(
    tmp_path: Path, suffix: str, value: float, name: str, index: tuple[int, ...]
) -> None:
    arrays = square(Wo=normal(6, 4), bv=normal(6))
    arrays[name][index] = value
    place = ", ".join(map(str, index))
    with pytest.raises(RequestError, match=rf"^{name}\[{place}\] is {value}: a finite number is needed"):
        open_embeddings(write(tmp_path / f"x{suffix}", arrays))


@pytest.mark.parametrize(
    ("name", "content"), [("x.csv", "a,1,2\nb,3,nan\n"), ("x.txt", "a 1 2\nb 3 nan\n"), ("x.csv", "1,2\n3,NaN")]
)
def test_in_a_text_too(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RequestError, match=r"embeddings\[1, 1\] is nan"):
        open_embeddings(tmp_path / name)


def test_what_is_too_large_for_the_dtype_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,1,2\nb,1e300,3\n")
    with pytest.raises(RequestError, match=r"embeddings\[1, 0\] is 1e\+300: more than float32 holds: --dtype float64"):
        open_embeddings(tmp_path / "x.csv")
    one = open_embeddings(tmp_path / "x.csv", placing=placing(dtype="float64"))
    with pytest.raises(RequestError, match="the scores overflow float64"):
        run(one)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("size", "refused"), [(1e30, True), (1e18, False)])
def test_scores_that_overflow_are_refused_and_large_ones_are_not(
    tmp_path: Path, backend: str, size: float, refused: bool
) -> None:
    arrays = {"embeddings": np.float32(size) * np.eye(4, dtype=np.float32)} | {
        f"W{c}": np.eye(4, dtype=np.float32) for c in "qkv"
    }
    one = open_embeddings(write(tmp_path / "x.npz", arrays), n_heads=2, placing=placing(backend))
    if refused:
        with pytest.raises(
            RequestError, match="the scores overflow float32: scale the numbers down, or choose a wider"
        ):
            run(one)
    else:
        weights, _ = run(one)
        assert weights[0].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0.25] * 4, [0.25] * 4]


# files that are damaged


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kept", [0, 0.2, 0.5, 0.95])
def test_a_truncated_file_is_told(tmp_path: Path, suffix: str, kept: float) -> None:
    path = write(tmp_path / f"x{suffix}", square())
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(AttnvizError, match="is damaged, or not what its name says") as error:
        open_embeddings(path)
    assert error.value.exit_code == 3


def test_pickled_tokens_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", embeddings=normal(2, 4), tokens=np.array(["a", "b"], object))
    with pytest.raises(AttnvizError, match="it holds Python objects, which are never unpickled"):
        open_embeddings(tmp_path / "x.npz")


def test_what_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"embeddings file no\.npz does not exist"):
        open_embeddings(Path("no.npz"))
    with pytest.raises(RequestError, match="is a folder: name a file in it"):
        open_embeddings(tmp_path)


def test_projections_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.npz", {"embeddings": np.ones((1, 2**20), np.float32)})
    with pytest.raises(RequestError, match="projections for embeddings of 1048576 columns would take"):
        open_embeddings(path)
