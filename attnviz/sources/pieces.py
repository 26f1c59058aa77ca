"""What is shown for the pieces of any tokenizer: the characters that each stands for, or its bytes inside one."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from attnviz.tokens import CONTINUES, GOES_ON, Span, Tokens

_BLANK = "▁"
"""A blank, as SentencePiece writes it."""
_LONGEST = 4
"""The bytes of a character, at most."""

Read = Callable[[str], bytes | None]
"""The bytes that a piece stands for; None where the piece is not in the alphabet."""


def tokens_of(
    pieces: Sequence[str], text: str, spans: Sequence[Span] | None, special: Sequence[bool], read: Read
) -> Tokens:
    """The tokens of `text`.

    A piece is shown as the characters of the input that it stands for, with the blank before them where the piece
    has it; a part of a character as its bytes, such as ⟨C3⟩.

    Args:
        pieces: as the vocabulary has them.
        text: what was tokenized.
        spans: the characters of each piece, where the tokenizer tells; else they are looked for.
        special: True for what the tokenizer added.
        read: the bytes that a piece stands for.

    >>> tokens_of(["the", "Ġcat"], "the cat", [(0, 3), (3, 7)], [False, False], byte_level).text
    ('the', ' cat')
    """
    raw = [None if added else read(piece) for piece, added in zip(pieces, special, strict=True)]
    found = _found(raw, text) if spans is None else list(spans)
    found = [(0, 0) if added else span for span, added in zip(found, special, strict=True)]
    shown = [
        piece if value is None else _shown(piece, value, text, span)
        for piece, value, span in zip(pieces, raw, found, strict=True)
    ]
    return Tokens(tuple(pieces), tuple(shown), tuple(found), tuple(special))


def _shown(piece: str, value: bytes, text: str, span: Span) -> str:
    try:
        characters = value.decode()
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02X}⟩" for byte in value)
    source = text[slice(*span)]
    if not source:
        return characters or piece
    if characters[:1].isspace() and not source[0].isspace() and text[: span[0]][-1:].isspace():
        return text[span[0] - 1] + source
    if piece.endswith(GOES_ON) and not characters.endswith(GOES_ON):
        return source + GOES_ON
    return CONTINUES + source if piece.startswith(CONTINUES) and not source.startswith(CONTINUES) else source


def _found(raw: Sequence[bytes | None], text: str) -> list[Span]:
    """Where the pieces are in the text, one after the other, in any case; (0, 0) where one is not found."""
    folded = text.casefold() if len(text.casefold()) == len(text) else text
    spans: list[Span] = []
    at = 0
    for n_pieces, spelled in _characters(raw):
        wanted = spelled.strip() or spelled
        first = folded.find(wanted if folded is text else wanted.casefold(), at) if wanted else -1
        spans += [(first, first + len(wanted)) if first >= 0 else (0, 0)] * n_pieces
        at = first + len(wanted) if first >= 0 else at
    return spans


def _characters(raw: Iterable[bytes | None]) -> Iterator[tuple[int, str]]:
    """Pieces that spell whole characters together: how many, and what; nothing where they are none.

    >>> list(_characters([b"a", None, b"\\xc3", b"\\xa9b"]))
    [(1, 'a'), (1, ''), (2, 'éb')]
    """
    n_pieces, held = 0, b""
    for value in raw:
        n_pieces, held = n_pieces + 1, held + (value or b"")
        try:
            spelled = "" if value is None else held.decode()
        except UnicodeDecodeError:
            if len(held) < _LONGEST:  # the next piece may make it whole
                continue
            spelled = ""
        yield n_pieces, spelled
        n_pieces, held = 0, b""
    if n_pieces:
        yield n_pieces, ""


def reader(settings: str, unknown: str | None) -> Read:
    """How the pieces of a tokenizer are read.

    Args:
        settings: the tokenizer as JSON, as the tokenizers library writes it.
        unknown: the piece for what is not in the vocabulary, which stands for no characters of its own.
    """
    parts: Mapping[str, Any] = json.loads(settings)
    steps = json.dumps([parts.get(name) for name in ("pre_tokenizer", "decoder", "normalizer")], ensure_ascii=False)
    kind = parts.get("model", {}).get("type")
    read = byte_level if "ByteLevel" in steps else wordpiece if kind == "WordPiece" else sentencepiece
    return partial(_known, unknown, read)


def reader_by_joining(join: Callable[[list[str]], str], unknown: str | None) -> Read:
    """How the pieces of a tokenizer written in Python are read, by what it makes of pieces of each kind.

    Args:
        join: puts pieces together, as the tokenizer does.
        unknown: as in `reader`.
    """
    kinds: tuple[tuple[Read, list[str], str], ...] = (
        (one_byte, ["Ã", "©"], "é"),
        (wordpiece, ["a", "##b"], "ab"),
        (subwords, ["a@@", "b"], "ab"),
    )
    read = next((read for read, pieces, whole in kinds if _joins(join, pieces, whole)), sentencepiece)
    return partial(_known, unknown, read)


def _joins(join: Callable[[list[str]], str], pieces: list[str], whole: str) -> bool:
    try:
        return join(pieces).strip() == whole
    except Exception:  # (what it does with pieces that it does not have is its own)
        return False


def _known(unknown: str | None, read: Read, piece: str) -> bytes | None:
    return None if piece == unknown else read(piece)


def byte_level(piece: str) -> bytes | None:
    """The bytes of a piece of GPT-2's alphabet, in which every byte is a letter.

    >>> byte_level("ĠÃ©").decode()
    ' é'
    """
    alphabet = _letters()
    return bytes(alphabet[c] for c in piece) if all(c in alphabet for c in piece) else piece.encode()


@cache
def _letters() -> dict[str, int]:
    """GPT-2's letter for each byte: itself where it shows, the others from U+0100 on in their order.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", and its published code.
    """
    shows = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shows]
    return {chr(byte): byte for byte in shows} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


def sentencepiece(piece: str) -> bytes | None:
    """The bytes of a piece of SentencePiece: ▁ is a blank, and <0xE6> the byte E6.

    >>> sentencepiece("▁cat"), sentencepiece("<0xE6>")
    (b' cat', b'\\xe6')
    """
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace(_BLANK, " ").encode()


def wordpiece(piece: str) -> bytes | None:
    """The bytes of a piece of WordPiece, ## at its beginning left out.

    >>> wordpiece("##ly")
    b'ly'
    """
    return piece.removeprefix(CONTINUES).encode()


def one_byte(piece: str) -> bytes | None:
    """The byte of a piece that is a character of the same number, as ByT5 writes it; longer pieces have names.

    >>> one_byte("Ã"), one_byte("<extra_id_0>")
    (b'\\xc3', b'<extra_id_0>')
    """
    return piece.encode("latin-1") if len(piece) == 1 and piece <= "\xff" else piece.encode()


def subwords(piece: str) -> bytes | None:
    """The bytes of a piece of subword-nmt, @@ at its end left out.

    >>> subwords("un@@")
    b'un'
    """
    return piece.removesuffix(GOES_ON).encode()
