"""`attnviz lesson`: every lesson, in every format and both languages, on the example and on a student's sentence."""

import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rich.cells import cell_len
from safetensors.numpy import load_file

from attnviz.lessons.registry import LESSONS, run_lesson
from attnviz.render import FORMATS, RESULT_FORMATS
from tests.cli import error, run
from tools.catalogue import texts, translated

ARRAYS = [name for name in RESULT_FORMATS if FORMATS[name].holds == "numbers"]
SENTENCES = {
    "example": [],
    "one word": ["--text", "casa"],
    "Portuguese": ["--text", "o cachorro mordeu o homem"],
    "40 words": ["--text", " ".join(f"word{i}" for i in range(40))],
    "other scripts": ["--text", "👩\u200d👩\u200d👧 😀 日本 e\u0301"],
}
ENGLISH = sorted({text for one in translated() if one.id and one.string != one.id for text in texts(one.id)})
"""Everything that the lessons say in English, and otherwise in Portuguese."""


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("name", LESSONS)
def test_it_reads_at_any_width(tmp_path: Path, name: str, sentence: str) -> None:
    typed = ["lesson", name, *SENTENCES[sentence], "--lang", "en"]
    answer = run(*typed, "-o", "-", "-o", str(tmp_path / "o.json"), env={"COLUMNS": "40"})
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.text
    assert max(map(cell_len, answer.text.splitlines())) <= 40
    assert max(map(cell_len, run(*typed).text.splitlines())) <= 80
    said = " ".join(answer.text.split())
    lesson = json.loads((tmp_path / "o.json").read_text("utf-8"))
    assert lesson["title"] in said
    for step in lesson["steps"]:
        assert " ".join(step["title"].split()) in said
        assert " ".join(step["sentence"].split()) in said


@pytest.mark.parametrize("name", LESSONS)
def test_the_numbers_are_those_of_the_library(name: str) -> None:
    found = run("lesson", name, "--format", "json", "--lang", "en").json
    worked = run_lesson(name)
    assert found["title"] == worked.title
    assert found["provenance"] == worked.provenance
    for matrix in worked.matrices:
        assert np.abs(np.array(found[matrix.name]) - matrix.values).max() <= 1e-12 * np.abs(matrix.values).max()


@pytest.mark.parametrize("name", LESSONS)
def test_every_format_of_numbers_holds_the_same(tmp_path: Path, name: str) -> None:
    files = [tmp_path / f"o.{form}" for form in ARRAYS]
    assert run("lesson", name, "--text", "a b", *(word for one in files for word in ("-o", str(one)))).code == 0
    found = json.loads((tmp_path / "o.json").read_text("utf-8"))
    for file in files:
        for matrix in (matrix for step in found["steps"] for matrix in step["matrices"]):
            values = read(file, matrix["name"])
            assert values.shape == (len(matrix["row_labels"]), len(matrix["column_labels"]))
            assert np.array_equal(values, np.array(found[matrix["name"]]))


def read(file: Path, name: str) -> npt.NDArray[Any]:
    match file.suffix:
        case ".npz":
            return np.asarray(np.load(file)[name])
        case ".safetensors":
            return np.asarray(load_file(file)[name])
        case ".csv":
            rows = [row for row in csv.DictReader(io.StringIO(file.read_text("utf-8"))) if row["matrix"] == name]
            places = [(int(row["row"]), int(row["column"])) for row in rows]
            values = np.full(np.max(places, axis=0) + 1, np.nan)
            values[tuple(np.transpose(places))] = [float(row["value"]) for row in rows]
            return values
        case _:
            return np.array(json.loads(file.read_text("utf-8"))[name])


@pytest.mark.parametrize(
    ("name", "form"), [*zip(LESSONS, itertools.cycle(RESULT_FORMATS)), ("masks", "pdf"), ("heads", "svg")]
)
def test_the_same_request_gives_the_same_bytes(name: str, form: str) -> None:
    first, second = (run("lesson", name, "--format", form, "--lang", "pt") for _ in range(2))
    assert first == second
    assert (first.code, first.err) == (0, "")
    assert first.out


@pytest.mark.parametrize("name", LESSONS)
def test_torch_gives_the_same(name: str) -> None:
    numpy, torch = (run("lesson", name, "--format", "json", "--backend", one).json for one in ("numpy", "torch"))
    names = [matrix["name"] for step in numpy["steps"] for matrix in step["matrices"]]
    for one in names:
        assert np.array(torch[one]) == pytest.approx(np.array(numpy[one]), rel=1e-6, abs=1e-9)
    assert torch["provenance"]["backend"] == "torch"


@pytest.mark.parametrize("name", LESSONS)
def test_in_portuguese_nothing_that_the_lesson_says_is_english(name: str) -> None:
    english, portuguese = (run("lesson", name, "--format", "json", "--lang", lang).json for lang in ("en", "pt"))
    assert portuguese["title"] != english["title"]
    for one, other in zip(portuguese["steps"], english["steps"], strict=True):
        assert one["sentence"] != other["sentence"]
        assert one["notice"] != other["notice"] or not other["notice"]
        for matrix, same in zip(one["matrices"], other["matrices"], strict=True):
            assert (matrix["name"], matrix["row_labels"]) == (same["name"], matrix["row_labels"])
            assert portuguese[matrix["name"]] == english[matrix["name"]]
    said = json.dumps([portuguese["title"], portuguese["steps"]], ensure_ascii=False)
    left = [text for text in ENGLISH if len(text.split()) > 2 and re.search(rf"\b{re.escape(text)}\b", said)]
    assert left == []


