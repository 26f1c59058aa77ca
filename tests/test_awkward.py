"""One awkward record through every format and onto terminals of every width: all is written, and all agree."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from wcwidth import wcswidth

from attnviz import load
from attnviz.collect import HeatmapCollector, collect
from attnviz.maps import AttentionMap, AttentionRecord, StoredWeights
from attnviz.render import FORMATS, PICTURE_TILES
from attnviz.render.panels import Board, heads_board
from attnviz.tokens import Tokens, visible
from tests.cli import Answer, run
from tests.pictures import KINDS, SVG, color_of, decoded, heatmaps, scene_of
from tests.records import assert_same
from tests.saved import weights_of

QUERIES = ("漢字", "👨‍👩‍👧", "[/INST]", "</script>", "שלום", "a\x00b", "$x$")
KEYS = ("\x1b[2J", "&amp;", '"><img>', "e\u0301", ":smile:", "\u202eabc", "[CLS]", "a\nb", "سلام", "\ud83d", " ")
NAN_ROW, MASKED_ROW = 2, 4
READERS = ("json", "jsonl", "csv", "npz", "safetensors")


def record_of(weights: np.ndarray, query: Tokens, key: Tokens) -> AttentionRecord:
    """Layers 1 and 4, the second's heads being 0 and 5; the outputs are there too."""
    outputs = np.random.default_rng(3).standard_normal((2, len(query), 3)).astype(np.float32)
    maps = tuple(
        AttentionMap(
            name=f"decoder.block.{layer}.cross",
            layer=layer,
            heads=(0, 5, 6),
            weights=StoredWeights(weights[i]),
            query=query,
            key=key,
            stack="decoder",
            kind="cross",
            output=outputs[i],
        )
        for i, layer in enumerate((1, 4))
    )
    text = "漢字 </script> [red] \x1b[2J $x$ שלום\n&amp;"
    said = {"attnviz": "0.1.0", "model": "a\x1b[31m [/] <b>.npz", "backend": "numpy", "device": "cpu"}
    return AttentionRecord(maps, {**said, "dtype": "float32", "text": text}, ("a <note> [/] 漢字",))


def awkward() -> AttentionRecord:
    weights = weights_of(2, 3, len(QUERIES), len(KEYS), dtype=np.float32)
    weights[0, 1, NAN_ROW] = np.nan
    weights[:, :, MASKED_ROW] = 0
    return record_of(weights, Tokens.of(QUERIES), Tokens.of(KEYS))


def one_query() -> AttentionRecord:
    """A single token on one axis."""
    weights = weights_of(2, 3, 1, len(KEYS), seed=1, dtype=np.float32)
    return record_of(weights, Tokens.of(QUERIES[:1]), Tokens.of(KEYS))


def one_token() -> AttentionRecord:
    """A single token on both axes, attending to itself."""
    return record_of(np.ones((2, 3, 1, 1), np.float32), Tokens.of(["\u200b"]), Tokens.of(["\u200b"]))


RECORDS = {"awkward": awkward, "one query": one_query, "one token": one_token}


def from_command(folder: Path, record: AttentionRecord, *arguments: str) -> Answer:
    record.save(folder / "given.npz")
    return run("heads", "--attention", str(folder / "given.npz"), *arguments)


# what machines read


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("which", RECORDS)
def test_numbers_and_texts_read_back_exactly(tmp_path: Path, which: str, name: str) -> None:
    record = RECORDS[which]()
    record.save(tmp_path / f"x.{name}")
    again = load(tmp_path / f"x.{name}")
    assert again.weights.dtype == np.float32
    assert again.weights.tobytes() == record.weights.tobytes()
    if name == "csv":
        for ours, theirs in zip(again.maps, record.maps, strict=True):
            assert (ours.layer, ours.heads) == (theirs.layer, theirs.heads)
            assert ours.query.text == theirs.query.text
            assert ours.key.text == tuple(text.replace("\ud83d", "\\ud83d") for text in theirs.key.text)
        return
    if name in ("json", "jsonl") and which == "awkward":
        record = replace(record, notes=(*record.notes, "values that are not numbers are null"))
    assert_same(again, record)


