"""`attnviz positions`: the positional encoding, as numbers or picture."""

import typer

from attnviz._version import __version__
from attnviz.boards.encoding import TEXT_TILES, encoding_board
from attnviz.cli.command import Command
from attnviz.cli.grouped import grouped
from attnviz.cli.options import EncodingOptions, LookOptions, OutputOptions
from attnviz.cli.outputs import parse_outputs
from attnviz.cli.results import Result, write_result
from attnviz.positions import PositionTable, position_table
from attnviz.render import RESULT_FORMATS
from attnviz.schema import Fields, Table

SCHEMA = "attnviz-positions/1"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
@grouped
def positions(what: EncodingOptions, where: OutputOptions, how: LookOptions) -> None:
    """Show the sinusoidal encoding of positions.

    attnviz positions --d-model 8 --length 6

    attnviz positions --d-model 128 --length 200 -o positions.png
    """
    look = how.look
    outputs = parse_outputs(where.output or [], where.format, how.files, places=(), formats=RESULT_FORMATS)
    result = _result(position_table(what.d_model, what.length, what.at), what.length)
    write_result(result, outputs, look, how.color_scale)


def _result(table: PositionTable, length: int) -> Result:
    made = {"attnviz": __version__, "encoding": "sinusoidal", "d_model": table.d_model, "length": length}
    plain = {
        "schema": SCHEMA,
        "provenance": made,
        "notes": [],
        "positions": list(table.positions),
        "columns": list(table.columns),
        "wavelengths": list(table.wavelengths),
    }
    rows = [[place, *row] for place, row in zip(table.positions, table.values.tolist(), strict=True)]
    return Result(
        board=encoding_board(table),
        text_board=encoding_board(table, TEXT_TILES),
        description=f"attnviz {__version__} · sinusoidal positions, d_model {table.d_model}",
        fields=Fields(plain, {"encodings": table.values}),
        table=Table(("position", *table.columns), rows),
    )
