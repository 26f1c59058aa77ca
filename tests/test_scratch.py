import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from attnviz.attention import Rule
from attnviz.backend import Placing, placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionMap, AttentionRecord
from attnviz.positions import sinusoidal
from attnviz.sources.saved import load
from attnviz.sources.scratch import Scratch, ScratchOptions, open_scratch, split_words

TEXT = "the cat sat on the mat"
Array = npt.NDArray[Any]


def attended(text: str = TEXT, options: ScratchOptions | None = None, **more: Any) -> AttentionMap:
    (one,) = Scratch(options or ScratchOptions(**more)).prepare(text).maps([0], output=True)
    return one


def weights(text: str = TEXT, **options: Any) -> Array:
    one = attended(text, **options)
    return one.rows(0, len(one.query))


def softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


# the numbers


def test_weights_are_those_of_the_projections_worked_out_head_by_head() -> None:
    options = ScratchOptions(n_heads=3, d_model=15, seed=2)
    model = Scratch(options)
    tokens = model.prepare(TEXT).tokens
    x, p = model.embeddings(tokens).astype(np.float64), model.projections()
    q, k, v = (x @ w.astype(np.float64) for w in (p.w_q, p.w_k, p.w_v))
    one = attended(options=options)
    assert one.heads == (0, 1, 2)
    assert one.output is not None
    assert one.output.shape == (6, 15)
    for head in range(3):
        columns = slice(5 * head, 5 * head + 5)
        expected = softmax(q[:, columns] @ k[:, columns].T / 5**0.5)
        assert np.abs(one.rows(0, 6)[head] - expected).max() < 1e-6
        assert np.abs(one.output[:, columns] - expected @ v[:, columns]).max() < 1e-5


def test_the_single_head_comes_first_and_is_scaled_by_the_square_root_of_d_model() -> None:
    model = Scratch(ScratchOptions(n_heads=5, d_model=35, seed=1))
    run = model.prepare(TEXT)
    (with_single,), (without,) = run.maps([0], single=True, output=True), run.maps([0], output=True)
    assert with_single.heads == ("single", 0, 1, 2, 3, 4)
    x, p = model.embeddings(run.tokens).astype(np.float64), model.projections()
    expected = softmax((x @ p.w_q) @ (x @ p.w_k).T / 35**0.5)
    assert np.abs(with_single.rows(0, 6)[0] - expected).max() < 1e-6
    assert np.array_equal(with_single.rows(0, 6)[1:], without.rows(0, 6))
    assert np.array_equal(np.asarray(with_single.output), np.asarray(without.output))


def test_embeddings_are_a_vector_of_the_word_and_its_place() -> None:
    placed, plain = (Scratch(ScratchOptions(d_model=16, positions=positions)) for positions in (True, False))
    tokens = placed.prepare(TEXT).tokens
    difference = placed.embeddings(tokens) - plain.embeddings(tokens)
    assert np.abs(difference - sinusoidal(np.arange(6.0), 16)).max() < 1e-6
    assert np.array_equal(plain.embeddings(tokens)[0], plain.embeddings(tokens)[4])
    assert not np.array_equal(placed.embeddings(tokens)[0], placed.embeddings(tokens)[4])


def test_embeddings_and_projections_have_the_size_they_are_documented_to_have() -> None:
    model = Scratch(ScratchOptions(n_heads=1, d_model=400, positions=False))
    vectors = model.embeddings(split_words("a b c d e f g h i j"))
    assert abs(float(vectors.mean())) < 0.1
    assert abs(float(vectors.std()) - 1) < 0.1
    for matrix in (model.projections().w_q, model.projections().w_k, model.projections().w_v):
        assert abs(float(matrix.std()) * 20 - 1) < 0.02
    assert not np.array_equal(model.projections().w_q, model.projections().w_k)


def test_a_words_vector_does_not_depend_on_the_other_words() -> None:
    model = Scratch(ScratchOptions(positions=False))
    long, short = model.embeddings(split_words("zebra cat dog")), model.embeddings(split_words("cat"))
    assert np.array_equal(long[1], short[0])
    together = weights("cat dog zebra", positions=False)
    apart = weights("cat dog", positions=False)
    assert np.abs(together[:, :2, 0] / together[:, :2, 1] - apart[:, :, 0] / apart[:, :, 1]).max() < 1e-4


