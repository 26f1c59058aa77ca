"""`attnviz compare`: did the attention change, and where; the exit code says whether by more than is tolerated."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated

import typer

from attnviz._version import __version__
from attnviz.boards.differences import comparison_board
from attnviz.cli.command import Command
from attnviz.cli.grouped import grouped
from attnviz.cli.inputs import STDIN, read_texts
from attnviz.cli.messages import note
from attnviz.cli.options import Backend, Dtype, HeadOptions, InputOptions, LookOptions, OutputOptions
from attnviz.cli.outputs import parse_outputs
from attnviz.cli.results import Result, write_result
from attnviz.cli.sources import Source, Subject, files_of, open_source
from attnviz.collect import RecordCollector, collect
from attnviz.compare import By, Comparison, HeadChange, check_tolerance, compare, comparison_fields
from attnviz.errors import RequestError
from attnviz.faults import RowFaults
from attnviz.maps import AttentionMap, AttentionRecord, Provenance
from attnviz.memory import check_room
from attnviz.render.panels import caption_of, describe
from attnviz.schema import Fields, Table
from attnviz.select import Selection
from attnviz.sources.saved import is_saved
from attnviz.tokens import visible

SCHEMA = "attnviz-compare/1"
FORMATS = ("txt", "png", "svg", "pdf", "json", "jsonl", "csv")
EXCEEDED = 1
"""The exit code where a head changed by more than the tolerance."""


@dataclass(frozen=True)
class SidesOptions(InputOptions):
    """A, and what both sides share."""

    text: Annotated[
        str | None, typer.Argument(metavar="A", show_default=False, help="A text, or a file of saved attention.")
    ] = None


@dataclass(frozen=True)
class OtherOptions:
    """B, where it is another text or file, and where it differs from A in how it is run."""

    other: Annotated[
        str | None,
        typer.Argument(metavar="B", show_default=False, help="Another one; the same text unless given."),
    ] = None
    model_b: Annotated[str | None, typer.Option(show_default=False, help="The model of B.")] = None
    seed_b: Annotated[int | None, typer.Option(min=0, show_default=False, help="The seed of B.")] = None
    backend_b: Annotated[Backend | None, typer.Option(show_default=False, help="The backend of B.")] = None
    device_b: Annotated[str | None, typer.Option(show_default=False, help="The device of B.")] = None
    dtype_b: Annotated[Dtype | None, typer.Option(show_default=False, help="The numbers of B.")] = None
    single: Annotated[
        bool, typer.Option("--single", help="A is the one full-width head, compared with every head of B.")
    ] = False


@dataclass(frozen=True)
class ChangeOptions:
    """What counts as a change, and which are shown."""

    tolerance: Annotated[
        float | None,
        typer.Option(show_default=False, help="Exit with 1 if a weight of some head changed by more than this."),
    ] = None
    by: Annotated[By, typer.Option(help="What is most changed: the largest or mean difference, or divergence.")] = (
        "largest"
    )
    top: Annotated[int, typer.Option(min=1, help="How many changed heads to draw.")] = 4


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(name="compare", cls=Command)
@grouped
def compare_command(
    what: SidesOptions,
    other: OtherOptions,
    which: HeadOptions,
    change: ChangeOptions,
    where: OutputOptions,
    how: LookOptions,
) -> None:
    """Compare two attentions head by head, the most changed heads first.

    attnviz compare before.npz after.npz --tolerance 1e-3

    attnviz compare "Orange is my favorite fruit" "Orange is my favorite color"

    attnviz compare "Orange is my favorite fruit" --backend-b torch --dtype-b float16
    """
    if change.tolerance is not None:
        check_tolerance(change.tolerance)
    look = how.look
    sides = _sides(what, other)
    read = [*(path for side in (what, *sides) for path in files_of(side)), *how.files]
    outputs = parse_outputs(where.output or [], where.format, read, places=(), formats=FORMATS)
    first, second = (_record(sides[0], which, single=other.single), _record(sides[1], which, single=False))
    comparison = compare(first, second)
    comparison = replace(comparison, changes=comparison.ranked(change.by))
    exceeding = () if change.tolerance is None else comparison.exceeds(change.tolerance)
    notes = [*_notes_of_sides(first.notes, second.notes), *comparison.notes]
    for line in notes:
        note(line)
    result = _result(comparison, (first, second), change, exceeding, notes)
    write_result(result, outputs, look, how.color_scale)
    if exceeding:
        raise typer.Exit(EXCEEDED)


def _sides(what: InputOptions, other: OtherOptions) -> tuple[InputOptions, InputOptions]:
    """What A and B are run with.

    Raises:
        RequestError: there is no B, or two As, or what is said changes neither.
    """
    own = {name: value for name in _OWN if (value := getattr(other, f"{name}_b")) is not None}
    if what.attention is not None:
        raise RequestError("compare takes files of saved attention as A and B: leave out --attention")
    if what.text is not None and what.file is not None:
        raise RequestError("A is given twice, as an argument and with -f: give one")
    if other.other is None and not own and not other.single:
        raise RequestError(
            "there is no B to compare with: give a second text or file, or what is different: --model-b, --backend-b,"
            " --dtype-b, --seed-b or --single"
        )
    if what.text == other.other == STDIN:
        raise RequestError("A and B are both -: standard input is one of them")
    first = _taken(what)
    second = first if other.other is None else _taken(replace(what, text=other.other))
    saved = [side.attention for side in (first, second) if side.attention is not None]
    if second.attention is not None and own:
        raise RequestError(f"{second.attention} is saved attention: --{next(iter(own))}-b changes nothing in it")
    if len(saved) == 2:
        _refuse_useless(what)
    elif saved:
        first, second = _of_its_kind(first), _of_its_kind(second)
    return first, replace(second, **own)


_OWN = ("model", "seed", "backend", "device", "dtype")
_OF_FILES = {"attention", "tokens", "key_tokens", "batch"}


def _taken(what: InputOptions) -> InputOptions:
    """One side: the file that its text names, or the text as it is read; only once, as both sides may be of it.

    Raises:
        RequestError: there are several texts.
    """
    if what.text is not None and is_saved(what.text):
        return replace(what, text=None, attention=what.text)
    if what.text != STDIN and what.file is None:
        return what
    texts = read_texts(what.text, what.file)
    if len(texts) > 1:
        raise RequestError(f"{len(texts)} texts on one side: compare takes one")
    return replace(what, text=texts[0], file=None)


def _of_its_kind(side: InputOptions) -> InputOptions:
    """What concerns this side, where one is a file of saved attention and the other runs a model."""
    if side.attention is None:
        return replace(side, **dict.fromkeys(_OF_FILES))  # type: ignore[arg-type]
    return InputOptions(**{name: getattr(side, name) for name in _OF_FILES})


def _refuse_useless(what: InputOptions) -> None:
    """Nothing that is said is ignored: two files of saved attention take no options of models."""
    for field in fields(what):
        if field.name not in _OF_FILES | {"text"} and getattr(what, field.name) != field.default:
            name = field.name.replace("_", "-")
            raise RequestError(f"--{name} has no use: A and B are both saved attention, and no model is run")


def _record(options: InputOptions, which: HeadOptions, *, single: bool) -> AttentionRecord:
    """The attention of one side."""
    source = open_source(options, which.stack)
    selection = Selection.parse(which.layer, which.head, source.layers, source.heads)
    if source.n_subjects > 1:
        raise RequestError(f"the text is {source.n_subjects} windows: compare takes one; leave out --stride")
    (subject,) = source.subjects()
    _check_room(source, selection, subject)
    collector, faults = RecordCollector(), RowFaults()
    maps = subject.maps(selection.layers_or(source.layers), single=single)
    collect(map(_only_single if single else selection.heads_of, maps), [collector, faults])
    provenance = {**subject.provenance, **({"single": True} if single else {})}
    return collector.result(provenance, (*subject.prepared.notes, *faults.notes()))


def _check_room(source: Source, selection: Selection, subject: Subject) -> None:
    """See that two such records fit into memory, before anything is run.

    Raises:
        RequestError: they do not.
    """
    n_maps = len(selection.layers_or(source.layers)) * selection.count_heads(len(source.heads))
    n_weights = n_maps * len(subject.prepared.tokens) * len(subject.prepared.key_tokens)
    instead = "choose layers with --layer or heads with --head, or compare shorter texts"
    check_room(10 * n_weights, "keeping every weight of both", instead)


def _notes_of_sides(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """What is to be known of both, and what of one only, said which."""
    lines = dict.fromkeys([*first, *second])
    return [line if line in first and line in second else f"{'A' if line in first else 'B'}: {line}" for line in lines]


def _only_single(one: AttentionMap) -> AttentionMap:
    return one.pick(heads=[one.heads.index("single")])


def _result(
    comparison: Comparison,
    records: tuple[AttentionRecord, AttentionRecord],
    change: ChangeOptions,
    exceeding: Sequence[HeadChange],
    notes: Sequence[str],
) -> Result:
    provenance: Provenance = {
        "attnviz": __version__,
        **{name: dict(one.provenance) for name, one in zip("ab", records, strict=True)},
    }
    lines = [
        *(f"{name}: {_told(one)}" for name, one in zip("AB", records, strict=True)),
        _headline(comparison.changes[0], records),
        *([] if change.tolerance is None else [_verdict(exceeding, comparison, change.tolerance)]),
    ]
    return Result(
        board=comparison_board(comparison, change.by, change.top, "A against B", lines),
        description=f"A: {describe(records[0].provenance)} · B: {describe(records[1].provenance)}",
        fields=Fields(
            {
                "schema": SCHEMA,
                "provenance": provenance,
                "notes": list(notes),
                "by": change.by,
                **comparison_fields(comparison, change.tolerance),
            },
            {},
        ),
        table=_table(comparison),
    )


def _told(record: AttentionRecord) -> str:
    return caption_of(record.provenance, len(record.maps[0].query))


def _headline(change: HeadChange, records: tuple[AttentionRecord, AttentionRecord]) -> str:
    """Where the most changed head changed most."""
    if change.largest == 0 and not change.unlike:
        return "nothing changed"
    (one,) = [one for one in records[1].maps if (one.stack, one.kind, one.layer) == change.place]
    query, key = one.query.text[change.query[1]], one.key.text[change.key[1]]
    before, after = change.weights
    where = f"head {change.place[2]}.{change.head}, query {visible(query)}, key {visible(key)}"
    return f"most changed: {where}: {_number(before)} in A, {_number(after)} in B"


def _number(weight: float) -> str:
    return "no number" if math.isnan(weight) else f"{weight:.3g}"


def _verdict(exceeding: Sequence[HeadChange], comparison: Comparison, tolerance: float) -> str:
    n_heads = len(comparison.changes)
    if not exceeding:
        return f"none of {n_heads} heads changed by more than {tolerance:g}"
    return f"{len(exceeding)} of {n_heads} heads changed by more than {tolerance:g}"


def _table(comparison: Comparison) -> Table:
    left_out = {"row_divergence"}
    rows = [
        {name: value for name, value in head.items() if name not in left_out}
        for head in comparison_fields(comparison)["heads"]
    ]
    return Table(tuple(rows[0]), [list(row.values()) for row in rows])
