"""Texts as a terminal can show them: written in its encoding, measured in cells, cut between characters."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from attnviz.tokens import visible

_LRM = "\u200e"
"""LEFT-TO-RIGHT MARK: what follows right-to-left text keeps its place."""

_SIGNS = {"␣": "<SP>", "␡": "\\x7f", "◌": "", "⟨": "<", "⟩": ">"} | {chr(0x2400 + i): f"\\x{i:02x}" for i in range(32)}
"""What `visible` puts in, for encodings without it."""
_PUNCTUATION = {"…": "..", "–": "-", "−": "-", "×": "x", "·": "-"}
"""Likewise for what our own titles and notes are written with."""
_FORMULAS = {
    "·": "*", "√": "sqrt ", "Σ": "sum", "∑": "sum", "∈": "in", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~",
    "→": "->", "∞": "inf", "π": "pi", "θ": "theta", "‖": "||",
}  # fmt: skip
"""Likewise for formulas."""


def graphemes(text: str) -> list[str]:
    """`text` in the pieces that a reader calls characters, as far as terminals draw them as one.

    A combining mark, a joiner with what it joins, the second half of a flag and a Hangul vowel stay with what
    they belong to. A simplification of Unicode's rules (UAX 29) to what can be inside a visible token.

    >>> [len(piece) for piece in graphemes("e\\u0301a👩‍🚀🇧🇷🇧🇷")]
    [2, 1, 3, 2, 2]
    """
    if text.isascii():
        return list(text)
    pieces: list[str] = []
    for c in text:
        if pieces and _joins(pieces[-1], c):
            pieces[-1] += c
        else:
            pieces.append(c)
    return pieces


def _joins(piece: str, c: str) -> bool:
    if unicodedata.category(c) in ("Mn", "Me", "Mc", "Cf") or "\U0001f3fb" <= c <= "\U0001f3ff":
        return True
    if piece[-1] == "\u200d" or "\u1160" <= c <= "\u11ff":
        return True
    return _half_flag(c) and len(piece) == 1 and _half_flag(piece)


def _half_flag(c: str) -> bool:
    return "\U0001f1e6" <= c <= "\U0001f1ff"


def elide(text: str, width: int, sign: str = "…") -> str:
    """`text`, cut to at most `width` cells with `sign` at its end where it is longer.

    >>> elide("favorite", 8), elide("favorite", 5), elide("日本語", 4), elide("ab", 0)
    ('favorite', 'favo…', '日…', '')
    """
    if cell_len(text) <= width:
        return text
    if cell_len(sign) > width:
        sign = ""
    kept = ""
    for piece in graphemes(text):
        if cell_len(kept + piece + sign) > width:
            break
        kept += piece
    return kept + sign + (_LRM if _LRM in kept else "")


def justify(text: str, width: int, before: float) -> str:
    """`text` filled up with blanks to `width` cells, the share `before` of them before it.

    >>> justify("日", 4, 0), justify("日", 4, 1), justify("a", 4, 0.5)
    ('日  ', '  日', '  a ')
    """
    blanks = max(0, width - cell_len(text))
    left = int(blanks * before + 0.5)
    return " " * left + text + " " * (blanks - left)


def written_token(text: str, encoding: str) -> str:
    """A token's text with a sign or an escape for all that does not show or is not in `encoding`.

    >>> written_token("日\\n", "utf-8"), written_token("日\\n", "ascii")
    ('日␊', '\\\\u65e5\\\\x0a')
    """
    return _written(visible(text), encoding, _SIGNS)


def written(text: str, encoding: str) -> str:
    """Our own text, such as a title, likewise; it may hold token texts.

    >>> written("5 × 5 …", "ascii")
    '5 x 5 ..'
    """
    return guarded(_written(visible(text), encoding, _SIGNS | _PUNCTUATION), encoding)


def written_prose(text: str, encoding: str) -> str:
    """Our own prose likewise, its formulas in letters: of raised and lowered ones Unicode knows which they are.

    >>> written_prose("softmax(QKᵀ / √dₖ) · V, V ∈ ℝⁿ", "ascii")
    'softmax(QK^T / sqrt d_k) * V, V in R^n'
    """
    letters = {c: _in_letters(c) for c in set(text) if unicodedata.decomposition(c)}
    signs = letters | _SIGNS | _PUNCTUATION | _FORMULAS
    return guarded(_written(visible(text), encoding, signs), encoding)


def _in_letters(c: str) -> str:
    """A raised, lowered or otherwise styled character as those that it is made from.

    >>> _in_letters("ᵀ"), _in_letters("ₖ"), _in_letters("ℝ")
    ('^T', '_k', 'R')
    """
    kind, *codes = unicodedata.decomposition(c).split()
    if not kind.startswith("<"):
        return _escape(c)
    plain = "".join(chr(int(code, 16)) for code in codes)
    return {"<super>": "^", "<sub>": "_"}.get(kind, "") + (plain if plain.isascii() else _escape(plain))


def _written(text: str, encoding: str, instead: dict[str, str]) -> str:
    if can_write(text, encoding):
        return text
    return "".join(c if can_write(c, encoding) else instead.get(c, _escape(c)) for c in text)


def _escape(c: str) -> str:
    return c.encode("ascii", "backslashreplace").decode("ascii")


def can_write(text: str, encoding: str) -> bool:
    """Whether `encoding` has all characters of `text`; one that Python does not know is taken for ASCII.

    >>> can_write("é", "latin-1"), can_write("▀", "latin-1"), can_write("é", "unheard-of")
    (True, False, False)
    """
    if text.isascii():
        return True
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def guarded(text: str, encoding: str) -> str:
    """Right-to-left text between marks that keep what stands left and right of it in its place.

    >>> len(guarded("שלום", "utf-8")), guarded("abc", "utf-8")
    (6, 'abc')
    """
    if text.isascii() or not any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in text):
        return text
    return f"{_LRM}{text}{_LRM}" if can_write(_LRM, encoding) else text


def distinct(labels: Sequence[str], width: int, sign: str = "…", positions: Sequence[int] | None = None) -> list[str]:
    """Labels of at most `width` cells, those that would look alike with their positions: their numbers, unless given.

    >>> distinct(["the", "cat", "the"], 8), distinct(["internal", "internet"], 7)
    (['the 0', 'cat', 'the 2'], ['inte… 0', 'inte… 1'])
    """
    cut = [elide(label, width, sign) for label in labels]
    marked: set[int] = set()
    while alike := _alike(cut) - marked:
        marked |= alike
        for i in alike:
            mark = f" {i if positions is None else positions[i]}"
            cut[i] = f"{elide(labels[i], max(1, width - len(mark)), sign)}{mark}"
    return cut


def _alike(labels: Sequence[str]) -> set[int]:
    counts = Counter(labels)
    return {i for i, label in enumerate(labels) if counts[label] > 1}


def widest(texts: Iterable[str]) -> int:
    """The cells of the widest text; 0 where there is none.

    >>> widest(["日本", "abc"])
    4
    """
    return max(map(cell_len, texts), default=0)