@pytest.mark.parametrize("order", [(3, 0, 2, 1), (1, 0, 3, 2)])
def test_without_positions_moving_words_moves_rows_and_columns(order: tuple[int, ...]) -> None:
    words = ["the", "cat", "sat", "here"]
    moved = " ".join(words[i] for i in order)
    plain = weights(" ".join(words), positions=False)
    assert np.abs(weights(moved, positions=False) - plain[:, order][:, :, order]).max() < 1e-6
    assert np.abs(weights(moved) - weights(" ".join(words))[:, order][:, :, order]).max() > 1e-3


def test_without_scale_scores_are_not_divided() -> None:
    model = Scratch(ScratchOptions(n_heads=2, d_model=8, scale=False))
    run = model.prepare(TEXT)
    x, p = model.embeddings(run.tokens).astype(np.float64), model.projections()
    q, k = x @ p.w_q, x @ p.w_k
    (one,) = run.maps([0], single=True)
    for head, columns in [(0, slice(0, 8)), (1, slice(0, 4)), (2, slice(4, 8))]:
        assert np.abs(one.rows(0, 6)[head] - softmax(q[:, columns] @ k[:, columns].T)).max() < 1e-5


def test_shared_projections_make_all_heads_the_first_one() -> None:
    shared, own = weights(n_heads=4, shared_projections=True), weights(n_heads=4)
    assert np.array_equal(shared, np.broadcast_to(shared[:1], shared.shape))
    assert np.abs(shared[0] - own[0]).max() < 1e-6
    assert np.abs(own[1] - own[0]).max() > 1e-2


@pytest.mark.parametrize(("n_heads", "d_model"), [(1, 1), (1, 7), (7, 7), (3, 9), (5, 35)])
def test_odd_widths_work(n_heads: int, d_model: int) -> None:
    one = attended(n_heads=n_heads, d_model=d_model)
    assert one.rows(0, 6).shape == (n_heads, 6, 6)
    assert np.abs(one.rows(0, 6).sum(-1) - 1).max() < 1e-6


@pytest.mark.parametrize("text", ["cat", "!", "字", "3.14"])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_one_token_attends_to_itself(text: str, n_heads: int) -> None:
    assert np.array_equal(weights(text, n_heads=n_heads), np.ones((n_heads, 1, 1)))


def test_a_long_text_has_its_rows_made_when_asked_for() -> None:
    one = attended("the cat sat on a mat " * 200, n_heads=4)
    assert len(one.query) == 1200
    assert np.abs(one.rows(1100, 1103).sum(-1) - 1).max() < 1e-5
    assert one.output is not None
    assert one.output.shape == (1200, 32)


def test_the_output_is_made_where_it_is_asked_for() -> None:
    run = Scratch(ScratchOptions()).prepare(TEXT)
    (without,), (with_output,) = run.maps([0]), run.maps([0], output=True)
    assert without.output is None
    assert with_output.output is not None
    assert np.abs(without.rows(0, 6) - with_output.rows(0, 6)).max() < 1e-6


def test_no_map_of_a_layer_that_is_not_asked_for() -> None:
    assert list(Scratch(ScratchOptions()).prepare(TEXT).maps([])) == []


# the same numbers everywhere


PROGRAM = """
import sys
from attnviz import attend
record = attend("the cat sat, the end", model="scratch", seed=int(sys.argv[1]))
print(record.weights.tobytes().hex(), record.provenance["seed"])
"""


def test_fresh_processes_give_the_same_bytes_whatever_their_hash_seed() -> None:
    def run(hash_seed: str, seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PROGRAM, seed]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first, second, other = run("1", "3"), run("2", "3"), run("1", "4")
    assert first == second
    assert first.endswith(" 3\n")
    assert first.split()[0] != other.split()[0]
    assert first.split()[0] == weights("the cat sat, the end", seed=3).tobytes().hex()


def test_numbers_stay_the_same_from_version_to_version() -> None:
    expected = [[[0.7628, 0.2372], [0.5383, 0.4617]], [[0.4252, 0.5748], [0.4460, 0.5540]]]
    assert np.abs(weights("the cat", n_heads=2, d_model=4, seed=5) - expected).max() < 1e-4


