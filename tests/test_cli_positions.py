"""`attnviz positions`: the encoding in every format, and sizes that cannot be."""

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

from attnviz.render import FORMATS, RESULT_FORMATS
from tests.cli import error, run

TABLES = [name for name in RESULT_FORMATS if FORMATS[name].holds == "numbers"]


def encoding(d_model: int, position: int) -> list[float]:
    """As the paper has it: sin and cos take turns, and the exponent is that of the pair."""
    angles = [position / 10000 ** (2 * (column // 2) / d_model) for column in range(d_model)]
    return [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]


@pytest.mark.parametrize(("d_model", "length"), [(4, 2), (512, 50), (6, 9), (64, 3)])
def test_sines_and_cosines_take_turns(d_model: int, length: int) -> None:
    found = run("positions", "--d-model", str(d_model), "--length", str(length), "--format", "json").json
    assert np.abs(np.array(found["encodings"]) - [encoding(d_model, i) for i in range(length)]).max() < 1e-12
    assert found["positions"] == list(range(length))
    assert found["columns"][:4] == ["sin 0", "cos 0", "sin 1", "cos 1"]
    assert found["wavelengths"][2] == found["wavelengths"][3] > found["wavelengths"][1]


@pytest.mark.parametrize(("d_model", "length"), [(5, 4), (7, 4), (1, 3), (9, 40)])
def test_an_odd_width_ends_with_a_sine(d_model: int, length: int) -> None:
    found = run("positions", "--d-model", str(d_model), "--length", str(length), "--format", "json").json
    assert np.abs(np.array(found["encodings"]) - [encoding(d_model, i) for i in range(length)]).max() < 1e-12
    assert found["columns"][-1] == f"sin {d_model // 2}"


def test_the_first_positions_to_the_digits_of_the_lesson() -> None:
    text = run("positions", "--d-model", "4", "--length", "2", "--precision", "3").text
    assert re.search(r"\n0 +0 1\.000 +0 1\.000\n1 +\.841 +\.540 +\.010 1\.000\n", text)


def read(file: Path) -> npt.NDArray[Any]:
    match file.suffix:
        case ".npz":
            return np.asarray(np.load(file)["encodings"])
        case ".safetensors":
            return np.asarray(load_file(file)["encodings"])
        case ".csv":
            rows = list(csv.reader(io.StringIO(file.read_text("utf-8"))))
            assert rows[0] == ["position", "sin 0", "cos 0", "sin 1", "cos 1", "sin 2"]
            assert [row[0] for row in rows[1:]] == ["0", "1", "2"]
            return np.array([row[1:] for row in rows[1:]], float)
        case _:
            return np.array(json.loads(file.read_text("utf-8"))["encodings"])


@pytest.mark.parametrize("name", TABLES)
def test_every_format_of_numbers_holds_the_same(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"o.{name}"
    assert run("positions", "--d-model", "5", "--length", "3", "-o", str(file)).code == 0
    assert np.abs(read(file) - [encoding(5, i) for i in range(3)]).max() < 1e-15


@pytest.mark.parametrize("name", RESULT_FORMATS)
def test_the_same_request_gives_the_same_bytes(name: str) -> None:
    first, second = (run("positions", "--format", name) for _ in range(2))
    assert first == second
    assert (first.code, first.err) == (0, "")
    assert first.out


@pytest.mark.parametrize(("at", "position"), [("3", 3), ("-1", 15), ("0", 0)])
def test_one_position_alone(at: str, position: int) -> None:
    found = run("positions", "--at", at, "--format", "json").json
    assert found["positions"] == [position]
    assert found["encodings"] == [pytest.approx(encoding(16, position), abs=1e-12)]
    assert found["provenance"] == {"attnviz": "0.1.0", "encoding": "sinusoidal", "d_model": 16, "length": 16}
    assert run("positions", "--at", at).text.startswith("sinusoidal encoding · 1 position × 16 dimensions\n")


def test_a_large_table_is_pooled_and_says_so() -> None:
    answer = run("positions", "--d-model", "300", "--length", "2000", "--width", "80")
    assert len(answer.text.splitlines()) < 2500
    assert "each tile is the mean of up to 16 × 3 values" in answer.text
    first = np.mean([encoding(300, i)[:3] for i in range(16)])
    shown = re.search(r"\n0 +(−?)([\d.]+) ", answer.text)
    assert shown is not None
    assert float(f"{shown[1].replace('−', '-')}{shown[2]}") == pytest.approx(first, abs=0.006)
    assert "each tile" not in run("positions", "--d-model", "100", "--length", "128").text
    assert len(run("positions", "--d-model", "300", "--length", "2000", "--format", "csv").text.splitlines()) == 2001


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_reads_at_any_width(columns: int) -> None:
    text = run("positions", env={"COLUMNS": str(columns)}).text
    assert max(map(len, text.splitlines())) <= columns
    assert text.count("cos 7") == 1


def test_the_colour_scale_reaches_pictures() -> None:
    assert len({run("positions", "--format", "png", "--color-scale", scale).out for scale in ("linear", "sqrt")}) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--d-model", "0"], 2, "--d-model"),
        (["--d-model", "many"], 2, "--d-model"),
        (["--length", "0"], 2, "--length"),
        (["--length", "5", "--at", "5"], 2, "no position 5: --length 5 has positions 0 to 4"),
        (["--length", "5", "--at", "-6"], 2, "no position -6"),
        (["--at", "x"], 2, "--at"),
        (["--d-model", "99999999999", "--length", "99999"], 2, "GB of memory"),
        (["3"], 2, "unexpected extra argument"),
        (["-o", "{n}.png"], 2, "stands for nothing"),
        (["-o", "none/x.png"], 2, "none"),
        (["--font", "none.ttf"], 2, "none.ttf"),
    ],
)
def test_what_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search(message, error("positions", *arguments, code=code))
    assert not list(tmp_path.iterdir())
