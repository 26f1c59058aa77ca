"""`attnviz check`: every kind of fault is found, said and counted in the exit code."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attnviz.check import KINDS
from attnviz.cli.check import FORMATS
from attnviz.render import FORMATS as ALL_FORMATS
from tests.cli import error, run
from tests.saved import tokens_file, weights_of, write

Array = npt.NDArray[Any]
LAYER, HEAD, ROW = 1, 2, 3
"""Where the faults are put."""


def causal(*shape: int) -> Array:
    weights = np.tril(weights_of(*shape))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def with_row(head: Array, values: Any) -> Array:
    changed = head.copy()
    changed[ROW, : np.size(values)] = values
    return changed


FAULTS: dict[str, Callable[[Array, Array], Array]] = {
    "nan": lambda head, _: with_row(head, np.nan),
    "infinite": lambda head, _: with_row(head, np.inf),
    "negative": lambda head, _: with_row(head, [head[ROW, 0] + head[ROW, 1] + 0.005, -0.005]),
    "empty": lambda head, _: with_row(head, np.zeros(5)),
    "below": lambda head, _: with_row(head, 0.9 * head[ROW]),
    "above": lambda head, _: with_row(head, 1.1 * head[ROW]),
    "transposed": lambda head, _: weights_of(5, 5).T,
    "future": lambda head, _: with_row(head, [0.3, 0.2, 0.1, 0.3, 0.1]),
    "padding": lambda head, _: head,  # the third token is called so
    "saturated": lambda head, _: np.eye(5)[[0, 0, 1, 2, 3]],
    "uniform": lambda head, _: np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None],
    "identical": lambda head, other: other,
}
"""What is made of a head of each kind, and of an earlier one of its layer."""


def faulty(kind: str) -> Array:
    """Two layers of three heads over five tokens, one head of which has a fault."""
    weights = causal(2, 3, 5, 5)
    weights[LAYER, HEAD] = FAULTS[kind](weights[LAYER, HEAD], weights[LAYER, 0])
    return weights


@pytest.fixture
def checked(tmp_path: Path) -> Any:
    """`check` on a file that has a fault of some kind, expected to be causal."""

    def of(kind: str, *more: str) -> list[str]:
        file = write(tmp_path / f"{kind}.npz", faulty(kind))
        tokens = tokens_file(tmp_path, ["a", "b", "[PAD]" if kind == "padding" else "c", "d", "e"])
        return ["check", "--attention", str(file), "--tokens", str(tokens), "--causal", *more]

    return of


def test_there_is_an_example_of_each_kind() -> None:
    assert set(FAULTS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_each_kind_is_found_and_gives_exit_code_1(checked: Any, kind: str) -> None:
    answer = run(*checked(kind, "--format", "json"))
    assert answer.code == 1
    found = [fault for fault in answer.json["faults"] if fault["kind"] == kind]
    if kind == "padding":
        assert {(fault["layer"], fault["head"]) for fault in found} == {(i, h) for i in range(2) for h in range(3)}
    else:
        (fault,) = found
        assert (fault["layer"], fault["head"]) == (LAYER, HEAD)
        assert fault["row"] in (ROW, None)
    assert {fault["kind"] for fault in answer.json["faults"]} <= {kind, "future", "above", "below"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_tells_of_the_same_faults(checked: Any, tmp_path: Path, kind: str) -> None:
    found = run(*checked(kind, "--format", "json")).json
    assert run(*checked(kind, "--format", "jsonl")).json == found
    rows = list(csv.DictReader(io.StringIO(run(*checked(kind, "--format", "csv")).text)))
    assert rows == [
        {name: "" if value is None else str(value) for name, value in fault.items()} for fault in found["faults"]
    ]
    assert run(*checked(kind, "-o", str(tmp_path / "o.txt"))).code == 1
    n = len(found["faults"])
    for text in (run(*checked(kind, "--width", "200")).text, (tmp_path / "o.txt").read_text("utf-8")):
        assert f"\n{n} fault{'s' if n > 1 else ''}\n" in text
        assert all(fault["text"] in " ".join(text.split()) for fault in found["faults"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_is_ignored_is_no_fault(checked: Any, kind: str) -> None:
    answer = run(*checked(kind, "--format", "json", "--ignore", f" {kind},"))
    assert kind not in {fault["kind"] for fault in answer.json["faults"]}
    assert answer.code == bool(answer.json["faults"])
    assert answer.json["ignored"] == [kind]


@pytest.mark.parametrize("name", FORMATS)
def test_sound_attention_gives_exit_code_0_and_the_same_bytes(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "sound.npz", causal(2, 3, 5, 5))
    first, second = (run("check", "--attention", str(file), "--causal", "--format", name) for _ in range(2))
    assert first == second
    assert (first.code, first.err) == (0, "")
    assert first.out


def test_what_looks_ahead_is_a_fault_only_where_it_may_not(tmp_path: Path) -> None:
    file = str(write(tmp_path / "w.npz", weights_of(1, 2, 4, 4)))
    assert run("check", "--attention", file).code == 0
    answer = run("check", "--attention", file, "--causal", "--format", "json")
    assert answer.code == 1
    assert answer.json["causal"] is True
    later = np.triu(weights_of(1, 2, 4, 4)[0, 0], 1).sum(1).max()
    assert f"{later:.2g} of a row at most (3 of 4 rows)" in answer.json["faults"][0]["text"]


def test_cross_attention_is_said_not_to_be_checked_for_looking_ahead(tmp_path: Path) -> None:
    file = str(write(tmp_path / "cross.npz", weights_of(2, 3, 4, 6)))
    answer = run("check", "--attention", file, "--causal", "--format", "json")
    assert answer.code == 0
    (line,) = answer.json["notes"]
    assert answer.err == f"note: {line}\n"
    assert "not checked to be causal: cross layer 0, cross layer 1" in line
    assert run("check", "--attention", file).err == ""


def test_a_model_is_run_under_the_rule_and_keeps_it() -> None:
    answer = run("check", "a b c", "--model", "scratch", "--causal", "--format", "json")
    assert answer.code == 0
    assert answer.json["provenance"]["causal"] is True
    assert {"text": "a b c", "model": "scratch", "seed": 0}.items() <= answer.json["provenance"].items()


def test_chosen_heads_alone_are_looked_at(checked: Any) -> None:
    assert run(*checked("nan", "--layer", "0")).code == 0
    assert run(*checked("nan", "--head", f"{LAYER}.{HEAD}")).code == 1


def test_several_texts_are_told_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "mask.npy", np.array([[True, False, True], [False, False, False], [True, True, True]]))
    typed = ["check", "-", "--model", "scratch", "--mask", str(tmp_path / "mask.npy"), "--layer", "0"]
    answer = run(*typed, "--format", "json", stdin=b"a b c\n\nd e f\n")
    assert answer.code == 1
    assert {fault["text_number"] for fault in answer.json["faults"]} == {1, 2}
    assert answer.json["n_texts"] == 2
    shown = run(*typed, stdin=b"a b c\n\nd e f\n").text
    assert shown.startswith("scratch · 6 tokens · 2 texts\n")
    assert "\ntext 2: layer 0 head 0 row 1 is 0 throughout" in shown
    assert "text 1" not in run(*typed, stdin=b"a b c\n").text


def test_notes_are_said_once_and_kept() -> None:
    lines = b"a " * 600 + b"\n" + b"b " * 600
    answer = run("check", "-", "--truncate", "--layer", "0", "--head", "0", "--format", "json", stdin=lines)
    assert [f"note: {line}" for line in answer.json["notes"]] == answer.err.splitlines()
    assert len(answer.json["notes"]) == 1


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_reads_at_any_width(checked: Any, columns: int) -> None:
    for typed in (checked("uniform", "--width", str(columns)), checked("uniform")):
        answer = run(*typed, env={"COLUMNS": str(columns)})
        assert max(map(len, answer.text.splitlines())) <= columns


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a b", "--ignore", "futur"], 2, "--ignore futur: there is nan, .*did you mean future"),
        (["a b", "--ignore", "nan,none"], 2, "--ignore none"),
        (["a b", "--cmap", "magma"], 2, "No such option: --cmap"),
        (["a b", "--color-scale", "log"], 2, "No such option: --color-scale"),
        (["a b", "--font", "x.ttf"], 2, "No such option: --font"),
        (["a b", "--precision", "3"], 2, "No such option: --precision"),
        (["--attention", "none.npz"], 2, "none.npz does not exist"),
        (["--attention", "damaged.npz"], 3, "damaged"),
        (["--attention", "scores.npz"], 2, "take the softmax"),
        (["--attention", "scores.npz", "--window", "2"], 2, "needs projections"),
        (["a b", "--model", "scratch", "--window", "0"], 2, "a window holds at least the token itself"),
        (["a b", "-o", "{n}.json"], 2, "stands for nothing"),
        (["a b", "--layer", "6"], 2, "no layer 6"),
        ([""], 2, "no tokens"),
        ([], 2, "no text"),
    ],
)
def test_what_cannot_be_checked_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    write(Path("scores.npz"), 9 * np.random.default_rng(0).standard_normal((1, 2, 4, 4)))
    assert re.search(message, error("check", *arguments, code=code))


@pytest.mark.parametrize("name", [name for name in ALL_FORMATS if name not in FORMATS])
def test_faults_are_no_picture_and_no_array(name: str) -> None:
    message = error("check", "a b", "--format", name, code=2)
    assert f"this has no {name}: choose one of {', '.join(FORMATS)}" in message


def test_json_is_one_object_a_run() -> None:
    assert json.loads(run("check", "a b", "--model", "scratch", "--format", "json").out)["schema"] == "attnviz-check/1"
