"""`attnviz models`: what can be run here."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.cells import cell_len

from attnviz.cli.command import Command
from attnviz.sources.inventory import EXTRAS, RunnableBackend, RunnableModel, backends_here, installed, models_here
from attnviz.tokens import visible

ListFormat = StrEnum("ListFormat", ["terminal", "json"])
_TERMINAL = ListFormat("terminal")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def models(
    format_: Annotated[ListFormat, typer.Option("--format", help="A list to read, or json.")] = _TERMINAL,
) -> None:
    """List what can be run here: models, backends, devices and extras."""
    runnable, backends = models_here(), backends_here()
    extras = {extra: {package: installed(package) for package in packages} for extra, packages in EXTRAS.items()}
    if format_ == _TERMINAL:
        lines = [*_model_lines(runnable), "", *_backend_lines(backends), "", *_extra_lines(extras)]
        text = "\n".join(visible(line) if line else "" for line in lines)
    else:
        text = json.dumps(
            {"models": list(map(asdict, runnable)), "backends": list(map(asdict, backends)), "extras": extras}, indent=1
        )
    encoding = sys.stdout.encoding or "ascii"
    typer.echo(text.encode(encoding, "backslashreplace").decode(encoding))


def _model_lines(runnable: Sequence[RunnableModel]) -> list[str]:
    rows = [
        [f"--model {one.name}", f"{_count(one.n_layers, 'layer')} of {_count(one.n_heads, 'head')}", one.origin]
        for one in runnable
    ]
    return _table([*rows, ["--model FOLDER", "", "a BERT checkpoint: config.json, model.safetensors, a tokenizer"]])


def _backend_lines(backends: Sequence[RunnableBackend]) -> list[str]:
    rows = []
    for one in backends:
        there = [f"--device {', '.join(one.devices)}", f"--dtype {', '.join(one.dtypes)}"]
        rows.append([f"--backend {one.name}", *(there if one.version else ["not installed"])])
    return _table(rows)


def _extra_lines(extras: dict[str, dict[str, str | None]]) -> list[str]:
    rows = []
    for extra, packages in extras.items():
        held = ", ".join(f"{package} {version}" for package, version in packages.items() if version)
        missing = [package for package, version in packages.items() if version is None]
        hint = f"missing {', '.join(missing)}: pip install 'attnviz[{extra}]'" if missing else ""
        rows.append([f"extra {extra}", held, hint])
    return _table(rows)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, in columns."""
    columns = [max(map(cell_len, column)) for column in zip(*(row[:-1] for row in rows), strict=False)]
    lines = []
    for row in rows:
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, columns, strict=False)]
        lines.append("  ".join([*padded, *row[len(padded) :]]).rstrip())
    return lines
