import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer

from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.encoder import open_bundled, open_folder
from attnviz.sources.model import checked_text
from attnviz.sources.tokenizer import encode, load_tokenizer
from tests.models import CONFIG, VOCABULARY, make_bert, wordpiece

LIMIT = 29
TEXTS = (
    "The cat sat on my favorite unwanted mat, unwantable!",
    "THE café is un-wanted. [SEP] 文字 😀!",
    "the\ncat\tis  a\u3000dog",
    "CAFÉ cafe\u0301 ete\u0301",
)


def saved(folder: Path, tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.save(str(folder / "tokenizer.json"))
    return load_tokenizer(folder)


# what tokens are


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_pieces_are_the_tokenizers(tmp_path: Path, text: str) -> None:
    expected = wordpiece().encode(text)
    encoded = encode(saved(tmp_path, wordpiece()), text, LIMIT)
    assert list(encoded.ids) == expected.ids
    assert list(encoded.types) == expected.type_ids
    assert list(encoded.tokens.pieces) == expected.tokens


def test_tokens_are_shown_as_they_were_typed(tmp_path: Path) -> None:
    tokens = encode(saved(tmp_path, wordpiece()), "The CAFE is Unwanted, 文字 é😀", LIMIT).tokens
    assert tokens.pieces == (
        "[CLS]", "the", "cafe", "is", "un", "##want", "##ed", ",", "文", "字", "[UNK]", "[SEP]"
    )  # fmt: skip
    assert tokens.text == ("[CLS]", "The", "CAFE", "is", "Un", "##want", "##ed", ",", "文", "字", "[UNK]", "[SEP]")
    assert tokens.spans == (
        (0, 0), (0, 3), (4, 8), (9, 11), (12, 14), (14, 18), (18, 20), (20, 21), (22, 23), (23, 24), (25, 27), (0, 0)
    )  # fmt: skip
    assert tokens.special == (True, *[False] * 10, True)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the [SEP] cat", ("[CLS]", "the", "[SEP]", "cat", "[SEP]")),
        ("[CLS] the", ("[CLS]", "[CLS]", "the", "[SEP]")),
        ("[SEP]", ("[CLS]", "[SEP]", "[SEP]")),
    ],
)
def test_special_tokens_that_were_typed_are_of_the_text(tmp_path: Path, text: str, pieces: tuple[str, ...]) -> None:
    tokens = encode(saved(tmp_path, wordpiece()), text, LIMIT).tokens
    assert tokens.pieces == pieces
    assert tokens.special == (True, *[False] * (len(pieces) - 2), True)
    assert [span == (0, 0) for span in tokens.spans] == list(tokens.special)


def test_special_tokens_in_lower_case_are_words(tmp_path: Path) -> None:
    tokens = encode(saved(tmp_path, wordpiece()), "[cls][sep]", LIMIT).tokens
    assert tokens.pieces == ("[CLS]", "[", "cls", "]", "[", "sep", "]", "[SEP]")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_spans_stand_in_the_text_in_order(text: str) -> None:
    try:
        tokens = encode(TOKENIZER, text, 1000).tokens
    except RequestError as error:
        assert "gives no tokens" in str(error)
        return
    assert len(tokens.pieces) == len(tokens.text)
    spans = [span for span, special in zip(tokens.spans, tokens.special, strict=True) if not special]
    assert spans == sorted(spans)
    for (first, last), shown in zip(tokens.spans, tokens.text, strict=True):
        assert 0 <= first <= last <= len(text)
        assert not first < last or shown in ("[UNK]", text[first:last], f"##{text[first:last]}")


TOKENIZER = wordpiece()


# unknown words


def test_unknown_words_are_named_with_their_places(tmp_path: Path) -> None:
    encoded = encode(saved(tmp_path, wordpiece()), "the zebra sat on a gnu, the zebra", LIMIT)
    assert encoded.notes == ("not in the model's vocabulary, so [UNK] to it: zebra (token 2, 9), gnu (token 6)",)
    assert encoded.tokens.text[2] == "[UNK]"


def test_of_many_unknown_words_the_first_are_named(tmp_path: Path) -> None:
    text = " ".join([*"cdefghij", *"c" * 9])
    (note,) = encode(saved(tmp_path, wordpiece()), text, LIMIT).notes
    assert note.endswith(": c (token 1, 9, 10, 11, 12, …), d (token 2), f (token 4), g (token 5), h (token 6)"
                         " and 2 other words")  # fmt: skip


def test_an_unknown_word_that_acts_on_a_terminal_is_named_visibly(tmp_path: Path) -> None:
    (note,) = encode(saved(tmp_path, wordpiece()), "the x\u202ey", LIMIT).notes
    assert "x⟨U+202E⟩y" in note


def test_a_text_of_known_words_has_no_notes(tmp_path: Path) -> None:
    assert encode(saved(tmp_path, wordpiece()), "the cat", LIMIT).notes == ()


def test_unknown_tokens_that_were_typed_are_told(tmp_path: Path) -> None:
    (note,) = encode(saved(tmp_path, wordpiece()), "the [UNK]", LIMIT).notes
    assert "[UNK] (token 2)" in note


# texts that are none


@pytest.mark.parametrize("text", ["", " ", "\n", "\t \r\n \u3000\xa0", "\u200b", "\u0301", "\x01\x02", "\ufeff"])
def test_a_text_that_gives_special_tokens_alone_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RequestError, match="the text is empty: it gives no tokens") as error:
        encode(saved(tmp_path, wordpiece()), text, LIMIT)
    assert error.value.exit_code == 2


