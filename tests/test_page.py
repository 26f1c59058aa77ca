import base64
import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attnviz import RequestError, attend, render
from attnviz.maps import AttentionRecord
from attnviz.render.page import FINE_WEIGHTS, embedded, write_page
from attnviz.render.page_codes import Bits, encode, largest_error, rounded_up
from attnviz.render.page_data import sentence_parts
from attnviz.render.page_maps import THUMBNAIL_TILES
from attnviz.render.page_measures import head_values
from attnviz.render.page_still import TABLE_WEIGHTS
from attnviz.tokens import Tokens, visible
from tests.cli import error, run
from tests.pages import (
    HOSTILE,
    Elements,
    a_map,
    data_in,
    named,
    page_of,
    record_of,
    self_record,
    stated_bound,
    unpacked,
    weights_in,
)
from tests.saved import weights_of

BITS: tuple[Bits, ...] = (8, 16)
MATRICES = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=5),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)

# codes


@pytest.mark.parametrize("bits", BITS)
@given(weights=MATRICES)
def test_codes_hold_any_numbers_within_the_error_that_is_told(bits: Bits, weights: Any) -> None:
    coded = encode(weights, bits)
    decoded = unpacked(coded.packed(), weights.shape[0], weights.shape[1], bits, triangle=False)
    finite = np.isfinite(weights)
    assert np.array_equal(np.isnan(decoded), ~finite)
    wide = weights.astype(float)
    errors = np.abs(np.where(finite, wide - decoded.astype(np.float32), 0))
    assert errors.max() == largest_error(weights, coded)
    spans = np.where(finite, wide, 0).max(axis=1, initial=0) - np.where(finite, wide, 0).min(axis=1, initial=0)
    assert (errors.max(axis=1) <= spans / (2**bits - 2) * 1.01 + 1e-37).all()


@pytest.mark.parametrize("bits", BITS)
def test_zero_and_the_rows_largest_weight_are_exact_and_small_ones_are_fine(bits: Bits) -> None:
    row = np.array([[0, 0.5, 0.001, 0.0001]])
    decoded = encode(row, bits).decoded()
    assert decoded[0, :2].tolist() == [0, 0.5]
    assert abs(decoded[0, 2] - 0.001) < 0.5 * 0.05 / (2**bits - 2)


@pytest.mark.parametrize("bits", BITS)
def test_each_code_is_the_nearest_that_there_is(bits: Bits) -> None:
    last = 2**bits - 2
    row = np.concatenate([np.linspace(0, 1, 1009), [1.0]])[None]
    squares = (np.arange(last + 1) / last) ** 2
    nearest = np.abs(row[0, :, None] - squares).min(axis=1) if bits == 8 else None
    errors = np.abs(encode(row, bits).decoded()[0].astype(float) - row[0])
    if nearest is not None:
        np.testing.assert_allclose(errors, nearest, atol=1e-7)
    assert errors.max() <= 1 / last


@pytest.mark.parametrize("bits", BITS)
def test_a_triangle_is_half_of_it(bits: Bits) -> None:
    weights = np.tril(weights_of(40, 40, dtype=np.float32))
    coded = encode(weights, bits)
    whole, half = coded.packed(), coded.packed(triangle=True)
    assert np.array_equal(unpacked(half, 40, 40, bits, triangle=True), unpacked(whole, 40, 40, bits, triangle=False))
    assert len(half) < len(whole)


@given(st.floats(0, 1e30))
def test_a_bound_is_rounded_up_to_two_digits(bound: float) -> None:
    rounded = rounded_up(bound)
    assert bound <= rounded * (1 + 1e-12)
    assert rounded <= bound * 1.11
    assert float(f"{rounded:.2g}") == rounded


# what is in a page


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("causal", [False, True])
def test_the_weights_in_the_page_are_the_records_within_the_bound_that_it_states(bits: Bits, causal: bool) -> None:
    record = self_record(2, 3, 6, causal=causal)
    page = page_of(record, bits=bits)
    assert all(one["triangle"] is causal for one in data_in(page)["maps"])
    bound = stated_bound(page)
    assert bound < {8: 0.004, 16: 0.00002}[bits]
    for one, heads in zip(record.maps, weights_in(page), strict=True):
        assert np.abs(one.rows(0, 6) - np.stack(heads)).max() <= bound


