"""What every picture draws: panels of values with their labels, in groups, and the range of their colours."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from attnviz.arrays import Floats
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap, Head, Provenance, Value
from attnviz.pooling import Edges, Pool
from attnviz.render.colors import DEFAULT_COLORMAP, DEFAULT_DIVERGING
from attnviz.render.ranges import Range, weight_range
from attnviz.render.scale import DEFAULT_SCALE
from attnviz.tokens import Tokens, visible
from attnviz.translation import IN_ENGLISH, Say

View: TypeAlias = Literal["heads", "queries", "overview"]


@dataclass(frozen=True)
class Look:
    """How a board is to look, whatever it is drawn on; each renderer takes what it has a use for."""

    cmap: str = DEFAULT_COLORMAP
    """The colours of sequential ranges, one of `attnviz.render.colors.NAMES`."""
    precision: int = 2
    """Digits after the point, where numbers are written."""
    width: int | None = None
    """Cells of a line of text; None for what fits the place."""
    description: str = ""
    """What made the numbers; goes with the picture where its format has a place for it."""
    font: Path | None = None
    """A font file, for pictures: used first, for every character that it has."""
    diverging: str = DEFAULT_DIVERGING
    """The colours of signed ranges, one of `attnviz.render.colors.DIVERGING`."""
    say: Say = IN_ENGLISH
    """The language of legends."""


@dataclass(frozen=True)
class Axis:
    """One axis of a panel."""

    name: str
    """What stands along it: query, key, layer, head, dimension; nothing where there is nothing to say."""
    labels: tuple[str, ...]
    """One for each row or column of the values: a token's text as it is, the positions a tile stands for, or what
    else names a row, such as a number."""
    step: int = 1
    """The tokens that a tile stands for; 1 where every tile is one token."""
    positions: tuple[int, ...] | None = None
    """Where in the text each row or column begins; None where all of it stands along the axis."""

    @property
    def of_tokens(self) -> bool:
        """Whether tokens stand along it: they have positions, and none of them looks like nothing."""
        return self.name in ("query", "key", "token")

    def position(self, i: int) -> int:
        """Where in the text row or column `i` begins.

        >>> Axis("key", ("0–29", "30–59"), 30).position(1), Axis("key", ("a", "b"), 1, (7, 8)).position(1)
        (30, 8)
        """
        return i * self.step if self.positions is None else self.positions[i]


@dataclass(frozen=True)
class Panel:
    """One matrix to draw."""

    title: str
    values: Floats
    """[row, column]; NaN for a value that is not a number."""
    rows: Axis
    columns: Axis
    pool: Pool = "mean"
    """What a tile is of the values that it stands for."""


@dataclass(frozen=True)
class Group:
    """Panels that belong together, such as the heads of a layer; a group begins on a new line."""

    title: str
    panels: tuple[Panel, ...]
    text: tuple[str, ...] = ()
    """Lines of prose below the title, each wrapped where it is longer than the picture or the terminal is wide."""
    range: Range | None = None
    """Of its values, where it is not the board's; it then stands with the group."""


@dataclass(frozen=True)
class Board:
    """Everything that one picture shows."""

    caption: str
    """One line: what these numbers are of."""
    groups: tuple[Group, ...]
    range: Range
    """The one colour range of all panels but those of groups with their own."""
    view: View = "heads"
    """How the panels are best laid out where there is a choice, as in a terminal."""
    scale: str = DEFAULT_SCALE
    """How colours and shades follow the values, one of `attnviz.render.scale.SCALES`; numbers stay as they are."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The panels of all groups."""
        return tuple(panel for group in self.groups for panel in group.panels)

    def own_range(self, group: Group) -> Range | None:
        """The range of a group where it is not the board's."""
        return None if group.range == self.range else group.range

    @property
    def step(self) -> int:
        """The tokens along a tile's longer side: 1 where all weights are drawn one by one."""
        return max((max(panel.rows.step, panel.columns.step) for panel in self.panels), default=1)


def head_title(head: Head) -> str:
    """What a head's panel is called.

    >>> head_title(3), head_title("single"), head_title("max"), head_title("rollout")
    ('head 3', 'single head', 'max of heads', 'rollout')
    """
    if head in ("mean", "max"):
        return f"{head} of heads"
    return {"single": "single head", "rollout": "rollout"}.get(str(head), f"head {head}")


def layer_title(one: AttentionMap) -> str:
    """What a layer is called: `layer 3`, and where it is not an encoder's self-attention also which."""
    if one.title:
        return one.title
    which = "cross " if one.kind == "cross" else {"encoder": "", "decoder": "decoder "}[one.stack]
    return f"{which}layer {one.layer}"


