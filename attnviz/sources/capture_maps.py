"""Maps of attention that ran: verified, and with the names and tokens of what attends."""

from collections.abc import Sequence
from dataclasses import dataclass

from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, StackedHeads, Weights
from attnviz.sources.capture_calls import Attended
from attnviz.sources.capture_labels import Labels
from attnviz.sources.capture_leads import leads_of
from attnviz.sources.capture_names import Named


@dataclass(frozen=True)
class Item:
    """The weights of one item of the batch, or why there are none."""

    weights: Weights
    notes: tuple[str, ...] = ()
    """What is to be said of them."""
    fault: str | None = None
    """Why they are not those that the model used."""


def item_of(one: Attended, name: str, batch: int = 0, n_heads: int | None = None) -> Item:
    """The weights of one item of the batch, verified.

    Args:
        one: attention that ran.
        name: what it is called.
        batch: the item, counted from 0.
        n_heads: how many heads there are, where the reader says it.

    Raises:
        RequestError: there is no such item, or there cannot be that many heads.
    """
    *sizes, n_queries, _ = one.recipe.sizes
    leads = leads_of(sizes, one.folded, one.inputs, n_queries, n_heads)
    if not 0 <= batch < leads.batch:
        there = f"items 0 to {leads.batch - 1} are there" if leads.batch > 1 else "only item 0 is there"
        raise RequestError(f"no item {batch} in the batch of {name}: {there}")
    return Item(*one.item(leads, batch))


def map_of(group: Named, items: Sequence[Item], labels: Labels) -> tuple[AttentionMap | None, tuple[str, ...]]:
    """The map of a group and what is to be said of it; None where one of its items has a fault."""
    for item in items:
        if item.fault is not None:
            return None, (f"{group.name}: left out: {item.fault}",)
    parts = tuple(item.weights for item in items)
    whole = parts[0] if len(parts) == 1 else StackedHeads(parts)
    n, n_queries, n_keys = whole.shape
    query, key = labels.of(group, n_queries, n_keys)
    made = AttentionMap(group.name, group.layer, tuple(range(n)), whole, query, key, stack=group.stack, kind=group.kind)
    said = dict.fromkeys(note for item in items for note in item.notes)
    return made, tuple(f"{group.name}: {note}" for note in said)
