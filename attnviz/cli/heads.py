"""`attnviz heads`: the attention heads of a model on a text, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from attnviz.cli import options as opt
from attnviz.cli.console import terminal_style
from attnviz.cli.inputs import read_texts
from attnviz.cli.messages import note
from attnviz.cli.outputs import Output, parse_outputs
from attnviz.cli.progress import watched
from attnviz.cli.sinks import Sinks
from attnviz.cli.takers import BoardTaker, NumbersTaker, Story, Taker
from attnviz.collect import HeatmapCollector, RecordCollector, collect
from attnviz.errors import RequestError
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap
from attnviz.memory import check_room
from attnviz.render import PICTURE_TILES
from attnviz.render.panels import Board, Look, heads_board, queries_board
from attnviz.render.terminal import tile_limits
from attnviz.select import ALL, Selection, without_special
from attnviz.sources.model import Model, Prepared
from attnviz.sources.registry import DEFAULT_MODEL, open_model


@dataclass(frozen=True)
class Request:
    """What is to be shown of each text, and how."""

    model: Model
    selection: Selection
    look: Look
    query: str | None
    overview: bool
    hide_special: bool
    single: bool
    truncate: bool
    with_output: bool

    def narrow(self, one: AttentionMap) -> AttentionMap:
        """The part of a map that was asked for."""
        narrowed = self.selection.heads_of(one)
        if self.query is not None:
            keys = [i for i, special in enumerate(one.key.special) if not (special and self.hide_special)]
            return narrowed.pick(queries=one.query.find(self.query), keys=keys)
        return without_special(narrowed) if self.hide_special else narrowed

    def board(self, heatmaps: Sequence[Heatmap], caption: str) -> Board:
        """The panels to draw."""
        if self.query is not None:
            return queries_board(heatmaps, caption)
        return heads_board(heatmaps, caption, "overview" if self.overview else "heads")


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def heads(
    text: opt.Text = None,
    file: opt.File = None,
    model: opt.Model = DEFAULT_MODEL,
    layer: opt.Layer = None,
    head: opt.Heads = None,
    query: opt.Query = None,
    hide_special: opt.HideSpecial = False,
    single: opt.Single = False,
    truncate: opt.Truncate = False,
    n_heads: opt.NHeads = None,
    d_model: opt.DModel = None,
    seed: opt.Seed = None,
    no_positions: opt.NoPositions = False,
    no_scale: opt.NoScale = False,
    shared_projections: opt.SharedProjections = False,
    with_output: opt.WithOutput = False,
    output: opt.Out = None,
    format_: opt.Format = None,
    cmap: opt.Cmap = opt.DEFAULT_CMAP,
    precision: opt.Precision = 2,
    width: opt.Width = None,
) -> None:
    """Show the attention heads of a model on a text, side by side.

    attnviz heads "Orange is my favorite fruit"

    attnviz heads "Orange is my favorite fruit" --layer all -o heads.png -o heads.json

    attnviz heads - < sentences.txt
    """
    sources = [*([file] if file else []), *(Path(model).iterdir() if Path(model).is_dir() else [])]
    outputs = parse_outputs(output or [], format_, sources)
    texts = read_texts(text, file)
    _refuse_several(texts, outputs)
    said = {
        "n_heads": n_heads, "d_model": d_model, "seed": seed, "shared_projections": shared_projections or None,
        "positions": False if no_positions else None, "scale": False if no_scale else None,
    }  # fmt: skip
    opened = open_model(model, {key: value for key, value in said.items() if value is not None})
    selection = Selection.parse(layer, head, opened.n_layers, opened.n_heads)
    overview = layer == ALL and opened.n_layers > 1
    look = Look(cmap, precision, width)
    request = Request(opened, selection, look, query, overview, hide_special, single, truncate, with_output)
    with Sinks(outputs) as sinks:
        for number, one in enumerate(texts, 1):
            _run(request, one, number, outputs, sinks)


def _refuse_several(texts: list[str], outputs: list[Output]) -> None:
    for output in outputs:
        if len(texts) > 1 and not output.takes_several and output.format is not None:
            name = output.format.name
            raise RequestError(
                f"{len(texts)} sentences cannot go into one {name}: use jsonl, or a name with {{n}} for a file each,"
                f" such as -o '{{n}}.{name}'"
            )


def _run(request: Request, text: str, number: int, outputs: list[Output], sinks: Sinks) -> None:
    prepared = request.model.prepare(text, truncate=request.truncate)
    if request.query is not None:
        prepared.tokens.find(request.query)  # a word that is not there is told before the model runs
    takers = [_taker(request, output, prepared) for output in outputs]
    hidden = HeatmapCollector(1, 1)
    collectors = [taker.collector for taker in takers] + ([hidden] if request.hide_special else [])
    layers = {layer for output in outputs for layer in _layers(request, output)}
    numbers = any(output.holds_numbers for output in outputs)
    with_output = numbers and (request.with_output or request.model.gives_output)
    maps = prepared.maps(layers, single=request.single, output=with_output)
    collect(watched(map(request.narrow, maps)), collectors)
    notes = [*prepared.notes, *_hidden_notes(request, prepared, hidden.result())]
    for line in notes:
        note(line)
    story = Story({**request.model.provenance, "text": text}, tuple(notes), len(prepared.tokens), number)
    for taker in takers:
        taker.write(story, sinks)


def _layers(request: Request, output: Output) -> frozenset[int]:
    """Machines get every layer, people the first: there the heads differ most plainly."""
    every = range(request.model.n_layers)
    return frozenset(request.selection.layers_or(every if output.holds_numbers else every[:1]))


def _taker(request: Request, output: Output, prepared: Prepared) -> Taker:
    layers, n_heads = _layers(request, output), request.selection.count_heads(request.model.n_heads)
    if output.format is not None and output.holds_numbers:
        n_keys = len(prepared.tokens)
        n_queries = n_keys if request.query is None else len(prepared.tokens.find(request.query))
        check_room(4 * len(layers) * n_heads * n_queries * n_keys, "keeping every weight")
        return NumbersTaker(output, output.format, RecordCollector(layers))
    limits = PICTURE_TILES, PICTURE_TILES
    is_text = output.format is None or output.format.holds == "text"
    if is_text and request.query is None:  # the rows of a query are written out, and wrap
        limits = tile_limits(terminal_style(request.look, output.format), n_heads, request.overview)
    return BoardTaker(output, HeatmapCollector(*limits, layers), request.board, request.look)


def _hidden_notes(request: Request, prepared: Prepared, heatmaps: tuple[Heatmap, ...]) -> list[str]:
    """What the special tokens took, where they are hidden."""
    if not request.hide_special:
        return []
    special = [piece for piece, added in zip(prepared.tokens.pieces, prepared.tokens.special, strict=True) if added]
    if not special:
        return ["there are no special tokens to hide"]
    masses = [1 - mass for one in heatmaps for mass in one.shown_mass.tolist()]
    return [
        f"{', '.join(dict.fromkeys(special))} are hidden: they take {sum(masses) / len(masses):.0%} of the weight,"
        f" {min(masses):.0%} to {max(masses):.0%} by head"
    ]
