from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.maps import AttentionMap, StoredWeights
from attnviz.sources.registry import open_model
from attnviz.tokens import Tokens
from attnviz.words import into_words, merged
from tests.saved import weights_of

CLS = Tokens(("[CLS]",), ("[CLS]",), ((0, 0),), (True,))


def with_specials(pieces: list[str], special: set[int]) -> Tokens:
    size = len(pieces)
    return Tokens(tuple(pieces), tuple(pieces), ((0, 0),) * size, tuple(i in special for i in range(size)))


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["un", "##want", "##able", "cat", "##s"], ["unwantable", "cats"]),
        (["##s", "the"], ["##s", "the"]),
        (["the", "cat", "!"], ["the", "cat", "!"]),
        (["un", "want", "Ġthe", "Ġcat", "s"], ["unwant", "the", "cats"]),
        (["Ġdon", "'t", ",", "Ġwell", "-", "known"], ["don't", ",", "well", "-", "known"]),
        (["Ġcaf", "Ã", "©", "Ġ!", "Ċ", "x"], ["cafÃ©", "!", "Ċ", "x"]),
        (["▁un", "want", "ed", "▁the", ",", "▁", "2", "3"], ["unwanted", "the", ",", "23"]),
        (["▁ca", "fe", "\u0301", "▁x"], ["cafe\u0301", "x"]),
        (["Ġx", "Ġ", "Ġx", "Ġ", "7"], ["x", "Ġ", "x", "7"]),
        ([], []),
    ],
)
def test_pieces_say_how_they_join(pieces: list[str], words: list[str]) -> None:
    found, _ = merged(Tokens.of(pieces))
    assert list(found.text) == words


def test_special_tokens_join_nothing() -> None:
    found, edges = merged(with_specials(["[CLS]", "Ġa", "b", "[SEP]", "c", "[SEP]"], {0, 3, 5}))
    assert found.text == ("[CLS]", "ab", "[SEP]", "c", "[SEP]")
    assert found.special == (True, False, True, False, True)
    assert edges.tolist() == [0, 1, 3, 4, 5, 6]


def test_parts_of_one_character_join_by_their_spans() -> None:
    tokens = Tokens(("x", "y", "z"), ("", "文", "."), ((0, 1), (0, 1), (1, 2)), (False,) * 3)
    found, _ = merged(tokens)
    assert found.text == ("文", ".")
    assert found.spans == ((0, 1), (1, 2))


def test_a_word_in_one_piece_keeps_its_piece() -> None:
    found, _ = merged(Tokens.of(["Ġthe", "Ġun", "want"]))
    assert found.pieces == ("Ġthe", "unwant")
    assert found.text == ("the", "unwant")


@given(st.lists(st.sampled_from(["a", "##b", "Ġc", "▁d", "'", "Ċ", "é", "▁", "Ġ"])))
def test_words_cover_the_tokens_in_order(pieces: list[str]) -> None:
    words = Tokens.of(pieces).words()
    assert [i for word in words for i in word] == list(range(len(pieces)))
    assert all(len(word) for word in words)


def test_words_of_byte_level_pieces_are_found_by_what_they_spell() -> None:
    tokens = Tokens.of(["Ġun", "want", "ed", "Ġthe"])
    assert tokens.find("unwanted") == (0, 1, 2)
    assert tokens.find("the") == (3,)
    assert tokens.find("Ġthe") == (3,)


# weights


def map_of(weights: Any, query: Tokens, key: Tokens | None = None) -> AttentionMap:
    key = query if key is None else key
    heads = tuple(range(len(weights)))
    return AttentionMap("m", 0, heads, StoredWeights(weights), query, key, kind="self" if key is query else "cross")


def test_pieces_are_summed_over_keys_and_averaged_over_queries() -> None:
    weights = np.array([[[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]]])
    one = into_words(map_of(weights, Tokens.of(["a", "##b", "c"])))
    assert one.rows(0, 2)[0] == pytest.approx(np.array([[0.45, 0.55], [0.75, 0.25]]))
    assert one.query is one.key
    assert one.query.text == ("ab", "c")


PIECES = st.lists(st.sampled_from(["a", "b", "##s", "##t"]), min_size=1, max_size=12)


@given(query=PIECES, key=PIECES, seed=st.integers(0, 99))
def test_words_are_what_loops_make_of_pieces(query: list[str], key: list[str], seed: int) -> None:
    weights = weights_of(2, len(query), len(key), seed=seed)
    one = into_words(map_of(weights, Tokens.of(query), Tokens.of(key)))
    rows, columns = Tokens.of(query).words(), Tokens.of(key).words()
    expected = [[[sum(head[i, j] for i in r for j in c) / len(r) for c in columns] for r in rows] for head in weights]
    whole = one.rows(0, len(rows))
    assert whole == pytest.approx(np.array(expected))
    assert whole.sum(axis=-1) == pytest.approx(1)
    for start in range(len(rows)):
        for stop in range(start, len(rows) + 1):
            assert (one.rows(start, stop) == whole[:, start:stop]).all()
    assert (np.concatenate([block for _, block in one.blocks()], axis=1) == whole).all()


def test_weights_of_pieces_stay_as_they_are() -> None:
    weights = weights_of(2, 3, 3)
    before = weights.copy()
    into_words(map_of(weights, Tokens.of(["a", "##b", "c"]))).rows(0, 2)
    assert (weights == before).all()


def test_maps_without_keys_have_words_without_keys() -> None:
    one = map_of(weights_of(2, 3, 3), Tokens.of(["a", "##b", "c"])).pick(keys=[])
    assert into_words(one).rows(0, 2).shape == (2, 2, 0)


@pytest.mark.parametrize("model", ["minilm", "scratch"])
def test_words_of_a_model_are_those_of_its_text(model: str) -> None:
    text = "Unbelievably, tokenizers hyphenate."
    (one,) = open_model(model, {}).prepare(text).maps([0])
    words = into_words(one)
    shown = [token for token, special in zip(words.query.text, words.query.special, strict=True) if not special]
    assert shown == ["Unbelievably", ",", "tokenizers", "hyphenate", "."]
    spans = [span for span, special in zip(words.query.spans, words.query.special, strict=True) if not special]
    assert [text[a:b] for a, b in spans] == shown
    assert words.rows(0, len(words.query)).sum(axis=-1) == pytest.approx(1, abs=1e-5)