@pytest.mark.parametrize("seed", [0, 1, 2**70])
def test_another_seed_gives_other_numbers(seed: int) -> None:
    assert np.abs(weights(seed=seed) - weights(seed=seed + 1)).max() > 1e-2


@pytest.mark.parametrize("place", [torch.from_numpy, array_api_strict.asarray], ids=["torch", "array_api_strict"])
@pytest.mark.parametrize("options", [{}, {"n_heads": 5, "d_model": 35, "scale": False}, {"shared_projections": True}])
@pytest.mark.parametrize("single", [False, True])
def test_other_array_libraries_give_the_same(
    place: Callable[[Array], Any], options: dict[str, Any], single: bool
) -> None:
    chosen = ScratchOptions(**options)
    (theirs,) = (
        Scratch(chosen, Placing("other", "cpu", None, place)).prepare(TEXT).maps([0], single=single, output=True)
    )
    (ours,) = Scratch(chosen).prepare(TEXT).maps([0], single=single, output=True)
    assert isinstance(theirs.rows(0, 6), np.ndarray)
    assert np.abs(theirs.rows(0, 6) - ours.rows(0, 6)).max() < 1e-6
    assert np.abs(np.asarray(theirs.output) - np.asarray(ours.output)).max() < 1e-5


def test_provenance_says_every_option() -> None:
    provenance = open_scratch(
        n_heads=2, d_model=6, seed=9, positions=False, scale=False, shared_projections=True
    ).provenance
    said = {"n_heads": 2, "d_model": 6, "seed": 9, "positions": False, "scale": False, "shared_projections": True}
    assert {key: provenance[key] for key in said} == said
    assert json.loads(json.dumps(provenance)) == provenance


# what is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_heads": 0}, ["--n-heads must be at least 1, got 0"]),
        ({"n_heads": -4}, ["--n-heads must be at least 1, got -4"]),
        ({"d_model": 0}, ["--d-model must be at least 1, got 0"]),
        ({"d_model": -32}, ["--d-model must be at least 1, got -32"]),
        ({"n_heads": 5}, ["d_model 32", "5 heads", "1, 2, 4, 8, 16 or 32"]),
        ({"n_heads": 4, "d_model": 6}, ["d_model 6", "4 heads", "1, 2, 3 or 6"]),
        ({"n_heads": 64}, ["d_model 32", "64 heads"]),
        ({"n_heads": 2, "d_model": 1}, ["d_model 1", "2 heads", "(1)"]),
        ({"seed": -1}, ["--seed must be 0 or more, got -1"]),
        ({"d_model": 10**6, "n_heads": 1}, ["--d-model 1000000", "memory"]),
        ({"d_model": 10**30, "n_heads": 1}, ["--d-model 1000000000000000000000000000000", "memory"]),
        ({"d_model": 10**15 + 1, "n_heads": 2}, ["--d-model 1000000000000001", "memory"]),
    ],
)
def test_sizes_that_cannot_be_are_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RequestError) as error:
        open_scratch(**options)
    for word in words:
        assert word in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000\xa0\u2028", "\x1c\x85"])
def test_a_text_of_blanks_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="the text is empty: it gives no tokens"):
        Scratch(ScratchOptions()).prepare(text)


@pytest.mark.parametrize("text", ["a\0b", "a\ud800", "\udcff"])
def test_what_is_not_text_is_refused(text: str) -> None:
    with pytest.raises(AttnvizError, match="at position"):
        Scratch(ScratchOptions()).prepare(text)


