import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.errors import RequestError
from attnviz.tokens import Tokens, visible

SENTENCE = Tokens(
    pieces=("[CLS]", "The", "cat", "##ly", "the", "cat", "7", "[SEP]"),
    text=("[CLS]", "The", "cat", "ly", "the", "cat", "7", "[SEP]"),
    spans=((0, 0), (0, 3), (4, 7), (7, 9), (10, 13), (14, 17), (18, 19), (0, 0)),
    special=(True, False, False, False, False, False, False, True),
)


def test_parts_of_different_length_are_refused_by_their_lengths() -> None:
    with pytest.raises(ValueError, match=r"\[2, 1, 2, 2\]"):
        Tokens(("a", "b"), ("a",), ((0, 0), (0, 0)), (False, False))
    with pytest.raises(ValueError, match=r"\[1, 1, 1, 0\]"):
        Tokens(("a",), ("a",), ((0, 0),), ())


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "", "a"]])
def test_tokens_of_strings_show_them_as_they_are(texts: list[str]) -> None:
    tokens = Tokens.of(texts)
    assert len(tokens) == len(texts)
    assert tokens.pieces == tokens.text == tuple(texts)
    assert not any(tokens.special)


@pytest.mark.parametrize("indices", [[], [3], [7, 0, 3], [2, 2, 5]])
def test_picked_tokens_keep_all_their_parts(indices: list[int]) -> None:
    picked = SENTENCE.pick(indices)
    assert picked.pieces == tuple(SENTENCE.pieces[i] for i in indices)
    assert picked.text == tuple(SENTENCE.text[i] for i in indices)
    assert picked.spans == tuple(SENTENCE.spans[i] for i in indices)
    assert picked.special == tuple(SENTENCE.special[i] for i in indices)


# find


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("cat", (2, 5)),
        ("##ly", (3,)),
        ("ly", (3,)),
        ("the", (4,)),
        ("The", (1,)),
        ("THE", (1, 4)),
        ("[cls]", (0,)),
        ("0", (0,)),
        ("6", (6,)),
        ("7", (7,)),
        ("-1", (7,)),
        ("-8", (0,)),
        ("007", (7,)),
    ],
)
def test_a_token_is_found_by_piece_text_any_case_or_position(wanted: str, found: tuple[int, ...]) -> None:
    assert SENTENCE.find(wanted) == found


@pytest.mark.parametrize(("piece", "typed"), [("Straße", "STRASSE"), ("ÉTÉ", "été"), ("٣", "٣"), ("-", "-"), ("", "")])
def test_a_token_of_any_script_is_found(piece: str, typed: str) -> None:
    assert Tokens.of(["x", piece]).find(typed) == (1,)


@pytest.mark.parametrize("wanted", ["8", "-9", "123456789012"])
def test_a_position_that_is_not_there_is_refused_with_those_that_are(wanted: str) -> None:
    with pytest.raises(RequestError, match=f"no query {wanted}: positions go from 0 to 7"):
        SENTENCE.find(wanted)


def test_a_number_too_long_for_a_position_is_a_token() -> None:
    with pytest.raises(RequestError, match="no query token '9999"):
        SENTENCE.find("9" * 5000)


def test_a_position_among_no_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match="no query 0: there are no tokens"):
        Tokens.of([]).find("0")


@pytest.mark.parametrize("wanted", ["dog", "ca", "1.5", "+1", " cat"])
def test_a_token_that_is_not_there_is_refused_with_those_that_are(wanted: str) -> None:
    with pytest.raises(RequestError) as error:
        SENTENCE.find(wanted)
    assert f"no query token {visible(wanted)!r}" in str(error.value)
    assert str(error.value).endswith(": the tokens are [CLS], The, cat, ly, the, 7, [SEP]")


def test_of_many_tokens_the_first_are_named() -> None:
    with pytest.raises(RequestError, match=r": the tokens are t0, t1, .*, t39, …$"):
        Tokens.of(f"t{i}" for i in range(41)).find("x")
    with pytest.raises(RequestError, match=r", t39$"):
        Tokens.of(f"t{i}" for i in range(40)).find("x")


def test_what_acts_on_a_terminal_is_named_and_not_sent() -> None:
    with pytest.raises(RequestError) as error:
        Tokens.of(["\x1b[31m", "\u202e"]).find("\x1b[2J")
    assert str(error.value) == "no query token '␛[2J': the tokens are ␛[31m, ⟨U+202E⟩"


# visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cat", "cat"),
        ("Ġthe", "Ġthe"),
        ("", "⟨empty⟩"),
        (" ", "␣"),
        ("  ", "␣␣"),
        (" cat", "␣cat"),
        ("cat ", "cat␣"),
        ("a b", "a b"),
        ("\t", "␉"),
        ("\n", "␊"),
        ("\r\n", "␍␊"),
        ("a\nb", "a␊b"),
        ("\x00", "␀"),
        ("\x1b[31mred", "␛[31mred"),
        ("\x7f", "␡"),
        ("\x85", "⟨U+0085⟩"),
        ("\xa0", "⟨U+00A0⟩"),
        ("\u3000", "⟨U+3000⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("\u200b", "⟨U+200B⟩"),
        ("\ufeffa", "⟨U+FEFF⟩a"),
        ("a\xadb", "a⟨U+00AD⟩b"),
        ("a\u2060b", "a⟨U+2060⟩b"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("\ud83d", "⟨U+D83D⟩"),
        ("\ue000", "⟨U+E000⟩"),
        ("\U0010ffff", "⟨U+10FFFF⟩"),
        ("\u200d", "⟨U+200D⟩"),
        ("a\u200c", "a⟨U+200C⟩"),
        ("\u0301", "◌\u0301"),
        ("\ufe0f", "⟨U+FE0F⟩"),
        ("e\u0301", "e\u0301"),
        ("\u115f", "⟨U+115F⟩"),
        ("\u3164", "⟨U+3164⟩"),
        ("a\u034fb", "a⟨U+034F⟩b"),
        ("\u2800", "⟨U+2800⟩"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("漢字", "漢字"),
        ("שלום", "שלום"),
        ("क्षि", "क्षि"),
        ("[red]", "[red]"),
        ("$x$", "$x$"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "tokens",
    [
        [" ", "", "\t", "\n", "a\nb"],
        ["\r\n", "  ", "\xa0", "\u3000"],
        ["\u200b", "\ufeffa", "a\xadb", "a"],
        ["\u2002", "\u2003", "\u2009", "\u202f", "\u205f", " ", "\x0b", "\x0c"],
        ["a", " a", "a ", " a ", "\u200ba", "a\u200b", "a\u200d"],
    ],
)
def test_different_blanks_look_different(tokens: list[str]) -> None:
    assert len({visible(token) for token in tokens}) == len(tokens)


any_text = st.text(st.characters(exclude_categories=()), max_size=8)
STAYS = "\u200c\u200d"


@given(any_text)
def test_nothing_shown_is_empty_invisible_or_acts_on_the_terminal(text: str) -> None:
    shown = visible(text)
    assert shown.strip()
    assert shown == shown.strip()
    for i, character in enumerate(shown):
        inside = 0 < i < len(shown) - 1
        joins = character in STAYS and inside
        blank = character == " " and inside
        assert joins or blank or unicodedata.category(character)[0] not in "CZ", f"{character!a} in {shown!a}"
    assert unicodedata.category(shown[0])[0] != "M"
    shown.encode("utf-8")


@given(any_text)
def test_what_is_visible_stays_as_it_is(text: str) -> None:
    assert visible(visible(text)) == visible(text)


@given(st.text(st.characters(categories=["L", "N", "P"]), min_size=1))
def test_letters_digits_and_marks_stay(text: str) -> None:
    fillers = "\u115f\u1160\u3164\uffa0"
    if not set(text) & set(fillers):
        assert visible(text) == text


@pytest.mark.parametrize(
    ("pieces", "texts"),
    [
        (["the", "Ġthe", "ĠThe", "Ġ"], ["the", " the", " The", " "]),
        (["▁the", "the", "▁The", "▁"], [" the", "the", " The", " "]),
    ],
)
def test_blanks_count_only_where_they_are_typed(pieces: list[str], texts: list[str]) -> None:
    tokens = Tokens(tuple(pieces), tuple(texts), ((0, 0),) * 4, (False,) * 4)
    with_blank = texts.index(" the")
    assert tokens.find("the") == (0, 1)
    assert tokens.find(" the") == tokens.find("␣the") == tokens.find(pieces[with_blank]) == (with_blank,)
    assert tokens.find("The") == (2,)
    assert tokens.find("THE") == (0, 1, 2)
    assert tokens.find(" ") == tokens.find("␣") == (3,)
    with pytest.raises(RequestError, match="no query token"):
        tokens.find("")


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        ([" caf", "⟨C3⟩", "⟨A9⟩"], "café"),
        (["⟨20⟩⟨F0⟩⟨9F⟩", "⟨98⟩", "⟨80⟩"], "😀"),
        (["⟨C3⟩", "a"], "⟨C3⟩a"),
        (["⟨E6⟩⟨96⟩", "⟨87⟩", "字"], "文字"),
    ],
)
def test_parts_of_characters_are_characters_in_words(texts: list[str], word: str) -> None:
    assert Tokens.of(texts).spelled(range(len(texts))) == word


def test_a_word_ends_where_the_model_goes_on() -> None:
    pieces = ("the", "un", "##want", "##ed", "##ly")
    given = Tokens(pieces, pieces, ((0, 0),) * 5, (False,) * 5, generated=(False, False, False, True, True))
    assert [list(word) for word in given.words()] == [[0], [1, 2], [3, 4]]
    assert given.pick([3, 1]).generated == (True, False)
    with pytest.raises(ValueError, match="generated differ in length"):
        Tokens(("a",), ("a",), ((0, 0),), (False,), generated=(True, False))
