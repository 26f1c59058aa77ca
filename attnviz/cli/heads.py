"""`attnviz heads`: the attention heads of a model on a text, side by side."""

import typer

from attnviz.cli.command import Command
from attnviz.cli.grouped import grouped
from attnviz.cli.options import HeadOptions, InputOptions, LookOptions, OutputOptions, ViewOptions
from attnviz.cli.outputs import parse_outputs
from attnviz.cli.showing import show_heads
from attnviz.cli.sources import files_of, open_source

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
@grouped
def heads(what: InputOptions, which: HeadOptions, view: ViewOptions, where: OutputOptions, how: LookOptions) -> None:
    """Show the attention heads of a model on a text, side by side.

    attnviz heads "Orange is my favorite fruit"

    attnviz heads "Orange is my favorite fruit" --layer all -o heads.png -o heads.json

    attnviz heads - < sentences.txt
    """
    outputs = parse_outputs(where.output or [], where.format, [*files_of(what), *how.files])
    show_heads(open_source(what, which.stack), outputs, which, view, how)
