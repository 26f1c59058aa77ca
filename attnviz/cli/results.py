"""Results that are no record of attention, such as measures or lessons, in the outputs that were asked for."""

import sys
from dataclasses import dataclass, replace

from attnviz.cli.console import show
from attnviz.cli.messages import note
from attnviz.cli.outputs import Output
from attnviz.cli.sinks import Sinks
from attnviz.cli.takers import standins
from attnviz.lazy import function
from attnviz.render.panels import Board, Look
from attnviz.render.scale import DEFAULT_SCALE
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
    text_board: Board | None = None
    """For people who read it as text, where that has room for less."""


def write_result(result: Result, outputs: list[Output], look: Look, color_scale: str | None = None) -> None:
    """Write a result to every output, and note what pictures cannot show of it.

    Args:
        result: what was found.
        outputs: where it goes.
        look: how pictures and text look.
        color_scale: how colours follow the values, one of `attnviz.render.scale.SCALES`; linear unless given.

    Raises:
        AttnvizError: an output cannot be written.
    """
    scale = color_scale or DEFAULT_SCALE
    board = replace(result.board, scale=scale)
    text = replace(result.text_board or board, scale=scale)
    notes: dict[str, None] = {}
    with Sinks(outputs) as sinks:
        for output in outputs:
            if output.format is None:
                show(text, look, result.description)
                sys.stdout.flush()
                continue
            with sinks.stream(output, {}) as stream:
                if output.format.holds == "numbers":
                    of_csv = output.format.name == "csv"
                    function(output.format.result_writer)(result.table if of_csv else result.fields, stream)
                else:
                    drawn = text if output.format.holds == "text" else board
                    function(output.format.writer)(drawn, replace(look, description=result.description), stream)
            if output.format.holds == "picture":
                notes |= dict.fromkeys(standins(board, look))
    for line in notes:
        note(line)
