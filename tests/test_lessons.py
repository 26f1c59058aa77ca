"""Every lesson, whatever it is run on: what holds for all of them."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.backend import NUMPY, placing
from attnviz.errors import RequestError
from attnviz.lazy import function
from attnviz.lessons.export import to_fields
from attnviz.lessons.inputs import MAX_TOKENS
from attnviz.lessons.lesson import Axis, Lesson, Matrix, Setting
from attnviz.lessons.registry import LESSONS, run_lesson
from attnviz.render.panels import describe
from attnviz.sources.embeddings import open_embeddings
from attnviz.translation import translator
from tests.saved import read_json

SAMPLES = Path(__file__).parent.parent / "sample_inputs"
DOG, ONE_WORD, AWKWARD = "o cachorro mordeu o homem", "oi", "[bold] a\u0301 日本 👩‍👩‍👧 {x} %s"
TEXTS = [None, DOG, ONE_WORD, AWKWARD]
TAKERS = [name for name, entry in LESSONS.items() if "embeddings" in entry.takes]
NOT_DRAWN = ("query-row", "positions", "parallel", "cost")
"""Lessons that show the bundled model, formulas, and what is counted."""
every = pytest.mark.parametrize("name", LESSONS)


class Ticks:
    """A timer of which every reading is a second after the last."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@cache
def run(name: str, **setting: Any) -> Lesson:
    return run_lesson(name, Setting(**setting))


def written(lesson: Lesson) -> dict[str, Any]:
    return read_json(to_fields(lesson))


TORCH = placing("torch")


def assert_sound(lesson: Lesson) -> None:
    assert lesson.title
    assert len(lesson.steps) >= 2
    for step in lesson.steps:
        assert all((step.title, step.sentence, step.formula, step.notice))
        assert step.matrices
    names = [matrix.name for matrix in lesson.matrices]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)
    for matrix in lesson.matrices:
        assert matrix.values.dtype == np.float64
        assert np.isfinite(matrix.values).all()
        assert matrix.title
        assert matrix.rows.name
        assert matrix.columns.name
        if matrix.kind == "weights":
            assert matrix.values.min() >= 0
            assert matrix.values.max() <= 1 + 1e-12


@every
@pytest.mark.parametrize("text", TEXTS)
def test_numpy_and_torch_give_the_same_numbers_and_say_the_same(name: str, text: str | None) -> None:
    ours, theirs = run(name, text=text), run(name, text=text, placing=TORCH)
    assert_sound(ours)
    assert_sound(theirs)
    others = {matrix.name: matrix for matrix in theirs.matrices}
    for matrix in ours.matrices:
        assert np.abs(matrix.values - others[matrix.name].values).max() < 1e-12 * max(1, np.abs(matrix.values).max())
    assert [step.notice for step in ours.steps] == [step.notice for step in theirs.steps][: len(ours.steps)]
    assert len(theirs.steps) - len(ours.steps) == (name == "module")  # which torch is compared with


@every
def test_a_lesson_is_the_same_each_time(name: str) -> None:
    assert written(run(name)) == written(run_lesson(name))


@pytest.mark.parametrize("name", [name for name in LESSONS if name not in NOT_DRAWN])
def test_what_is_drawn_is_drawn_from_the_seed(name: str) -> None:
    assert written(run(name, text=DOG, seed=3)) != written(run(name, text=DOG, seed=4))


@pytest.mark.parametrize("name", NOT_DRAWN)
def test_where_nothing_is_drawn_a_seed_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=f"nothing in lesson {name} is drawn: leave out --seed"):
        run(name, text=DOG, seed=3)
    assert "seed" not in run(name).provenance


@every
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_lesson_runs_in_a_narrow_dtype(name: str, dtype: str) -> None:
    lesson = run(name, text=DOG, placing=placing("torch", "cpu", dtype))
    assert lesson.provenance["dtype"] == dtype
    wide = {matrix.name: matrix.values for matrix in run(name, text=DOG).matrices}
    for matrix in lesson.matrices:
        if matrix.name in wide and matrix.kind == "weights":
            assert np.abs(matrix.values - wide[matrix.name]).max() < (0.15 if dtype != "float32" else 1e-4)


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("file", ["embeddings.npz", "palavras.pt.txt"])
def test_a_lesson_runs_on_vectors_of_ones_own(name: str, file: str) -> None:
    lesson = run(name, embeddings=SAMPLES / file)
    assert_sound(lesson)
    labels = {label for matrix in lesson.matrices for label in (*matrix.rows.labels, *matrix.columns.labels)}
    assert "gato" in labels
    assert lesson.provenance["embeddings"] == file
    torch = run(name, embeddings=SAMPLES / file, placing=TORCH)
    others = {matrix.name: matrix.values for matrix in torch.matrices}
    for matrix in lesson.matrices:
        assert np.abs(matrix.values - others[matrix.name]).max() < 1e-12


