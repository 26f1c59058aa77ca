"""Records for pages, and what is in a page: its data, and the weights that its script would read."""

import base64
import io
import re
import zlib
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz.maps import AttentionMap, AttentionRecord, Head, StoredWeights
from attnviz.render.page import write_page
from attnviz.tokens import Tokens
from tests.cli import strict_json
from tests.saved import weights_of

Array = npt.NDArray[Any]
PROVENANCE = {"attnviz": "0.0.0", "model": "m", "backend": "numpy", "device": "cpu", "dtype": "float32", "text": "a b"}
HOSTILE = (
    "<script>window.harm=1</script>", "</script>", '"><img src=x onerror="window.harm=1">', "&amp;", "{{x}}",
    "[[data]]", "<!-- [data] -->", "\u202eabc", "a\0b", "\x1b[31m", "\ud83d", "javascript:alert(1)",
    "' onclick='window.harm=1",
    "-->", "<!--", "\u2028", "字", "شكرا",
)  # fmt: skip


def a_map(weights: Array, query: Tokens, key: Tokens, layer: int = 0, **more: Any) -> AttentionMap:
    heads: tuple[Head, ...] = more.pop("heads", tuple(range(len(weights))))
    return AttentionMap(f"layer.{layer}", layer, heads, StoredWeights(weights), query, key, **more)


def record_of(*maps: AttentionMap, notes: tuple[str, ...] = ()) -> AttentionRecord:
    return AttentionRecord(maps, PROVENANCE, notes)


def named(texts: Sequence[str], special: Sequence[int] = ()) -> Tokens:
    n = len(texts)
    return Tokens(tuple(texts), tuple(texts), ((0, 0),) * n, tuple(i in special for i in range(n)))


def self_record(n_layers: int = 2, n_heads: int = 3, n: int = 5, *, causal: bool = False) -> AttentionRecord:
    """Layers 0, 3, 6 … of self-attention over t0, t1 …"""
    tokens = named([f"t{i}" for i in range(n)])
    weights = weights_of(n_layers, n_heads, n, n, dtype=np.float32)
    if causal:
        weights = np.tril(weights)
        weights /= weights.sum(axis=-1, keepdims=True)
    return record_of(*(a_map(one, tokens, tokens, 3 * i) for i, one in enumerate(weights)))


def page_of(record: AttentionRecord, **options: Any) -> str:
    stream = io.BytesIO()
    write_page(record, stream, **options)
    return stream.getvalue().decode("utf-8")


class Elements(HTMLParser):
    """The elements of a page: each with its attributes and the text directly in it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1][2].append(data)

    def text(self, tag: str, **attributes: str) -> str:
        """The text of the one element that has these attributes."""
        matches = [texts for name, found, texts in self.found if name == tag and attributes.items() <= found.items()]
        assert len(matches) == 1, (tag, attributes, len(matches))
        return "".join(matches[0]).strip()  # what follows the element is nobody else's here


def data_in(page: str) -> dict[str, Any]:
    return dict(strict_json(Elements(page).text("script", id="data")))


def unpacked(text: str, n_rows: int, n_columns: int, bits: int, *, triangle: bool) -> Array:
    """The weights [row, column] behind a text of the page, as its documentation says."""
    content = zlib.decompress(base64.b64decode(text, validate=True))
    tops, lows = np.frombuffer(content, "<f4", 2 * n_rows).reshape(2, n_rows).astype(float)
    planes = np.frombuffer(content, np.uint8, offset=8 * n_rows).reshape(bits // 8, -1)
    flat = sum(plane.astype(int) << (8 * i) for i, plane in enumerate(planes[::-1]))
    codes = np.zeros((n_rows, n_columns), int)
    codes[np.tril_indices(n_rows) if triangle else ...] = flat if triangle else np.reshape(flat, codes.shape)
    last = 2**bits - 2
    weights = lows[:, None] + (tops - lows)[:, None] * (codes / last) ** 2
    weights[codes == last + 1] = np.nan
    return np.asarray(weights)


def weights_in(page: str) -> list[list[Array]]:
    """The weights of each map and head."""
    data, elements = data_in(page), Elements(page)
    return [
        [
            unpacked(
                elements.text("script", id=f"weights-{m}-{h}"),
                len(data["tokens"][one["query"]]["text"]),
                len(data["tokens"][one["key"]]["text"]),
                data["bits"],
                triangle=one["triangle"],
            )
            for h in range(len(one["heads"]))
        ]
        for m, one in enumerate(data["maps"])
    ]


def stated_bound(page: str) -> float:
    """How exact the page says it is."""
    match = re.search(r"within ([\d.e+-]+) of the record", page)
    assert match
    return float(match[1])


def saved_page(record: AttentionRecord, path: Path, **options: Any) -> Path:
    path.write_text(page_of(record, **options), encoding="utf-8")
    return path
