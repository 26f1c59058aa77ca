"""`attnviz heads`: the attention heads of a model on a text, side by side."""

import typer

from attnviz.cli.console import terminal_style
from attnviz.cli.grouped import grouped
from attnviz.cli.messages import note
from attnviz.cli.options import HeadOptions, InputOptions, LookOptions, OutputOptions, ViewOptions
from attnviz.cli.outputs import Output, parse_outputs, refuse_several
from attnviz.cli.progress import watched
from attnviz.cli.request import Request
from attnviz.cli.sinks import Sinks
from attnviz.cli.sources import Subject, files_of, open_source
from attnviz.cli.takers import BoardTaker, NumbersTaker, Story, Taker
from attnviz.collect import HeatmapCollector, RecordCollector, collect
from attnviz.faults import RowFaults
from attnviz.heatmap import Heatmap
from attnviz.lazy import function
from attnviz.memory import check_room
from attnviz.render import PICTURE_TILES
from attnviz.render.terminal import tile_limits
from attnviz.select import Selection
from attnviz.tokens import Tokens

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@grouped
def heads(what: InputOptions, which: HeadOptions, view: ViewOptions, where: OutputOptions, how: LookOptions) -> None:
    """Show the attention heads of a model on a text, side by side.

    attnviz heads "Orange is my favorite fruit"

    attnviz heads "Orange is my favorite fruit" --layer all -o heads.png -o heads.json

    attnviz heads - < sentences.txt
    """
    outputs = parse_outputs(where.output or [], where.format, [*files_of(what), *([how.font] if how.font else [])])
    if how.font is not None:
        function("attnviz.render.lettering:check_font")(how.font)
    source = open_source(what)
    refuse_several(len(source.texts), outputs)
    selection = Selection.parse(which.layer, which.head, source.layers, source.heads)
    request = Request(source, selection, view, how.look, how.color_scale, which.layer)
    with Sinks(outputs) as sinks:
        for subject in source.subjects():
            _run(request, subject, outputs, sinks)


def _run(request: Request, subject: Subject, outputs: list[Output], sinks: Sinks) -> None:
    view, prepared = request.view, subject.prepared
    if view.query is not None:
        request.tokens(prepared.tokens).find(view.query)  # a word that is not there is told before the model runs
    takers = [_taker(request, output, subject) for output in outputs]
    hidden, faults = HeatmapCollector(1, 1), RowFaults()
    collectors = [taker.collector for taker in takers] + ([hidden] if view.hide_special else [])
    collectors += [] if view.reduce == "max" else [faults]  # the rows of a maximum sum to more than 1
    layers = request.run(layer for output in outputs for layer in request.layers(output))
    numbers = any(output.holds_numbers for output in outputs)
    with_output = numbers and (view.with_output or request.source.gives_output)
    maps = subject.maps(layers, single=view.single, output=with_output)
    collect(request.shaped(watched(maps)), collectors)
    notes = [*prepared.notes, *faults.notes()]
    if view.hide_special:
        notes.append(_hidden_note(prepared.key_tokens, hidden.result()))
    for line in notes:
        note(line)
    provenance = {**subject.provenance, **request.provenance}
    story = Story(provenance, tuple(notes), len(prepared.tokens), subject.number)
    for line in dict.fromkeys(line for taker in takers for line in taker.write(story, sinks)):
        note(line)


def _taker(request: Request, output: Output, subject: Subject) -> Taker:
    layers, n_heads, query = request.layers(output), request.n_heads(), request.view.query
    if output.format is not None and output.holds_numbers:
        queries, keys = request.tokens(subject.prepared.tokens), request.tokens(subject.prepared.key_tokens)
        n_queries = len(queries) if query is None else len(queries.find(query))
        check_room(4 * len(layers) * n_heads * n_queries * len(keys), "keeping every weight")
        return NumbersTaker(output, output.format, RecordCollector(layers))
    limits = PICTURE_TILES, PICTURE_TILES
    is_text = output.format is None or output.format.holds == "text"
    if is_text and query is None:  # the rows of a query are written out, and wrap
        limits = tile_limits(terminal_style(request.look, output.format), n_heads, request.overview)
    return BoardTaker(output, HeatmapCollector(*limits, layers), request.board, request.look)


def _hidden_note(tokens: Tokens, heatmaps: tuple[Heatmap, ...]) -> str:
    """What the special tokens took, that are hidden."""
    special = [piece for piece, added in zip(tokens.pieces, tokens.special, strict=True) if added]
    if not special:
        return "there are no special tokens to hide"
    masses = [1 - mass for one in heatmaps for mass in one.shown_mass.tolist()]
    return (
        f"{', '.join(dict.fromkeys(special))} are hidden: they take {sum(masses) / len(masses):.0%} of the weight,"
        f" {min(masses):.0%} to {max(masses):.0%} by head"
    )