@pytest.mark.parametrize(("row", "column"), [(0, 1), (0, 4), (3, 4)])
def test_one_weight_above_the_diagonal_of_one_head_is_not_lost(row: int, column: int) -> None:
    record = self_record(1, 3, 5, causal=True)
    weights = record.weights[0].copy()
    weights[2, row, column] = 0.5
    page = page_of(record_of(a_map(weights, record.maps[0].query, record.maps[0].key)))
    assert not data_in(page)["maps"][0]["triangle"]
    assert weights_in(page)[0][2][row, column] == pytest.approx(0.5, abs=1e-4)


def test_sixteen_bits_are_taken_where_they_are_cheap() -> None:
    assert data_in(page_of(self_record()))["bits"] == 16
    assert FINE_WEIGHTS < 800 * 800
    tokens = named([str(i) for i in range(800)])
    large = record_of(a_map(np.full((1, 800, 800), 1 / 800, np.float32), tokens, tokens))
    assert data_in(page_of(large))["bits"] == 8


def test_maps_may_differ_in_tokens_and_heads() -> None:
    source, target = named(["a", "b", "c"]), named(["x", "y"])
    record = record_of(
        a_map(weights_of(2, 3, 3), source, source, 0),
        a_map(weights_of(3, 2, 2), target, target, 0, stack="decoder"),
        a_map(weights_of(4, 2, 3), target, source, 0, stack="decoder", kind="cross", heads=("single", 0, 2, 5)),
    )
    page = page_of(record)
    data = data_in(page)
    assert [one["address"] for one in data["maps"]] == ["encoder0.", "decoder0.", "cross0."]
    assert data["maps"][2]["heads"] == ["single", "0", "2", "5"]
    assert [one["title"] for one in data["maps"]] == ["layer 0", "decoder layer 0", "cross layer 0"]
    assert [data["tokens"][data["maps"][2][axis]]["text"] for axis in ("query", "key")] == [["x", "y"], ["a", "b", "c"]]
    for one, heads in zip(record.maps, weights_in(page), strict=True):
        assert np.abs(one.rows(0, len(one.query)) - np.stack(heads)).max() <= stated_bound(page)


def test_layers_of_one_stack_are_addressed_by_their_number_alone() -> None:
    assert [one["address"] for one in data_in(page_of(self_record(3)))["maps"]] == ["0.", "3.", "6."]


def test_values_that_are_no_numbers_stay_in_their_place_and_are_said() -> None:
    tokens = named(["a", "b", "c"])
    weights = weights_of(2, 3, 3, dtype=np.float32)
    weights[0, 1] = np.nan
    weights[1, 2, 0] = np.inf
    page = page_of(record_of(a_map(weights, tokens, tokens), notes=("layer 0 head 0 row 1 is not a number",)))
    found = np.stack(weights_in(page)[0])
    assert np.array_equal(np.isnan(found), ~np.isfinite(weights))
    assert "layer 0 head 0 row 1 is not a number" in data_in(page)["notes"]
    assert not re.search(r"[:,[] *NaN", page)
    assert page.count("<td>not a number") == 4


def test_thumbnails_are_means_of_tiles() -> None:
    n = 2 * THUMBNAIL_TILES + 1
    record = self_record(1, 2, n)
    page = page_of(record)
    edges = data_in(page)["maps"][0]["rowEdges"]
    assert edges[-1] == n
    assert len(edges) - 1 <= THUMBNAIL_TILES
    rows = len(edges) - 1
    found = unpacked(Elements(page).text("script", id="thumbnails-0"), 2 * rows, rows, 8, triangle=False)
    parts = [slice(first, last) for first, last in pairwise(edges)]
    wanted = [[[head[a, b].mean() for b in parts] for a in parts] for head in record.weights[0]]
    assert np.abs(found.reshape(2, rows, rows) - np.array(wanted)).max() < 0.004


