"""`attnviz cross`: cross-attention, where one text attends to another."""

import typer

from attnviz.cli.command import Command
from attnviz.cli.grouped import grouped
from attnviz.cli.options import CrossOptions, HeadOptions, LookOptions, OutputOptions, ViewOptions
from attnviz.cli.outputs import parse_outputs
from attnviz.cli.showing import show_heads
from attnviz.cli.sources import mask_files, open_cross

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command, no_args_is_help=True)
@grouped
def cross(what: CrossOptions, which: HeadOptions, view: ViewOptions, where: OutputOptions, how: LookOptions) -> None:
    """Show cross-attention: rows of the target, columns of the source.

    attnviz cross "the cat sat" "o gato sentou"
    """
    outputs = parse_outputs(where.output or [], where.format, [*mask_files(what), *how.files])
    show_heads(open_cross(what, which.stack), outputs, which, view, how)
