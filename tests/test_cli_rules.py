"""`attnviz heads` under --causal, --window and --mask, against masks and a softmax written out here in float64."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from attnviz.render import FORMATS
from tests.cli import Answer, error, run

Array = npt.NDArray[Any]

N, N_HEADS, D_HEAD, D_VALUE = 6, 2, 4, 3
ALLOWED = np.random.default_rng(11).random((N, N)) < 0.6
ALLOWED[:, 0] = True
"""No row of it is empty, also not below the diagonal and within any window of two."""
ALLOWED |= np.eye(N, dtype=bool)
PER_HEAD = np.stack([ALLOWED, np.tri(N, N, 1, dtype=bool)])
PADDING = np.array([False, True, True, True, True, False])
ADDED = np.where(ALLOWED, np.random.default_rng(12).standard_normal((N, N)), -np.inf)
MASKS: dict[str, Array] = {
    "booleans": ALLOWED,
    "integers": ALLOWED.astype(np.int64),
    "bytes": ALLOWED.astype(np.uint8),
    "added": ADDED,
    "added in float32": np.maximum(ADDED.astype(np.float32), np.finfo(np.float32).min),
    "for each head": PER_HEAD,
    "batched": PER_HEAD[None],
    "padding": PADDING,
    "one row": ALLOWED[3:4],
}
RULES: dict[str, list[str]] = {
    "nothing": [],
    "causal": ["--causal"],
    "window": ["--window", "3"],
    "causal window": ["--causal", "--window", "2"],
}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Array]]:
    rng, path = np.random.default_rng(7), tmp_path_factory.mktemp("vectors") / "own.npz"
    shapes = {"embeddings": (N, 5), "Wq": (5, N_HEADS * D_HEAD), "Wk": (5, N_HEADS * D_HEAD),
              "Wv": (5, N_HEADS * D_VALUE)}  # fmt: skip
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path, arrays


def allowed_by(options: list[str]) -> Array:
    """Which key [query, key] each query may attend to, counted out."""
    window = int(options[options.index("--window") + 1]) if "--window" in options else N
    causal = "--causal" in options
    return np.array([[abs(i - j) < window and not (causal and j > i) for j in range(N)] for i in range(N)])


def expected(arrays: dict[str, Array], allowed: Array, added: Array | float = 0.0) -> tuple[Array, Array]:
    """Weights [head, query, key] and the heads' outputs side by side; a row without any key is zeros."""
    q, k, v = (arrays["embeddings"] @ arrays[f"W{name}"] for name in "qkv")
    weights, outputs = np.zeros((N_HEADS, N, N)), []
    for head in range(N_HEADS):
        own, own_v = (slice(head * d, (head + 1) * d) for d in (D_HEAD, D_VALUE))
        scores = q[:, own] @ k[:, own].T / np.sqrt(D_HEAD) + added
        for i in range(N):
            there = [j for j in range(N) if np.broadcast_to(allowed, (N_HEADS, N, N))[head, i, j]]
            if there:
                exponentials = np.exp(scores[i, there] - scores[i, there].max())
                weights[head, i, there] = exponentials / exponentials.sum()
        outputs.append(weights[head] @ v[:, own_v])
    return weights, np.hstack(outputs)


def shown(*arguments: object) -> Answer:
    answer = run("heads", *map(str, arguments), "--format", "json")
    assert answer.code == 0, answer.err
    return answer