@every
def test_in_portuguese_the_numbers_are_the_same_and_the_words_are_not(name: str) -> None:
    english = run(name, text=DOG)
    portuguese = run_lesson(name, Setting(text=DOG), translator("pt"))
    for one, other in zip(english.steps, portuguese.steps, strict=True):
        assert one.sentence != other.sentence
        assert one.notice != other.notice
        assert one.formula == other.formula
    for matrix, same in zip(english.matrices, portuguese.matrices, strict=True):
        assert matrix.name == same.name
        assert np.array_equal(matrix.values, same.values)


# files


@every
def test_the_json_is_strict_and_has_every_matrix_by_its_name(name: str) -> None:
    lesson = run(name, text=AWKWARD)
    plain = written(lesson)
    assert (plain["schema"], plain["lesson"]) == ("attnviz-lesson/1", name)
    listed = [about["name"] for step in plain["steps"] for about in step["matrices"]]
    assert listed == [matrix.name for matrix in lesson.matrices]
    for matrix in lesson.matrices:
        assert np.array_equal(np.array(plain[matrix.name]), matrix.values)


@every
def test_the_fields_are_those_that_the_writers_of_records_take(name: str) -> None:
    fields = to_fields(run(name))
    assert not fields.plain.keys() & fields.arrays.keys()
    assert fields.plain["notes"] == []
    assert all(array.ndim == 2 for array in fields.arrays.values())


def test_what_is_not_a_number_is_null() -> None:
    matrix = Matrix("m", "m", np.array([[np.nan, 1.0]]), Axis("r", ("0",)), Axis("c", ("0", "1")))
    step = run("heads").steps[0]
    lesson = Lesson("x", "X", (type(step)("t", "s", "f", (matrix,), "n"),), {})
    assert written(lesson)["m"] == [[None, 1.0]]


def test_a_matrix_and_its_labels_must_agree() -> None:
    with pytest.raises(ValueError, match=r"m is \(1, 2\), but its labels are \(1, 3\)"):
        Matrix("m", "m", np.zeros((1, 2)), Axis("r", ("0",)), Axis("c", ("0", "1", "2")))


def test_the_provenance_says_what_was_asked_for_and_no_path() -> None:
    lesson = run("module", module=SAMPLES / "module.safetensors", n_heads=2, text=DOG, seed=5)
    assert lesson.provenance["module"] == "module.safetensors"
    assert (lesson.provenance["n_heads"], lesson.provenance["text"], lesson.provenance["seed"]) == (2, DOG, 5)
    digest = hashlib.sha256((SAMPLES / "module.safetensors").read_bytes()).hexdigest()
    assert lesson.provenance["module_sha256"] == digest
    assert "embeddings" not in lesson.provenance
    assert "bundled minilm" in describe(run("query-row").provenance)
    assert describe(lesson.provenance).startswith("attnviz 0.1.0 · lesson module, module module.safetensors,")
    assert "bundled" not in run("heads").provenance
    assert run("heads").provenance["dtype"] == "float64"


# what is refused


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("head", "heads"),
        ("scaled_dot_product", "scaled-dot-product"),
        ("Scaling", "scaling"),
        ("single", "single-against-many"),
        ("self and cross", "self-and-cross"),
    ],
)
def test_a_name_mistyped_is_corrected(typed: str, meant: str) -> None:
    with pytest.raises(RequestError, match=f"no lesson '{typed}'; did you mean {meant}\\?"):
        run(typed)


def test_a_name_unlike_any_gets_the_list() -> None:
    with pytest.raises(RequestError, match=r"no lesson 'xyzzy': the lessons are lookup, .*, masks"):
        run("xyzzy")


@pytest.mark.parametrize("target", [entry.steps for entry in LESSONS.values()])
def test_what_is_named_is_there(target: str) -> None:
    assert callable(function(target))