def test_every_format_that_machines_read_is_tried() -> None:
    assert {*READERS, "html"} == {
        one.name for one in FORMATS.values() if one.holds == "numbers"
    }  # test_page is of html


@pytest.mark.parametrize("which", RECORDS)
def test_one_run_of_the_command_writes_the_same_into_every_format(tmp_path: Path, which: str) -> None:
    record = RECORDS[which]()
    outputs = {name: tmp_path / f"x.{name}" for name in FORMATS}
    answer = from_command(tmp_path, record, "--layer", "all", *(f"-o{path}" for path in outputs.values()))
    assert (answer.code, answer.out) == (0, b"")
    assert "Warning" not in answer.err
    if which == "awkward":
        assert "decoder" in answer.err or "cross" in answer.err
        assert f"layer 1 head 5 row {NAN_ROW} is not a number" in answer.err
        assert "attends to nothing" in answer.err
    found = {name: load(outputs[name]) for name in READERS}
    for name, one in found.items():
        assert one.weights.tobytes() == record.weights.tobytes(), name
        if name != "csv":
            assert one.maps[0].query == record.maps[0].query, name
            assert one.maps[0].key == record.maps[0].key, name
            assert one.maps[1].output is not None, name
            assert one.provenance == found["npz"].provenance, name
    for name in ("png", "svg", "pdf", "txt"):
        assert outputs[name].stat().st_size > 400, name


def test_json_is_strict_and_has_null_for_what_is_no_number(tmp_path: Path) -> None:
    answer = from_command(tmp_path, awkward(), "--format", "json")
    rows = answer.json["weights"]  # refuses NaN and Infinity
    assert rows[0][1][NAN_ROW] == [None] * len(KEYS)
    assert sum(row == [None] * len(KEYS) for layer in rows for head in layer for row in head) == 1
    assert rows[1][2][MASKED_ROW] == [0] * len(KEYS)
    assert answer.json["query_tokens"] == list(QUERIES)
    assert answer.json["key_tokens"] == list(KEYS)
    answer.out.decode("utf-8")
    line = from_command(tmp_path, awkward(), "--format", "jsonl")
    assert line.out.count(b"\n") == 1
    assert json.loads(line.out) == answer.json


def test_csv_has_a_line_for_each_weight_that_any_reader_of_csv_reads(tmp_path: Path) -> None:
    text = from_command(tmp_path, awkward(), "--format", "csv").text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    weights = awkward().weights
    assert len(rows) == weights.size
    place = {(1, 0): (0, 0), (1, 5): (0, 1), (1, 6): (0, 2), (4, 0): (1, 0), (4, 5): (1, 1), (4, 6): (1, 2)}
    for row in rows:
        layer, head = place[int(row["layer"]), int(row["head"])]
        weight = weights[layer, head, int(row["query"]), int(row["key"])]
        np.testing.assert_equal(np.float32(row["weight"]), weight)
        assert row["query_text"] == QUERIES[int(row["query"])]
        assert row["key_text"] == KEYS[int(row["key"])].replace("\ud83d", "\\ud83d")


# what people look at


def board_of(record: AttentionRecord) -> Board:
    collector = HeatmapCollector(PICTURE_TILES, PICTURE_TILES)
    collect(iter(record.maps), [collector])
    return heads_board(collector.result(), "a caption")


