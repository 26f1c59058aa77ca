"""Heads of attention put into whatever outputs were asked for, text by text."""

from attnviz.cli.console import terminal_style
from attnviz.cli.messages import note
from attnviz.cli.options import HeadOptions, LookOptions, ViewOptions
from attnviz.cli.outputs import Output, refuse_several
from attnviz.cli.progress import Progress
from attnviz.cli.request import Request
from attnviz.cli.sinks import Sinks
from attnviz.cli.sources import Source, Subject
from attnviz.cli.takers import BoardTaker, NumbersTaker, Story, Taker
from attnviz.collect import HeatmapCollector, RecordCollector, collect
from attnviz.faults import RowFaults
from attnviz.heatmap import Heatmap
from attnviz.memory import check_room
from attnviz.render import PICTURE_TILES
from attnviz.render.terminal import tile_limits
from attnviz.select import Selection
from attnviz.tokens import Tokens


def show_heads(source: Source, outputs: list[Output], which: HeadOptions, view: ViewOptions, how: LookOptions) -> None:
    """Run each text and write what was asked for of its attention.

    Raises:
        RequestError: a layer, head or token is not there, or one output cannot hold several texts.
        AttnvizError: an output cannot be written.
    """
    refuse_several(len(source.texts), outputs)
    selection = Selection.parse(which.layer, which.head, source.layers, source.heads)
    request = Request(source, selection, view, how.look, how.color_scale, which.layer)
    with Sinks(outputs) as sinks:
        for subject in source.subjects():
            _run(request, subject, outputs, sinks)


def _run(request: Request, subject: Subject, outputs: list[Output], sinks: Sinks) -> None:
    view, prepared = request.view, subject.prepared
    request.check_query(prepared)  # a word that is not there is told before the model runs
    takers = [_taker(request, output, subject) for output in outputs]
    hidden, faults = HeatmapCollector(1, 1), RowFaults()
    collectors = [taker.collector for taker in takers] + ([hidden] if view.hide_special else [])
    collectors += [] if view.reduce == "max" else [faults]  # the rows of a maximum sum to more than 1
    layers = request.run(layer for output in outputs for layer in request.layers(output))
    numbers = any(output.holds_numbers for output in outputs)
    with_output = numbers and (view.with_output or request.source.gives_output)
    maps = subject.maps(layers, single=view.single, output=with_output)
    crosses = prepared.tokens is not prepared.key_tokens
    with Progress() as bar:
        collect(request.shaped(maps, crosses=crosses), [*collectors, bar])
    notes = [*prepared.notes, *faults.notes()]
    if view.hide_special:
        notes.append(_hidden_note(prepared.key_tokens, hidden.result()))
    if view.reduce == "rollout" and crosses:
        notes.append("rollout is of self-attention: cross-attention is left out")
    for line in notes:
        note(line)
    provenance = {**subject.provenance, **request.provenance}
    story = Story(provenance, tuple(notes), subject.n_tokens, subject.number)
    for line in dict.fromkeys(line for taker in takers for line in taker.write(story, sinks)):
        note(line)


def _taker(request: Request, output: Output, subject: Subject) -> Taker:
    layers, n_heads, query = request.layers(output), request.n_heads(), request.view.query
    if output.format is not None and output.holds_numbers:
        queries, keys = request.tokens(subject.prepared.tokens), request.tokens(subject.prepared.key_tokens)
        n_queries = len(queries) if query is None else request.count_queries(queries)
        check_room(4 * len(layers) * n_heads * n_queries * len(keys), "keeping every weight")
        return NumbersTaker(output, output.format, RecordCollector(layers), request.page_bits)
    limits = PICTURE_TILES, PICTURE_TILES
    is_text = output.format is None or output.format.holds == "text"
    if is_text and query is None:  # the rows of a query are written out, and wrap
        limits = tile_limits(terminal_style(request.look, output.format), n_heads, request.overview)
    return BoardTaker(output, HeatmapCollector(*limits, layers, request.source.pictured), request.board, request.look)


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
