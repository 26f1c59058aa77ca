"""Results that are no record of attention, such as measures or lessons, in the outputs that were asked for."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.cli.console import show
from attnviz.cli.outputs import Output
from attnviz.cli.sinks import Sinks
from attnviz.cli.takers import standins
from attnviz.lazy import function
from attnviz.render.panels import Board, Look
from attnviz.schema import Fields, Table


@dataclass(frozen=True)
class Result:
    """What a command found, once for each kind of reader."""

    board: Board
    """For people."""
    description: str
    """What made the numbers, on one line."""
    fields: Fields
    """For programs; its notes are the ones that people get."""
    table: Table
    """For spreadsheets."""


def write_result(result: Result, outputs: Sequence[Output], sinks: Sinks, look: Look, number: int = 1) -> Sequence[str]:
    """Write a result to every output; returned is what the reader should know about it.

    Args:
        result: what was found.
        outputs: where it goes.
        sinks: the streams of the outputs.
        look: how pictures and text look.
        number: which text it is of, from 1.
    """
    notes: dict[str, None] = {}
    for output in outputs:
        if output.format is None:
            show(result.board, look, result.description)
            sys.stdout.flush()
            continue
        with sinks.stream(output, {"n": number}) as stream:
            if output.format.holds == "numbers":
                of_csv = output.format.name == "csv"
                function(output.format.result_writer)(result.table if of_csv else result.fields, stream)
            else:
                writer = function(output.format.writer)
                writer(result.board, replace(look, description=result.description), stream)
        if output.format.holds == "picture":
            notes |= dict.fromkeys(standins(result.board, look))
    return tuple(notes)
