"""`attnviz metrics`: its numbers, in every format, and what it refuses."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

from attnviz import attend, load
from attnviz.collect import collect
from attnviz.measures.collector import MeasureCollector
from attnviz.measures.divergence import js_divergence
from attnviz.measures.heads import rank
from attnviz.measures.table import MEASURES
from attnviz.render import FORMATS, RESULT_FORMATS
from tests.cli import error, run
from tests.saved import tokens_file, weights_of, write

Array = npt.NDArray[Any]
TOKENS = ["a", "b", "a", "b", "c"]
TABLES = [name for name in RESULT_FORMATS if FORMATS[name].holds == "numbers"]


@pytest.fixture
def saved(tmp_path: Path) -> list[str]:
    """Two layers of three heads over five tokens, two of which come again."""
    file = write(tmp_path / "saved.npz", weights_of(2, 3, 5, 5, seed=4))
    return ["--attention", str(file), "--tokens", str(tokens_file(tmp_path, TOKENS))]


def looped(weights: Array) -> dict[str, float]:
    """Some measures of one head, in plain Python."""
    n = len(weights)
    logs = [[-p * np.log(p) if p > 0 else 0.0 for p in row] for row in weights]
    return {
        "entropy": float(np.mean([sum(row) for row in logs])),
        "span": float(np.mean([np.exp(sum(row)) for row in logs])),
        "distance": sum(weights[i, j] * abs(i - j) for i in range(n) for j in range(n)) / weights.sum(),
        "self": float(np.mean([weights[i, i] for i in range(n)])),
        "previous": float(np.mean([weights[i, i - 1] for i in range(1, n)])),
        "next": float(np.mean([weights[i, i + 1] for i in range(n - 1)])),
        "first": float(np.mean([weights[i, 0] for i in range(1, n)])),
        "sink": float(np.mean([weights[i, 0] for i in range(n)])),
        "duplicate": float(np.mean([weights[2, 0], weights[3, 1]])),
        "induction": float(np.mean([weights[2, 1], weights[3, 2]])),
        "largest": float(np.mean([max(row) for row in weights])),
    }


def test_the_numbers_are_those_of_loops(saved: list[str]) -> None:
    weights = weights_of(2, 3, 5, 5, seed=4)
    found = run("metrics", *saved, "--format", "json").json
    for layer in range(2):
        for head in range(3):
            for name, value in looped(weights[layer, head]).items():
                assert found[name][layer][head] == pytest.approx(value, abs=1e-9), name
            others = [weights[layer, other] for other in range(3) if other != head]
            apart = np.mean([js_divergence(weights[layer, head], other).mean() for other in others])
            assert found["divergence"][layer][head] == pytest.approx(apart, abs=1e-9)
    assert found["lacking"] == {"special": "there are no special tokens"}
    assert set(found["lacking"]) | {"divergence", *looped(weights[0, 0])} == set(MEASURES)


def test_the_numbers_of_a_text_are_those_of_the_library() -> None:
    text = "the cat and the dog"
    collector = MeasureCollector()
    source = run("heads", text, "--format", "json").json["weights"]
    assert np.shape(source)[:2] == (6, 12)
    collect(attend(text).maps, [collector])
    (table,) = collector.result()
    found = run("metrics", text, "--by", "previous", "--top", "4", "--format", "json").json
    for name in MEASURES:
        assert np.abs(np.array(found[name]) - table.values[name]).max() < 1e-6
    wanted = rank(table, "previous", 4)
    assert [(one["layer"], one["head"]) for one in found["ranking"]] == [(one.layer, one.head) for one in wanted]


def test_divergence_of_a_long_text_is_of_every_row_where_that_is_asked() -> None:
    long = ("metrics", " ".join(["one two three"] * 90), "--model", "scratch", "--by", "divergence")
    some, every = run(*long, "--format", "json"), run(*long, "--every-row", "--format", "json")
    assert "divergence is of 30 of 270 rows: --every-row compares them all" in some.err
    assert "divergence" not in every.err
    assert (some.json["rows_compared"], every.json["rows_compared"]) == (30, 270)
    assert np.abs(np.array(some.json["divergence"]) - every.json["divergence"]).max() > 1e-6
    assert "every_row" not in some.json["provenance"]
    assert every.json["provenance"]["every_row"] is True


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("measure", [one for one in MEASURES if one != "special"])
def test_every_format_of_numbers_holds_the_same(saved: list[str], tmp_path: Path, name: str, measure: str) -> None:
    wanted = np.array(run("metrics", *saved, "--format", "json").json[measure])
    file = tmp_path / f"o.{name}"
    assert run("metrics", *saved, "--by", measure, "-o", str(file)).code == 0
    assert np.abs(read(file, measure) - wanted).max() < 1e-7


def read(file: Path, measure: str) -> Array:
    match file.suffix:
        case ".npz":
            return np.asarray(np.load(file)[measure])
        case ".safetensors":
            return np.asarray(load_file(file)[measure])
        case ".csv":
            rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))
            assert [(row["layer"], row["head"]) for row in rows] == [
                (str(i), str(h)) for i in range(2) for h in range(3)
            ]
            return np.array([float(row[measure]) for row in rows]).reshape(2, 3)
        case _:
            return np.array(json.loads(file.read_text("utf-8"))[measure])


@pytest.mark.parametrize("name", RESULT_FORMATS)
def test_the_same_request_gives_the_same_bytes(saved: list[str], name: str) -> None:
    first, second = (run("metrics", *saved, "--by", "all", "--format", name) for _ in range(2))
    assert first == second
    assert first.code == 0
    assert first.out


@pytest.mark.parametrize("measure", [one for one in MEASURES if one != "special"])
def test_the_ranking_begins_with_the_most_or_the_least(saved: list[str], measure: str) -> None:
    for option, pick in (((), np.argmax), (("--ascending",), np.argmin)):
        found = run("metrics", *saved, "--by", measure, "--format", "json", "--top", "1", *option).json
        layer, head = divmod(int(pick(found[measure])), 3)
        assert found["ranking"] == [{"layer": layer, "head": head, "value": found[measure][layer][head]}]
        assert found["ascending"] is bool(option)
        shown = run("metrics", *saved, "--by", measure, "--top", "1", *option).text
        word = "least" if option else "most"
        assert f"{word}: head {layer}.{head} ({found[measure][layer][head]:.4g})\n" in shown
        assert MEASURES[measure].title in shown


def test_a_measure_said_twice_is_shown_once(saved: list[str]) -> None:
    assert run("metrics", *saved, "--by", "entropy, entropy").text == run("metrics", *saved).text
    assert run("metrics", *saved, "--by", "all").text.count("most: head") == len(MEASURES) - 1


# What is known of certain heads

IDENTITY, UNIFORM = np.eye(4), np.full((4, 4), 0.25)
LOOKED_BACK = np.eye(4)[[0, 0, 1, 2]]
CAUSAL = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
BACKWARDS = np.eye(3)[[2, 1, 0]]
PAIRS = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])


@pytest.mark.parametrize(
    ("heads", "entropy", "distance"),
    [
        ([[IDENTITY, UNIFORM], [CAUSAL, LOOKED_BACK]], [[0, 1.386294], [0.794513, 0]], [[0, 1.25], [0.75, 0.75]]),
        ([[BACKWARDS, PAIRS]], [[0, np.log(2)]], [[4 / 3, 2 / 3]]),
        ([[np.eye(2), np.full((2, 2), 0.5)]], [[0, np.log(2)]], [[0, 0.5]]),
    ],
)
def test_heads_known_by_hand(tmp_path: Path, heads: Any, entropy: Any, distance: Any) -> None:
    file = write(tmp_path / "known.npz", np.array(heads, float))
    answer = run("metrics", "--attention", str(file), "--format", "json")
    assert np.abs(np.array(answer.json["entropy"]) - entropy).max() < 1e-6
    assert np.abs(np.array(answer.json["distance"]) - distance).max() < 1e-12
    assert not re.search(r"-0(\.0*)?[,\]]", answer.text)
    shown = run("metrics", "--attention", str(file)).text
    assert not re.search(
        r"[-−]0?\.?0*([^.0-9]|$)", shown.partition("\n\n")[2].rpartition("\n\n")[2].split("attnviz")[0]
    )


def test_entropy_is_shown_to_four_digits(tmp_path: Path) -> None:
    file = write(tmp_path / "known.npz", np.array([[IDENTITY, UNIFORM], [CAUSAL, LOOKED_BACK]]))
    assert "most: head 0.1 (1.386), 1.0 (0.7945), 0.0 (0), 1.1 (0)\n" in run("metrics", "--attention", str(file)).text


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_rollout_goes_through_the_layers_in_their_order(tmp_path: Path, seed: int, n_layers: int) -> None:
    weights = weights_of(n_layers, 2, 5, 5, seed=seed)
    file = write(tmp_path / "w.npz", weights)
    rolled = np.eye(5)
    for layer in weights:
        rolled = (layer.mean(0) + np.eye(5)) / 2 @ rolled
    found = np.array(run("metrics", "--attention", str(file), "--format", "json").json["rollout"])
    assert np.abs(found - rolled).max() < 1e-12
    assert np.abs(found.sum(1) - 1).max() < 1e-12
    assert np.abs(found - rolled.T).max() > 0.01
    heads = run("heads", "--attention", str(file), "--reduce", "rollout", "--format", "json").json["weights"]
    assert np.abs(found - heads[-1][0]).max() < 1e-8


def test_rollout_by_hand(tmp_path: Path) -> None:
    file = write(tmp_path / "known.npz", np.array([[IDENTITY, UNIFORM], [CAUSAL, LOOKED_BACK]]))
    found = run("metrics", "--attention", str(file), "--format", "json").json["rollout"]
    assert found[0] == pytest.approx([0.8125, 0.0625, 0.0625, 0.0625], abs=1e-12)
    assert found[1] == pytest.approx([0.34375, 0.53125, 0.0625, 0.0625], abs=1e-12)


@pytest.mark.parametrize("chosen", [("--layer", "1"), ("--head", "0")])
def test_what_is_chosen_or_not_self_attention_has_no_rollout(
    saved: list[str], tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    assert "rollout" not in run("metrics", *saved, *chosen, "--format", "json").json
    cross = write(tmp_path / "cross.npz", weights_of(2, 3, 4, 6))
    assert "rollout" not in run("metrics", "--attention", str(cross), "--format", "json").json


@pytest.mark.parametrize("bad", [0.0, np.nan])
@pytest.mark.parametrize(("row", "head"), [(1, 0), (3, 2)])
def test_rows_that_are_none_are_left_out_and_counted(tmp_path: Path, bad: float, row: int, head: int) -> None:
    weights = weights_of(1, 3, 4, 4)
    weights[0, head, row] = bad
    answer = run("metrics", "--attention", str(write(tmp_path / "w.npz", weights)), "--format", "json")
    left = np.delete(weights[0, head], row, axis=0)
    assert answer.json["entropy"][0][head] == pytest.approx(-(left * np.log(left)).sum(1).mean())
    assert answer.json["rows_left_out"][0] == [int(h == head) for h in range(3)]
    assert "note: 1 of 12 rows attend to nothing or hold what is no number" in answer.err
    assert sum("1 of 12 rows" in line for line in answer.json["notes"]) == 1


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ((0.027501475, 0.055202297), (0.027537677, 0.055334348)),
        ((1e-7, 1 - 1e-7), (1.0000001e-7, 1 - 1.0000001e-7)),
        ((0.3, 0.3000001), (0.3000001, 0.3)),
    ],
)
def test_nearly_equal_rows_diverge_by_a_little_and_never_less_than_nothing(
    tmp_path: Path, p: tuple[float, ...], q: tuple[float, ...]
) -> None:
    rows = [np.array(one, np.float32) / np.float32(sum(one)) for one in (p, q)]
    weights = np.array([[[rows[0], rows[0]], [rows[1], rows[1]], [rows[0], rows[0]]]], np.float32)
    file = write(tmp_path / "near.npz", weights)
    found = run("metrics", "--attention", str(file), "--format", "json").json["divergence"][0]
    assert all(0 <= value < 1e-6 for value in found)
    same = run("compare", str(file), str(file), "--format", "json").json
    assert same["divergence"] == 0


# Texts, notes and provenance


def test_several_texts_are_measured_together() -> None:
    lines = b"a b c\n\nd e d e\n"
    answer = run("metrics", "-", "--model", "scratch", "--format", "json", stdin=lines)
    alone = [run("heads", text, "--model", "scratch", "--format", "json").json for text in ("a b c", "d e d e")]
    sinks = [np.array(one["weights"])[0, :, :, 0] for one in alone]
    assert np.abs(np.array(answer.json["sink"][0]) - np.concatenate(sinks, axis=1).mean(1)).max() < 1e-6
    assert (answer.json["n_texts"], answer.json["n_rows"]) == (2, 7)
    assert answer.json["provenance"]["n_texts"] == 2
    assert re.fullmatch("[0-9a-f]{64}", answer.json["provenance"]["texts_sha256"])
    assert "rollout" not in answer.json
    shown = run("metrics", "-", "--model", "scratch", stdin=lines).text
    assert shown.startswith("scratch · 7 tokens · 2 texts\n")


def test_notes_are_said_once_and_kept() -> None:
    answer = run("metrics", "-", "--format", "json", "--truncate", stdin=b"a b\nc d\n")
    lines = [line.removeprefix("note: ") for line in answer.err.splitlines()]
    assert lines == answer.json["notes"]
    assert len(lines) == len(set(lines)) > 0


def test_the_provenance_makes_the_same_numbers_again(saved: list[str]) -> None:
    options = {"n_heads": 2, "d_model": 8, "seed": 5}
    typed = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    made = run("metrics", "a b", "--model", "scratch", *typed, "--causal", "--format", "json").json["provenance"]
    assert options.items() <= made.items()
    assert {"text": "a b", "causal": True, "model": "scratch", "backend": "numpy"}.items() <= made.items()
    of_file = run("metrics", *saved, "--format", "json").json["provenance"]
    assert of_file["model"] == "saved.npz"
    assert re.fullmatch("[0-9a-f]{64}", of_file["sha256"])


def test_cross_attention_is_not_called_cross_entropy(tmp_path: Path) -> None:
    cross = write(tmp_path / "cross.npz", weights_of(2, 3, 4, 6))
    text = run("metrics", "--attention", str(cross), "--by", "entropy,sink").text
    assert "\ncross-attention: entropy\n" in text
    assert "cross entropy" not in text


def test_a_record_is_measured_as_its_text_is(tmp_path: Path) -> None:
    assert run("heads", "a b a", "-o", str(tmp_path / "r.npz"), "--layer", "1,4").code == 0
    assert [one.layer for one in load(tmp_path / "r.npz").maps] == [1, 4]
    of_file = run("metrics", "--attention", str(tmp_path / "r.npz"), "--format", "json").json
    of_text = run("metrics", "a b a", "--layer", "1,4", "--format", "json").json
    assert of_file["layers"] == of_text["layers"] == [1, 4]
    assert all(np.abs(np.array(of_file[name]) - of_text[name]).max() < 1e-6 for name in MEASURES if name in of_text)
    assert "rollout" not in of_file


def test_the_colour_scale_reaches_pictures_and_a_font_is_not_written_over(saved: list[str], tmp_path: Path) -> None:
    pictures = [run("metrics", *saved, "--format", "png", "--color-scale", scale).out for scale in ("linear", "sqrt")]
    assert pictures[0] != pictures[1]
    font = tmp_path / "own.png"
    font.write_bytes((Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf").read_bytes())
    assert "also the input" in error("metrics", *saved, "--font", str(font), "-o", str(font), code=2)


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_reads_at_any_width(saved: list[str], columns: int) -> None:
    answer = run("metrics", *saved, "--by", "all", env={"COLUMNS": str(columns)})
    assert answer.code == 0
    assert max(map(len, answer.text.splitlines())) <= columns


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a b", "--by", "entropi"], 2, "no measure 'entropi'.*did you mean entropy"),
        (["a b", "--by", ""], 2, "no measure ''"),
        (["a b", "--by", "self,,next"], 2, "no measure ''"),
        (["a b", "--by", "induction"], 2, "no induction here: no token is repeated"),
        (
            ["a", "--by", "divergence", "--model", "scratch", "--n-heads", "1"],
            2,
            "one head has no other to differ from",
        ),
        (["a b", "--top", "0"], 2, "--top"),
        (["a b", "--layer", "6"], 2, "no layer 6.*0 to 5"),
        (["a b", "-o", "{n}.json"], 2, "stands for nothing"),
        (["a b", "-o", "x.html"], 2, "this has no html"),
        (["a b", "--probe", "repeat"], 2, "leave out the text, or --probe"),
        (["--probe", "repeat", "--probe-words", "300"], 2, "602 tokens"),
        (["--attention", "none.npz"], 2, "none.npz does not exist"),
        (["--attention", "damaged.npz"], 3, "damaged"),
        (["--font", "none.ttf", "a b"], 2, "none.ttf"),
        ([""], 2, "no tokens"),
        ([], 2, "no text"),
    ],
)
def test_what_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    assert re.search(message, error("metrics", *arguments, code=code))
    assert [one.name for one in tmp_path.iterdir()] == ["damaged.npz"]


def test_a_text_that_names_a_file_is_said_to_be_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("a b")
    answer = run("metrics", "notes.txt", "--model", "scratch")
    assert answer.code == 0
    assert "the text is the words notes.txt" in answer.err
    assert "-f" in answer.err
