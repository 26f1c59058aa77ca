"""Heads of attention put into whatever outputs were asked for, text by text."""

from functools import partial

from attnviz.cli.console import terminal_style
from attnviz.cli.messages import note
from attnviz.cli.options import HeadOptions, LookOptions, ViewOptions
from attnviz.cli.outputs import Output, refuse_several
from attnviz.cli.progress import Progress
from attnviz.cli.request import Request
from attnviz.cli.sinks import Sinks
from attnviz.cli.sources import Source, Subject
from attnviz.cli.takers import BoardTaker, NumbersTaker, Story, Taker, TilesTaker
from attnviz.collect import HeatmapCollector, RecordCollector, collect
from attnviz.errors import RequestError
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
    refuse_several(source.n_subjects, outputs, "windows" if source.windows else "sentences")
    _check_pooling(view, outputs)
    selection = Selection.parse(which.layer, which.head, source.layers, source.heads)
    request = Request(source, selection, view, how.look, how.color_scale, which.layer)
    with Sinks(outputs) as sinks:
        for subject in source.subjects():
            _run(request, subject, outputs, sinks)


def _check_pooling(view: ViewOptions, outputs: list[Output]) -> None:
    """See that tiles can be put into every output.

    Raises:
        RequestError: one of them holds every weight and nothing else, or there are no tiles.
    """
    for output in outputs:
        if view.tiles is not None and output.format is not None and output.format.name == "html":
            raise RequestError("html holds every weight: leave out --tiles, or name a picture or file of numbers")
    if view.pool is not None and view.tiles is None and all(output.holds_numbers for output in outputs):
        raise RequestError(f"--pool {view.pool} is for tiles, and files of numbers hold every weight: add --tiles N")


def _run(request: Request, subject: Subject, outputs: list[Output], sinks: Sinks) -> None:
    view, prepared = request.view, subject.prepared
    request.check_query(prepared)  # a word that is not there is told before the model runs
    _check_room(request, subject, outputs)
    record = RecordCollector(request.every_layer)
    takers = [_taker(request, output, subject, record) for output in outputs]
    hidden, faults = HeatmapCollector(1, 1), RowFaults()
    cuts = view.hide_special or request.stretch is not None
    collectors = [*dict.fromkeys(taker.collector for taker in takers), *([hidden] if cuts else [])]
    collectors += [] if view.reduce == "max" else [faults]  # the rows of a maximum sum to more than 1
    layers = request.run(layer for output in outputs for layer in request.layers(output))
    numbers = any(isinstance(taker, NumbersTaker) for taker in takers)
    unasked = request.source.gives_output and not request.picks_rows  # the output of some rows needs all others made
    with_output = numbers and (view.with_output or unasked)
    maps = map(request.selection.heads_of, subject.maps(layers, single=view.single, output=with_output))
    crosses = prepared.tokens is not prepared.key_tokens
    with Progress() as bar:
        collect(request.shaped(maps, crosses=crosses), [*collectors, bar])
    notes = [*prepared.notes, *faults.notes()]
    if request.stretch is not None and any(one.map.cut for one in hidden.result()):
        notes.append(_stretch_note(hidden.result(), summed=view.reduce != "max"))
    elif view.hide_special:
        notes.append(_hidden_note(prepared.key_tokens, hidden.result()))
    if view.reduce == "rollout" and crosses:
        notes.append("rollout is of self-attention: cross-attention is left out")
    for line in notes:
        note(line)
    provenance = {**subject.provenance, **request.provenance, **request.placed(prepared)}
    story = Story(provenance, tuple(notes), subject.n_tokens, subject.number)
    for line in dict.fromkeys(line for taker in takers for line in taker.write(story, sinks)):
        note(line)


_BYTES = {"csv": 5, "safetensors": 16, "html": 32}
_BYTES_OF_OTHERS = 9
"""A weight takes so many bytes until it is written: records are put together from maps, and pages from records."""


def _check_room(request: Request, subject: Subject, outputs: list[Output]) -> None:
    """See that what all outputs keep fits into memory, before anything is run.

    Raises:
        RequestError: it does not.
    """
    n_queries, n_keys = request.count(subject.prepared)
    most = request.view.tiles
    every = tiles = 0
    for output in outputs:
        n_maps = len(request.layers(output)) * request.n_heads()
        if output.format is not None and output.holds_numbers and most is None:  # of one record, one after the other
            each = _BYTES.get(output.format.name, _BYTES_OF_OTHERS)
            every = max(every, each * n_maps * n_queries * n_keys)
        elif most is not None and not _is_text(output):
            n_rows = n_queries if request.view.query is not None else min(n_queries, most)
            tiles += 32 * n_maps * n_rows * min(n_keys, most)
    check_room(every, "keeping every weight")
    check_room(tiles, "keeping the tiles", "choose fewer with --tiles")


def _taker(request: Request, output: Output, subject: Subject, record: RecordCollector) -> Taker:
    layers, most = request.layers(output), request.view.tiles
    if output.format is not None and output.holds_numbers:
        if most is None:
            return NumbersTaker(output, output.format, record, request.page_bits)
        whole, _ = request.count(subject.prepared)
        n_rows = most if request.view.query is None else max(1, whole)  # rows that are asked for are not pooled
        return TilesTaker(output, output.format, HeatmapCollector(n_rows, most, layers, pool=request.pool))
    collector = HeatmapCollector(*_limits(request, output), layers, request.source.pictured, request.pool)
    return BoardTaker(output, collector, partial(request.board, as_text=_is_text(output)), request.look)


def _is_text(output: Output) -> bool:
    return output.format is None or output.format.holds == "text"


def _limits(request: Request, output: Output) -> tuple[int, int]:
    """The most rows and columns of tiles: as many as are asked for, and in text as have room."""
    tiles = request.view.tiles or PICTURE_TILES
    if request.view.query is not None:
        return PICTURE_TILES, tiles  # the rows of a query are written out, and wrap
    if not _is_text(output):
        return tiles, tiles
    rows, columns = tile_limits(terminal_style(request.look, output.format), request.n_heads(), request.overview)
    return min(rows, tiles), min(columns, tiles)


def _stretch_note(heatmaps: tuple[Heatmap, ...], *, summed: bool) -> str:
    """Which keys are shown of how many, and what they take where their weights are a sum."""
    cut = [one for one in heatmaps if one.map.cut]
    key = cut[0].map.key
    which = f"only the keys from {key.position(0)} to {key.position(len(key) - 1)} are shown"
    masses = [mass for one in cut for mass in one.shown_mass.tolist()]
    if not summed or not masses:
        return which
    return (
        f"{which}: they take {100 * sum(masses) / len(masses):.2g}% of the weight, {100 * min(masses):.2g}% to"
        f" {100 * max(masses):.2g}% by head"
    )


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
