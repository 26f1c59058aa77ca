"""`attnviz cross`: rows of the target, columns of the source."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

from attnviz import load
from attnviz.backend import NUMPY
from attnviz.render import FORMATS
from attnviz.sources.registry import open_model
from tests.cli import error, run

SOURCE, TARGET = "the cat sat down", "o gato sentou"


def library(source: str, target: str, **shape: int) -> np.ndarray:
    """[head, query, key]."""
    (one,) = open_model("scratch", shape, NUMPY).prepare_cross(source, target).maps([0])  # type: ignore[attr-defined]
    return np.asarray(one.weights.rows(0, len(one.query)))


@pytest.mark.parametrize(
    ("source", "target"), [(SOURCE, TARGET), ("a", "b c"), ("日本 語", "👩\u200d👧"), ("a a", "a")]
)
@pytest.mark.parametrize("shape", [{}, {"n_heads": 2, "d_model": 6, "seed": 3}])
def test_the_weights_are_those_of_the_library(source: str, target: str, shape: dict[str, int]) -> None:
    typed = [word for name, value in shape.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    found = run("cross", source, target, *typed, "--format", "json").json
    weights = np.array(found["weights"])[0]
    assert weights.shape[1:] == (len(found["query_text"]), len(found["key_text"]))
    assert np.abs(weights - library(source, target, **shape)).max() < 1e-7
    assert np.abs(weights.sum(-1) - 1).max() < 1e-6
    assert {"text": target, "attends_to": source, **shape}.items() <= found["provenance"].items()
    assert found["kind"] == "cross"


def test_rows_are_of_the_target_and_columns_of_the_source(tmp_path: Path) -> None:
    found = run("cross", SOURCE, TARGET, "--format", "json").json
    assert (found["query_text"], found["key_text"]) == (TARGET.split(), SOURCE.split())
    assert run("cross", SOURCE, TARGET, *(word for name in ("npz", "csv", "safetensors", "json")
                                          for word in ("-o", str(tmp_path / f"o.{name}")))).code == 0  # fmt: skip
    for name in ("npz", "safetensors", "json"):
        record = load(tmp_path / f"o.{name}")
        assert np.abs(record.weights - np.array(found["weights"])).max() < 1e-7
    rows = list(csv.DictReader(io.StringIO((tmp_path / "o.csv").read_text("utf-8"))))
    assert len(rows) == 4 * 3 * 4
    for row in rows:
        head, query, key = (int(row[name]) for name in ("head", "query", "key"))
        assert float(row["weight"]) == pytest.approx(found["weights"][0][head][query][key], abs=1e-6)
        assert (row["query_text"], row["key_text"]) == (TARGET.split()[query], SOURCE.split()[key])
    text = run("cross", SOURCE, TARGET, "--width", "60").text
    assert "rows: query, columns: key" in text
    assert "keys: 0 the  1 cat  2 sat  3 down" in text


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_request_gives_the_same_bytes(name: str) -> None:
    first, second = (run("cross", SOURCE, TARGET, "--format", name) for _ in range(2))
    assert first == second
    assert (first.code, first.err) == (0, "")
    assert first.out


@pytest.mark.parametrize("command", ["heads", "metrics", "check"])
def test_what_it_saves_is_read_by_other_commands(tmp_path: Path, command: str) -> None:
    file = str(tmp_path / "cross.npz")
    assert run("cross", SOURCE, TARGET, "-o", file).code == 0
    assert run(command, "--attention", file).code == 0
    assert run("compare", file, file, "--tolerance", "0").code == 0


def test_torch_gives_the_same() -> None:
    numpy, torch = (
        run("cross", SOURCE, TARGET, "--backend", one, "--format", "json").json for one in ("numpy", "torch")
    )
    assert np.abs(np.array(numpy["weights"]) - torch["weights"]).max() < 1e-6


def test_a_row_of_the_target_alone() -> None:
    found = run("cross", SOURCE, TARGET, "--query", "gato", "--format", "json").json
    assert found["query_text"] == ["gato"]
    assert np.abs(np.array(found["weights"])[0, :, 0] - library(SOURCE, TARGET)[:, 1]).max() < 1e-7


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_reads_at_any_width(columns: int) -> None:
    text = run("cross", "word " * 40, TARGET, env={"COLUMNS": str(columns)}).text
    assert max(map(len, text.splitlines())) <= columns


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "Usage: attnviz cross"),
        (["a"], 2, "the target is empty"),
        (["", "a"], 2, "the source is empty"),
        (["a", " "], 2, "the target is empty"),
        (["-", "a"], 2, "the source is typed, and not read from standard input"),
        (["a", "-"], 2, "the target is typed, and not read from standard input"),
        (["a", "b", "c"], 2, "unexpected extra argument"),
        (
            ["a", "b", "--model", "minilm"],
            2,
            "minilm reads one text and has no cross-attention: choose another --model",
        ),
        (["a", "b", "--layer", "1"], 2, "no layer 1"),
        (["a", "b", "--head", "4"], 2, "no head 4"),
        (["a", "b", "--query", "z"], 2, "'z'"),
        (["a", "b", "--d-model", "6"], 2, "1, 2, 3 or 6"),
        (["a", "b", "--reduce", "rollout"], 2, "rollout is of self-attention"),
        (["a", "b", "--window", "0"], 2, "a window holds at least"),
        (["a", "b", "-o", "{m}.png"], 2, "stands for nothing"),
        (["a", "b\udcff"], 2, "not valid UTF-8"),
    ],
)
def test_what_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run("cross", *arguments)
    assert (answer.code, answer.out) == (code, b"")
    assert re.search(message, answer.err if not arguments else error("cross", *arguments, code=code))
    assert not list(tmp_path.iterdir())
