"""The library's front door: a text in, its attention out."""

from collections.abc import Collection
from typing import Any

from attnviz.collect import RecordCollector, collect
from attnviz.maps import AttentionRecord
from attnviz.select import Selection, without_special
from attnviz.sources.registry import DEFAULT_MODEL, open_model


def attend(
    text: str,
    model: str = DEFAULT_MODEL,
    *,
    layers: Collection[int] | None = None,
    heads: Collection[int] | None = None,
    single: bool = False,
    hide_special: bool = False,
    truncate: bool = False,
    with_output: bool = False,
    **scratch: Any,
) -> AttentionRecord:
    """The attention of every head of `model` on `text`.

    Args:
        text: any text that gives tokens.
        model: `minilm`, `scratch`, or the path of a BERT checkpoint folder.
        layers, heads: which, counted from 0; all unless given.
        single: also the full-width head of the same projections, first.
        hide_special: leave out tokens that the tokenizer added; rows then sum to less than 1.
        truncate: keep the first tokens of a text that is too long for the model, instead of refusing it.
        with_output: also each layer's attention output; the scratch model's is always there.
        scratch: `n_heads`, `d_model`, `seed`, `positions`, `scale`, `shared_projections`, for the scratch model.

    Returns:
        A record with `weights` [layer, head, query, key] in 0..1.

    Raises:
        RequestError: the text, the model or a layer or head is not there.
        AttnvizError: the model is damaged.

    >>> attend("a b", model="scratch", n_heads=2, d_model=4).weights.shape
    (1, 2, 2, 2)
    """
    opened = open_model(model, scratch)
    prepared = opened.prepare(text, truncate=truncate)
    selection = Selection.of(layers, heads, opened.n_layers, opened.n_heads)
    chosen = selection.layers_or(range(opened.n_layers))
    maps = (
        selection.heads_of(one)
        for one in prepared.maps(chosen, single=single, output=with_output or opened.gives_output)
    )
    collector = RecordCollector()
    collect((without_special(one) for one in maps) if hide_special else maps, [collector])
    return collector.result({**opened.provenance, "text": text}, prepared.notes)