def assert_is(answer: Answer, weights: Array, output: Array) -> None:
    np.testing.assert_allclose(np.array(answer.json["weights"])[0], weights, rtol=0, atol=1e-14)
    np.testing.assert_allclose(np.array(answer.json["output"])[0], output, rtol=0, atol=1e-13)
    assert not np.array(answer.json["weights"])[0][weights == 0].any()  # and not merely small


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", ["none", *MASKS])
def test_every_rule_together_with_every_mask(
    tmp_path: Path, vectors: tuple[Path, dict[str, Array]], rule: str, mask: str
) -> None:
    file, arrays = vectors
    allowed, added, options = allowed_by(RULES[rule]), np.zeros(()), list(RULES[rule])
    if mask != "none":
        held = MASKS[mask]
        np.save(tmp_path / "mask.npy", held)
        options += ["--mask", str(tmp_path / "mask.npy")]
        if mask.startswith("added"):
            added, held = np.where(ALLOWED, held.astype(np.float64), 0), ALLOWED
        allowed = allowed & held.astype(bool).reshape(held.shape[-3:])
    answer = shown("--embeddings", file, "--n-heads", N_HEADS, *options)
    assert_is(answer, *expected(arrays, allowed, added))
    empty = int((~np.broadcast_to(allowed, (N_HEADS, N, N)).any(axis=2)).sum())
    assert ("attends to nothing" in answer.err) == (empty > 0)
    if empty > 1:
        assert f"({empty} of {N_HEADS * N} rows" in answer.err


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".json", ".csv"])
def test_a_mask_from_every_kind_of_file(tmp_path: Path, vectors: tuple[Path, dict[str, Array]], suffix: str) -> None:
    file, arrays = vectors
    typed = path = tmp_path / f"masks{suffix}"
    match suffix:
        case ".npy":
            np.save(path, ALLOWED)
        case ".npz":
            np.savez(path, other=PADDING, mine=ALLOWED)
            typed = Path(f"{path}:mine")
        case ".safetensors":
            save_file({"other": PADDING, "mine": ALLOWED}, path)
            typed = Path(f"{path}:mine")
        case ".json":
            path.write_text(json.dumps(ALLOWED.tolist()))
        case _:
            path.write_text("".join(",".join(str(int(cell)) for cell in row) + "\n" for row in ALLOWED))
    answer = shown("--embeddings", file, "--n-heads", N_HEADS, "--causal", "--mask", typed)
    assert_is(answer, *expected(arrays, ALLOWED & np.tri(N, dtype=bool)))
    said = answer.json["provenance"]
    assert said["causal"] is True
    assert said["mask"] == typed.name
    assert len(said["mask_sha256"]) == 64


