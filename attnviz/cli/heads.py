"""`attnviz heads`: the attention heads of a model on a text, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from attnviz.cli.console import terminal_style
from attnviz.cli.grouped import grouped
from attnviz.cli.messages import note
from attnviz.cli.options import ChoiceOptions, InputOptions, LookOptions, OutputOptions
from attnviz.cli.outputs import Output, parse_outputs, refuse_several
from attnviz.cli.progress import watched
from attnviz.cli.sinks import Sinks
from attnviz.cli.sources import Source, Subject, files_of, open_source
from attnviz.cli.takers import BoardTaker, NumbersTaker, Story, Taker
from attnviz.collect import HeatmapCollector, RecordCollector, collect
from attnviz.faults import RowFaults
from attnviz.heatmap import Heatmap
from attnviz.lazy import function
from attnviz.maps import AttentionMap
from attnviz.memory import check_room
from attnviz.render import PICTURE_TILES
from attnviz.render.panels import Board, Look, heads_board, queries_board
from attnviz.render.terminal import tile_limits
from attnviz.select import ALL, Selection, without_special
from attnviz.tokens import Tokens


@dataclass(frozen=True)
class Request:
    """What is to be shown of each text, and how."""

    source: Source
    selection: Selection
    choice: ChoiceOptions
    look: Look
    color_scale: str

    @property
    def overview(self) -> bool:
        """Whether every layer is to be seen at once."""
        return self.choice.layer == ALL and len(self.source.layers) > 1

    def narrow(self, one: AttentionMap) -> AttentionMap:
        """The part of a map that was asked for."""
        narrowed = self.selection.heads_of(one)
        if self.choice.query is not None:
            keys = [i for i, special in enumerate(one.key.special) if not (special and self.choice.hide_special)]
            return narrowed.pick(queries=one.query.find(self.choice.query), keys=keys)
        return without_special(narrowed) if self.choice.hide_special else narrowed

    def board(self, heatmaps: Sequence[Heatmap], caption: str) -> Board:
        """The panels to draw."""
        if self.choice.query is not None:
            return queries_board(heatmaps, caption, scale=self.color_scale)
        return heads_board(heatmaps, caption, "overview" if self.overview else "heads", scale=self.color_scale)


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@grouped
def heads(what: InputOptions, choice: ChoiceOptions, where: OutputOptions, how: LookOptions) -> None:
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
    selection = Selection.parse(choice.layer, choice.head, source.layers, source.heads)
    request = Request(source, selection, choice, how.look, how.color_scale)
    with Sinks(outputs) as sinks:
        for subject in source.subjects():
            _run(request, subject, outputs, sinks)


def _run(request: Request, subject: Subject, outputs: list[Output], sinks: Sinks) -> None:
    choice, prepared = request.choice, subject.prepared
    if choice.query is not None:
        prepared.tokens.find(choice.query)  # a word that is not there is told before the model runs
    takers = [_taker(request, output, subject) for output in outputs]
    hidden, faults = HeatmapCollector(1, 1), RowFaults()
    collectors = [taker.collector for taker in takers] + ([hidden] if choice.hide_special else []) + [faults]
    layers = {layer for output in outputs for layer in _layers(request, output)}
    numbers = any(output.holds_numbers for output in outputs)
    with_output = numbers and (choice.with_output or request.source.gives_output)
    maps = subject.maps(layers, single=choice.single, output=with_output)
    collect(watched(map(request.narrow, maps)), collectors)
    notes = [*prepared.notes, *faults.notes()]
    if choice.hide_special:
        notes.append(_hidden_note(prepared.key_tokens, hidden.result()))
    for line in notes:
        note(line)
    story = Story(subject.provenance, tuple(notes), len(prepared.tokens), subject.number)
    for line in dict.fromkeys(line for taker in takers for line in taker.write(story, sinks)):
        note(line)


def _layers(request: Request, output: Output) -> frozenset[int]:
    """Machines get every layer, people the first: there the heads differ most plainly."""
    every = request.source.layers
    return frozenset(request.selection.layers_or(every if output.holds_numbers else every[:1]))


def _taker(request: Request, output: Output, subject: Subject) -> Taker:
    layers, n_heads = _layers(request, output), request.selection.count_heads(len(request.source.heads))
    query, tokens = request.choice.query, subject.prepared.tokens
    if output.format is not None and output.holds_numbers:
        n_queries = len(tokens) if query is None else len(tokens.find(query))
        n_keys = len(subject.prepared.key_tokens)
        check_room(4 * len(layers) * n_heads * n_queries * n_keys, "keeping every weight")
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
