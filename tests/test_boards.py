"""Results as boards: which panels, in which groups and ranges, and that every renderer draws them."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from attnviz.boards.differences import SHOWN, comparison_board
from attnviz.boards.encoding import encoding_board
from attnviz.boards.lessons import lesson_board
from attnviz.boards.measures import measures_board
from attnviz.collect import collect
from attnviz.compare import Comparison, compare
from attnviz.lazy import function
from attnviz.lessons.registry import LESSONS, run_lesson
from attnviz.maps import AttentionRecord
from attnviz.measures.collector import MeasureCollector
from attnviz.measures.heads import HeadTable, rank, sink_rate
from attnviz.measures.table import MEASURES
from attnviz.positions import position_table
from attnviz.render import FORMATS
from attnviz.render.panels import Board, Look
from attnviz.render.terminal import TerminalStyle, view
from attnviz.tokens import Tokens
from attnviz.translation import translator
from tests.records import a_record
from tests.saved import weights_of
from tests.test_measures import a_map

WORDS = Tokens.of(["a", "b", "a", "c"])


def table() -> HeadTable:
    collector = MeasureCollector()
    collect(a_record(weights_of(2, 3, 4, 4), query=WORDS, key=WORDS).maps, [collector])
    return collector.result()[0]


def compared(changed: np.ndarray, words: Tokens = WORDS) -> Comparison:
    return compare(a_record(weights_of(2, 3, 4, 4), query=WORDS, key=WORDS), a_record(changed, query=words, key=words))


def some_change() -> np.ndarray:
    """Head 2 of the second layer (3.2) loses most, head 1 of the first (0.1) gains less."""
    weights = weights_of(2, 3, 4, 4)
    weights[1, 2, 3, 0] -= 0.125
    weights[0, 1, 2, 1] += 0.0625
    return weights


def worked(name: str, lang: str = "en") -> Board:
    return lesson_board(run_lesson(name, say=translator(lang)))


BOARDS: dict[str, Callable[[], Board]] = {
    "measures": lambda: measures_board([table()], [name for name in MEASURES if name != "special"], "measured", 3),
    "comparison": lambda: comparison_board(
        compared(some_change()), "largest", 2, "A against B", ["A: one", "B: other"]
    ),
    "nothing changed": lambda: comparison_board(compared(weights_of(2, 3, 4, 4)), "mean", 2, "A against B", []),
    "no numbers": lambda: comparison_board(compared(np.full((2, 3, 4, 4), np.nan)), "divergence", 9, "A against B", []),
    "other tokens": lambda: comparison_board(
        compared(some_change(), Tokens.of(["a", "b", "d", "c"])), "mean", 1, "A against B", []
    ),
    "encoding": lambda: encoding_board(position_table(7, 5)),
    "pooled encoding": lambda: encoding_board(position_table(9, 20), 4),
    **{name: partial(worked, name) for name in LESSONS},
}


@pytest.mark.parametrize("form", [name for name, one in FORMATS.items() if one.holds != "numbers"])
@pytest.mark.parametrize("name", BOARDS)
def test_every_renderer_draws_every_board(name: str, form: str) -> None:
    board = BOARDS[name]()
    stream = io.BytesIO()
    function(FORMATS[form].writer)(board, Look(width=80), stream)
    content = stream.getvalue()
    assert content
    if form == "txt":
        said = " ".join(content.decode().split())
        for one in (board.caption, *(group.title for group in board.groups), *(p.title for p in board.panels)):
            assert " ".join(one.split()) in said


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("name", [*BOARDS, *(f"{name} in Portuguese" for name in LESSONS)])
def test_every_board_can_be_written_in_ascii(name: str, color: bool) -> None:
    board = BOARDS[name]() if name in BOARDS else worked(name.removesuffix(" in Portuguese"), "pt")
    for segment in view(board, TerminalStyle(60, color=color, encoding="ascii")).segments:
        assert segment.text.isascii()


@pytest.mark.parametrize("name", BOARDS)
def test_values_lie_in_the_range_that_is_told_of_them(name: str) -> None:
    board = BOARDS[name]()
    for group in board.groups:
        span = group.range or board.range
        for panel in group.panels:
            finite = panel.values[np.isfinite(panel.values)]
            assert ((finite >= span.bottom - 1e-9) & (finite <= span.top + 1e-9)).all()
            assert panel.values.shape == (len(panel.rows.labels), len(panel.columns.labels))


@pytest.mark.parametrize("name", [name for name in MEASURES if name != "special"])
def test_a_measure_is_a_mosaic_of_layers_and_heads_that_names_the_most(name: str) -> None:
    measured = table()
    for ascending, word in ((False, "most"), (True, "least")):
        (group,) = measures_board([measured], [name], "of it", 2, ascending=ascending).groups
        (panel,) = group.panels
        assert group.title == MEASURES[name].title
        assert (panel.rows.name, panel.rows.labels) == ("layer", ("0", "3"))
        assert (panel.columns.name, panel.columns.labels) == ("head", ("0", "1", "2"))
        assert np.array_equal(panel.values, measured.values[name])
        named = ", ".join(f"{o.layer}.{o.head} ({o.value:.4g})" for o in rank(measured, name, 2, ascending=ascending))
        more = (f"sink rate: {sink_rate(measured):.3g} of the heads have more than 0.3",) if name == "sink" else ()
        assert group.text == (MEASURES[name].meaning, f"{word}: head {named}", *more)
        assert group.range is not None
        assert group.range.top == (MEASURES[name].high or group.range.top)


@pytest.mark.parametrize(
    ("where", "title"),
    [
        ({"stack": "encoder", "kind": "self"}, "entropy"),
        ({"stack": "decoder", "kind": "self"}, "decoder: entropy"),
        ({"stack": "decoder", "kind": "cross"}, "cross-attention: entropy"),
    ],
)
def test_a_mosaic_says_of_which_stack_it_is(where: dict[str, Any], title: str) -> None:
    board = measures_board([table(), replace(table(), **where)], ["entropy", "special"], "of it", 1)
    assert [group.title for group in board.groups] == ["entropy", title]


def test_the_most_changed_heads_are_drawn_as_b_minus_a() -> None:
    comparison = compared(some_change())
    board = comparison_board(comparison, "largest", 2, "A against B", ["A: one", "B: other"])
    said, mosaic, drawn = board.groups
    assert said.text == ("A: one", "B: other")
    (panel,) = mosaic.panels
    assert np.allclose(panel.values, [[0, 0.0625, 0], [0, 0, 0.125]])
    assert (panel.rows.labels, panel.columns.labels) == (("0", "3"), ("0", "1", "2"))
    assert [one.title for one in drawn.panels] == ["head 3.2", "head 0.1"]
    wanted = some_change() - weights_of(2, 3, 4, 4)
    assert np.allclose([one.values for one in drawn.panels], [wanted[1, 2], wanted[0, 1]])
    assert drawn.panels[0].rows.labels == WORDS.text
    assert drawn.range is not None
    assert (drawn.range.bottom, drawn.range.top) == (-0.15, 0.15)


@pytest.mark.parametrize(
    ("places", "labels"),
    [
        ([("decoder", "self"), ("decoder", "cross")], ("cross 0", "0")),
        ([("decoder", "self"), ("encoder", "self")], ("decoder 0", "0")),
        ([("decoder", "self")], ("0",)),
    ],
)
def test_layers_are_said_to_be_of_a_decoder_beside_those_of_an_encoder(
    places: list[tuple[Any, Any]], labels: tuple[str, ...]
) -> None:
    sides = [
        AttentionRecord(
            tuple(a_map(weights_of(2, 3, 3, seed=seed), stack=stack, kind=kind) for stack, kind in places), {}
        )
        for seed in (0, 1)
    ]
    _, mosaic, drawn = comparison_board(compare(*sides), "largest", 9, "A against B", []).groups
    assert mosaic.panels[0].rows.labels == labels
    assert {one.title for one in drawn.panels} == {f"head {label}.{head}" for label in labels for head in (0, 1)}


def test_heads_that_have_not_changed_are_not_drawn() -> None:
    assert len(comparison_board(compared(weights_of(2, 3, 4, 4)), "largest", 4, "A against B", []).groups) == 2
    assert len(comparison_board(compared(some_change()), "largest", 9, "A against B", []).groups[2].panels) == 2


def test_only_gains_are_drawn_in_a_symmetric_range_too() -> None:
    weights = weights_of(2, 3, 4, 4)
    weights[0, 0, 0, 0] += 0.25
    drawn = comparison_board(compared(weights), "largest", 1, "A against B", []).groups[2]
    assert drawn.range is not None
    assert drawn.range.bottom == -drawn.range.top < 0


def test_a_head_with_what_is_no_number_is_none_in_the_mosaic() -> None:
    weights = some_change()
    weights[0, 0, 1, 1] = np.nan
    board = comparison_board(compared(weights), "largest", 1, "A against B", [])
    assert np.allclose(board.groups[1].panels[0].values, [[np.nan, 0.0625, 0], [0, 0, 0.125]], equal_nan=True)
    assert board.groups[2].panels[0].title == "head 0.0"


def test_measures_stand_side_by_side_where_tokens_differ() -> None:
    board = BOARDS["other tokens"]()
    titles = [group.title for group in board.groups[3:]]
    assert titles == [MEASURES[name].title for name in SHOWN if name != "special"]
    assert all([panel.title for panel in group.panels] == ["A", "B"] for group in board.groups[3:])


@pytest.mark.parametrize(("d_model", "length", "most"), [(4, 6, 512), (9, 20, 4), (5, 3, 2), (8, 8, 8)])
def test_encodings_are_pooled_by_the_mean(d_model: int, length: int, most: int) -> None:
    values = position_table(d_model, length).values
    board = encoding_board(position_table(d_model, length), most)
    (panel,) = board.panels
    tall, wide = -(-length // most), -(-d_model // most)
    for i, row in enumerate(panel.values):
        for j, value in enumerate(row):
            tile = values[i * tall : (i + 1) * tall, j * wide : (j + 1) * wide]
            assert value == pytest.approx(tile.mean(), abs=1e-12)
    assert panel.rows.labels[:2] == ("0", str(tall))
    pooled = (tall, wide) != (1, 1)
    assert board.groups[0].text == (
        (f"each tile is the mean of up to {tall} × {wide} values, and named after the first",) if pooled else ()
    )


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_its_steps_in_order_with_every_matrix(name: str) -> None:
    lesson = run_lesson(name)
    board = lesson_board(lesson)
    titled = [group for group in board.groups if group.title]
    assert [group.title for group in titled] == [f"{i}. {step.title}" for i, step in enumerate(lesson.steps, 1)]
    assert [group.text for group in titled] == [
        tuple(filter(None, (step.sentence, step.formula))) for step in lesson.steps
    ]
    assert len(board.panels) == len(lesson.matrices)
    for panel, matrix in zip(board.panels, lesson.matrices, strict=True):
        assert (panel.title, panel.rows.labels, panel.columns.labels) == (
            matrix.title,
            matrix.rows.labels,
            matrix.columns.labels,
        )
        assert np.array_equal(panel.values, matrix.values)
    said = [line for group in board.groups for line in group.text]
    assert all(f"→ {step.notice}" in said for step in lesson.steps if step.notice)


def test_pictures_spell_numbers_that_are_read_and_not_seen() -> None:
    lesson = run_lesson("cost")
    board = lesson_board(lesson, spelled=True)
    kinds = [matrix.kind for matrix in lesson.matrices]
    assert len(board.panels) == len(kinds) - kinds.count("numbers")
    lines = [line for group in board.groups for line in group.text]
    for matrix in lesson.matrices:
        if matrix.kind == "numbers":
            for row, values in zip(matrix.rows.labels, matrix.values, strict=True):
                assert f"{row}: {matrix.columns.labels[0]} {int(values[0])}" in lines


def test_numbers_are_spelled_with_what_makes_them_differ() -> None:
    lines = [line for group in lesson_board(run_lesson("scaling"), spelled=True).groups for line in group.text]
    (match,) = filter(None, (re.fullmatch(r"64: measured ([0-9.]{4,}), √d_k (\d+)", line) for line in lines))
    assert float(match[1]) == pytest.approx(8, abs=0.2)
    assert match[2] == "8"