def test_words_special_tokens_and_sentences_are_told() -> None:
    pair = Tokens(
        ("[CLS]", "un", "##do", "[SEP]", "it", "[SEP]"),
        ("[CLS]", "un", "##do", "[SEP]", "it", "[SEP]"),
        ((0, 0), (0, 2), (2, 4), (0, 0), (5, 7), (0, 0)),
        (True, False, False, True, False, True),
    )
    told = data_in(page_of(record_of(a_map(weights_of(1, 6, 6), pair, pair))))["tokens"][0]
    assert told["special"] == [0, 3, 5]
    assert told["words"] == [[0, "[CLS]"], [1, "undo"], [3, "[SEP]"], [4, "it"], [5, "[SEP]"]]
    assert "".join(told["parts"]) == "AAAABB"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_a_head_without_a_number_that_can_be_shown_is_missing_throughout(value: float) -> None:
    tokens = named(["a", "b"])
    page = page_of(record_of(a_map(np.full((1, 2, 2), value), tokens, tokens)))
    assert np.isnan(weights_in(page)[0][0]).all()
    assert stated_bound(page) == 0


def test_negative_values_and_large_ones_keep_their_place() -> None:
    tokens = named(["a", "b"])
    weights = np.array([[[-0.5, 1.5], [300.0, 0.0]]])
    page = page_of(record_of(a_map(weights, tokens, tokens)), bits=16)
    assert np.abs(weights_in(page)[0][0] - weights[0]).max() <= stated_bound(page) < 0.01


@pytest.mark.parametrize(
    ("special", "parts"),
    [("", None), ("s", None), (".", None), ("s.s", None), (".s.", "AAB"), ("s..ss.s", "AAAAABB"), (".s.s.", None)],
)
def test_a_pair_is_two_runs_of_tokens_with_special_ones_between(special: str, parts: str | None) -> None:
    tokens = named(list(special), [i for i, c in enumerate(special) if c == "s"])
    found = sentence_parts(tokens)
    assert (found and "".join(found)) == parts


def test_measures_are_those_given_or_a_few_of_its_own() -> None:
    record = self_record(2, 3, 4)
    own = data_in(page_of(record))["measures"]
    weights = record.weights.astype(float)
    rows, columns = np.indices((4, 4))
    wanted = {
        "entropy": -(weights * np.log(weights)).sum(-1).mean(-1),
        "largest": weights.max(-1).mean(-1),
        "sink": weights[..., 0].mean(-1),
        "self": np.trace(weights, axis1=2, axis2=3) / 4,
        "distance": (weights * abs(rows - columns)).sum(-1).mean(-1),
    }
    assert own.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(own[name], values, rtol=1e-5)
    given_ones = {"luck <b>": [[1, 2.5, None], [np.float64(3), 4, 5]]}
    assert data_in(page_of(record, measures=given_ones))["measures"] == {"luck <b>": [[1, 2.5, None], [3, 4, 5]]}
    assert data_in(page_of(record, measures={}))["measures"] == {}
    with pytest.raises(ValueError, match="luck has 2 maps of 3 and 2 heads, not 3 and 3"):
        page_of(record, measures={"luck": [[1, 2, 3], [4, 5]]})
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_of(record, measures={"x": [[float("nan")] * 3] * 2})


def test_measures_of_cross_attention_compare_no_positions_and_pass_over_what_is_no_number() -> None:
    weights = weights_of(2, 2, 3)
    weights[1, 0, 1] = np.nan
    one = a_map(weights, named(["x", "y"]), named(["a", "b", "c"]), kind="cross")
    values = head_values([one])
    assert list(values) == ["entropy", "largest", "sink"]
    assert values["largest"][0][0] == pytest.approx(weights[0].max(-1).mean())
    assert values["largest"][0][1] is None


# safety


