import base64
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from attnviz import attend
from attnviz.maps import AttentionRecord
from attnviz.render.colors import MISSING, NAMES, colormap
from attnviz.tokens import Tokens, visible
from tests.browser import Tab, needs_browser, started
from tests.pages import HOSTILE, PROVENANCE, a_map, named, page_of, record_of, self_record, stated_bound
from tests.saved import weights_of

pytestmark = needs_browser
VIEWS = ("overview", "head", "lines", "token", "measures")
ROUNDING = 1e-4
"""The page shows four digits or more after the point."""
SUMS = "#view .row-list li"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as one:
        yield one


@pytest.fixture
def tab(browser: Any, tmp_path: Path) -> Iterator[Tab]:
    one = Tab(browser, tmp_path)
    yield one
    one.close()


def pair_record() -> AttentionRecord:
    """Two layers of two heads over [CLS] un ##do it [SEP] so [SEP], which is a pair of sentences."""
    pieces = ("[CLS]", "un", "##do", "it", "[SEP]", "so", "[SEP]")
    special = tuple(piece.startswith("[") for piece in pieces)
    spans = ((0, 0), (0, 2), (2, 4), (5, 7), (0, 0), (8, 10), (0, 0))
    tokens = Tokens(pieces, pieces, spans, special)
    weights = weights_of(2, 2, 7, 7, dtype=np.float32)
    return record_of(*(a_map(one, tokens, tokens, i) for i, one in enumerate(weights)))


def cross_record() -> AttentionRecord:
    """An encoder, a decoder and what is between them; heads and tokens differ."""
    source, target = named(["le", "chat", "noir", "."]), named(["the", "black", "cat"])
    return record_of(
        a_map(weights_of(2, 4, 4, seed=1), source, source, 0),
        a_map(weights_of(3, 3, 3, seed=2), target, target, 0, stack="decoder"),
        a_map(weights_of(3, 3, 4, seed=3), target, source, 1, stack="decoder", kind="cross", heads=("single", 0, 4)),
    )


# values


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("causal", [False, True])
def test_every_value_that_is_shown_is_the_records_within_the_bound(tab: Tab, bits: int, causal: bool) -> None:
    record = self_record(2, 3, 9, causal=causal)
    bound = stated_bound(page_of(record, bits=bits)) + ROUNDING
    for layer in range(2):
        for head in range(3):
            tab.open(record, f"#{3 * layer}.{head}", bits=bits)
            columns, rows, numbers = tab.table()
            assert columns == rows == [f"t{i}" for i in range(9)]
            assert np.abs(np.array(numbers) - record.weights[layer, head]).max() <= bound


def test_a_cell_under_the_pointer_is_told_with_its_tokens(tab: Tab) -> None:
    record = cross_record()
    tab.open(record, "#cross1.4")
    weights = record.maps[2].rows(0, 3)[2]
    box = tab.page.locator("#view canvas").bounding_box()
    seen = set()
    for x in range(4, int(box["width"]), 19):
        for y in range(4, int(box["height"]), 19):
            tab.page.mouse.move(box["x"] + x, box["y"] + y)
            if text := tab.text("#readout"):
                i, j, value = tab.cell()
                assert text.startswith(f"cross layer 1 · head 4: {record.maps[2].query.text[i]} ({i})")
                assert abs(value - weights[i, j]) < 2 * ROUNDING
                assert f"→ {record.maps[2].key.text[j]}" in tab.text("#tip")
                seen.add((i, j))
    assert len(seen) == 12
    tab.page.mouse.move(box["x"] + box["width"] + 60, box["y"])
    assert (tab.text("#readout"), tab.page.locator("#tip").is_visible()) == ("", False)


def test_part_of_a_text_has_the_positions_of_the_whole(tab: Tab) -> None:
    record = self_record(1, 2, 9)
    part = record_of(*(one.pick(queries=range(5, 8), keys=range(3, 9)) for one in record.maps))
    tab.open(part, "#0.1")
    tab.page.locator("#view canvas").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.page.keyboard.press(key)
    assert "t6 (6) → t4 (4):" in tab.text("#readout")
    options = tab.page.locator("#query option").all_text_contents()
    assert [one.strip() for one in options] == ["5 t5", "6 t6", "7 t7"]


