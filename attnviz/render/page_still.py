"""What a page shows where no script runs: the numbers as tables, or of many a picture of all heads."""

import base64
from collections.abc import Iterator, Sequence
from html import escape

from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, AttentionRecord
from attnviz.render.page_data import error_bound, starting_scale
from attnviz.render.page_maps import PageMap
from attnviz.render.panels import Look, caption_of, describe, head_title, heads_board, layer_title
from attnviz.render.png import png
from attnviz.tokens import visible

TABLE_WEIGHTS = 12_000
"""The most weights that are written out as tables."""
_READABLE = 10


def still(record: AttentionRecord, maps: Sequence[PageMap], bits: int) -> Iterator[str]:
    """The part of the page that needs no script, as HTML."""
    n_weights = sum(len(one.heads) * len(one.query) * len(one.key) for one in record.maps)
    yield f"<p>{error_text(maps, bits)} Rows are queries, columns are keys.</p>\n"
    yield from (f"<p>{_text(note)}</p>\n" for note in record.notes)
    if n_weights > TABLE_WEIGHTS:
        yield "<p>There are too many numbers for tables: with scripts on, this page shows all of them.</p>\n"
        yield _picture(record, maps)
        return
    for one in record.maps:
        yield f"<h2>{_text(layer_title(one))}</h2>\n"
        yield from _tables(one)


def error_text(maps: Sequence[PageMap], bits: int) -> str:
    """How exact the page is, in words."""
    return f"Weights are held in {bits} bits, within {error_bound(maps):.2g} of the record's."


def _picture(record: AttentionRecord, maps: Sequence[PageMap]) -> str:
    caption = caption_of(record.provenance, len(record.maps[0].query))
    try:
        board = heads_board([one.thumbnails for one in maps], caption, scale=starting_scale(maps))
        picture = base64.b64encode(png(board, Look(description=describe(record.provenance)))).decode()
    except RequestError:  # no picture can be as large as so many heads would make it
        return "<p>There are too many heads for one picture.</p>\n"
    return f'<p><img src="data:image/png;base64,{picture}" alt="All heads as heatmaps: {_text(caption)}"></p>\n'


def _tables(one: AttentionMap) -> Iterator[str]:
    columns = "".join(f"<th>{_text(text)}" for text in one.key.text)
    weights = one.rows(0, len(one.query))
    for head, rows in zip(one.heads, weights.tolist(), strict=True):
        yield f"<table><caption>{_text(head_title(head))}</caption>\n<tr><td>{columns}\n"
        for text, row in zip(one.query.text, rows, strict=True):
            yield f"<tr><th>{_text(text)}{''.join(f'<td>{_number(value)}' for value in row)}\n"
        yield "</table>\n"


def _number(value: float) -> str:
    """A weight in a table; what is no weight at few digits.

    >>> _number(0.25), _number(0.0), _number(float("nan")), _number(3e38)
    ('0.250', '0', 'not a number', '3e+38')
    """
    if not abs(value) < float("inf"):
        return "not a number"
    if value == 0:
        return "0"
    return f"{value:.3f}" if abs(value) < _READABLE else f"{value:.3g}"


def _text(text: str) -> str:
    return escape(visible(text))