# words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop! (really?) e-mail: it's 3.14, ok...", ["Don't", "stop", "!", "(", "really", "?", ")", "e-mail",
                                                            ":", "it's", "3.14", ",", "ok", ".", ".", "."]),
        ("The CAT", ["The", "CAT"]),
        ("l’amour d'été", ["l’amour", "d'été"]),
        ("well-known state-of-the-art", ["well-known", "state-of-the-art"]),
        ("- a -b c- d--e", ["-", "a", "-", "b", "c", "-", "d", "-", "-", "e"]),
        ("'quoted' rock'n'roll", ["'", "quoted", "'", "rock'n'roll"]),
        ("1,000.50 -3.5 $3 50%", ["1,000.50", "-", "3.5", "$", "3", "50", "%"]),
        ("snake_case _x x_", ["snake_case", "_", "x", "x", "_"]),
        ("a.b@c.org", ["a.b", "@", "c.org"]),
        ("C++ c# a/b", ["C", "+", "+", "c", "#", "a", "/", "b"]),
        ("co\u00adop paral·lel", ["co\u00adop", "paral·lel"]),
        ("maçã à São Tomé", ["maçã", "à", "São", "Tomé"]),
        ("cafe\u0301s e\u0301te\u0301", ["cafe\u0301s", "e\u0301te\u0301"]),
        ("東京は", ["東", "京", "は"]),
        ("abc東d", ["abc", "東", "d"]),
        ("葛\U000e0100飾a", ["葛\U000e0100", "飾", "a"]),
        ("안녕하세요 세계", ["안녕하세요", "세계"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("क्षि क्\u200dष", ["क्षि", "क्\u200dष"]),
        ("ที่นี่ ดี", ["ที่นี่", "ดี"]),
        ("שָׁלוֹם עולם", ["שָׁלוֹם", "עולם"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("👍", ["👍"]),
        ("👍🏽ok", ["👍🏽", "ok"]),
        ("👨\u200d👩\u200d👧\u200d👦!", ["👨\u200d👩\u200d👧\u200d👦", "!"]),
        ("👩🏾\u200d🚀 go", ["👩🏾\u200d🚀", "go"]),
        ("👍👍", ["👍", "👍"]),
        ("❤\ufe0flove", ["❤\ufe0f", "love"]),
        ("love❤\ufe0f", ["love", "❤\ufe0f"]),
        ("❤\ufe0f❤\ufe0f", ["❤\ufe0f", "❤\ufe0f"]),
        ("❤\ufe0f-a", ["❤\ufe0f", "-", "a"]),
        ("1\ufe0f\u20e3!", ["1\ufe0f\u20e3", "!"]),
        ("🇧🇷🇵🇹x", ["🇧🇷", "🇵🇹", "x"]),
        ("🇧🇷🇵", ["🇧🇷", "🇵"]),
        ("a🇧🇷", ["a", "🇧🇷"]),
        ("🏴\U000e0067\U000e0062\U000e007fx", ["🏴\U000e0067\U000e0062\U000e007f", "x"]),
        ("🏳\ufe0f\u200d🌈", ["🏳\ufe0f\u200d🌈"]),
        ("-\u0301a", ["-\u0301", "a"]),
        ("\u0301a", ["\u0301a"]),
        ("\ufeffword", ["\ufeffword"]),
        ("a\u200bb", ["a\u200bb"]),
        ("<b>&amp;", ["<", "b", ">", "&", "amp", ";"]),
        ("[CLS] [red]", ["[", "CLS", "]", "[", "red", "]"]),
        ("½ x² ①", ["½", "x²", "①"]),
    ],
)  # fmt: skip
def test_words(text: str, words: list[str]) -> None:
    assert list(split_words(text).pieces) == words


any_text = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from("ab1'’-.,_·\u00ad\u200d\u0301\ufe0f 👍🏽🇧🇷字क्ที่\u20e3\n"),
    ),
    max_size=20,
)


@given(any_text)
@example("\u200d")
@example(" \u0301")
def test_words_hold_the_whole_text_but_for_blanks_in_order(text: str) -> None:
    tokens = split_words(text)
    assert "".join(tokens.pieces) == "".join(character for character in text if not character.isspace())
    assert tokens.text == tokens.pieces
    assert not any(tokens.special)
    end = 0
    for piece, (first, last) in zip(tokens.pieces, tokens.spans, strict=True):
        assert end <= first < last
        assert text[first:last] == piece
        assert text[end:first].strip() == ""
        end = last


@given(any_text)
def test_no_mark_stands_alone_after_what_it_belongs_to(text: str) -> None:
    tokens = split_words(text)
    for piece, (first, _) in zip(tokens.pieces, tokens.spans, strict=True):
        joins = unicodedata.category(piece[0])[0] == "M" or piece[0] == "\u200d"
        assert not joins or first == 0 or text[first - 1].isspace()


