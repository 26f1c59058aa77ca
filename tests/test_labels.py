import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.render.labels import distinct, elide, graphemes, guarded, justify, written, written_token

LRM = "\u200e"
CHARACTERS = [
    "a",
    "é",
    "e\u0301",
    "漢",
    "ｱ",
    "👍🏽",
    "👨‍👩‍👧",
    "🇧🇷",
    "❤️",
    "1️⃣",
    "각",
    "\u1100\u1161\u11a8",
    "ש",
    "क\u094d",
    "ก็",
    " ",
]
texts = st.lists(st.sampled_from(CHARACTERS), max_size=12)


@given(texts)
def test_text_falls_into_the_characters_it_is_made_of(characters: list[str]) -> None:
    assert graphemes("".join(characters)) == characters


@given(texts, st.integers(0, 12), st.sampled_from(["…", "..", ""]))
def test_a_cut_text_fits_and_has_only_whole_characters(characters: list[str], width: int, sign: str) -> None:
    cut = elide("".join(characters), width, sign)
    assert cell_len(cut) <= width
    starts = {"".join(characters[:n]) for n in range(len(characters) + 1)}
    assert cut in starts or cut.removesuffix(sign) in starts
    assert (cut == "".join(characters)) == (cell_len("".join(characters)) <= width)


@given(texts, st.integers(1, 12))
def test_as_much_as_fits_is_kept(characters: list[str], width: int) -> None:
    kept = elide("".join(characters), width, "")
    longer = "".join(characters[: len(graphemes(kept)) + 1])
    assert kept == "".join(characters) or cell_len(longer) > width


def test_five_thousand_characters_are_cut() -> None:
    assert elide("x" * 5000, 6) == "xxxxx…"


def test_a_cut_right_to_left_text_keeps_the_marks_around_it() -> None:
    cut = elide(guarded("שלום עולם", "utf-8"), 5)
    assert cut == f"{LRM}שלום…{LRM}"


@given(st.text(max_size=8), st.sampled_from(["ascii", "cp1252", "latin-1", "utf-8", "cp1255", "no-such-encoding"]))
def test_what_is_shown_can_be_written_and_has_no_controls(text: str, encoding: str) -> None:
    known = "ascii" if encoding == "no-such-encoding" else encoding
    for shown in (written_token(text, encoding), written(text, encoding)):
        shown.encode(known)
        assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}
        assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("日本", r"\u65e5\u672c"),
        ("😀", r"\U0001f600"),
        ("é", r"\xe9"),
        ("…", r"\u2026"),
        ("\x1b", r"\x1b"),
        (" ", "<SP>"),
    ],
)
def test_tokens_are_escaped_where_the_encoding_lacks_them(text: str, shown: str) -> None:
    assert written_token(text, "ascii") == shown


def test_our_own_signs_have_plain_stand_ins() -> None:
    assert written("head 0 · 5 × 5 … 0–4", "ascii") == "head 0 - 5 x 5 .. 0-4"
    assert written("head 0 · 5 × 5", "latin-1") == "head 0 · 5 × 5"


def test_tokens_are_neither_markup_nor_emoji_names() -> None:
    for text in ("[red]", "[/]", "[link=x]", ":smile:", ":warning:"):
        assert written_token(text, "utf-8") == text


def test_marks_go_only_where_text_runs_right_to_left_and_can_be_written() -> None:
    assert guarded("سلام", "utf-8") == f"{LRM}سلام{LRM}"
    assert guarded("שלום", "cp1255") == f"{LRM}שלום{LRM}"
    assert guarded("שלום", "cp862") == "שלום"
    assert guarded("漢字 é", "utf-8") == "漢字 é"


@given(st.lists(st.sampled_from(["the", "cat", "the 2", "internal", "internet", "a" * 30]), max_size=12))
def test_no_two_labels_are_alike(texts: list[str]) -> None:
    labels = distinct(texts, 8)
    assert len(set(labels)) == len(texts)
    assert all(cell_len(label) <= 8 for label in labels)


def test_only_labels_that_are_alike_get_positions() -> None:
    assert distinct(["the", "cat", "saw", "the"], 8) == ["the 0", "cat", "saw", "the 3"]


def test_blanks_are_counted_in_cells() -> None:
    assert justify("漢", 5, 1) == "   漢"
    assert justify("漢", 1, 1) == "漢"