@pytest.mark.parametrize("text", HOSTILE)
def test_a_token_is_shown_letter_by_letter_and_never_markup(text: str) -> None:
    plain = page_of(self_record(1, 1, 2))
    tokens = Tokens((text, "b"), (text, text), ((0, 0), (0, 0)), (False, False))
    record = replace(record_of(a_map(weights_of(1, 2, 2), tokens, tokens)), provenance=provenance_with(text))
    page = page_of(record, measures={text: [[1.0]]})
    shapes = [[(tag, sorted(attributes)) for tag, attributes, _ in Elements(one).found] for one in (plain, page)]
    assert shapes[0] == shapes[1]
    told = data_in(page)
    assert told["tokens"][0]["text"] == [visible(text)] * 2
    assert told["provenance"]["text"] == text
    assert visible(text) in [x.strip() for tag, _, texts in Elements(page).found if tag == "th" for x in texts]
    assert page.count("</script>") == page.count("<script")


def provenance_with(text: str) -> dict[str, Any]:
    return {"attnviz": "0", "model": text, "backend": "numpy", "device": "cpu", "dtype": "float32", "text": text}


def test_the_policy_allows_the_pages_own_scripts_and_styles_and_nothing_else() -> None:
    page = page_of(self_record())
    policy = next(
        str(attributes["content"])
        for tag, attributes, _ in Elements(page).found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        hashes = [f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts]
        assert rules[rule].split() == hashes
        assert texts
    assert not re.search(r"unsafe|\beval\(|new Function", page)
    for _, attributes, _ in Elements(page).found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


@pytest.mark.parametrize("text", ["o cão já comeu", "字 и שלום", "👨\u200d👩 ❤️"])
def test_the_page_is_utf_8_whatever_the_locale(text: str, tmp_path: Path) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    file = tmp_path / "x.html"
    command = [sys.executable, "-m", "attnviz", "heads", text, "--model", "scratch", "-o", str(file)]
    assert subprocess.run(command, check=True, env={**os.environ, **env}, capture_output=True).stdout == b""
    page = file.read_bytes()
    assert b'<meta charset="utf-8">' in page[:1024]
    assert data_in(page.decode("utf-8"))["provenance"]["text"] == text
    assert Elements(page.decode("utf-8")).text("h1", dir="auto").endswith(visible(text))


@pytest.mark.parametrize("record", [self_record(1, 1, 1), self_record(2, 3, 40, causal=True), attend("The cat sat")])
def test_nothing_in_a_page_is_elsewhere(record: AttentionRecord) -> None:
    page = page_of(record)
    assert not re.search(r'https?://(?!www\.w3\.org/2000/svg")|@import|url\(', page)
    for tag, attributes, _ in Elements(page).found:
        assert tag not in ("link", "iframe", "object", "embed")
        assert not attributes.keys() & {"href", "srcset"}
        assert (attributes.get("src") or "data:").startswith("data:")


# without scripts


def test_short_records_are_tables_that_need_no_script() -> None:
    source, target = named(["a", "b", "<c>"]), named(["x", "y"])
    weights = weights_of(2, 2, 3)
    page = page_of(record_of(a_map(weights, target, source, 4, kind="cross"), notes=("mind <this>",)))
    rows = re.findall(r"<tr><th>(.*?)<td>(.*)", page)
    assert [name for name, _ in rows] == ["x", "y"] * 2
    assert [[float(x) for x in cells.split("<td>")] for _, cells in rows] == weights.reshape(4, 3).round(3).tolist()
    assert "<th>a<th>b<th>&lt;c&gt;" in page
    assert "<h2>cross layer 4</h2>" in page
    assert "<p>mind &lt;this&gt;</p>" in page
    assert "data:image" not in page


@pytest.mark.parametrize(("n_layers", "n_heads", "n"), [(12, 12, 6), (6, 12, 8), (1, 32, 19)])
def test_the_numbers_of_many_heads_are_in_the_page_without_script(n_layers: int, n_heads: int, n: int) -> None:
    record = self_record(n_layers, n_heads, n)
    page = page_of(record)
    cells = re.findall(r"<td>([\d.]+)", page)
    assert [float(cell) for cell in cells] == record.weights.astype(float).round(3).ravel().tolist()
    assert len(page) < 500_000


def test_long_records_are_a_picture_that_needs_no_script() -> None:
    record = self_record(1, 2, 90)
    assert record.weights.size > TABLE_WEIGHTS
    page = page_of(record)
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(pictures) == 1
    assert base64.b64decode(pictures[0]).startswith(b"\x89PNG")
    assert "<table" not in page.partition('id="still"')[2].partition("</section>")[0]


# as a whole


def test_the_same_record_gives_the_same_page(tmp_path: Path) -> None:
    record = attend("Orange is my favorite fruit")
    record.save(tmp_path / "a.html")
    written = (tmp_path / "a.html").read_bytes()
    assert written.decode() == page_of(record)
    assert len(written) <= 200_000


def test_more_than_a_browser_opens_is_refused() -> None:
    class Endless:
        shape = (8, 8_000, 8_000)

        def rows(self, start: int, stop: int) -> Any:
            raise AssertionError("nothing may be made of it")

    tokens = named(["x"] * 8_000)
    record = record_of(
        replace(a_map(np.zeros((8, 1, 1)), named(["x"]), named(["x"])), weights=Endless(), query=tokens, key=tokens)
    )
    with pytest.raises(RequestError, match=r"512,000,000 weights are more than a page can hold.*write npz"):
        write_page(record, io.BytesIO())
    assert "<iframe" not in embedded(record)
    assert "512,000,000 weights" in embedded(record)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 0, 1), (1, 1, 0), (0, 2, 2)])
