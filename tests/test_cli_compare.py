"""`attnviz compare`: what changed, by how much, and the exit code that says whether it is too much."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from attnviz.cli.compare import FORMATS
from attnviz.compare import By
from tests.cli import error, run
from tests.saved import weights_of, write

Array = npt.NDArray[Any]
BYS = get_args(By)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files of the same shape, `a.npz` and `b.npz`, and others."""
    monkeypatch.chdir(tmp_path)
    write(Path("a.npz"), weights_of(2, 3, 4, 4))
    write(Path("b.npz"), weights_of(2, 3, 4, 4, seed=1))
    write(Path("longer.npz"), weights_of(3, 2, 5, 5, seed=2))
    write(Path("cross.npz"), weights_of(2, 3, 4, 6))
    Path("damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    Path("text.txt").write_text("the cat sat\n")
    return tmp_path


def divergence(p: Array, q: Array) -> Array:
    """Of rows, in plain float64."""
    middle = (p + q) / 2
    return np.asarray((p * np.log(p / middle) + q * np.log(q / middle)).sum(-1) / 2)


def test_the_numbers_are_those_of_numpy(here: Path) -> None:
    a, b = weights_of(2, 3, 4, 4), weights_of(2, 3, 4, 4, seed=1)
    found = run("compare", "a.npz", "b.npz", "--format", "json").json
    assert len(found["heads"]) == 6
    for one in found["heads"]:
        x, y = a[one["layer"], one["head"]], b[one["layer"], one["head"]]
        gaps = np.abs(y - x)
        query, key = divmod(int(gaps.argmax()), 4)
        assert one["largest"] == pytest.approx(gaps.max(), abs=1e-12)
        assert one["mean"] == pytest.approx(gaps.mean(), abs=1e-12)
        assert (one["query_a"], one["key_a"], one["query_b"], one["key_b"]) == (query, key, query, key)
        assert (one["weight_a"], one["weight_b"]) == pytest.approx((x[query, key], y[query, key]), abs=1e-12)
        assert one["row_divergence"] == pytest.approx(divergence(x, y), abs=1e-12)
        assert one["divergence"] == pytest.approx(divergence(x, y).mean(), abs=1e-12)
    assert found["largest"] == pytest.approx(np.abs(b - a).max(), abs=1e-12)
    assert found["same_tokens"] is True


@pytest.mark.parametrize("by", BYS)
def test_the_most_changed_heads_come_first_in_every_format(here: Path, by: str) -> None:
    for name in ("json", "jsonl", "csv"):
        assert run("compare", "a.npz", "b.npz", "--by", by, "-o", f"o.{name}").code == 0
    found = json.loads(Path("o.json").read_text())
    values = [one[by] for one in found["heads"]]
    assert values == sorted(values, reverse=True)
    assert found["by"] == by
    assert json.loads(Path("o.jsonl").read_text()) == found
    rows = list(csv.DictReader(io.StringIO(Path("o.csv").read_text())))
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == [
        (one["layer"], one["head"]) for one in found["heads"]
    ]
    for row, one in zip(rows, found["heads"], strict=True):
        assert {*row} == {*one} - {"row_divergence"}
        assert [float(row[name]) for name in BYS] == [one[name] for name in BYS]
    first = found["heads"][0]
    text = run("compare", "a.npz", "b.npz", "--by", by, "--top", "1").text
    assert f"most changed: head {first['layer']}.{first['head']}, query {first['query_b']}" in text
    assert text.count("\nhead ") == 1


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_request_gives_the_same_bytes_and_exit_code(here: Path, name: str) -> None:
    first, second = (run("compare", "a.npz", "b.npz", "--tolerance", "0.1", "--format", name) for _ in range(2))
    assert first == second
    assert first.code == 1
    assert first.out


@pytest.mark.parametrize("sign", [1, -1])
def test_the_exit_code_says_whether_a_weight_changed_by_more_than_the_tolerance(here: Path, sign: int) -> None:
    weights = weights_of(2, 3, 4, 4).round(3)
    changed = weights.copy()
    changed[1, 2, 3, 0] += sign * 0.125
    write(Path("x.npz"), weights)
    write(Path("y.npz"), changed)
    gap = abs(changed[1, 2, 3, 0] - weights[1, 2, 3, 0])
    assert run("compare", "x.npz", "y.npz").code == 0
    assert run("compare", "x.npz", "y.npz", "--tolerance", repr(float(gap))).code == 0
    answer = run("compare", "x.npz", "y.npz", "--tolerance", "0.12", "--format", "json")
    assert answer.code == 1
    assert (answer.json["exceeds"], answer.json["tolerance"]) == (1, 0.12)
    (head,) = [one for one in answer.json["heads"] if one["exceeds"]]
    assert (head["layer"], head["head"], head["query_a"], head["key_a"]) == (1, 2, 3, 0)
    shown = run("compare", "x.npz", "y.npz", "--tolerance", "0.12").text
    assert "1 of 6 heads changed by more than 0.12" in shown
    assert "none of 6 heads changed by more than 0.2" in run("compare", "x.npz", "y.npz", "--tolerance", "0.2").text


def test_a_file_against_itself_has_not_changed_at_all(here: Path) -> None:
    answer = run("compare", "a.npz", "a.npz", "--tolerance", "0")
    assert answer.code == 0
    assert "nothing changed" in answer.text
    assert "the most changed heads" not in answer.text
    found = run("compare", "a.npz", "a.npz", "--format", "json").json
    assert (found["largest"], found["mean"], found["divergence"]) == (0, 0, 0)


def test_a_number_beside_none_is_a_change_of_its_own(here: Path) -> None:
    weights = weights_of(2, 3, 4, 4)
    weights[0, 1, 2] = np.nan
    weights[1, 0, 1] = 0
    write(Path("holes.npz"), weights)
    answer = run("compare", "a.npz", "holes.npz", "--tolerance", "0.9")
    assert answer.code == 1
    assert re.search(r"most changed: head 0\.1, query 2, key 0: [\d.]+ in A, no number in B\n", answer.text)
    assert re.search(r"\n0 +0 +\? +0\n1 +\.\d\d +0 +0\n", answer.text)
    assert answer.err.splitlines() == [
        "note: B: layer 0 head 1 row 2 is not a number (1 of 24 rows)",
        "note: B: layer 1 head 0 row 1 is 0 throughout: it attends to nothing (1 of 24 rows)",
    ]
    found = run("compare", "a.npz", "holes.npz", "--format", "json").json
    assert (found["heads"][0]["weight_b"], found["heads"][0]["unlike"]) == (None, 4)
    same = run("compare", "holes.npz", "holes.npz", "--tolerance", "0")
    assert same.code == 0
    assert [line.count("note: layer") for line in same.err.splitlines()] == [1, 1]  # once, as it is of both


def test_tokens_that_differ_are_aligned_and_measures_stand_side_by_side(here: Path) -> None:
    typed = ["compare", "the cat sat", "the old cat slept", "--model", "scratch", "--no-positions"]
    found = run(*typed, "--format", "json").json
    assert found["same_tokens"] is False
    assert found["aligned"][0]["queries"] == [[0, 0], [1, 2]]
    sides = [
        run("metrics", text, "--model", "scratch", "--no-positions", "--format", "json").json for text in typed[1:3]
    ]
    for name, one in zip("ab", sides, strict=True):
        (table,) = found["measures"][name]
        assert np.abs(np.array(table["measures"]["entropy"]["values"]) - one["entropy"]).max() < 1e-6
    shown = run(*typed)
    assert "\nentropy\n" in shown.text
    assert [line for line in shown.err.splitlines() if "aligned" in line] == [f"note: {found['notes'][-1]}"]


def test_the_single_head_is_compared_with_every_head() -> None:
    found = run("compare", "a b c", "--single", "--model", "scratch", "--format", "json").json
    both = np.array(run("heads", "a b c", "--single", "--model", "scratch", "--format", "json").json["weights"])[0]
    for one in found["heads"]:
        assert (one["head_a"], one["head_b"]) == ("single", one["head"])
        assert one["largest"] == pytest.approx(np.abs(both[1 + one["head"]] - both[0]).max(), abs=1e-6)
    assert found["provenance"]["a"]["single"] is True
    assert "single" not in found["provenance"]["b"]


def test_settings_of_b_change_b_alone() -> None:
    typed = ["a b c", "--model", "scratch", "--seed", "3", "--format", "json"]
    made = run("compare", *typed, "--seed-b", "4").json
    sides = made["provenance"]["a"], made["provenance"]["b"]
    assert [one["seed"] for one in sides] == [3, 4]
    weights = [np.array(run("heads", *typed[:3], "--seed", seed, *typed[-2:]).json["weights"]) for seed in "34"]
    assert made["largest"] == pytest.approx(np.abs(weights[1] - weights[0]).max(), abs=1e-6)


def test_backends_agree_and_half_precision_is_told_apart() -> None:
    assert run("compare", "a b", "--backend-b", "torch", "--tolerance", "1e-5").code == 0
    answer = run("compare", "a b", "--backend-b", "torch", "--dtype-b", "float16", "--tolerance", "1e-5")
    assert answer.code == 1
    assert "torch float16 on cpu" in answer.text.replace("\n", " ")


@pytest.mark.parametrize("side", [0, 1])
def test_a_file_beside_a_text(here: Path, side: int) -> None:
    assert run("heads", "a b c", "--model", "scratch", "--seed", "2", "-o", "run.npz").code == 0
    typed: list[str] = ["a b c", "a b c"]
    typed[side] = "run.npz"
    answer = run("compare", *typed, "--model", "scratch", "--seed", "2", "--tolerance", "1e-6")
    assert answer.code == 0
    assert "saved_in run.npz" in answer.text.replace("\n", " ")


@pytest.mark.parametrize("typed", [("-", "the dog sat"), ("the dog sat", "-"), ("-", "--seed-b", "1")])
def test_one_text_may_come_from_standard_input(typed: tuple[str, ...]) -> None:
    answer = run("compare", *typed, "--model", "scratch", "--format", "json", stdin=b"the cat sat\n")
    assert answer.code == 0
    texts = {answer.json["provenance"][name]["text"] for name in "ab"}
    assert "the cat sat" in texts
    assert "-" not in texts


@pytest.mark.parametrize("file", ["text.txt", "-"])
def test_a_text_from_a_file_is_read_once_for_both_sides(here: Path, file: str) -> None:
    typed = ["compare", "-f", file, "--model", "scratch", "--seed-b", "1", "--format", "json"]
    made = run(*typed, stdin=b"the cat sat\n").json["provenance"]
    assert made["a"]["text"] == made["b"]["text"] == "the cat sat"


def test_heads_and_layers_are_chosen_on_both_sides(here: Path) -> None:
    found = run("compare", "a.npz", "b.npz", "--layer", "1", "--head", "0,2", "--format", "json").json
    assert {(one["layer"], one["head"]) for one in found["heads"]} == {(1, 0), (1, 2)}


def test_what_only_one_side_has_is_said(here: Path) -> None:
    answer = run("compare", "a.npz", "longer.npz", "--format", "json")
    assert "only B has layer 2" in answer.json["notes"]
    assert "only A has head 2" in answer.json["notes"]
    assert answer.err.splitlines() == [f"note: {line}" for line in answer.json["notes"]]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_reads_at_any_width(here: Path, columns: int) -> None:
    answer = run("compare", "a.npz", "longer.npz", env={"COLUMNS": str(columns)})
    assert max(map(len, answer.text.splitlines())) <= columns


USELESS = {
    "file": ["-f", "text.txt"], "model": ["--model", "scratch"], "causal": ["--causal"], "window": ["--window", "2"],
    "seed": ["--seed", "1"], "n-heads": ["--n-heads", "2"], "backend": ["--backend", "torch"],
    "device": ["--device", "cuda"], "dtype": ["--dtype", "float64"], "truncate": ["--truncate"],
    "embeddings": ["--embeddings", "e.npz"], "probe": ["--probe", "repeat"], "no-scale": ["--no-scale"],
}  # fmt: skip
"""What changes nothing where both sides are files."""


@pytest.mark.parametrize("option", USELESS)
def test_options_of_models_are_refused_where_both_sides_are_files(here: Path, option: str) -> None:
    message = error("compare", "a.npz", "b.npz", *USELESS[option], code=2)
    assert f"--{option} has no use" in message or (option == "file" and "-f" in message)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no B to compare with"),
        (["a b"], 2, "no B to compare with"),
        (["--attention", "a.npz", "b.npz"], 2, "leave out --attention"),
        (["-", "-"], 2, "standard input is one of them"),
        (["a b", "-f", "text.txt", "--seed-b", "1"], 2, "given twice"),
        (["-", "a b"], 2, "2 texts on one side"),
        (["a.npz", "none.npz"], 2, "none.npz does not exist"),
        (["none.npz", "a.npz"], 2, "none.npz does not exist"),
        (["damaged.npz", "a.npz"], 3, "damaged.npz is damaged"),
        (["a.npz", "cross.npz"], 2, "nothing to compare.*cross layer 0"),
        (["a.npz", "the cat"], 2, "nothing to compare"),
        (["a.npz", "b.npz", "--seed-b", "1"], 2, "--seed-b changes nothing"),
        (["a.npz", "--single"], 2, "--single needs projections"),
        (["a.npz:none", "b.npz"], 2, "holds no 'none'"),
        (["a.npz", "b.npz", "--tolerance", "nan"], 2, "--tolerance must be a number of 0 or more"),
        (["a.npz", "b.npz", "--tolerance", "-1"], 2, "--tolerance must be a number of 0 or more"),
        (["a.npz", "b.npz", "--tolerance", "inf"], 2, "--tolerance must be a number of 0 or more"),
        (["a.npz", "b.npz", "--tolerance", "x"], 2, "--tolerance"),
        (["a.npz", "b.npz", "--by", "median"], 2, "--by.*'largest', 'mean', 'divergence'"),
        (["a.npz", "b.npz", "--top", "0"], 2, "--top"),
        (["a.npz", "b.npz", "--head", "7"], 2, "no head 7"),
        (["a.npz", "longer.npz", "--layer", "2"], 2, "no layer 2"),
        (["a.npz", "b.npz", "-o", "x.npz"], 2, "this has no npz: choose one of txt"),
        (["a.npz", "b.npz", "-o", "{n}.json"], 2, "stands for nothing"),
        (["a.npz", "b.npz", "cross.npz"], 2, "unexpected extra argument"),
        (["a b", "c d", "--tokens", "text.txt"], 2, "--tokens is for saved attention"),
        (["a b", "a b", "--dtype-b", "float16"], 2, "float16 needs --backend torch"),
        (["", "a b"], 2, "no tokens"),
        (["a b", ""], 2, "no tokens"),
    ],
)
def test_what_cannot_be_compared_is_told(here: Path, arguments: list[str], code: int, message: str) -> None:
    before = sorted(one.name for one in here.iterdir())
    assert re.search(message, error("compare", *arguments, code=code, stdin=b"a b\nc d\n"))
    assert sorted(one.name for one in here.iterdir()) == before


@pytest.mark.parametrize("side", [["a.json", "b.json"], ["b.json", "a.json"]])
def test_neither_side_is_written_over(here: Path, side: list[str]) -> None:
    for name in "ab":
        write(Path(f"{name}.json"), weights_of(2, 3, 4, 4))
    assert "also the input" in error("compare", *side, "-o", "a.json", code=2)
    assert "also the input" in error("compare", "-f", "text.txt", "--seed-b", "1", "-o", "text.txt", code=2)
