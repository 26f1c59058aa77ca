"""Renderers: values in, text or bytes out; none of them sees a source or a model. Here: which formats there are."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from attnviz.errors import RequestError

PICTURE_TILES = 512
"""The most tiles a side that a picture draws of one head; what is longer is pooled to it."""


@dataclass(frozen=True)
class Format:
    """One format that output can have."""

    name: str
    """Its suffix, without the dot."""
    holds: Literal["text", "picture", "numbers"]
    """What people look at, or what machines read."""
    writer: str
    """`module:function`, imported when it is used. It takes a stream last; before it a record, or for what
    people look at a board and a look."""
    binary: bool
    """Not to be written to a terminal."""
    several: bool = False
    """Results of several texts may follow each other in one file."""
    result_writer: str = ""
    """For numbers, `module:function` for results that are no record: it takes `Fields`, or for csv a `Table`. Empty
    where the format is of records alone."""


_ALL = (
    Format("txt", "text", "attnviz.render.plaintext:write_text", binary=False, several=True),
    Format("png", "picture", "attnviz.render.png:write_png", binary=True),
    Format("svg", "picture", "attnviz.render.vector:write_svg", binary=False),
    Format("pdf", "picture", "attnviz.render.vector:write_pdf", binary=True),
    Format(
        "json",
        "numbers",
        "attnviz.render.jsontext:write_json",
        binary=False,
        result_writer="attnviz.render.jsontext:json_of",
    ),
    Format(
        "jsonl",
        "numbers",
        "attnviz.render.jsontext:write_jsonl",
        binary=False,
        several=True,
        result_writer="attnviz.render.jsontext:jsonl_of",
    ),
    Format(
        "csv",
        "numbers",
        "attnviz.render.csvtext:write_csv",
        binary=False,
        result_writer="attnviz.render.csvtext:csv_of",
    ),
    Format("npz", "numbers", "attnviz.render.npz:write_npz", binary=True, result_writer="attnviz.render.npz:npz_of"),
    Format(
        "safetensors",
        "numbers",
        "attnviz.render.tensors:write_safetensors",
        binary=True,
        result_writer="attnviz.render.tensors:safetensors_of",
    ),
    Format(
        "html",
        "numbers",
        "attnviz.render.page:write_page",
        binary=False,
    ),
)
FORMATS = {one.name: one for one in _ALL}
RESULT_FORMATS = tuple(one.name for one in _ALL if one.holds != "numbers" or one.result_writer)
"""The formats of results that are no record."""


def format_of(path: Path) -> Format:
    """The format that the suffix of `path` names.

    Raises:
        RequestError: none has it.

    >>> format_of(Path("heads.PNG")).name
    'png'
    """
    name = path.suffix.lstrip(".").lower()
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, n=1)
    meant = f"; did you mean .{near[0]}?" if near else ""
    raise RequestError(f"output {path}: suffix {path.suffix!r} is none of {', '.join('.' + n for n in FORMATS)}{meant}")
