"""What a page's script reads: everything but the weights, as JSON that no token can break out of."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnviz.maps import AttentionRecord
from attnviz.render.colors import DEFAULT_COLORMAP, MISSING, NAMES, colormap
from attnviz.render.page_codes import Bits, rounded_up
from attnviz.render.page_maps import PageMap, addresses
from attnviz.render.page_measures import HeadValues
from attnviz.render.panels import caption_of, describe, head_title, layer_title
from attnviz.render.ranges import weight_range
from attnviz.render.scale import DEFAULT_SCALE
from attnviz.tokens import Tokens, visible

_FEW = 32
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def page_json(record: AttentionRecord, maps: Sequence[PageMap], bits: Bits, measures: Mapping[str, HeadValues]) -> str:
    """The record without its weights; ASCII, without the characters that HTML has a meaning for.

    Raises:
        ValueError: a number is not finite, or a measure is not of these heads.
    """
    kinds = list(dict.fromkeys(tokens for one in record.maps for tokens in (one.query, one.key)))
    data = {
        "schema": "attnviz-page/1",
        "caption": caption_of(record.provenance, len(record.maps[0].query)),
        "made": visible(describe(record.provenance)),
        "provenance": record.provenance,
        "notes": [visible(note) for note in record.notes],
        "bits": bits,
        "error": error_bound(maps),
        "scale": starting_scale(maps),
        "top": weight_range([np.array([one.largest for one in maps])]).top,
        "thumbnailTop": weight_range([one.thumbnails.values for one in maps]).top,
        "tokens": [_tokens(tokens) for tokens in kinds],
        "maps": [
            _map(one, address, kinds.index(one.map.query), kinds.index(one.map.key))
            for one, address in zip(maps, addresses(record.maps), strict=True)
        ],
        "measures": {visible(name): _rows(name, values, maps) for name, values in measures.items()},
        "colormaps": {name: base64.b64encode(colormap(name).tobytes()).decode() for name in NAMES},
        "colormap": DEFAULT_COLORMAP,
        "missing": MISSING,
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return "".join(_UNSAFE.get(c, c) for c in text)


def error_bound(maps: Sequence[PageMap]) -> float:
    """How far from the record a weight in the page can be."""
    return rounded_up(max(one.error for one in maps))


def starting_scale(maps: Sequence[PageMap]) -> str:
    """The colour scale that a page has at first: among many tokens most weights are too small for a linear one."""
    return "sqrt" if max(len(one.map.key) for one in maps) > _FEW else DEFAULT_SCALE


def _rows(name: str, values: HeadValues, maps: Sequence[PageMap]) -> list[list[float | None]]:
    found, wanted = [len(row) for row in values], [len(one.heads) for one in maps]
    if found != wanted:
        sizes = " and ".join(map(str, found))
        raise ValueError(f"{name} has {len(found)} maps of {sizes} heads, not {' and '.join(map(str, wanted))}")
    return [[None if value is None else float(value) for value in row] for row in values]


def _map(one: PageMap, address: str, query: int, key: int) -> dict[str, Any]:
    """One layer: its heads by the names that address and titles have for them."""
    title = layer_title(one.map)
    return {
        "title": title,
        "name": visible(one.map.name),
        "address": address,
        "heads": [str(head) for head in one.map.heads],
        "titles": [f"{title} · {head_title(head)}" for head in one.map.heads],
        "query": query,
        "key": key,
        "triangle": one.triangle,
        "cut": one.map.cut,
        "rowEdges": one.thumbnails.query_edges.tolist(),
        "columnEdges": one.thumbnails.key_edges.tolist(),
    }


def _tokens(tokens: Tokens) -> dict[str, Any]:
    words = tokens.words()
    return {
        "text": [visible(text) for text in tokens.text],
        "pieces": [visible(piece) for piece in tokens.pieces],
        "positions": tokens.positions,
        "special": [i for i, special in enumerate(tokens.special) if special],
        "words": [[word.start, visible(tokens.spelled(word))] for word in words] if len(words) < len(tokens) else None,
        "parts": sentence_parts(tokens),
    }


def sentence_parts(tokens: Tokens) -> list[str] | None:
    """Which sentence of a pair, A or B, each token belongs to; None where special tokens part no two sentences.

    Special tokens belong to the sentence before them, those at the beginning to A.

    >>> pair = Tokens(tuple("cxsys"), tuple("cxsys"), ((0, 0),) * 5, (True, False, True, False, True))
    >>> sentence_parts(pair), sentence_parts(Tokens.of("xy"))
    (['A', 'A', 'A', 'B', 'B'], None)
    """
    runs, parts = 0, []
    before = True
    for special in tokens.special:
        runs += before and not special
        before = special
        parts.append("A" if runs <= 1 else "B")
    return parts if runs == 2 else None
