"""`attnviz metrics`: which heads matter, by measures of their attention."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from attnviz.arrays import Floats
from attnviz.boards.measures import measures_board
from attnviz.cli.command import Command
from attnviz.cli.grouped import grouped
from attnviz.cli.messages import note
from attnviz.cli.options import HeadOptions, InputOptions, LookOptions, OutputOptions
from attnviz.cli.outputs import parse_outputs
from attnviz.cli.progress import Progress
from attnviz.cli.results import Result, write_result
from attnviz.cli.sources import Source, files_of, open_source
from attnviz.collect import Collector, collect
from attnviz.maps import Provenance
from attnviz.measures.collector import MeasureCollector
from attnviz.measures.export import measures_fields, measures_table
from attnviz.measures.heads import HeadTable, rank
from attnviz.measures.table import MEASURES, measure
from attnviz.reduce import RolloutCollector
from attnviz.render import RESULT_FORMATS
from attnviz.render.panels import caption_of, describe
from attnviz.select import ALL, Selection

ROLLED_TOKENS = 512
"""Up to so many tokens, files of numbers hold attention rollout too."""


@dataclass(frozen=True)
class MeasureOptions:
    """Which measures are shown."""

    by: Annotated[
        str, typer.Option(help=f"Measures to show, the first ranks the heads: {', '.join(MEASURES)}, or {ALL}.")
    ] = "entropy"
    top: Annotated[int, typer.Option(min=1, help="How many heads to name.")] = 10
    ascending: Annotated[bool, typer.Option("--ascending", help="Name the heads that have least.")] = False
    every_row: Annotated[
        bool, typer.Option("--every-row", help="Divergence of a long text: compare every row, not 32 of them.")
    ] = False


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
@grouped
def metrics(what: InputOptions, which: HeadOptions, by: MeasureOptions, where: OutputOptions, how: LookOptions) -> None:
    """Measure the attention of every head, and rank the heads.

    attnviz metrics "Orange is my favorite fruit" --by previous

    attnviz metrics --probe repeat --by induction,duplicate,previous

    attnviz metrics - --by all -o heads.csv < sentences.txt
    """
    names = list(dict.fromkeys(MEASURES if by.by == ALL else (measure(one.strip()).name for one in by.by.split(","))))
    look = how.look
    outputs = parse_outputs(
        where.output or [], where.format, [*files_of(what), *how.files], places=(), formats=RESULT_FORMATS
    )
    source = open_source(what, which.stack)
    numbers = any(output.holds_numbers for output in outputs)
    measures = MEASURES if numbers else names
    collector = MeasureCollector(measures, every_row=by.every_row)
    selection = Selection.parse(which.layer, which.head, source.layers, source.heads)
    whole = source.n_subjects == 1 and which.layer is None and which.head is None
    rollout = RolloutCollector(ROLLED_TOKENS if whole and numbers else 0)
    measured = _measure(source, selection, [collector, rollout])
    if by.every_row and "divergence" in measures:
        measured = replace(measured, provenance={**measured.provenance, "every_row": True})
    tables = collector.result()
    notes = list(dict.fromkeys([*measured.notes, *(line for table in tables for line in table.notes())]))
    result = _result(tables, names, by, replace(measured, rollout=rollout.result(), notes=tuple(notes)))
    for line in notes:
        note(line)
    write_result(result, outputs, look, how.color_scale)


@dataclass(frozen=True)
class _Measured:
    """What was measured."""

    provenance: Provenance
    caption: str
    notes: tuple[str, ...]
    rollout: Floats | None = None


def _measure(source: Source, selection: Selection, collectors: Sequence[Collector[Any]]) -> _Measured:
    """Measure every text, together."""
    layers = selection.layers_or(source.layers)
    notes: dict[str, None] = {}
    n_tokens = 0
    provenance: Provenance = {}
    for subject in source.subjects():
        with Progress() as bar:
            collect(map(selection.heads_of, subject.maps(layers)), [*collectors, bar])
        notes |= dict.fromkeys(subject.prepared.notes)
        provenance, n_tokens = subject.provenance, n_tokens + len(subject.prepared.tokens)
    provenance = source.together(provenance)
    return _Measured(provenance, caption_of(provenance, n_tokens), tuple(notes))


def _result(tables: Sequence[HeadTable], names: Sequence[str], by: MeasureOptions, measured: _Measured) -> Result:
    ranking = [one for table in tables for one in rank(table, names[0], ascending=by.ascending)][: by.top]
    return Result(
        board=measures_board(tables, names, measured.caption, by.top, ascending=by.ascending),
        description=describe(measured.provenance),
        fields=measures_fields(
            tables,
            ranking,
            names[0],
            measured.provenance,
            measured.notes,
            ascending=by.ascending,
            rollout=measured.rollout,
        ),
        table=measures_table(tables),
    )