def test_every_cell_can_be_reached_with_the_keyboard(tab: Tab) -> None:
    record = self_record(1, 2, 4)
    tab.open(record, "#0.1")
    tab.page.locator("#view canvas").focus()
    tab.press("ArrowRight")
    for row in range(4):
        for column in range(4):
            i, j, value = tab.cell()
            assert (i, j) == (row, column)
            assert abs(value - record.weights[0, 1, i, j]) < ROUNDING
            tab.press("ArrowRight")
        tab.press("ArrowDown", "Home")
    tab.press("End", "ArrowUp")
    assert tab.cell()[:2] == (2, 3)
    tab.press("ArrowLeft", "PageUp")
    assert tab.cell()[:2] == (0, 2)
    tab.press("PageDown", "Enter")
    assert tab.address == "#0.1/token/3"


def test_what_is_no_number_is_said_to_be_none_and_has_a_colour_of_its_own(tab: Tab) -> None:
    tokens = named(["a", "b"])
    weights = np.array([[[np.nan, 1], [0.25, 0.75]]], np.float32)
    tab.open(record_of(a_map(weights, tokens, tokens)), "#0.0")
    assert np.array_equal(tab.table()[2], weights[0], equal_nan=True)
    tab.page.locator("#view canvas").focus()
    tab.press("ArrowRight")
    assert tab.text("#readout") == "layer 0 · head 0: a (0) → a (0): not a number"
    tab.open(record_of(a_map(np.concatenate([weights] * 2), tokens, tokens)))
    assert pixels(tab, 0, 1, 2)[0][0] == list(MISSING)


def test_a_row_is_listed_from_its_largest_weight(tab: Tab) -> None:
    record = self_record(1, 2, 14)
    tab.open(record, "#0.1")
    row = record.weights[0, 1, 0]
    lines = [line.split("\n") for line in tab.texts(SUMS)]
    assert [name for name, _ in lines[:10]] == [f"t{j}" for j in np.argsort(-row)[:10]]
    assert lines[10][0] == "4 others"
    assert abs(float(lines[10][1]) - np.sort(row)[:4].sum()) < 5 * ROUNDING


# the overview


def pixels(tab: Tab, m: int, h: int, n: int) -> list[list[list[int]]]:
    """The colours in the middle of each of n × n cells of a thumbnail."""
    levels = canvas_of(tab, f"#thumbnail-{m}-{h} canvas")
    middles = [int((i + 0.5) * len(levels) / n) for i in range(n)]
    return [[levels[r, c, :3].tolist() for c in middles] for r in middles]


def canvas_of(tab: Tab, selector: str) -> npt.NDArray[np.uint8]:
    """What is drawn on a canvas: [row, column, (red, green, blue, alpha)]."""
    program = "(selector) => document.querySelector(selector).toDataURL()"
    png = base64.b64decode(tab.page.evaluate(program, selector).partition(",")[2])
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGBA"))


@pytest.mark.parametrize(
    ("scale", "name"),
    [*(("linear", name) for name in NAMES), *((scale, "viridis") for scale in ("sqrt", "log", "row"))],
)
def test_thumbnails_have_the_colours_of_the_weights(tab: Tab, scale: str, name: str) -> None:
    record = self_record(2, 2, 6)
    tab.open(record)
    tab.page.select_option("#scale", scale)
    tab.page.select_option("#colormap", label=name)
    tab.ready()
    weights = record.weights[1, 1].astype(float)
    shares = {
        "linear": weights,
        "sqrt": np.sqrt(weights),
        "log": np.clip(1 + np.log10(weights) / 3, 0, 1),
        "row": weights / weights.max(axis=1, keepdims=True),
    }[scale]
    near = [colormap(name)[np.clip(np.rint(255 * shares + by).astype(int), 0, 255)].astype(int) for by in range(-3, 4)]
    found = np.array(pixels(tab, 1, 1, 6))
    assert (np.stack([np.abs(found - one).sum(axis=-1) for one in near]).min(axis=0) == 0).all()


