"""A lesson as a board: each step with its sentence, its formula, its matrices and what to notice in them."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from attnviz.lessons.lesson import Axis as LessonAxis
from attnviz.lessons.lesson import Kind, Lesson, Matrix, Step
from attnviz.render.panels import Axis, Board, Group, Panel
from attnviz.render.ranges import Range, range_holding
from attnviz.render.scale import MINUS
from attnviz.tokens import visible

_WEIGHTS = Range(0.0, 1.0)


def lesson_board(lesson: Lesson, *, spelled: bool = False) -> Board:
    """The steps one below another; matrices of one kind that follow each other share a range.

    Args:
        lesson: what was worked out.
        spelled: plain numbers as lines of text: in a picture, which has only colours, they could not be read.
    """
    groups = tuple(group for i, step in enumerate(lesson.steps, 1) for group in _groups(i, step, spelled=spelled))
    return Board(lesson.title, groups, _WEIGHTS)


def _groups(number: int, step: Step, *, spelled: bool) -> Iterator[Group]:
    yield Group(f"{number}. {step.title}", (), tuple(filter(None, (step.sentence, step.formula))))
    for kind, matrices in groupby(step.matrices, lambda one: one.kind):
        if spelled and kind == "numbers":
            yield Group("", (), tuple(line for one in matrices for line in _spelled(one)))
        else:
            yield _drawn(kind, list(matrices))
    if step.notice:
        yield Group("", (), (f"→ {step.notice}",))


def _drawn(kind: Kind, matrices: Sequence[Matrix]) -> Group:
    panels = tuple(Panel(one.title, one.values, _axis(one.rows), _axis(one.columns)) for one in matrices)
    if kind == "weights":
        return Group("", panels, range=_WEIGHTS)
    return Group("", panels, range=range_holding([one.values for one in matrices], ", ".join(_titles(matrices))))


def _spelled(matrix: Matrix) -> Iterator[str]:
    """The numbers of a matrix: its title, then a line for each row."""
    yield f"{matrix.title} ({matrix.rows.name}):" if matrix.rows.name else f"{matrix.title}:"
    for row, values in zip(matrix.rows.labels, matrix.values.tolist(), strict=True):
        named = zip(matrix.columns.labels, map(_written, values), strict=True)
        yield f"{visible(row)}: " + ", ".join(f"{visible(column)} {value}" for column, value in named)


def _written(value: float) -> str:
    """A number with four digits, or all of them where it counts something.

    >>> _written(1048576.0), _written(0.0123456), _written(-2.5)
    ('1048576', '0.01235', '−2.5')
    """
    text = str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"
    return text.replace("-", MINUS)


def _titles(matrices: Sequence[Matrix]) -> list[str]:
    return list(dict.fromkeys(one.title for one in matrices))


def _axis(axis: LessonAxis) -> Axis:
    return Axis(axis.name, axis.labels)
