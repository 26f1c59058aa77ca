"""Which tokens of two texts are the same, in order."""

from dataclasses import dataclass
from difflib import SequenceMatcher

from attnviz.tokens import Tokens, visible

_MOST_NAMED = 10


@dataclass(frozen=True)
class Alignment:
    """Positions in two lists of tokens that hold the same tokens, both in ascending order."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    same: bool
    """Whether the two lists are the same throughout."""


def align(first: Tokens, second: Tokens) -> Alignment:
    """The tokens that agree, by their pieces: the longest run of neighbours first, then what lies on each side of it.

    A special token is never the same as a piece that is written alike.

    Source: Ratcliff and Obershelp's matching, as of the standard library's difflib.

    >>> align(Tokens.of("abcd"), Tokens.of("abxd")).first
    (0, 1, 3)
    """
    a, b = (tuple(zip(tokens.pieces, tokens.special, strict=True)) for tokens in (first, second))
    if a == b:
        every = tuple(range(len(first)))
        return Alignment(every, every, same=True)
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return Alignment(
        tuple(i for block in blocks for i in range(block.a, block.a + block.size)),
        tuple(i for block in blocks for i in range(block.b, block.b + block.size)),
        same=False,
    )


def describe_alignment(alignment: Alignment, first: Tokens, second: Tokens, axis: str) -> str:
    """How much of two texts is aligned, and which tokens are not."""
    sides = []
    for name, tokens, kept in (("A", first, alignment.first), ("B", second, alignment.second)):
        others = [visible(tokens.text[i]) for i in range(len(tokens)) if i not in set(kept)]
        more = ", …" if len(others) > _MOST_NAMED else ""
        without = f" (not {', '.join(others[:_MOST_NAMED])}{more})" if others else ""
        sides.append(f"{len(kept)} of {len(tokens)} {axis} of {name}{without}")
    return f"{' and '.join(sides)} are aligned: differences are of these alone, and nothing is renormalised"