def test_a_thumbnail_opens_its_head_by_click_and_by_keyboard(tab: Tab) -> None:
    tab.open(self_record(2, 3, 4))
    assert len(tab.texts(".thumbnail")) == 6
    assert not tab.page.locator("#still").is_visible()
    tab.page.click("#thumbnail-1-2")
    tab.ready()
    assert (tab.title, tab.address) == ("layer 3 · head 2", "#3.2")
    tab.press("1")
    tab.page.locator("[aria-current=true]").focus()
    tab.press("ArrowLeft", "ArrowUp", "Enter")
    assert (tab.title, tab.address) == ("layer 0 · head 1", "#0.1")


def test_many_tokens_are_pooled_in_the_overview_and_whole_in_the_head(tab: Tab) -> None:
    record = self_record(1, 2, 100)
    tab.open(record)
    assert "mean of 3 × 3 weights" in tab.text("#said")
    tab.page.click("#thumbnail-0-1")
    tab.ready()
    assert np.abs(np.array(tab.table()[2]) - record.weights[0, 1]).max() < 2 * ROUNDING


# lines


def test_lines_of_several_heads_are_drawn_in_their_colours(tab: Tab) -> None:
    record = self_record(1, 8, 5)
    tab.open(record, "#0.2/lines")
    assert tab.title == "layer 0 · head 2"
    tab.page.click(".chip >> text=all")
    tab.ready()
    assert tab.title == "layer 0 · 8 heads"
    strokes = tab.page.eval_on_selector_all(
        ".chip line", "lines => lines.map((one) => one.getAttribute('stroke') + one.getAttribute('stroke-dasharray'))"
    )
    assert len(set(strokes)) == 8
    every = (canvas_of(tab, ".wire canvas")[:, :, 3] > 0).sum()
    tab.page.hover(".queries [data-i='3']")
    of_one = canvas_of(tab, ".wire canvas")[:, :, 3] > 0
    assert 0 < of_one.sum() < every
    begins = np.flatnonzero(of_one[:, 6]) / len(of_one) * 5
    assert len(begins) > 0
    assert (np.floor(begins) == 3).all()
    strongest = int(record.weights[0, 0, 3].argmax())
    value = record.weights[0, 0, 3, strongest]
    assert f"t3 → t{strongest} {value:.3f}"[:-1] in tab.text("#readout")
    assert len(tab.texts(".row-list .of")) == 8
    tab.page.click(".keys [data-i='1']")
    tab.page.mouse.move(5, 5)
    strongest = int(record.weights[0, 0, :, 1].argmax())
    assert tab.text("#readout").startswith(f"t1 ← t{strongest} ")
    assert tab.page.locator(".keys [aria-pressed=true]").inner_text() == "t1"


def test_tokens_of_the_lines_are_reached_with_the_keyboard(tab: Tab) -> None:
    record = self_record(1, 2, 4)
    tab.open(record, "#0.0/lines")
    tab.page.locator(".queries [tabindex='0']").focus()
    tab.press("ArrowDown", "ArrowDown")
    assert tab.text("#readout").startswith("t2 → ")
    tab.press("Enter")
    assert tab.page.locator(".queries [aria-pressed=true]").inner_text() == "t2"
    tab.page.locator(".chip", has_text="1").focus()
    tab.press("Enter")
    assert tab.title == "layer 0 · 2 heads"


# one token over all heads


def test_one_token_is_shown_over_all_heads(tab: Tab) -> None:
    record = self_record(2, 3, 5)
    tab.open(record, "#0.0/token/2")
    assert tab.title == "t2 (2) over all heads"
    tab.page.locator("#view canvas").focus()
    tab.press("ArrowRight")
    for layer in range(2):
        for head in range(3):
            assert tab.text("#readout").startswith(f"head {3 * layer}.{head}: t2 (2) → t0 (0)")
            assert abs(tab.cell()[2] - record.weights[layer, head, 2, 0]) < ROUNDING
            tab.press("ArrowDown")
    tab.press("Enter")
    assert tab.address == "#3.2"
    tab.press("4")
    tab.page.click(".strip >> text=t4")
    tab.ready()
    assert tab.address == "#3.2/token/4"
    tab.page.select_option("#query", index=1)
    tab.ready()
    assert tab.title == "t1 (1) over all heads"


# measures