@pytest.mark.parametrize(("lang", "locale"), [("pt", "C"), (None, "pt_BR.UTF-8")])
def test_the_list_names_every_lesson_in_the_language_asked_for(lang: str | None, locale: str) -> None:
    typed = ["lesson"] if lang is None else ["lesson", "--lang", lang]
    answer = run(*typed, env={"LANG": locale, "LC_ALL": locale, "LANGUAGE": ""})
    assert [line.split()[0] for line in answer.text.splitlines()] == list(LESSONS)
    assert "Máscaras" in answer.text
    assert "Masks" in run("lesson", "--lang", "en").text


@pytest.mark.parametrize("name", LESSONS)
def test_the_seed_is_either_of_use_or_refused(name: str) -> None:
    typed = ["lesson", name, "--format", "json", "--text", "a b c"]
    if not LESSONS[name].seeded:
        assert "leave out --seed" in error(*typed, "--seed", "3", code=2)
        return
    plain, seeded = run(*typed).json, run(*typed, "--seed", "3").json
    assert seeded["provenance"]["seed"] == 3
    names = [matrix["name"] for step in plain["steps"] for matrix in step["matrices"]]
    assert any(plain[one] != seeded[one] for one in names)


OPTIONS = {
    "source": ["--source", "a b"], "query": ["--query", "0"], "embeddings": ["--embeddings", "e.npz"],
    "module": ["--module", "m.npz"], "n_heads": ["--n-heads", "2"], "shared_projections": ["--shared-projections"],
    "timer": ["--timed"],
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", LESSONS)
def test_an_option_of_other_lessons_is_refused(name: str, option: str) -> None:
    if option in LESSONS[name].takes:
        return
    message = error("lesson", name, *OPTIONS[option], code=2)
    assert f"lesson {name} has no use for {OPTIONS[option][0]}" in message
    takers = [one for one, entry in LESSONS.items() if option in entry.takes]
    assert takers
    assert message.rstrip().endswith(f"it is for {', '.join(takers)}")


def test_time_is_taken_where_it_is_asked_for() -> None:
    plain, timed = (run("lesson", "parallel", "--format", "json", *more).json for more in ((), ("--timed",)))
    assert len(timed["steps"]) == len(plain["steps"]) + 1
    assert timed["provenance"]["timed"] is True
    assert "timed" not in plain["provenance"]


@pytest.mark.parametrize(
    "said",
    [
        ["--text", "a b"], ["--source", "a"], ["--seed", "3"], ["-o", "x.png"], ["--format", "json"], ["--timed"],
        ["--backend", "torch"], ["--dtype", "float32"], ["--width", "40"], ["--color-scale", "log"], ["--n-heads", "2"],
    ],
    ids=lambda said: said[0],
)  # fmt: skip
def test_the_list_takes_nothing_but_its_language(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = error("lesson", *said, code=2)
    assert f"{'--output' if said[0] == '-o' else said[0]} is for a lesson: name one of lookup" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["heds"], 2, "no lesson 'heds'; did you mean heads"),
        (["nothing-like-it"], 2, "the lessons are lookup, "),
        (["heads", "--lang", "xx"], 2, "--lang is en or pt"),
        (["heads", "--text", ""], 2, "no tokens"),
        (["heads", "--text", "-"], 2, "--text is typed"),
        (["self-and-cross", "--source", "-"], 2, "--source is typed"),
        (["self-and-cross", "--source", ""], 2, "no tokens"),
        (["heads", "--n-heads", "3"], 2, "1, 2 or 4"),
        (["heads", "--n-heads", "0"], 2, "--n-heads"),
        (["heads", "--text", "a", "--embeddings", "e.npz"], 2, "leave out --text, or the file"),
        (["heads", "--embeddings", "none.npz"], 2, "none.npz does not exist"),
        (["heads", "--embeddings", "damaged.npz"], 3, "damaged"),
        (["module", "--module", "none.pt"], 2, "none.pt does not exist"),
        (["query-row", "--query", "apple"], 2, "no query token 'apple'"),
        (["heads", "--device", "cuda"], 2, "add --backend torch"),
        (["heads", "--dtype", "float16"], 2, "float16 needs --backend torch"),
        (["heads", "-o", "{n}.png"], 2, "stands for nothing"),
        (["heads", "-o", "x.html"], 2, "this has no html"),
        (["heads", "-o", "damaged.npz", "--embeddings", "damaged.npz"], 2, "also the input"),
        (["heads", "heads"], 2, "unexpected extra argument"),
    ],
)
def test_what_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    assert re.search(message, error("lesson", *arguments, code=code))
    assert [one.name for one in tmp_path.iterdir()] == ["damaged.npz"]


def test_the_colour_scale_reaches_pictures() -> None:
    scales = ("linear", "sqrt", "rank")
    assert len({run("lesson", "masks", "--format", "png", "--color-scale", one).out for one in scales}) == 3


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log", "row", "rank"])
@pytest.mark.parametrize("name", LESSONS)
def test_legends_speak_the_language_of_the_lesson(name: str, scale: str) -> None:
    said = run("lesson", name, "--lang", "pt", "--color-scale", scale).text
    colored = run("lesson", name, "--lang", "pt", "--color-scale", scale, env={"FORCE_COLOR": "1"}).text
    for text in (said, colored):
        assert not re.search(r"\b(rows|columns|means|is below|exactly|scale|weight|weights|maximum)\b", text), name


def test_legends_of_pictures_speak_the_language_of_the_lesson(tmp_path: Path) -> None:
    assert run("lesson", "heads", "--lang", "pt", "-o", str(tmp_path / "a.svg")).code == 0
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert "escala linear, 0 a 1" in svg
    assert "peso" in svg
    assert "scale, " not in svg