def test_the_smallest_records_have_pages(shape: tuple[int, int, int]) -> None:
    one = a_map(np.ones(shape, np.float32), named(["q"] * shape[1]), named(["k"] * shape[2]))
    page = page_of(record_of(one))
    assert np.stack(weights_in(page)[0] or [np.ones(shape[1:])]).size == max(shape[0], 1) * shape[1] * shape[2]


def test_a_record_shows_itself_in_notebooks() -> None:
    record = self_record()
    html = record._repr_html_()
    (frame,) = Elements(html).found
    assert frame[0] == "iframe"
    assert frame[1]["srcdoc"] == page_of(record)
    assert frame[1]["sandbox"] == "allow-scripts"
    assert "<iframe" not in record_of()._repr_html_()


@pytest.mark.parametrize("command", [["metrics", "a b"], ["lesson", "heads"], ["positions"]], ids=" ".join)
def test_other_results_have_no_page(command: list[str], tmp_path: Path) -> None:
    assert "this has no html: choose one of txt, png" in error(*command, "-o", str(tmp_path / "a.html"), code=2)
    assert not list(tmp_path.iterdir())


def test_the_bits_of_a_page_are_chosen(tmp_path: Path) -> None:
    sizes = {}
    for bits in ("8", "16"):
        assert run("heads", "a b", "-o", str(tmp_path / f"{bits}.html"), "--page-bits", bits).code == 0
        text = (tmp_path / f"{bits}.html").read_text("utf-8")
        assert f"Weights are held in {bits} bits" in text
        sizes[bits] = len(text)
    assert sizes["8"] < sizes["16"]
    assert "is not one of" in error("heads", "a b", "--page-bits", "12", code=2)


# colours


PROTAN = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
DEUTAN = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
"""Machado, Oliveira and Fernandes 2009: linear RGB as it is seen without one kind of cone."""


@pytest.mark.parametrize("seen", [np.eye(3), PROTAN, DEUTAN], ids=["all", "protan", "deutan"])
@pytest.mark.parametrize("name", ["HEAD_COLORS", "HEAD_COLORS_ON_DARK"])
def test_colours_of_heads_can_be_told_apart_by_colour_blind_readers(name: str, seen: Any) -> None:
    source = (Path(render.__file__).parent / "web" / "colors.js").read_text(encoding="utf-8")
    listed = re.search(rf"const {name} = \[(.*?)\]", source)
    assert listed
    levels = np.array([list(bytes.fromhex(code)) for code in re.findall(r"#(\w{6})", listed[1])]) / 255
    linear = np.clip(
        np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4) @ np.transpose(seen), 0, 1
    )
    places = cielab(linear)
    assert len(places) == 6
    assert min(np.linalg.norm(a - b) for a, b in combinations(places, 2)) > 15


def cielab(linear: Any) -> Any:
    """CIE 1976 L*, a*, b* of linear sRGB, white D65, without the straight part that there is near black."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt((linear @ np.transpose(to_xyz) / [0.9505, 1, 1.089]).T)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