def test_measures_are_a_mosaic_and_a_table_that_sorts(tab: Tab) -> None:
    values = {"luck": [[0.5, None, 3.0], [2.0, 1.0, 0.25]], "skill <b>": [[1.0, 2, 3], [4, 5, 6]]}
    tab.open(self_record(2, 3, 4), "#measures", measures=values)
    assert tab.texts(".mosaic button") == ["0.500", "–", "3.000", "2.000", "1.000", "0.250"]
    first = "#view tbody th"
    assert tab.texts(first) == ["0.2", "3.0", "3.1", "0.0", "3.2", "0.1"]
    tab.page.click("th >> text=luck")
    assert tab.texts(first) == ["3.2", "0.0", "3.1", "3.0", "0.2", "0.1"]
    tab.page.click("th >> text=skill <b>")
    assert tab.texts(first) == ["3.2", "3.1", "3.0", "0.2", "0.1", "0.0"]
    assert tab.page.get_attribute("th:has-text('skill')", "aria-sort") == "descending"
    tab.page.click("th >> text=head")
    assert tab.texts(first)[0] == "0.0"
    tab.page.select_option("#measure", label="skill <b>")
    assert tab.ready().texts(".mosaic button") == ["1.000", "2.000", "3.000", "4.000", "5.000", "6.000"]
    tab.page.click(".mosaic [data-m='1'][data-h='1']")
    assert tab.ready().address == "#3.1"


def test_without_measures_there_is_no_view_of_them(tab: Tab) -> None:
    tab.open(self_record(), "#measures", measures={})
    assert tab.texts("[role=tab]:visible") == ["Overview", "Matrix", "Lines", "One token"]
    assert tab.title == "All heads"


# choosing what is shown


def test_layers_and_heads_are_chosen_from_keyboard_controls_and_address(tab: Tab) -> None:
    tab.open(self_record(3, 2, 4), "#3.1")
    assert tab.title == "layer 3 · head 1"
    assert tab.press("j").address == "#6.0"
    assert tab.press("k").address == "#3.1"
    assert tab.press("J").address == "#6.1"
    assert tab.press("J").address == "#0.1"
    assert tab.press("K", "K").address == "#3.1"
    tab.page.select_option("#layer", index=2)
    tab.page.select_option("#head", index=0)
    assert tab.ready().title == "layer 6 · head 0"
    tab.page.click("#next")
    assert tab.ready().address == "#6.1"
    tab.page.evaluate("() => { location.hash = '#0.1/lines'; }")
    tab.page.wait_for_selector(".wire")
    assert tab.ready().title == "layer 0 · head 1"
    for key, view in enumerate(VIEWS, 1):
        tab.press(str(key))
        assert tab.page.get_attribute("[role=tab][aria-selected=true]", "data-view") == view
    tab.press("1")
    tab.page.locator("[role=tab][aria-selected=true]").focus()
    tab.press("ArrowRight", "ArrowRight")
    assert tab.page.get_attribute("[role=tab][aria-selected=true]", "data-view") == "lines"


HELD_UP = """
  const whole = Response.prototype.arrayBuffer;
  Response.prototype.arrayBuffer = async function () {
    const bytes = await whole.call(this);
    await window.held;
    return bytes;
  };
"""


def test_what_is_shown_last_is_what_was_asked_for_last(tab: Tab) -> None:
    record = self_record(1, 4, 6)
    tab.page.add_init_script(HELD_UP)
    tab.open(record, "#0.0")
    tab.page.evaluate("() => { window.held = new Promise((done) => { window.release = done; }); }")
    tab.page.keyboard.press("j")
    tab.page.evaluate("() => { window.held = null; }")
    tab.page.evaluate("() => { location.hash = '#0.2'; }")
    tab.page.wait_for_function("() => document.querySelector('#stage-title').textContent.endsWith('head 2')")
    tab.ready()
    tab.page.evaluate("async () => { window.release(); await new Promise((done) => setTimeout(done, 0)); }")
    assert tab.title == "layer 0 · head 2"
    assert np.abs(np.array(tab.table()[2]) - record.weights[0, 2]).max() < ROUNDING
    assert tab.page.locator("#view canvas").get_attribute("aria-label") == "layer 0 · head 2: 6 rows, 6 columns"


