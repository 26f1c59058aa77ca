"""Tokens that pictures, terminals, pages and tables get wrong, each kind of them through every format."""

import csv
import io
import re
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from wcwidth import wcswidth

from attnviz import load
from attnviz.render import FORMATS
from attnviz.tokens import visible
from tests.cli import error, run
from tests.pictures import SVG, decoded
from tests.saved import tokens_file, weights_of

KINDS: dict[str, tuple[str, ...]] = {
    "marks of byte-level vocabularies": ("Ġthe", "the", "ĊĊ", "▁of", "of", "##ly", "ly", "</w>", "Ã¤"),
    "repeats": ("o", "gato", "viu", "o", "gato", "o", "o"),
    "blanks": ("   ", "", "\t\t", "\r", "\v", " a", "a ", "\n\n"),
    "wide blanks": ("\u2003", "\u202f", "\u1680", "\r\n\r\n", "a\u00a0b"),
    "markup": ("[bold]", "[/bold]", "[/]", "[#ff0000]", "[@click=x]", r"\[red]", "[/INST]", "[SEP]"),
    "names of emoji": (":heart:", ":+1:", ":", "::", ":thumbs_up:"),
    "escape sequences": ("\x1b[1;5mblink", "\x1b]8;;http://x\x07link", "\x9b2J", "\x07", "\x7f", "ok\x08\x08"),
    "widths": ("日本", "ﾊﾟ", "👩🏽‍🚀", "☎️", "n\u0303", "🇵🇹", "각", "x"),
    "zero widths": ("\u200c", "a\u2060", "\u00ad", "\ufeff", "\u034f", "a"),
    "right to left": ("עברית", "فارسی", "א1", "\u202babc\u202c", "\u2067x\u2069", "abc"),
    "formulas": ("$$$", r"$\alpha$", "x_1^2", r"\sum", "{", "%d", "$"),
    "html": ("<style>", "<!--", "-->", "]]>", "' onload='x", "&lt;", "&#60;"),
    "no characters at all": ("\ud800", "\udfffb", "\x00", "\x00\x00", "a\x00"),
    "csv": (",", '"', '""', "a,b", "=1+1", ";", "'"),
    "long": ("y" * 700, "語" * 3000, "y" * 699 + "z"),
}


def surrogates_escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_every_kind_go_through_every_format(tmp_path: Path, kind: str) -> None:
    tokens = KINDS[kind]
    weights = weights_of(2, len(tokens), len(tokens), dtype=np.float32)
    np.save(tmp_path / "saved.npy", weights)
    outputs = {name: tmp_path / f"x.{name}" for name in FORMATS}
    asked = ["--attention", str(tmp_path / "saved.npy"), "--tokens", str(tokens_file(tmp_path, list(tokens)))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = run("heads", *asked, "--width", "160", *(f"-o{path}" for path in outputs.values()))
    assert done.code == 0
    read_as, *fonts = done.err.splitlines()
    assert read_as == f"note: saved.npy is read as head, query, key: 2 × {len(tokens)} × {len(tokens)}"
    assert all(line.startswith("note: no font at hand has ") for line in fonts)  # as the machine has them
    assert len(fonts) <= 1
    for name in ("json", "jsonl", "npz", "safetensors", "csv"):
        again = load(outputs[name])
        assert again.maps[0].query.text == (tuple(map(surrogates_escaped, tokens)) if name == "csv" else tokens), name
        np.testing.assert_array_equal(again.weights[0], weights)
    assert len(list(csv.reader(io.StringIO(outputs["csv"].read_text("utf-8"), newline="")))) == 1 + weights.size
    titles = [title.text or "" for title in ET.parse(outputs["svg"]).iter(f"{SVG}title")]
    text = outputs["txt"].read_text("utf-8")
    for token in tokens:
        start = visible(token)[:3]
        assert any(title.startswith(start) for title in titles), token
        assert start in text, token
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2068\ud800-\udfff]", text + "".join(titles))
    assert max(decoded(outputs["png"].read_bytes()).shape) < 4000
    assert b"%%EOF" in outputs["pdf"].read_bytes()[-8:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [24, 80, 130])