def test_a_tokenizer_without_special_tokens_refuses_an_empty_text(tmp_path: Path) -> None:
    plain = wordpiece()
    plain.post_processor = None
    tokenizer = saved(tmp_path, plain)
    assert encode(tokenizer, "the cat", LIMIT).tokens.pieces == ("the", "cat")
    with pytest.raises(RequestError, match="it gives no tokens"):
        encode(tokenizer, " ", LIMIT)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the\0cat", "a NUL character at position 3: is it a binary file?"),
        ("\0", "a NUL character at position 0"),
        ("cat \ud83d", "is not valid UTF-8: half a surrogate pair at position 4"),
        ("\udfffcat", "is not valid UTF-8: byte 0x"),
        ("caf\udce9", "is not valid UTF-8: byte 0xE9 at position 3"),
        ("\udc80", "is not valid UTF-8: byte 0x80 at position 0"),
    ],
)
@pytest.mark.parametrize("model", ["encoder", "bundled"])
def test_what_is_not_text_is_refused_with_its_place(tmp_path: Path, model: str, text: str, words: str) -> None:
    opened = open_bundled() if model == "bundled" else open_folder(make_bert(tmp_path))
    with pytest.raises(RequestError) as error:
        opened.prepare(text)
    assert words in str(error.value)
    assert error.value.exit_code == 2
    str(error.value).encode()


@pytest.mark.parametrize("text", ["", "\x01", "👨\u200d👩", "\U0010ffff", "\ud7ff\ue000"])
def test_what_is_text_stays_as_it_is(text: str) -> None:
    assert checked_text(text) == text


# files


def test_a_file_that_pads_and_truncates_does_neither_here(tmp_path: Path) -> None:
    fixed = wordpiece()
    fixed.enable_padding(length=128, pad_id=0, pad_token="[PAD]")
    fixed.enable_truncation(128)
    tokenizer = saved(tmp_path, fixed)
    assert json.loads((tmp_path / "tokenizer.json").read_text())["padding"] is not None
    assert encode(tokenizer, "the cat", LIMIT).tokens.pieces == ("[CLS]", "the", "cat", "[SEP]")
    assert len(encode(tokenizer, "the " * 300, 1000).tokens) == 302


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(AttnvizError) as error:
        open_folder(folder)
    assert "has no tokenizer (tokenizer.json or vocab.txt)" in str(error.value)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000, b'{"model": {"type": "WordPiece"}}'])
def test_a_damaged_tokenizer_is_said_to_be(tmp_path: Path, content: bytes) -> None:
    folder = make_bert(tmp_path)
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(AttnvizError, match=r"the tokenizer in .* is damaged: ") as error:
        open_folder(folder)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    "settings",
    [
        None,
        {},
        {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
)
def test_a_vocabulary_gives_the_same_as_a_tokenizer_file(tmp_path: Path, settings: dict[str, Any] | None) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    said = settings or {}
    expected = wordpiece()
    expected.normalizer = BertNormalizer(
        lowercase=said.get("do_lower_case", True),
        strip_accents=said.get("strip_accents"),
        handle_chinese_chars=said.get("tokenize_chinese_chars", True),
    )
    tokenizer = load_tokenizer(tmp_path)
    for text in TEXTS:
        ours, theirs = encode(tokenizer, text, LIMIT), expected.encode(text)
        assert list(ours.ids) == theirs.ids
        assert list(ours.tokens.pieces) == theirs.tokens


def test_a_folder_with_a_vocabulary_alone_is_run(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    by_file = next(open_folder(folder).prepare(TEXTS[0]).maps([2]))
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    by_vocabulary = next(open_folder(folder).prepare(TEXTS[0]).maps([2]))
    assert by_vocabulary.query == by_file.query
    assert by_vocabulary.rows(0, 17).tobytes() == by_file.rows(0, 17).tobytes()


@pytest.mark.parametrize(
    "files",
    [
        {"vocab.txt": b"\xff\xfe\x00"},
        {"vocab.txt": b""},
        {"vocab.txt": b"the\ncat\n[UNK]\n"},
        {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "tokenizer_config.json": b"{"},
        {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "tokenizer_config.json": b"[1]"},
        {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "tokenizer_config.json": b"[" * 100_000},
    ],
    ids=range(6),
)
def test_a_damaged_vocabulary_is_said_to_be(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(AttnvizError, match=r"the tokenizer in .* is damaged: ") as error:
        load_tokenizer(tmp_path)
    assert "object has no attribute" not in str(error.value)
    assert error.value.exit_code == 3


def test_a_tokenizer_that_fails_on_a_text_is_said_to_be_damaged(tmp_path: Path) -> None:
    without = Tokenizer(WordLevel({"the": 0}, unk_token="[UNK]"))  # which is not in the vocabulary
    tokenizer = saved(tmp_path, without)
    with pytest.raises(AttnvizError, match="tokenizer is damaged, it cannot take the text") as error:
        encode(tokenizer, "zebra", LIMIT)
    assert error.value.exit_code == 3


def test_a_tokenizer_whose_types_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    odd = wordpiece()
    odd.post_processor = type(odd.post_processor)(  # a TemplateProcessing
        single="[CLS] $A:1 [SEP]", pair="$A $B", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder = make_bert(tmp_path, config={**CONFIG, "type_vocab_size": 1}, tokenizer=odd)
    with pytest.raises(AttnvizError, match="gives type 1, but the model has embeddings for 1"):
        list(open_folder(folder).prepare("the cat").maps([0]))