@pytest.mark.parametrize("address", ["#9.9", "#0.7", "#nothing", "#0.0/token/99", "#%00", "#cross0.0", "#<b>"])
def test_an_address_that_names_nothing_shows_something_all_the_same(tab: Tab, address: str) -> None:
    tab.open(self_record(), address)
    assert tab.title in ("All heads", "t0 (0) over all heads")


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (1, 3), (2, 1), (2, 0), (0, 2)])
def test_the_smallest_records_are_shown_in_every_view(tab: Tab, n_queries: int, n_keys: int) -> None:
    weights = weights_of(1, n_queries, n_keys) if n_keys else np.zeros((1, n_queries, 0))
    one = a_map(weights, named(["q"] * n_queries), named(["k"] * n_keys), 7, kind="cross")
    tab.open(record_of(one))
    assert tab.title == "cross layer 7 · head 0"
    for view in "123450":
        tab.press(view, "j", "K", "s")
    tab.press("3")
    for token in tab.page.locator(".token").all():
        token.click()
    tab.press("4").page.locator("#view canvas").focus()
    tab.press("ArrowRight", "ArrowDown", "Enter")


def test_maps_of_several_stacks_are_all_there(tab: Tab) -> None:
    record = cross_record()
    tab.open(record)
    assert tab.texts(".layer h3") == ["layer 0", "decoder layer 0", "cross layer 1"]
    for address, m, h in (("encoder0.1", 0, 1), ("decoder0.2", 1, 2), ("cross1.single", 2, 0)):
        tab.open(record, f"#{address}")
        columns, rows, numbers = tab.table()
        assert (columns, rows) == (list(record.maps[m].key.text), list(record.maps[m].query.text))
        assert np.abs(np.array(numbers) - record.maps[m].rows(0, len(rows))[h]).max() < ROUNDING
    for view in "12345":
        tab.press(view)


def test_tokens_are_searched_for(tab: Tab) -> None:
    tab.open(pair_record(), "#1.0")
    tab.press("/")
    tab.page.keyboard.type("IT")
    assert tab.ready().text("#found") == "1"
    tab.press("Enter")
    assert re.search(r": it \(3\) →", tab.text("#readout"))
    tab.page.fill("#find", "d")
    assert tab.ready().text("#found") == "1"
    tab.page.fill("#find", "zebra")
    assert tab.ready().text("#found") == "none"
    tab.press("Escape")
    assert tab.page.input_value("#find") == ""
    tab.press("3", "/")
    tab.page.keyboard.type("so")
    assert tab.ready().texts(".token.hit") == ["so", "so"]
    tab.press("Enter")
    assert tab.text("#readout").startswith("so → ")


def test_special_tokens_are_hidden_and_their_mass_is_stated(tab: Tab) -> None:
    record = pair_record()
    tab.open(record, "#1.1")
    tab.page.check("#special")
    columns, rows, numbers = tab.ready().table()
    assert columns == rows == ["un", "##do", "it", "so"]
    kept = [1, 2, 3, 5]
    weights = record.weights[1, 1].astype(float)
    assert np.abs(np.array(numbers) - weights[np.ix_(kept, kept)]).max() < ROUNDING
    share = 1 - weights[np.ix_(kept, kept)].sum() / weights[kept].sum()
    assert f"{100 * share:.1f} %" in tab.text("#said")
    every = record.weights.astype(float)
    shares = 1 - every[:, :, kept][..., kept].sum((-1, -2)) / every[:, :, kept].sum((-1, -2))
    tab.press("3").page.click(".chip >> text=all")
    assert f"{100 * shares[1].mean():.1f} %" in tab.ready().text("#said")
    tab.page.evaluate("() => { location.hash = '#0.0/token/3'; }")
    tab.page.wait_for_selector(".strip")
    assert f"{100 * (1 - every[:, :, 3][..., kept].sum(-1)).mean():.1f} %" in tab.ready().text("#said")
    tab.press("1")
    assert abs(float(tab.text("#said").split()[0]) - 100 * shares.mean()) < 0.2
    assert tab.press("h").page.is_checked("#special") is False