def is_label(text: str, token: str) -> bool:
    """Whether a text of a picture is the token, or the beginning of it that there was room for."""
    return text == visible(token) or (len(text) > 1 and text.endswith("…") and visible(token).startswith(text[:-1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", RECORDS)
def test_pictures_have_the_colour_of_each_weight(which: str, kind: str) -> None:
    record = RECORDS[which]()
    board = board_of(record)
    panels = heatmaps(board, kind)[:6]
    missing = set()
    for panel, weights in zip(panels, record.weights.reshape(-1, *record.weights.shape[2:]), strict=True):
        assert panel.colors.shape[:2] == weights.shape
        for place, weight in np.ndenumerate(weights):
            color = panel.colors[place].astype(int)
            if np.isnan(weight):
                missing.add(tuple(color.tolist()))
            else:
                assert np.abs(color - color_of(float(weight / board.range.top))).max() <= 4, place
    assert len(missing) == (which == "awkward")
    assert not missing & {tuple(color_of(step / 238)) for step in range(239)}


@pytest.mark.parametrize("which", RECORDS)
def test_the_layout_of_all_pictures_names_every_token_once_a_panel_or_edge(which: str) -> None:
    record = RECORDS[which]()
    texts = [text.string for text in scene_of(board_of(record)).texts]
    for token in {*record.maps[0].query.text, *record.maps[0].key.text}:
        assert any(is_label(text, token) for text in texts), token
    assert {"query", "key"} <= {word for text in texts for word in text.split()}
    joined = "".join(texts)
    assert not re.search("[\x00-\x1f\u202e]", joined)


def test_an_svg_is_xml_and_holds_every_token_as_text(tmp_path: Path) -> None:
    svg = ET.fromstring(from_command(tmp_path, awkward(), "--format", "svg").out)
    titles = [title.text or "" for title in svg.iter(f"{SVG}title")]
    for token in (*QUERIES, *KEYS):
        assert any(is_label(title, token) for title in titles), token
    assert not list(svg.iter(f"{SVG}script"))


def test_a_png_is_an_image_of_bounded_size_and_a_pdf_a_page(tmp_path: Path) -> None:
    png = decoded(from_command(tmp_path, awkward(), "--format", "png").out)
    assert min(png.shape[:2]) > 200
    assert max(png.shape[:2]) < 5000
    pdf = from_command(tmp_path, awkward(), "--format", "pdf").out
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")


# the terminal


@pytest.mark.parametrize("width", [20, 33, 57, 80, 121, 200])
@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("which", RECORDS)
def test_no_terminal_is_too_narrow(tmp_path: Path, which: str, color: bool, width: int) -> None:
    record = RECORDS[which]()
    for options in ([], ["--layer", "all"], ["--query", "0"]):
        record.save(tmp_path / "given.npz")
        env = {"COLUMNS": str(width), **({"FORCE_COLOR": "1", "TERM": "xterm-256color"} if color else {})}
        answer = run("heads", "--attention", str(tmp_path / "given.npz"), *options, env=env)
        assert answer.code == 0
        plain = re.sub(r"\x1b\[[0-9;]*m", "", answer.text)
        assert ("\x1b" in answer.text) == color
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2068]", plain)
        for line in plain.splitlines():
            assert 0 <= wcswidth(line) <= width, line


@pytest.mark.parametrize("name", ["terminal", "txt"])
@pytest.mark.parametrize("which", RECORDS)
def test_text_has_every_token_and_every_weight_in_its_place(tmp_path: Path, which: str, name: str) -> None:
    record = RECORDS[which]()
    text = from_command(tmp_path, record, "--layer", "4", "--width", "200", "--format", name).text
    for token in {*record.maps[0].query.text, *record.maps[0].key.text}:
        assert visible(token) in text, token
    squeezed = re.sub(" +", " ", text)
    for row in record.weights[1].reshape(-1, record.weights.shape[-1]):
        if all(0.006 < weight < 0.994 for weight in row):
            assert " " + " ".join(f"{100 * weight:.0f}" for weight in row.tolist()) in squeezed
    assert "nan" not in text


def test_a_row_that_is_no_number_and_one_that_is_masked_differ(tmp_path: Path) -> None:
    text = from_command(tmp_path, awkward(), "--head", "5", "--layer", "1", "--width", "100").text
    rows = [line.split() for line in text.splitlines()]
    assert ["[/INST]", *"?" * len(KEYS)] in rows
    assert ["\u200eשלום\u200e"] in rows
    assert "? is not a number" in " ".join(text.split())
    assert "blank is exactly 0" in text


@pytest.mark.parametrize("width", [40, 100])
def test_a_query_that_is_no_number_can_be_asked_for(tmp_path: Path, width: int) -> None:
    for query in ("[/INST]", str(NAN_ROW), "שלום", "漢字"):
        answer = from_command(tmp_path, awkward(), "--query", query, "--layer", "1", "--width", str(width))
        assert answer.code == 0
        assert visible(query if not query.isdigit() else "[/INST]") in answer.text