@given(st.text(st.sampled_from("abzé'-.,_"), min_size=1, max_size=12))
def test_a_word_begins_and_ends_with_a_letter_or_is_one_mark(text: str) -> None:
    for piece in split_words(text).pieces:
        assert len(piece) == 1 or (piece[0].isalpha() and piece[-1].isalpha())


def test_many_marks_are_split_in_good_time() -> None:
    assert len(split_words("a" + "\u0301" * 50_000 + "b")) == 1
    assert len(split_words("👍" + "\u0301" * 50_000 + "b" * 50_000)) == 2


# cross-attention


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_the_target_attends_to_the_source(backend: str) -> None:
    options = ScratchOptions(n_heads=3, d_model=15, seed=2)
    run = Scratch(options, placing(backend)).prepare_cross(source="the cat sat on mats", target="o gato")
    (one,) = run.maps([0], single=True, output=True)
    assert (one.kind, one.stack, one.heads) == ("cross", "encoder", ("single", 0, 1, 2))
    assert one.query.text == run.tokens.text == ("o", "gato")
    assert one.key.text == run.key_tokens.text == ("the", "cat", "sat", "on", "mats")
    model = Scratch(options)
    x, y = (model.embeddings(tokens).astype(np.float64) for tokens in (run.tokens, run.key_tokens))
    p = model.projections()
    q, k, v = x @ p.w_q, y @ p.w_k, y @ p.w_v
    assert one.output is not None
    assert np.abs(one.rows(0, 2)[0] - softmax(q @ k.T / 15**0.5)).max() < 1e-6
    for head in range(3):
        columns = slice(5 * head, 5 * head + 5)
        expected = softmax(q[:, columns] @ k[:, columns].T / 5**0.5)
        assert np.abs(one.rows(0, 2)[head + 1] - expected).max() < 1e-6
        assert np.abs(one.output[:, columns] - expected @ v[:, columns]).max() < 1e-5


def test_cross_attention_of_a_text_with_itself_has_the_numbers_of_self_attention() -> None:
    model = Scratch(ScratchOptions())
    (crossed,), (own,) = (
        model.prepare_cross(TEXT, TEXT).maps([0], output=True),
        model.prepare(TEXT).maps([0], output=True),
    )
    assert (crossed.kind, own.kind) == ("cross", "self")
    assert np.array_equal(crossed.rows(0, 6), own.rows(0, 6))
    assert np.array_equal(np.asarray(crossed.output), np.asarray(own.output))
    assert list(model.prepare_cross("a", "b").maps([1])) == []


def test_masks_of_cross_attention_have_a_row_for_each_target_token() -> None:
    run = Scratch(ScratchOptions()).prepare_cross("a b c", "d e")
    (one,) = run.maps([0], rule=Rule(mask=np.array([[True, False, False], [False, False, False]])))
    assert np.array_equal(one.rows(0, 2), np.broadcast_to([[1.0, 0, 0], [0, 0, 0]], (4, 2, 3)))
    with pytest.raises(RequestError, match="the mask is 3 × 2, but there are 2 queries and 3 keys"):
        list(run.maps([0], rule=Rule(mask=np.ones((3, 2), bool))))


@pytest.mark.parametrize(
    ("source", "target", "said"), [(" ", "a", "the source is empty"), ("a", "", "the target is empty")]
)
def test_cross_attention_without_a_text_is_refused(source: str, target: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Scratch(ScratchOptions()).prepare_cross(source, target)


@pytest.mark.parametrize("suffix", ["json", "npz", "png", "txt"])
def test_a_record_of_cross_attention_can_be_written(suffix: str, tmp_path: Path) -> None:
    model = Scratch(ScratchOptions())
    run = model.prepare_cross("the cat sat", "o gato")
    provenance = {**model.provenance, "text": "o gato", "source_text": "the cat sat"}
    record = AttentionRecord(tuple(run.maps([0], output=True)), provenance)
    record.save(tmp_path / f"cross.{suffix}")
    if suffix in ("json", "npz"):
        back = load(tmp_path / f"cross.{suffix}")
        assert np.array_equal(back.weights, record.weights)
        assert back.maps[0].kind == "cross"