def test_pieces_are_merged_into_words(tab: Tab) -> None:
    record = pair_record()
    tab.open(record, "#0.1").press("w")
    columns, rows, numbers = tab.table()
    assert columns == rows == ["[CLS]", "undo", "it", "[SEP]", "so", "[SEP]"]
    weights = record.weights[0, 1].astype(float)
    summed = np.add.reduceat(weights, [0, 1, 3, 4, 5, 6], axis=1)
    means = np.stack([summed[0], summed[1:3].mean(axis=0), *summed[3:]])
    assert np.abs(np.array(numbers) - means).max() < 2 * ROUNDING


@pytest.mark.parametrize(("pair", "n_rows", "n_columns"), [("AA", 5, 5), ("AB", 5, 2), ("BA", 2, 5), ("BB", 2, 2)])
def test_a_pair_of_sentences_is_shown_in_parts(tab: Tab, pair: str, n_rows: int, n_columns: int) -> None:
    record = pair_record()
    tab.open(record, "#0.0")
    tab.page.select_option("#pair", pair)
    _, _, numbers = tab.ready().table()
    rows, columns = (slice(0, 5) if side == "A" else slice(5, 7) for side in pair)
    assert np.shape(numbers) == (n_rows, n_columns)
    assert np.abs(np.array(numbers) - record.weights[0, 0, rows, columns]).max() < ROUNDING


def test_what_a_record_has_no_use_for_is_not_offered(tab: Tab) -> None:
    tab.open(self_record(), "#0.0")
    for name in ("pair", "special", "words"):
        assert not tab.page.locator(f"#{name}").is_visible()
    assert tab.open(pair_record(), "#0.0").page.locator("#pair").is_visible()


def test_cells_grow_and_shrink(tab: Tab) -> None:
    tab.open(self_record(1, 2, 60), "#0.0")
    width = "() => document.querySelector('.scroller > div').clientWidth"
    before = tab.page.evaluate(width)
    tab.press("+", "+")
    after = tab.page.evaluate(width)
    assert after > 1.5 * before
    tab.page.locator("#view canvas").focus()
    tab.press("ArrowRight", "End")
    assert tab.cell()[:2] == (0, 59)
    assert tab.page.evaluate("() => document.querySelector('.scroller').scrollLeft") > 0
    tab.page.click("#zoom-out")
    assert before < tab.ready().page.evaluate(width) < after


# looks, and whom they are for


def test_light_and_dark_follow_the_system_and_the_button(browser: Any, tmp_path: Path) -> None:
    paper = "() => getComputedStyle(document.body).backgroundColor"
    for scheme, other in (("light", "dark"), ("dark", "light")):
        tab = Tab(browser, tmp_path, color_scheme=scheme)
        tab.open(self_record(), "#0.0")
        levels = {scheme: tab.page.evaluate(paper)}
        tab.press("d")
        levels[other] = tab.page.evaluate(paper)
        tab.page.click("#theme")
        assert tab.ready().page.evaluate(paper) == levels[scheme]
        light, dark = (int(re.findall(r"\d+", levels[name])[0]) for name in ("light", "dark"))
        assert light > 200
        assert dark < 60
        for view in "12345":
            tab.press(view)
        tab.close()


def test_a_narrow_window_shows_all_of_it(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, tmp_path, viewport={"width": 360, "height": 640})
    tab.open(attend("Orange is my favorite fruit", layers=[0, 1]), "#0.0")
    for view in "12345":
        tab.press(view)
        width = tab.page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= 360, f"view {view} is {width} wide"
        for control in tab.page.locator("#controls select:visible, #controls button:visible, [role=tab]").all():
            box = control.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
    tab.close()


def test_everything_that_can_be_used_has_a_name(tab: Tab) -> None:
    program = """() => [...document.querySelectorAll("button, select, input, canvas[tabindex], summary, [role=region]")]
      .filter((one) => one.checkVisibility())
      .filter((one) => !(one.ariaLabel || one.labels?.[0]?.innerText || one.innerText || "").trim())
      .map((one) => one.outerHTML)"""
    tab.open(pair_record(), "#0.0")
    tab.table()
    for view in "12345":
        assert tab.press(view).page.evaluate(program) == []
        assert tab.page.locator("[role=tab][tabindex='0']").count() == 1