def token_axis(name: str, tokens: Tokens, edges: Edges) -> Axis:
    """The tokens along an axis, or where tiles hold several the positions of each tile.

    >>> import numpy as np
    >>> token_axis("key", Tokens.of("abc"), np.array([0, 2, 3])).labels
    ('0–1', '2')
    """
    firsts, lasts = ([tokens.position(i) for i in some.tolist()] for some in (edges[:-1], edges[1:] - 1))
    positions = None if tokens.positions is None else tuple(firsts)
    if len(edges) - 1 == len(tokens):
        return Axis(name, tokens.text, positions=positions)
    spans = zip(firsts, lasts, strict=True)
    labels = tuple(str(first) if first == last else f"{first}–{last}" for first, last in spans)
    return Axis(name, labels, int(edges[1] - edges[0]), positions)


_LINE_END = re.compile(r"\s*[\n\r]\s*")


def caption_of(provenance: Provenance, n_tokens: int) -> str:
    """The line above a picture: model, length, which part of how many texts or windows it is of, and the text if one.

    >>> caption_of({"model": "minilm", "text": "a\\nb"}, 4), caption_of({"model": "m", "text": "", "n_texts": 2}, 9)
    ('minilm · 4 tokens · a b', 'm · 9 tokens · 2 texts')
    """
    tokens = "1 token" if n_tokens == 1 else f"{n_tokens} tokens"
    texts = f"{provenance['n_texts']} texts" if "n_texts" in provenance else ""
    said = (
        str(provenance["model"]),
        tokens,
        *_parts_of(provenance),
        texts,
        _LINE_END.sub(" ", str(provenance["text"])).strip(),
    )
    return " · ".join(visible(one) for one in said if one)


def _parts_of(provenance: Provenance) -> Iterator[str]:
    """Which windows or tokens of a text are shown, where they are not all."""
    windows, last = provenance.get("n_windows"), provenance.get("to")
    if windows is not None:
        yield f"window {provenance['window']} of {windows}" if "window" in provenance else f"{windows} windows"
    if isinstance(last, int) and "from" in provenance:
        yield f"{'words' if provenance.get('words') else 'tokens'} {provenance['from']} to {last - 1}"


def describe(provenance: Provenance) -> str:
    """The provenance on one line, for people.

    >>> where = {"backend": "numpy", "device": "cpu", "dtype": "float32"}
    >>> describe({"attnviz": "0.1.0", "source": "scratch", "model": "scratch", "seed": 3, **where, "text": "a"})
    'attnviz 0.1.0 · scratch, seed 3 · numpy float32 on cpu'
    """
    said_otherwise = {"attnviz", "source", "model", "backend", "device", "dtype", "text", "prompt", "generated"}
    details = [_detail(key, value) for key, value in provenance.items() if key not in said_otherwise and value != ""]
    model = ", ".join([visible(str(provenance["model"])), *details])
    place = visible("{backend} {dtype} on {device}".format(**provenance))
    return f"attnviz {visible(str(provenance['attnviz']))} · {model} · {place}"


def _detail(key: str, value: Value) -> str:
    """One entry of a provenance: of a hash the start, names as they are; a saved record may hold any text."""
    said = " × ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    said = said.lower() if isinstance(value, bool) else said
    return visible(f"{key.removeprefix('model_')} {said[:12] if key.endswith('sha256') else said}")


def heads_board(
    heatmaps: Sequence[Heatmap], caption: str, view: View = "heads", *, scale: str = DEFAULT_SCALE
) -> Board:
    """One panel for each head, queries down and keys across, a group for each layer."""
    groups = []
    for one in heatmaps:
        rows = token_axis("query", one.map.query, one.query_edges)
        columns = token_axis("key", one.map.key, one.key_edges)
        panels = tuple(
            Panel(head_title(head) + _hidden(one, i), one.values[i], rows, columns, one.pool)
            for i, head in enumerate(one.map.heads)
        )
        groups.append(Group(layer_title(one.map), panels))
    return Board(caption, tuple(groups), weight_range([one.values for one in heatmaps]), view, scale)


def _hidden(one: Heatmap, i: int) -> str:
    if not one.map.cut:
        return ""
    hidden = 1 - one.shown_mass[i]
    return " · over 99% hidden" if 0.995 <= hidden < 1 else f" · {hidden:.0%} hidden"


def _query_title(queries: Axis, i: int, *, long: bool) -> str:
    """The query's text; in a long text, where it may stand often, its position before it."""
    where = f"{queries.position(i)} " if long and queries.step == 1 else ""
    return f"query {where}{visible(queries.labels[i])}"


def queries_board(heatmaps: Sequence[Heatmap], caption: str, *, scale: str = DEFAULT_SCALE) -> Board:
    """One panel for each query token, heads down and keys across, a group for each layer."""
    groups = []
    for one in heatmaps:
        rows = Axis("head", tuple(head_title(head) for head in one.map.heads))
        columns = token_axis("key", one.map.key, one.key_edges)
        queries = token_axis("query", one.map.query, one.query_edges)
        panels = tuple(
            Panel(_query_title(queries, i, long=not one.exact), one.values[:, i], rows, columns, one.pool)
            for i in range(len(queries.labels))
        )
        groups.append(Group(layer_title(one.map), panels))
    return Board(caption, tuple(groups), weight_range([one.values for one in heatmaps]), "queries", scale)