@pytest.mark.parametrize("options", [[], ["--query", "1"]], ids=["heads", "query"])
def test_columns_stand_straight_and_within_the_width(tmp_path: Path, kind: str, width: int, options: list[str]) -> None:
    tokens = KINDS[kind]
    np.save(tmp_path / "saved.npy", weights_of(2, len(tokens), len(tokens)))
    file = tokens_file(tmp_path, list(tokens))
    asked = ["--attention", str(tmp_path / "saved.npy"), "--tokens", str(file), *options]
    answer = run("heads", *asked, env={"COLUMNS": str(width)})
    assert answer.code == 0
    widths = [wcswidth(line) for line in answer.text.splitlines()]
    assert min(widths) >= 0
    assert max(widths) <= width
    if not options and width == 130:
        rows = [line for line in answer.text.splitlines() if re.search(r"(?<!\S)\d\d?(\s+(\d\d?|·))+$", line)]
        assert len({wcswidth(row) for row in rows[-len(tokens) :]}) == 1


def test_labels_of_tokens_that_differ_differ(tmp_path: Path) -> None:
    for kind in ("marks of byte-level vocabularies", "blanks", "wide blanks", "zero widths"):
        shown = [visible(token) for token in KINDS[kind]]
        assert len(set(shown)) == len(shown), kind
        assert all(label.strip() for label in shown)


@pytest.mark.parametrize("typed", ["[/]", "[bold]no[/bold]", ":heart:", "$x$"])
def test_what_is_typed_is_no_markup_in_messages(tmp_path: Path, typed: str) -> None:
    assert typed in error("heads", "a b", "--model", typed, code=2)
    assert typed in error("heads", "a b", "--model", "scratch", "--query", typed, code=2)
    assert typed in error("heads", "a b", "-o", str(tmp_path / typed / "x.png"), code=2)
    assert typed in error("heads", "--attention", str(tmp_path / f"{typed}.npz"), code=2).replace("\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--attention", "{}.npz"],
        ["--embeddings", "{}.npz"],
        ["a", "--model", "scratch", "--mask", "{}.npz"],
        ["-f", "{}"],
        ["a", "-o", "{}/x.json"],
        ["a", "--font", "{}.ttf"],
        ["a", "--layer", "{}"],
        ["a", "--query", "{}"],
    ],
)
@pytest.mark.parametrize("typed", ["/no/\x1b[2Jsuch", "/no/\u202esuch", "/no/\x9bsuch"])
def test_nothing_typed_acts_on_the_terminal_in_messages(arguments: list[str], typed: str) -> None:
    message = error("heads", *(part.format(typed) for part in arguments), code=2)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", message)
    assert "such" in message


def test_a_file_s_own_name_and_arrays_act_on_no_terminal(tmp_path: Path) -> None:
    name, array = "a\x1b[2J\u202e[red].npz", "w\x1b]0;t\x07[/]"
    np.savez(tmp_path / name, **{array: weights_of(2, 3, 3)})  # type: ignore[arg-type]
    answer = run("heads", "--attention", str(tmp_path / name), "--width", "100")
    assert answer.code == 0
    for text in (answer.text, answer.err):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    assert visible(name) in answer.text
    assert "[/]" in answer.text
    for kind in ("png", "svg", "pdf", "json"):
        assert run("heads", "--attention", str(tmp_path / name), "--format", kind).code == 0


@pytest.mark.parametrize("array", ["漢字" * 60, "a b " * 80, "x" * 300])
@pytest.mark.parametrize("width", [20, 47, 100])
def test_what_made_the_numbers_is_said_within_the_width(tmp_path: Path, array: str, width: int) -> None:
    np.savez(tmp_path / "saved.npz", **{array: weights_of(2, 3, 3)})  # type: ignore[arg-type]
    for name in ("terminal", "txt"):
        text = run("heads", "--attention", str(tmp_path / "saved.npz"), "--width", str(width), "--format", name).text
        assert max(map(wcswidth, text.splitlines())) <= width
        assert not [line for line in text.splitlines() if line != line.rstrip()]
        assert array.replace(" ", "") in re.sub(r"\s", "", text)
