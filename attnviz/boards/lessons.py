"""A lesson as a board: each step with its sentence, its formula, its matrices and what to notice in them."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from attnviz.lessons.lesson import Axis as LessonAxis
from attnviz.lessons.lesson import Kind, Lesson, Matrix, Step
from attnviz.render.panels import Axis, Board, Group, Panel
from attnviz.render.ranges import Range, range_holding

_WEIGHTS = Range(0.0, 1.0)


def lesson_board(lesson: Lesson) -> Board:
    """The steps one below another; matrices of one kind that follow each other share a range."""
    groups = tuple(group for i, step in enumerate(lesson.steps, 1) for group in _groups(i, step))
    return Board(lesson.title, groups, _WEIGHTS)


def _groups(number: int, step: Step) -> Iterator[Group]:
    yield Group(f"{number}. {step.title}", (), tuple(filter(None, (step.sentence, step.formula))))
    for kind, matrices in groupby(step.matrices, lambda one: one.kind):
        yield _drawn(kind, list(matrices))
    if step.notice:
        yield Group("", (), (f"→ {step.notice}",))


def _drawn(kind: Kind, matrices: Sequence[Matrix]) -> Group:
    panels = tuple(Panel(one.title, one.values, _axis(one.rows), _axis(one.columns)) for one in matrices)
    if kind == "weights":
        return Group("", panels, range=_WEIGHTS)
    return Group("", panels, range=range_holding([one.values for one in matrices], ", ".join(_titles(matrices))))


def _titles(matrices: Sequence[Matrix]) -> list[str]:
    return list(dict.fromkeys(one.title for one in matrices))


def _axis(axis: LessonAxis) -> Axis:
    return Axis(axis.name, axis.labels)