@every
@pytest.mark.parametrize(
    ("field", "value"),
    [("source", "a b"), ("query", "0"), ("embeddings", SAMPLES / "embeddings.npz"), ("n_heads", 2),
     ("module", SAMPLES / "module.safetensors"), ("shared_projections", True)],
)  # fmt: skip
def test_nothing_that_is_said_is_ignored(name: str, field: str, value: Any) -> None:
    if field in LESSONS[name].takes:
        run(name, **{field: value})
        return
    with pytest.raises(RequestError, match=f"lesson {name} has no use for .*: leave it out; it is for "):
        run(name, **{field: value})


@every
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(name: str, text: str) -> None:
    with pytest.raises(RequestError, match="text is empty"):
        run(name, text=text)


@pytest.mark.parametrize("name", [name for name in LESSONS if name != "query-row"])
def test_a_text_too_long_to_show_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=f"of at most {MAX_TOKENS} tokens; here are {MAX_TOKENS + 1}"):
        run(name, text="a " * (MAX_TOKENS + 1))


def test_text_and_vectors_together_are_refused() -> None:
    with pytest.raises(RequestError, match="brings its own tokens"):
        run("heads", text=DOG, embeddings=SAMPLES / "embeddings.npz")


@pytest.mark.parametrize("name", [name for name, entry in LESSONS.items() if "n_heads" in entry.takes])
@pytest.mark.parametrize("n_heads", [0, -1, 3])
@pytest.mark.parametrize("text", [None, DOG])
def test_heads_that_cannot_share_the_columns_are_refused(name: str, n_heads: int, text: str | None) -> None:
    with pytest.raises(RequestError, match="heads"):
        run(name, n_heads=n_heads, text=text)


@every
def test_a_negative_seed_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="--seed must be 0 or more, got -1"):
        run(name, seed=-1)


def test_numbers_that_overflow_are_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "big.npz", embeddings=np.full((3, 4), 1e200))
    with pytest.raises(RequestError, match="the numbers overflow float64"):
        run("heads", embeddings=tmp_path / "big.npz")


@pytest.mark.parametrize("name", [name for name, entry in LESSONS.items() if "query" in entry.takes])
def test_a_query_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="no query token 'zebra'"):
        run(name, query="zebra")
    assert "sat" in " ".join(step.notice for step in run(name, text="the cat sat", query="sat").steps)
    assert "sat" not in " ".join(step.notice for step in run(name, text="the cat sat", query="cat").steps[:1])


# time


def test_time_is_taken_with_the_timer_that_is_given() -> None:
    lesson = run("parallel", timer=Ticks())
    timed = lesson.steps[-1]
    assert timed.matrices[0].name == "time_ratio"
    assert np.array_equal(timed.matrices[0].values, np.ones((3, 2)))  # every run takes as long with such a timer
    stopped = run("parallel", timer=float)  # which always says 0
    assert np.array_equal(stopped.steps[-1].matrices[0].values, np.ones((3, 2)))
    assert len(run("parallel").steps) == len(lesson.steps) - 1
    assert run("parallel", placing=NUMPY, timer=None).steps[-1].matrices[0].name == "flops"


def test_of_vectors_the_first_half_attends_to_itself_and_to_the_rest(tmp_path: Path) -> None:
    own = open_embeddings(SAMPLES / "embeddings.npz", n_heads=1)
    q, k = (
        np.asarray(own.x, np.float64) @ np.asarray(w, np.float64) for w in (own.projections.w_q, own.projections.w_k)
    )
    scores = np.exp(q @ k.T / np.sqrt(q.shape[1]))
    half = len(own.x) // 2
    lesson = run("self-and-cross", embeddings=SAMPLES / "embeddings.npz")
    found = {matrix.name: matrix.values for matrix in lesson.matrices}
    for name, keys in (("self_weights", slice(0, half)), ("cross_weights", slice(half, None))):
        part = scores[:half, keys]
        assert np.abs(found[name] - part / part.sum(1, keepdims=True)).max() < 1e-6, name
    with pytest.raises(RequestError, match="brings both sequences"):
        run("self-and-cross", embeddings=SAMPLES / "embeddings.npz", source="a b")
    np.savez(tmp_path / "one.npz", embeddings=np.ones((1, 4)))
    one = {
        matrix.name: matrix.values.tolist()
        for matrix in run("self-and-cross", embeddings=tmp_path / "one.npz").matrices
    }
    assert one["self_weights"] == one["cross_weights"] == [[1.0]]
