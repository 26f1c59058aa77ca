"""What `heads` is asked to show of each text: which layers, heads and tokens, put together how, and drawn as what."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from attnviz.cli.options import ViewOptions
from attnviz.cli.outputs import Output
from attnviz.cli.sources import Source
from attnviz.errors import RequestError
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap, Provenance
from attnviz.reduce import Way, over_heads, over_layers, rollout
from attnviz.render.panels import Board, Look, heads_board, queries_board
from attnviz.select import ALL, Selection, without_special
from attnviz.sources.model import Prepared
from attnviz.tokens import Tokens
from attnviz.words import into_words, merged

_ROLLOUT = "rollout"


@dataclass(frozen=True)
class Request:
    """What is to be shown of each text, and how.

    Raises:
        RequestError: `over` is said and nothing is put together over it.
    """

    source: Source
    selection: Selection
    view: ViewOptions
    look: Look
    color_scale: str
    layer: str | None
    """What was typed for the layers."""

    def __post_init__(self) -> None:
        if self.view.over != "heads" and self.view.reduce in (None, _ROLLOUT):
            raise RequestError(f"--over {self.view.over} is for --reduce mean or max: add one, or leave it out")

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

    def layers(self, output: Output) -> frozenset[int]:
        """The layers shown: of machines' outputs every one, of people's the first, where heads differ most plainly.

        What is put together over layers is of all of them, and rollout is told of the last.
        """
        every = self.source.layers
        people = every[-1:] if self.view.reduce == _ROLLOUT else every[:1]
        whole = output.holds_numbers or self._over_layers
        return frozenset(self.selection.layers_or(every if whole else people))

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
        """See that the query asked for is among the tokens, of either text where there are two.

        Raises:
            RequestError: it is not.
        """
        if self.view.query is None:
            return
        tokens, keys = self.tokens(prepared.tokens), self.tokens(prepared.key_tokens)
        if prepared.tokens is prepared.key_tokens or not self._finds(keys):
            tokens.find(self.view.query)

    def count_queries(self, tokens: Tokens) -> int:
        """How many of the tokens are the query asked for."""
        return len(tokens.find(self.view.query or "")) if self._finds(tokens) else 0

    def _finds(self, tokens: Tokens) -> bool:
        try:
            return self.view.query is None or bool(tokens.find(self.view.query))
        except RequestError:
            return False

    def shaped(self, maps: Iterable[AttentionMap], *, crosses: bool = False) -> Iterator[AttentionMap]:
        """What was asked for of the maps: their heads, between words, put together, and the tokens to be seen.

        Args:
            maps: of one text.
            crosses: there are two texts, and with them maps of several stacks: each is put together by itself, and
                of those without the query asked for nothing is seen.
        """
        chosen = map(self.selection.heads_of, maps)
        chosen = map(into_words, chosen) if self.view.words else chosen
        if not crosses:
            return map(self._narrow, self._reduced(chosen))
        apart = self._over_layers or self.view.reduce == _ROLLOUT
        reduced = self._by_stack(chosen) if apart else self._reduced(chosen)
        return (self._narrow(one) for one in reduced if self._finds(one.query))

    def _by_stack(self, maps: Iterator[AttentionMap]) -> Iterator[AttentionMap]:
        """Each stack put together by itself; rollout is of those that attend to themselves."""
        stacks: dict[tuple[str, str], list[AttentionMap]] = {}
        for one in maps:
            stacks.setdefault((one.stack, one.kind), []).append(one)
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

    def _narrow(self, one: AttentionMap) -> AttentionMap:
        if self.view.query is not None:
            keys = [i for i, special in enumerate(one.key.special) if not (special and self.view.hide_special)]
            return one.pick(queries=one.query.find(self.view.query), keys=keys)
        return without_special(one) if self.view.hide_special else one

    def board(self, heatmaps: Sequence[Heatmap], caption: str) -> Board:
        """The panels to draw."""
        if self.view.query is not None:
            return queries_board(heatmaps, caption, scale=self.color_scale)
        return heads_board(heatmaps, caption, "overview" if self.overview else "heads", scale=self.color_scale)
