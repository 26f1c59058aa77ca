"""A page: one HTML file that holds every weight and shows it, with nothing from outside and no network."""

import io
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import BinaryIO

from attnviz.errors import RequestError
from attnviz.maps import AttentionRecord
from attnviz.render.page_codes import Bits
from attnviz.render.page_data import page_json
from attnviz.render.page_maps import PageMap, page_map
from attnviz.render.page_measures import HeadValues, head_values
from attnviz.render.page_still import error_text, still
from attnviz.render.panels import caption_of

FINE_WEIGHTS = 500_000
"""Up to so many weights there are 16 bits for each where nothing is said: they take a megabyte."""
MOST_WEIGHTS = 400_000_000
"""Of so many, 8 bits each are as much as a browser opens."""
EMBEDDED_WEIGHTS = 4_000_000
"""Up to so many, about 5 MB, go into a notebook."""

_SOURCES = Path(__file__).parent / "web"
_SCRIPTS = ("data", "axes", "colors", "state", "matrix", "overview", "head", "lines", "token", "measures", "main")
"""In the order in which they run, as one script."""
_EARLY = 'document.documentElement.className = "scripted";'
"""Before anything is shown, so that what is there for want of scripts never is."""


def write_page(
    record: AttentionRecord,
    stream: BinaryIO,
    *,
    bits: Bits | None = None,
    measures: Mapping[str, HeadValues] | None = None,
) -> None:
    """Write `record` to `stream` as one page that opens from disk; the same record gives the same bytes.

    Args:
        record: its maps may differ in heads and tokens.
        stream: where the UTF-8 goes.
        bits: 8 or 16 for each weight; 16 unless there are very many. The page says how exact that is.
        measures: numbers [map][head] by their name; a few simple ones unless given, none if it is empty.

    Raises:
        RequestError: there are more weights than a browser can open.
        ValueError: a measure is not of the record's heads, or holds what is no finite number.
    """
    n_weights = _count(record)
    if n_weights > MOST_WEIGHTS:
        raise RequestError(
            f"{n_weights:,} weights are more than a page can hold, which is {MOST_WEIGHTS:,}:"
            " choose fewer layers or heads, or write npz"
        )
    chosen: Bits = bits or (16 if n_weights <= FINE_WEIGHTS else 8)
    maps = [page_map(one, chosen) for one in record.maps]
    parts = _parts(record, maps, chosen, head_values(record.maps) if measures is None else measures)
    for text in _filled(_source("page.html"), parts):
        stream.write(text.encode(errors="backslashreplace"))  # half a surrogate pair as its escape


def embedded(record: AttentionRecord) -> str:
    """The page inside another one, such as a notebook: a frame that has it as an attribute, cut off from the rest.

    Records that would weigh too much on a notebook are described in a sentence.
    """
    n_weights = _count(record)
    if not record.maps or n_weights > EMBEDDED_WEIGHTS:
        advice = ' <code>record.save("heads.html")</code> makes a page of it.' if record.maps else ""
        return f"<p>A record of {len(record.maps)} maps of attention, {n_weights:,} weights.{advice}</p>"
    stream = io.BytesIO()
    write_page(record, stream)
    title = escape(caption_of(record.provenance, len(record.maps[0].query)))
    page = escape(stream.getvalue().decode())
    style = "width:100%;height:720px;border:0"
    return f'<iframe sandbox="allow-scripts" title="{title}" style="{style}" srcdoc="{page}"></iframe>'


def _count(record: AttentionRecord) -> int:
    return sum(len(one.heads) * len(one.query) * len(one.key) for one in record.maps)


def _parts(
    record: AttentionRecord, maps: Sequence[PageMap], bits: Bits, measures: Mapping[str, HeadValues]
) -> Mapping[str, Iterator[str]]:
    """What goes into each place of the page's outline."""
    style, script = _source("page.css"), _script()
    caption = escape(caption_of(record.provenance, len(record.maps[0].query)))
    return {
        "policy": iter([_policy([_EARLY, script], [style])]),
        "title": iter([f"{caption} · attnviz"]),
        "heading": iter([caption]),
        "style": iter([style]),
        "early": iter([_EARLY]),
        "error": iter([escape(error_text(maps, bits))]),
        "still": still(record, maps, bits),
        "data": iter([page_json(record, maps, bits, measures)]),
        "thumbnails": (_held(f"thumbnails-{i}", one.packed_thumbnails) for i, one in enumerate(maps)),
        "script": iter([script]),
        "weights": (_held(f"weights-{i}-{h}", head) for i, one in enumerate(maps) for h, head in enumerate(one.heads)),
    }


def _held(name: str, text: str) -> str:
    """Text that the script reads and that is no script."""
    return f'<script type="text/plain" id="{name}">{text}</script>\n'


def _filled(outline: str, parts: Mapping[str, Iterator[str]]) -> Iterator[str]:
    """The outline with its places filled; what is filled in is not looked at again."""
    for i, piece in enumerate(re.split(r"<!-- \[(\w+)\] -->|\[\[(\w+)\]\]", outline)):
        if i % 3 == 0:
            yield piece
        elif piece:
            yield from parts[piece]


def _policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """The Content-Security-Policy: these scripts and styles, pictures that are in the page, and nothing else."""
    allowed = [" ".join(f"'sha256-{_hash(one)}'" for one in some) for some in (scripts, styles)]
    return (
        f"default-src 'none'; script-src {allowed[0]}; style-src {allowed[1]}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


@cache
def _script() -> str:
    """All scripts as one, in a scope of its own."""
    return '(() => {\n"use strict";\n' + "\n".join(_source(f"{name}.js") for name in _SCRIPTS) + "})();\n"


@cache
def _source(name: str) -> str:
    return (_SOURCES / name).read_text(encoding="utf-8")
