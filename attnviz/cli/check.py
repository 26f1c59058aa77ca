"""`attnviz check`: what is wrong with this attention; the exit code says whether anything is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from attnviz.check import KINDS, AttentionCheck, Fault, fault_fields
from attnviz.cli.command import Command
from attnviz.cli.grouped import grouped
from attnviz.cli.messages import note
from attnviz.cli.options import HeadOptions, InputOptions, OutputOptions, ProseOptions
from attnviz.cli.outputs import parse_outputs
from attnviz.cli.progress import Progress
from attnviz.cli.results import Result, write_result
from attnviz.cli.sources import files_of, open_source, takes_rules
from attnviz.collect import collect
from attnviz.errors import RequestError
from attnviz.maps import Provenance
from attnviz.near import meant
from attnviz.render.panels import Board, Group, caption_of, describe
from attnviz.render.ranges import Range
from attnviz.schema import Fields, Table
from attnviz.select import Selection

SCHEMA = "attnviz-check/1"
FORMATS = ("txt", "json", "jsonl", "csv")
FAULTY = 1
"""The exit code where something is wrong."""


@dataclass(frozen=True)
class CheckOptions:
    """What is no fault."""

    ignore: Annotated[
        str, typer.Option(show_default=False, help=f"Faults to leave out, with commas: {', '.join(KINDS)}.")
    ] = ""


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
@grouped
def check(what: InputOptions, which: HeadOptions, how: CheckOptions, where: OutputOptions, look: ProseOptions) -> None:
    """Report what is wrong with attention; exit with 1 if anything is.

    attnviz check "Orange is my favorite fruit" --ignore saturated

    attnviz check --attention run.npz --causal -o faults.json
    """
    ignored = _kinds(how.ignore)
    outputs = parse_outputs(where.output or [], where.format, files_of(what), places=(), formats=FORMATS)
    # attention that was saved or captured is expected to be causal; to our own models it is said
    source = open_source(what if takes_rules(what) else replace(what, causal=False), which.stack)
    selection = Selection.parse(which.layer, which.head, source.layers, source.heads)
    layers = selection.layers_or(source.layers)
    faults: list[tuple[int, Fault]] = []
    notes: dict[str, None] = {}
    provenance: Provenance = {}
    n_tokens = 0
    for subject in source.subjects():
        checker = AttentionCheck(causal=what.causal)
        with Progress() as bar:
            collect(map(selection.heads_of, subject.maps(layers)), [checker, bar])
        faults += [(subject.number, fault) for fault in checker.faults() if fault.kind not in ignored]
        notes |= dict.fromkeys([*subject.prepared.notes, *checker.notes()])
        provenance, n_tokens = subject.provenance, n_tokens + len(subject.prepared.tokens)
    for line in notes:
        note(line)
    provenance = source.together(provenance)
    expected = {"causal": what.causal, "ignored": [kind for kind in KINDS if kind in ignored]}
    result = _result(faults, provenance, caption_of(provenance, n_tokens), {"notes": list(notes), **expected})
    write_result(result, outputs, look.look)
    if faults:
        raise typer.Exit(FAULTY)


def _kinds(typed: str) -> frozenset[str]:
    names = [name.strip() for name in typed.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            raise RequestError(f"--ignore {name}: there is {', '.join(KINDS)}{meant(name, KINDS)}")
    return frozenset(names)


def _result(
    faults: Sequence[tuple[int, Fault]], provenance: Provenance, caption: str, said: Mapping[str, object]
) -> Result:
    n_texts = provenance.get("n_texts", 1)
    lines = [f"text {number}: {fault.text}" if n_texts != 1 else fault.text for number, fault in faults]
    group = Group(_counted(len(faults)), (), tuple(lines))
    listed = [{"text_number": number, **fault_fields(fault)} for number, fault in faults]
    return Result(
        board=Board(caption, (group,), Range(0.0, 1.0)),
        description=describe(provenance),
        fields=Fields(
            {"schema": SCHEMA, "provenance": dict(provenance), **said, "n_texts": n_texts, "faults": listed}, {}
        ),
        table=Table(
            ("text_number", "kind", "stack", "attention", "layer", "head", "row", "count", "text"),
            [list(row.values()) for row in listed],
        ),
    )


def _counted(n: int) -> str:
    if n == 0:
        return "no fault found"
    return "1 fault" if n == 1 else f"{n} faults"
