"""The library's front door: a text in, its attention out; a record into a file."""

from collections.abc import Collection
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.arrays import to_numpy
from attnviz.attention import EVERYTHING, Rule
from attnviz.backend import NUMPY, Placing
from attnviz.collect import HeatmapCollector, RecordCollector, collect
from attnviz.errors import AttnvizError
from attnviz.faults import RowFaults
from attnviz.files import check_output, whole_file
from attnviz.lazy import function
from attnviz.maps import AttentionRecord, Provenance
from attnviz.render import PICTURE_TILES, format_of
from attnviz.render.panels import Board, Look, caption_of, describe, heads_board
from attnviz.select import Selection, without_special
from attnviz.sources.registry import DEFAULT_MODEL, SHAPES, open_model


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
    rule: Rule = EVERYTHING,
    placing: Placing = NUMPY,
    **scratch: Any,
) -> AttentionRecord:
    """The attention of every head of `model` on `text`.

    Args:
        text: any text that gives tokens.
        model: `minilm`, `scratch`, the path of a checkpoint folder or gguf file, or a name in the local cache.
        layers, heads: which, counted from 0; all unless given.
        single: also the full-width head of the same projections, first.
        hide_special: leave out tokens that the tokenizer added; rows then sum to less than 1.
        truncate: keep the first tokens of a text that is too long for the model, instead of refusing it.
        with_output: also each layer's attention output; the scratch model's is always there.
        rule: what may be attended in every layer, over and above the model's own rule: `Rule(causal=True)`.
        placing: where the maths runs: `placing("torch", "cuda")`.
        scratch: `n_heads`, `d_model`, `seed`, `positions`, `scale`, `shared_projections`, for the scratch model.

    Returns:
        A record with `weights` [layer, head, query, key] in 0..1.

    Raises:
        RequestError: the text, the model or a layer or head is not there, or the rule does not fit the text.
        AttnvizError: the model is damaged.
        TypeError: an argument has a name that is none of these.

    >>> attend("a b", model="scratch", n_heads=2, d_model=4).weights.shape
    (1, 2, 2, 2)
    >>> attend("a b", model="scratch", rule=Rule(causal=True)).weights[0, :, 0].tolist()
    [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    """
    for name in scratch.keys() - set(SHAPES):
        raise TypeError(f"attend() got an unexpected keyword argument {name!r}")
    opened = open_model(model, scratch, placing)
    prepared = opened.prepare(text, truncate=truncate)
    selection = Selection.of(layers, heads, opened.attending, range(opened.n_heads))
    chosen = selection.layers_or(opened.attending)
    maps = (
        selection.heads_of(one)
        for one in prepared.maps(chosen, rule=rule, single=single, output=with_output or opened.gives_output)
    )
    collector, faults = RecordCollector(), RowFaults()
    collect((without_special(one) for one in maps) if hide_special else maps, [collector, faults])
    provenance = {**opened.provenance, **_said_of(rule), "text": text}
    return collector.result(provenance, (*prepared.notes, *faults.notes()))


def _said_of(rule: Rule) -> Provenance:
    """What may be attended, as it goes into the provenance; arrays by their hash."""
    said: dict[str, bool | int | str] = {**rule.said}
    for name, array in (("padding_sha256", rule.keys), ("mask_sha256", rule.mask)):
        if array is not None:
            said[name] = sha256(np.ascontiguousarray(to_numpy(array)).tobytes()).hexdigest()
    return said


def save(record: AttentionRecord, path: str | PathLike[str]) -> None:
    """Write `record` to `path`, in the format that its suffix names.

    Raises:
        RequestError: no format has that suffix, or the folder does not exist.
        AttnvizError: the file cannot be written, or the record holds no maps.
    """
    if not record.maps:
        raise AttnvizError("there is no attention to write: the record holds no maps")
    file = Path(path)
    chosen = format_of(file)
    check_output(file)
    with whole_file(file) as stream:
        if chosen.holds == "numbers":
            function(chosen.writer)(record, stream)
        else:
            function(chosen.writer)(_board(record), Look(description=describe(record.provenance)), stream)


def _board(record: AttentionRecord) -> Board:
    collector = HeatmapCollector(PICTURE_TILES, PICTURE_TILES)
    collect(record.maps, [collector])
    return heads_board(collector.result(), caption_of(record.provenance, len(record.maps[0].query)))
