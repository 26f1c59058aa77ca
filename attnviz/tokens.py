"""Tokens: the model's own pieces, what is shown for each, and which characters of the input they are."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

from attnviz.errors import RequestError

Span = tuple[int, int]
"""The characters of the input, from the first to before the last; (0, 0) for a token that was added."""


CONTINUES = "##"
"""What WordPiece writes before a piece that goes on with a word."""
GOES_ON = "@@"
"""What subword-nmt writes after a piece with which a word goes on."""


@dataclass(frozen=True)
class Tokens:
    """The tokens along one axis of an attention map."""

    pieces: tuple[str, ...]
    """As the model's vocabulary has them: `##ly`, `Ġthe`."""
    text: tuple[str, ...]
    """What is shown for each piece."""
    spans: tuple[Span, ...]
    special: tuple[bool, ...]
    """True for what the tokenizer adds: [CLS], [SEP]."""
    positions: tuple[int, ...] | None = None
    """Where in the whole text each token is; None where they are counted from 0, with none left out."""
    generated: tuple[bool, ...] = field(default=(), compare=False)
    """True for what the model wrote itself; empty where nobody let it write. Tokens are the same whoever wrote them."""

    def __post_init__(self) -> None:
        parts = (self.pieces, self.text, self.spans, self.special, *([self.generated] if self.generated else []))
        sizes = [len(part) for part in parts]
        if len(set(sizes)) > 1:
            raise ValueError(f"pieces, text, spans, special and generated differ in length: {sizes}")
        if self.positions is not None and len(self.positions) != len(self):
            raise ValueError(f"{len(self.positions)} positions of {len(self)} tokens")

    def __len__(self) -> int:
        return len(self.pieces)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Tokens":
        """Tokens that are just strings, without a text they come from.

        >>> Tokens.of(["a", "b"]).spans
        ((0, 0), (0, 0))
        """
        pieces = tuple(texts)
        return cls(pieces, pieces, ((0, 0),) * len(pieces), (False,) * len(pieces))

    def pick(self, indices: Sequence[int]) -> "Tokens":
        """The tokens at `indices`, in that order; they keep their positions.

        >>> Tokens.of("abc").pick([2, 0]).text, Tokens.of("abc").pick([1, 2]).positions
        (('c', 'a'), (1, 2))
        """
        positions = tuple(map(self.position, indices))
        return Tokens(
            tuple(self.pieces[i] for i in indices),
            tuple(self.text[i] for i in indices),
            tuple(self.spans[i] for i in indices),
            tuple(self.special[i] for i in indices),
            None if positions == tuple(range(len(positions))) else positions,
            tuple(self.generated[i] for i in indices) if self.generated else (),
        )

    def position(self, index: int) -> int:
        """Where in the whole text the token at `index` is."""
        return index if self.positions is None else self.positions[index]

    def find(self, wanted: str) -> tuple[int, ...]:
        """Where `wanted` is: the position, where it is an integer, else every token whose piece or shown text it is.

        Blanks around the shown text count only where they are typed, as blanks or as they are shown. A word that is in
        several pieces gives all of them.

        Raises:
            RequestError: there is no such token or position.

        >>> Tokens.of(["the", "cat", "the"]).find("the"), Tokens.of("ab").find("-1")
        ((0, 2), (1,))
        >>> Tokens.of(["o", "ca", "##cho", "##rro"]).find("cachorro")
        (1, 2, 3)
        >>> Tokens.of(["the", " the"]).find("the"), Tokens.of(["the", " the"]).find("␣the")
        ((0, 1), (1,))
        """
        if re.fullmatch(r"-?[0-9]{1,18}", wanted):  # other digits and longer numbers are no positions
            return (self._at(int(wanted)),)
        forms: tuple[Callable[[str], str], ...] = (str, str.casefold, visible)
        for form in forms:  # as it is typed, else in any case, else as it is shown
            triples = zip(self.pieces, self.text, map(_without_blanks, self.text), strict=True)
            matches = tuple(i for i, triple in enumerate(triples) if form(wanted) in map(form, triple))
            if matches:
                return matches
            matches = tuple(i for word in self.words() if form(wanted) == form(self.spelled(word)) for i in word)
            if matches:
                return matches
        known = ", ".join(visible(text) for text in dict.fromkeys(self.text[:40]))
        more = ", …" if len(self) > 40 else ""
        raise RequestError(f"no query token {visible(wanted)!r}: the tokens are {known}{more}")

    def _at(self, position: int) -> int:
        """The index of the token at a position, one below 0 counted from the end."""
        if -len(self) <= position < 0:
            return position + len(self)
        if self.positions is None and 0 <= position < len(self):
            return position
        if self.positions is not None and position in self.positions:
            return self.positions.index(position)
        there = f"positions go from {self.position(0)} to {self.position(len(self) - 1)}" if len(self) else ""
        raise RequestError(f"no query {position}: {there or 'there are no tokens'}")

    def words(self) -> tuple[range, ...]:
        """The tokens word by word, as their pieces tell: ranges of neighbours that cover them all.

        A piece that begins with ## goes on with the word before it, and one that ends with @@ has the next go on with
        its own. Where some pieces begin with Ġ or ▁ for a blank, one without goes on too, if it and the one before
        hold a letter or digit; marks are words of their own, as BERT has them. Parts of one character stay together.
        Special tokens are words of their own, what the model wrote begins with a new one, and without such signs every
        token is a word.

        >>> [list(word) for word in Tokens.of(["un", "##want", "##ed", "!"]).words()]
        [[0, 1, 2], [3]]
        >>> [list(word) for word in Tokens.of(["un", "want", "Ġthe", "!"]).words()]
        [[0, 1], [2], [3]]
        """
        signs = "".join(piece[:1] for i, piece in enumerate(self.pieces) if not self.special[i])
        marked, bytewise = any(sign in signs for sign in BLANKS), any(sign in signs for sign in _BYTEWISE)
        firsts = [i for i in range(len(self)) if i == 0 or not self._goes_on(i, marked, bytewise)]
        return tuple(map(range, firsts, [*firsts[1:], len(self)]))

    def _goes_on(self, i: int, marked: bool, bytewise: bool) -> bool:
        """Whether token i goes on with the word of the token before it."""
        piece, before = self.pieces[i], self.pieces[i - 1]
        if self.special[i] or self.special[i - 1] or (self.generated and self.generated[i] > self.generated[i - 1]):
            return False
        if piece.startswith(CONTINUES) or _ends_open(before) or self.spans[i][0] < self.spans[i - 1][1]:
            return True
        if not marked or piece.startswith(BLANKS):
            return False
        return before in BLANKS or (_holds_a_letter(before, bytewise) and _holds_a_letter(piece, bytewise))

    def spelled(self, word: Sequence[int]) -> str:
        """What is shown for a word: the texts of its tokens, without the signs that say how they join.

        >>> Tokens.of(["un", "##want", "##ed"]).spelled([0, 1, 2]), Tokens.of(["Ġun", "want"]).spelled([0, 1])
        ('unwanted', 'unwant')
        >>> Tokens.of(["caf", "⟨C3⟩", "⟨A9⟩"]).spelled([0, 1, 2])
        'café'
        """
        if len(word) == 1 and self.special[word[0]]:
            return self.text[word[0]]
        texts = [self.text[word[0]], *(self.text[i].removeprefix(CONTINUES) for i in word[1:])]
        texts = [text.removesuffix(GOES_ON) if _ends_open(text) else text for text in texts[:-1]] + texts[-1:]
        return _without_blanks(_whole_characters(texts))


