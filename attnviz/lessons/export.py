"""A lesson as names and values, for json, npz and safetensors."""

from typing import Any

from attnviz.lessons.lesson import Lesson, Matrix
from attnviz.schema import Fields, Table

SCHEMA = "attnviz-lesson/1"
"""A change of what a name means is a new number."""


def to_fields(lesson: Lesson) -> Fields:
    """The lesson's texts under `steps`, and every matrix as an array of its own name, [row, column].

    Args:
        lesson: any lesson.

    Returns:
        What the writers of records take: plain values, and arrays.
    """
    plain = {
        "schema": SCHEMA,
        "lesson": lesson.name,
        "title": lesson.title,
        "provenance": dict(lesson.provenance),
        "notes": [],
        "steps": [
            {
                "title": step.title,
                "sentence": step.sentence,
                "formula": step.formula,
                "notice": step.notice,
                "matrices": [_about(matrix) for matrix in step.matrices],
            }
            for step in lesson.steps
        ],
    }
    return Fields(plain, {matrix.name: matrix.values for matrix in lesson.matrices})


def lesson_table(lesson: Lesson) -> Table:
    """Every number of every matrix, one a row, with the labels of its row and column."""
    rows = [
        [number, matrix.name, i, j, matrix.rows.labels[i], matrix.columns.labels[j], value]
        for number, step in enumerate(lesson.steps, 1)
        for matrix in step.matrices
        for i, row in enumerate(matrix.values.tolist())
        for j, value in enumerate(row)
    ]
    return Table(("step", "matrix", "row", "column", "row_label", "column_label", "value"), rows)


def _about(matrix: Matrix) -> dict[str, Any]:
    return {
        "name": matrix.name,
        "title": matrix.title,
        "kind": matrix.kind,
        "rows": matrix.rows.name,
        "columns": matrix.columns.name,
        "row_labels": list(matrix.rows.labels),
        "column_labels": list(matrix.columns.labels),
    }
