"""What `heads` is asked to show of each text: which layers, heads and tokens, put together how, and drawn as what."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from attnviz.cli.options import ViewOptions
from attnviz.cli.outputs import Output
from attnviz.cli.sources import Source
from attnviz.collect import parts_of
from attnviz.errors import RequestError
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap, Provenance
from attnviz.pooling import Pool
from attnviz.reduce import Way, over_heads, over_layers, rollout
from attnviz.render.panels import Board, Look, heads_board, queries_board
from attnviz.render.scale import DEFAULT_SCALE
from attnviz.select import ALL, Selection
from attnviz.sources.model import Prepared
from attnviz.stretch import Stretch
from attnviz.tokens import Tokens, visible
from attnviz.words import into_words, merged

_ROLLOUT = "rollout"
_OF_TILES, _OF_TILES_IN_TEXT = "log", "sqrt"
"""The colour scales of pooled maps, unless another is asked for; text has too few shades for powers of ten."""


@dataclass(frozen=True)
class Request:
    """What is to be shown of each text, and how.

    Raises:
        RequestError: something is said that changes nothing: `over` where nothing is put together over it.
    """

    source: Source
    selection: Selection
    view: ViewOptions
    look: Look
    color_scale: str | None
    """What was asked for."""
    layer: str | None
    """What was typed for the layers."""

    def __post_init__(self) -> None:
        if self.view.over != "heads" and self.view.reduce in (None, _ROLLOUT):
            raise RequestError(f"--over {self.view.over} is for --reduce mean or max: add one, or leave it out")

    @property
    def stretch(self) -> Stretch | None:
        """Which part of the text is seen; None for all of it."""
        told = self.view.start is not None or self.view.stop is not None
        return Stretch(self.view.start, self.view.stop) if told else None

    @property
    def picks_rows(self) -> bool:
        """Whether not all rows are seen."""
        return self.view.query is not None or self.stretch is not None

    @property
    def pool(self) -> Pool:
        """What a tile is of its weights."""
        return self.view.pool or "mean"

    @property
    def overview(self) -> bool:
        """Whether every layer is to be seen at once."""
        return self.layer == ALL and len(self.source.layers) > 1 and not self.view.reduce

    @property
    def page_bits(self) -> Literal[8, 16] | None:
        """In how many bits a page keeps a weight."""
        return None if self.view.page_bits is None else 8 if self.view.page_bits == "8" else 16

    @property
    def provenance(self) -> Provenance:
        """What was made of the weights, so that the numbers can be made again."""
        said: dict[str, str | bool] = {"words": True} if self.view.words else {}
        if self.view.reduce:
            said["reduce"] = self.view.reduce.value
            said |= {} if self.view.reduce == _ROLLOUT else {"over": self.view.over.value}
        return said

    def placed(self, prepared: Prepared) -> Provenance:
        """Which part of the text is seen, in positions, and how it is pooled."""
        said: dict[str, int | str] = {}
        if self.stretch is not None:
            tokens = self.tokens(prepared.tokens)
            seen = self.stretch.of(tokens)
            said = {"from": tokens.position(seen[0]), "to": tokens.position(seen[-1]) + 1}
        said |= {} if self.view.tiles is None else {"tiles": self.view.tiles}
        return said | ({} if self.view.pool is None else {"pool": self.view.pool})

    def layers(self, output: Output) -> frozenset[int]:
        """The layers shown: of machines' outputs every one, of people's the first, where heads differ most plainly.

        What is put together over layers is of all of them, and rollout is told of the last.
        """
        if output.holds_numbers or self._over_layers:
            return self.every_layer
        every = self.source.layers
        return frozenset(self.selection.layers_or(every[-1:] if self.view.reduce == _ROLLOUT else every[:1]))

    @property
    def every_layer(self) -> frozenset[int]:
        """All layers, unless some were chosen."""
        return frozenset(self.selection.layers_or(self.source.layers))

    def run(self, layers: Iterable[int]) -> frozenset[int]:
        """The layers that must be run to show `layers`."""
        wanted = frozenset(layers)
        through = (layer for layer in self.source.layers if layer <= max(wanted))
        return frozenset(through) if self.view.reduce == _ROLLOUT else wanted

    @property
    def _over_layers(self) -> bool:
        return self.view.over != "heads"

    def n_heads(self) -> int:
        """The most heads that a layer shows."""
        if self.view.reduce and self.view.over != "layers":
            return 1
        return self.selection.count_heads(len(self.source.heads))

    def tokens(self, tokens: Tokens) -> Tokens:
        """The tokens as they are shown: pieces, or words."""
        return merged(tokens)[0] if self.view.words else tokens

    def check_query(self, prepared: Prepared) -> None:
        """See that what is to be seen is among the tokens: the query, of either text where there are two.

        Raises:
            RequestError: it is not.
        """
        tokens, keys = self.tokens(prepared.tokens), self.tokens(prepared.key_tokens)
        seen = None if self.stretch is None else self.stretch.of(tokens)
        if self.view.query is None:
            return
        if prepared.tokens is prepared.key_tokens or not self._finds(keys):
            found = tokens.find(self.view.query)
            if seen is not None and not set(found) & set(seen):
                raise RequestError(f"no query {visible(self.view.query)} in the stretch {self.stretch}: widen it")

    def count(self, prepared: Prepared) -> tuple[int, int]:
        """How many queries and keys are seen of the attention between the tokens."""
        query, key = self.tokens(prepared.tokens), self.tokens(prepared.key_tokens)
        alone = prepared.tokens is prepared.key_tokens
        if not self._finds(query):
            return 0, len(key)
        queries, keys = self._seen(query, query if alone else key, alone=alone, of_target=True)
        return len(query if queries is None else queries), len(key if keys is None else keys)

    def _finds(self, tokens: Tokens) -> bool:
        try:
            return self.view.query is None or bool(tokens.find(self.view.query))
        except RequestError:
            return False

    def shaped(self, maps: Iterable[AttentionMap], *, crosses: bool = False) -> Iterator[AttentionMap]:
        """What was asked for of the maps: between words, put together, and the tokens to be seen.

        Args:
            maps: of one text, with the heads that were asked for.
            crosses: there are two texts, and with them maps of several stacks: each is put together by itself, and
                of those without the query asked for nothing is seen.
        """
        chosen = map(into_words, maps) if self.view.words else iter(maps)
        if self.view.reduce == _ROLLOUT:  # of all tokens, whichever are seen of it
            return self._narrowed(self._by_stack(chosen) if crosses else self._reduced(chosen), crosses=crosses)
        narrowed = self._narrowed(chosen, crosses=crosses)
        return self._by_stack(narrowed) if crosses and self._over_layers else self._reduced(narrowed)

    def _narrowed(self, maps: Iterator[AttentionMap], *, crosses: bool) -> Iterator[AttentionMap]:
        narrowed = (self._narrow(one, crosses=crosses) for one in maps if not crosses or self._finds(one.query))
        return (one for one in narrowed if not crosses or len(one.query))

    def _by_stack(self, maps: Iterator[AttentionMap]) -> Iterator[AttentionMap]:
        """Each stack put together by itself; rollout is of those that attend to themselves."""
        stacks = parts_of(maps, lambda one: one)
        several = len(stacks) > 1
        for (_, kind), some in stacks.items():
            if not (several and self.view.reduce == _ROLLOUT and kind == "cross"):
                yield from self._reduced(iter(some))

    def _reduced(self, maps: Iterator[AttentionMap]) -> Iterator[AttentionMap]:
        reduction = self.view.reduce
        if reduction is None:
            return maps
        if reduction == _ROLLOUT:
            return rollout(maps)
        way: Way = "mean" if reduction == "mean" else "max"
        if self.view.over != "layers":
            maps = (over_heads(one, way) for one in maps)
        return iter([over_layers(maps, way)]) if self._over_layers else maps

    def _narrow(self, one: AttentionMap, *, crosses: bool) -> AttentionMap:
        """The map of the tokens that are seen; of a stretch only those of the target where there are two texts."""
        of_target = not crosses or one.kind == "cross" or one.stack == "decoder"
        queries, keys = self._seen(one.query, one.key, alone=one.kind == "self", of_target=of_target)
        return one.pick(queries=queries, keys=keys)

    def _seen(
        self, query: Tokens, key: Tokens, *, alone: bool, of_target: bool
    ) -> tuple[Sequence[int] | None, Sequence[int] | None]:
        """The queries and keys that are seen; None for all.

        Args:
            query, key: the tokens.
            alone: the queries are the keys.
            of_target: the queries are of the text that a stretch is of.
        """
        queries: Sequence[int] | None = None
        keys: Sequence[int] | None = None
        if self.stretch is not None and of_target:
            queries = self.stretch.of(query)
            keys = self.stretch.of(key) if alone else None
        if self.view.query is not None:
            found = query.find(self.view.query)
            queries = found if queries is None else [i for i in found if i in queries]
        if self.view.hide_special:
            if self.view.query is None:
                queries = _plain(query, queries)
            keys = _plain(key, keys)
        return queries, keys

    def board(self, heatmaps: Sequence[Heatmap], caption: str, *, as_text: bool) -> Board:
        """The panels to draw; over many tokens weights differ by powers of ten, and a linear scale would be black."""
        of_tiles = _OF_TILES_IN_TEXT if as_text else _OF_TILES
        scale = self.color_scale or (DEFAULT_SCALE if all(one.exact for one in heatmaps) else of_tiles)
        if self.view.query is not None:
            return queries_board(heatmaps, caption, scale=scale)
        return heads_board(heatmaps, caption, "overview" if self.overview else "heads", scale=scale)


def _plain(tokens: Tokens, indices: Sequence[int] | None) -> Sequence[int]:
    """Those of the tokens at `indices`, of all unless given, that are not special."""
    return [i for i in (range(len(tokens)) if indices is None else indices) if not tokens.special[i]]