def test_the_focus_can_be_seen(tab: Tab) -> None:
    tab.open(pair_record(), "#0.0")
    seen = set()
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        name, style = tab.page.evaluate(
            """() => {
              const one = document.activeElement;
              return [one.id || one.tagName, getComputedStyle(one).outlineStyle];
            }"""
        )
        if name != "BODY":
            assert style != "none", name
            seen.add(name)
    assert {"theme", "layer", "scale", "special", "find", "CANVAS", "SUMMARY"} <= seen


def test_the_keys_are_explained(tab: Tab) -> None:
    tab.open(self_record(), "#0.0").press("?")
    assert tab.page.locator("#help").is_visible()
    tab.press("Escape")
    assert not tab.page.locator("#help").is_visible()


# safety, and other places


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_tokens_are_only_text(tab: Tab, view: str) -> None:
    tokens = named(HOSTILE)
    weights = weights_of(1, 2, len(HOSTILE), len(HOSTILE))
    record = record_of(*(a_map(one, tokens, tokens, i) for i, one in enumerate(weights)), notes=HOSTILE)
    tab.open(record, "#0.1", measures={text: [[1.0, 2.0]] for text in HOSTILE[:3]})
    tab.press(str(VIEWS.index(view) + 1))
    assert tab.page.evaluate("() => window.harm") is None
    assert tab.texts("#query option") if view == "token" else True
    if view == "head":
        shown = tab.page.eval_on_selector_all("#view details th", "cells => cells.map((cell) => cell.textContent)")
        assert shown == []
        tab.table()
        shown = tab.page.eval_on_selector_all("#view thead th", "cells => cells.map((cell) => cell.textContent)")
        assert shown == [visible(text) for text in HOSTILE]
    if view == "lines":
        shown = tab.page.eval_on_selector_all(".queries .token", "cells => cells.map((cell) => cell.textContent)")
        assert shown == [visible(text) for text in HOSTILE]
    assert tab.page.locator("#view img, #view script").count() == 0


@pytest.mark.parametrize(
    ("text", "shown"), [("\u202eabc", r"\u202eabc"), ("a\u2028\x85", r"a\u2028\u0085"), ("<b>", "<b>")]
)
def test_what_made_the_numbers_is_told_in_plain_characters(tab: Tab, text: str, shown: str) -> None:
    record = replace(self_record(), provenance={**PROVENANCE, "text": text})
    tab.open(record).page.click("footer summary")
    assert f'"text": "{shown}"' in tab.text("#provenance")


def test_a_page_without_scripts_shows_its_tables(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, tmp_path, java_script_enabled=False)
    record = self_record(1, 2, 3)
    file = tmp_path / "page.html"
    file.write_text(page_of(record), encoding="utf-8")
    tab.page.goto(file.as_uri())
    assert tab.page.locator("#still table").count() == 2
    assert tab.page.locator("#still").is_visible()
    assert not tab.page.locator("main").is_visible()
    assert f"{record.weights[0, 0, 0, 0]:.3f}" in tab.text("#still")
    tab.close()


def test_a_page_whose_scripts_are_forbidden_shows_its_tables(tab: Tab) -> None:
    file = tab.folder / "page.html"
    forbidden = '<meta http-equiv="Content-Security-Policy" content="script-src \'none\'">'
    file.write_text(page_of(self_record(1, 2, 3)).replace("<head>", f"<head>{forbidden}"), encoding="utf-8")
    tab.page.goto(file.as_uri())
    assert tab.page.locator("#still table").count() == 2
    assert tab.page.locator("#still").is_visible()
    assert all("Content Security Policy" in fault for fault in tab.faults)
    tab.faults.clear()


def test_a_notebook_shows_the_page_in_a_frame(tab: Tab) -> None:
    file = tab.folder / "notebook.html"
    file.write_text(f"<!doctype html><meta charset='utf-8'>{self_record()._repr_html_()}", encoding="utf-8")
    tab.page.goto(file.as_uri())
    frame = tab.page.frame_locator("iframe")
    frame.locator("#thumbnail-1-1").click()
    frame.locator("#stage[aria-busy=false]").wait_for()
    assert frame.locator("#stage-title").inner_text() == "layer 3 · head 1"
    for key in "12345jks":
        tab.page.keyboard.press(key)
        frame.locator("#stage[aria-busy=false]").wait_for()