def _ends_open(piece: str) -> bool:
    return piece.endswith(GOES_ON) and piece != GOES_ON


BLANKS = ("Ġ", "▁")
"""What byte-level tokenizers and SentencePiece write for a blank before a word."""
_BYTEWISE = ("Ġ", "Ċ")
"""What tells that the other characters of pieces stand for bytes, a line feed too."""


def _holds_a_letter(piece: str, bytewise: bool) -> bool:
    """Whether there is a letter, digit or combining mark; bytes beyond ASCII are taken for parts of letters."""
    signs = (*BLANKS, *_BYTEWISE)  # which are letters elsewhere
    return any(
        c not in signs and (c.isalnum() or unicodedata.category(c)[0] == "M" or (bytewise and c > "\x7f"))
        for c in piece
    )


def _without_blanks(text: str) -> str:
    """`text` without blanks around it, where there is anything else."""
    return text.strip("".join(BLANKS) + " ") or text


_BYTES = re.compile("(?:⟨[0-9A-F]{2}⟩)+")
"""What is shown for a piece that is part of a character."""


def _whole_characters(texts: Sequence[str]) -> str:
    """The texts of pieces joined, bytes that are a character together as that character."""
    joined = ""
    for are_bytes, some in groupby(texts, lambda text: _BYTES.fullmatch(text) is not None):
        part = "".join(some)
        if are_bytes:
            with suppress(UnicodeDecodeError):  # the word begins or ends inside a character
                part = bytes.fromhex(part.replace("⟨", "").replace("⟩", " ")).decode()
        joined += part
    return joined


_NAMED = {" ": "␣", "\x7f": "␡", "": "⟨empty⟩"}
_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp", "Cs", "Co", "Cn"}
_BLANK_ALL_THE_SAME = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Fillers and such, that count as letters, marks or symbols."""


def visible(text: str) -> str:
    """`text` with a sign for each character that would not show, or that would act on the terminal.

    A blank is ␣ where nothing else is in the token, control characters are their pictures (␊), other
    invisible ones are named ⟨U+200B⟩, and a combining mark without a letter gets ◌ to stand on. What joins
    emoji and scripts inside a token (U+200D, U+200C, U+FE0F) stays.

    >>> visible(" "), visible("a b"), visible("a\\n"), visible("\\u200b"), visible("")
    ('␣', 'a b', 'a␊', '⟨U+200B⟩', '⟨empty⟩')
    """
    if not text:
        return _NAMED[""]
    only_blanks = not text.strip(" ")
    shown = "".join(_visible_character(text, i, only_blanks) for i in range(len(text)))
    return "◌" + shown if unicodedata.category(shown[0]) in ("Mn", "Me", "Mc") else shown


def _visible_character(text: str, i: int, only_blanks: bool) -> str:
    c = text[i]
    if c == " ":
        return _NAMED[c] if only_blanks or i in (0, len(text) - 1) else c
    if c in "\u200c\u200d" and 0 < i < len(text) - 1:
        return c
    if ord(c) < 0x20:
        return chr(0x2400 + ord(c))
    if c in _NAMED:
        return _NAMED[c]
    stray = i == 0 and "\ufe00" <= c <= "\ufe0f"  # a variation selector with nothing to vary
    unseen = stray or c in _BLANK_ALL_THE_SAME or unicodedata.category(c) in _INVISIBLE
    return f"⟨U+{ord(c):04X}⟩" if unseen else c
