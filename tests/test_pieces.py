"""What is shown for pieces of byte-level, SentencePiece and WordPiece tokenizers."""

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from attnviz.sources.pieces import byte_level, reader, sentencepiece, tokens_of, wordpiece
from attnviz.tokens import Tokens

TEXTS = ["the cat sat on the mat", "that cat that sat there"]


def byte_pairs() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet))
    return tokenizer


def metaspace() -> Tokenizer:
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])}
    for piece in ("▁", "t", "h", "e", "▁t", "▁th", "▁the", "c", "a", "▁c", "▁ca", "▁cat"):
        vocabulary.setdefault(piece, len(vocabulary))
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "c"), ("▁c", "a"), ("▁ca", "t")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def shown(tokenizer: Tokenizer, text: str, *, spans: bool = True) -> Tokens:
    encoding = tokenizer.encode(text)
    read = reader(tokenizer.to_str(), None)
    return tokens_of(encoding.tokens, text, encoding.offsets if spans else None, [False] * len(encoding), read)


def test_byte_level_pieces_are_characters_and_keep_their_blank() -> None:
    tokens = shown(byte_pairs(), "the cat é😀")
    assert "".join(tokens.text[:-6]).replace(" ", "") == "thecat"
    assert tokens.pieces[-6:] == ("Ã", "©", "ð", "Ł", "ĺ", "Ģ")
    assert tokens.text[-6:] == ("⟨C3⟩", "⟨A9⟩", "⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩")
    assert tokens.spans[-6:] == ((8, 9), (8, 9), (9, 10), (9, 10), (9, 10), (9, 10))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=12))
def test_every_byte_of_the_text_is_shown_once(text: str) -> None:
    tokens = shown(byte_pairs(), text)
    joined = b""
    for piece in tokens.pieces:
        part = byte_level(piece)
        assert part is not None
        joined += part
    assert joined.decode() == text
    whole = [one for one in tokens.text if not one.startswith("⟨")]
    assert all(one in text for one in whole)


def test_sentencepiece_with_bytes() -> None:
    tokens = shown(metaspace(), "the cat é")
    assert tokens.pieces == ("▁the", "▁cat", "▁", "<0xC3>", "<0xA9>")
    assert tokens.text == ("the", " cat", " ", "⟨C3⟩", "⟨A9⟩")


def test_without_spans_the_pieces_are_looked_for() -> None:
    tokens = tokens_of(["▁The", "▁cat", "</s>"], "THE  cat", None, [False, False, True], sentencepiece)
    assert tokens.spans == ((0, 3), (5, 8), (0, 0))
    assert tokens.text == ("THE", " cat", "</s>")
    tokens = tokens_of(["x", "cat", "y"], "a cat", None, [False] * 3, sentencepiece)
    assert tokens.spans == ((0, 0), (2, 5), (0, 0)) and tokens.text == ("x", "cat", "y")


def test_wordpiece_shows_what_was_typed() -> None:
    tokens = tokens_of(["caf", "##e", "[UNK]"], "CAFÉ ☃", [(0, 3), (3, 4), (5, 6)], [False] * 3, unknowing)
    assert tokens.text == ("CAF", "##É", "[UNK]")


def unknowing(piece: str) -> bytes | None:
    return None if piece == "[UNK]" else wordpiece(piece)


def test_the_alphabet_of_bytes_is_that_of_the_tokenizers_library() -> None:
    letters, decoder = pre_tokenizers.ByteLevel.alphabet(), decoders.ByteLevel()
    for byte in range(256):
        found = [letter for letter in letters if byte_level(letter) == bytes([byte])]
        assert len(found) == 1
        assert decoder.decode(found) == bytes([byte]).decode(errors="replace")