@pytest.mark.parametrize("window", [1, 2, 5, 6, 100])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_counts_the_token_itself(vectors: tuple[Path, dict[str, Array]], window: int, causal: bool) -> None:
    file, arrays = vectors
    options = ["--window", str(window), *(["--causal"] if causal else [])]
    answer = shown("--embeddings", file, "--n-heads", N_HEADS, *options)
    assert_is(answer, *expected(arrays, allowed_by(options)))
    per_row = (np.array(answer.json["weights"])[0, 0] > 0).sum(axis=1).tolist()
    before = [min(i + 1, window) for i in range(N)]
    after = [0] * N if causal else [min(N - 1 - i, window - 1) for i in range(N)]
    assert per_row == [a + b for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize(
    "mask",
    [
        np.where(np.arange(N)[:, None] == 2, False, True) & np.ones((N, N), bool),
        np.where(np.arange(N)[:, None] == 2, np.finfo(np.float32).min, 0).astype(np.float32) + np.zeros((N, N), "f4"),
        np.where(np.arange(N)[:, None] == 2, -1e9, 0.0) + np.zeros((N, N)),
        np.where(np.arange(N)[:, None] == 2, -np.inf, 0.0) + np.zeros((N, N)),
        np.where(np.arange(N)[:, None] == 2, np.finfo(np.float16).min, 0).astype(np.float16) + np.zeros((N, N), "f2"),
    ],
    ids=["booleans", "least float32", "-1e9", "-inf", "least float16"],
)
def test_a_fully_masked_row_is_zeros_and_said_and_the_others_are_as_without(
    tmp_path: Path, vectors: tuple[Path, dict[str, Array]], mask: Array
) -> None:
    file, arrays = vectors
    np.save(tmp_path / "mask.npy", mask)
    arguments = ["--embeddings", file, "--n-heads", N_HEADS, "--mask", tmp_path / "mask.npy"]
    answer = shown(*arguments)
    assert_is(answer, *expected(arrays, (np.arange(N) != 2)[:, None] & np.ones((N, N), bool)))
    said = "layer 0 head 0 row 2 is 0 throughout: it attends to nothing (2 of 12 rows, this is the first)"
    assert said in answer.err
    assert said in answer.json["notes"]
    outputs = [tmp_path / f"x.{name}" for name in FORMATS]
    done = run("heads", *map(str, arguments), *(part for path in outputs for part in ("-o", str(path))))
    assert (done.code, done.err) == (0, answer.err)
    rows = (tmp_path / "x.txt").read_text(encoding="utf-8").splitlines()
    assert ["2", "2"] in [row.split() for row in rows]  # the label of a row that is blank in every head


@pytest.mark.parametrize(("n_left", "causal"), [(1, True), (3, True), (2, False)])
def test_padding_on_the_left_is_neither_drawn_nor_attended(
    tmp_path: Path, vectors: tuple[Path, dict[str, Array]], n_left: int, causal: bool
) -> None:
    file, arrays = vectors
    keys = np.arange(N) >= n_left
    np.save(tmp_path / "mask.npy", keys)
    options = ["--causal"] if causal else []
    answer = shown("--embeddings", file, "--n-heads", N_HEADS, "--mask", tmp_path / "mask.npy", *options)
    assert_is(answer, *expected(arrays, allowed_by(options) & keys))
    assert (f"{N_HEADS * n_left} of {N_HEADS * N} rows" in answer.err) == causal


@pytest.mark.parametrize("model", [["--model", "scratch", "--n-heads", "3", "--d-model", "12"], ["--layer", "0"]])
@pytest.mark.parametrize("options", [["--causal"], ["--window", "2"], ["--causal", "--window", "3"]])
def test_the_first_layer_of_a_model_is_its_own_softmax_over_what_is_allowed(
    model: list[str], options: list[str]
) -> None:
    text = ["the cat sat on a mat"] if "scratch" in model else ["the cat sat on"]  # six tokens both
    free, ruled = (np.array(shown(*text, *model, *o).json["weights"])[0] for o in ([], options))
    allowed = allowed_by(options)
    assert free.shape == ruled.shape == (free.shape[0], N, N)
    kept = np.where(allowed, free, 0)
    np.testing.assert_allclose(ruled, kept / kept.sum(-1, keepdims=True), rtol=0, atol=1e-6)
    assert not ruled[:, ~allowed].any()


def test_the_empty_triangle_of_a_causal_head_is_at_the_upper_right_of_the_text() -> None:
    text = run("heads", "a b c", "--model", "scratch", "--n-heads", "1", "--causal", "--width", "60").text
    assert "blank is exactly 0" in text
    numbers = [re.sub(r"^[abc]", "", line).split() for line in text.splitlines() if re.match(r"[abc]  ", line)]
    assert [len(row) for row in numbers] == [1, 2, 3]
    assert numbers[0] == ["1."]


@pytest.mark.parametrize(
    ("name", "mask", "code", "words"),
    [
        ("mask.npy", np.ones((5, 5), bool), 2, ["5 × 5", "6 queries and 6 keys", "6 × 6"]),
        ("mask.npy", np.ones((6, 5), bool), 2, ["6 × 5", "6 × 6"]),
        ("mask.npy", np.ones((3, 6, 6), bool), 2, ["3", "2"]),
        ("mask.npy", np.ones((6, 6)), 2, ["0 and 1 as floats", "booleans or integers"]),
        ("mask.npy", np.full((6, 6), 2), 2, ["[0, 0] is 2", "1 (may attend) and 0"]),
        ("mask.npy", np.full((6, 6), np.nan), 2, ["nan"]),
        ("mask.npy", np.full((6, 6), np.inf), 2, ["inf"]),
        ("mask.npy", np.ones((6, 6), complex), 2, ["complex128"]),
        ("mask.npz", np.ones((6, 6), bool), 2, ["'mine'", "mask (6 × 6, bool)"]),
        ("mask.npy", b"\x93NUMPY", 3, ["damaged"]),
        ("mask.npz", b"PK", 3, ["damaged"]),
        ("mask.json", b"[[true], [false, true]]", 3, ["one length"]),
        ("mask.csv", b"1,0\n1\n", 2, ["line 2"]),
        ("mask.txt", b"1", 2, [".npy"]),
        ("mask.npy", None, 2, ["does not exist"]),
    ],
)  # fmt: skip
def test_a_mask_that_is_none(
    tmp_path: Path,
    vectors: tuple[Path, dict[str, Array]],
    name: str,
    mask: Array | bytes | None,
    code: int,
    words: list[str],
) -> None:
    path = tmp_path / name
    if isinstance(mask, bytes):
        path.write_bytes(mask)
    elif mask is not None and path.suffix == ".npy":
        np.save(path, mask)
    elif mask is not None:
        np.savez(path, mask=mask)
    typed = f"{path}:mine" if "'mine'" in words else str(path)
    arguments = ["--embeddings", str(vectors[0]), "--n-heads", str(N_HEADS), "--mask", typed]
    message = error("heads", *arguments, "-o", str(tmp_path / "x.png"), "-o", str(tmp_path / "x.json"), code=code)
    for word in words:
        assert word in message
    assert not list(tmp_path.glob("x.*"))


@pytest.mark.parametrize("window", ["0", "-1", "two", "1.5"])
def test_a_window_that_is_none(window: str) -> None:
    message = error("heads", "a b", "--model", "scratch", "--window", window, code=2)
    assert "window" in message
    assert window in message


def test_the_help_says_what_true_means() -> None:
    text = " ".join(run("heads", "--help").text.split())
    assert "True where a query may attend" in text
