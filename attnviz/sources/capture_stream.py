"""Attention handed over while the model runs: one map at a time, made from the model's own tensors."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress

import torch

from attnviz.errors import AttnvizError
from attnviz.maps import AttentionMap
from attnviz.sources.capture_calls import Attended
from attnviz.sources.capture_labels import Labels
from attnviz.sources.capture_maps import Item, item_of, map_of
from attnviz.sources.capture_modes import model_name, tags_for, watching
from attnviz.sources.capture_names import Namer, ends_with, is_next_head, is_one_head
from attnviz.sources.capture_watch import Watch
from attnviz.sources.handover import Counter, Stopped, handed_over
from attnviz.tokens import Tokens


def streamed(
    model: torch.nn.Module,
    run: Callable[[], object],
    tokens: Tokens,
    key_tokens: Tokens | None,
    *,
    layers: Collection[int],
    modules: Sequence[str] | None,
    notes: list[str],
) -> Iterator[AttentionMap]:
    """The attention of what `run` does with the model, in the order in which modules attend.

    The model runs in a thread of its own and waits while a map is looked at. The map's weights are made from the
    model's own queries and keys, which are gone when it goes on, unless the map is kept. Each map is verified before
    it is handed over, and left out where it does not hold.

    Args:
        model: any module.
        run: what calls it; it is stopped when no more maps can come.
        tokens, key_tokens: as in `Seen.record`.
        layers: the numbers of the layers whose maps are wanted.
        modules: the paths of these layers, after the last of which nothing is run; None where they have none.
        notes: what is to be said of attention that was left out is added to them.

    Raises:
        AttnvizError: no attention ran in these modules, or none could be verified.
        RequestError: the tokens fit none of it.
    """

    def work(counter: Counter[AttentionMap]) -> None:
        there, name = dict(model.named_modules()), model_name(model)
        stream = _Stream(Namer(there, name), Labels(tokens, key_tokens), layers, counter.give)
        watch = Watch(tags_for(there), stream, modules)
        stream.until(modules or (), watch.stop)
        counter.on_leave(watch.stop)
        with suppress(Stopped), watching(there, watch):
            run()
        said = stream.end()
        if not stream.n_maps:
            raise AttnvizError("; ".join([*watch.left_out(), *said]) or watch.nothing(name))
        notes.extend([*watch.left_out(), *said])

    return handed_over(work)


class _Stream:
    """Hands over each attention as soon as it is known which heads belong to it."""

    def __init__(
        self, namer: Namer, labels: Labels, layers: Collection[int], give: Callable[[AttentionMap], None]
    ) -> None:
        self.n_maps = 0
        """Of all layers."""
        self._namer, self._labels, self._layers, self._give = namer, labels, layers, give
        self._heads: list[Attended] = []
        self._items: list[Item] = []
        self._notes: list[str] = []
        self._awaited: set[str] = set()
        self._stop: Callable[[], None] = lambda: None

    def until(self, modules: Iterable[str], stop: Callable[[], None]) -> None:
        """Stop when all these modules have ended."""
        self._awaited, self._stop = set(modules), stop

    def keep(self, one: Attended) -> None:
        """Attention ran: it is verified while its tensors are there."""
        if self._heads and not is_next_head(self._heads, one):
            self._hand_over()
        self._heads.append(one)
        self._items.append(item_of(one, one.path))
        if not is_one_head(one):
            self._hand_over()

    def leave(self, path: str, call: int) -> None:
        """A module ends, and with it perhaps the heads of a layer, or all that is wanted."""
        if self._heads and ends_with(self._heads[-1], call):
            self._hand_over()
        if path in self._awaited:
            self._awaited.remove(path)
            if not self._awaited and self.n_maps:
                self._stop()

    def _hand_over(self) -> None:
        heads, items = tuple(self._heads), tuple(self._items)
        self._heads, self._items = [], []
        one, said = map_of(self._namer.name(heads), items, self._labels)
        if one is None:
            self._notes += said
            return
        self.n_maps += 1
        if one.layer in self._layers:
            self._give(one)

    def end(self) -> list[str]:
        """The run is over; what is to be said of what was left out.

        Raises:
            RequestError: the tokens fit no attention.
        """
        if self._heads:
            self._hand_over()
        return [*self._notes, *(self._labels.check() if self.n_maps else ())]
