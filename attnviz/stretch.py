"""A stretch of a text: the tokens from one position to before another, or those of a run of characters."""

import re
from bisect import bisect_left
from dataclasses import dataclass

from attnviz.errors import RequestError
from attnviz.tokens import Tokens


@dataclass(frozen=True)
class Stretch:
    """Where a stretch begins and ends, as it is typed: `5000`, `-256` from the end, or `c120`, a character."""

    start: str | None
    """The first token; None for that of the text."""
    stop: str | None
    """What comes after the last; None for the end of the text."""

    def of(self, tokens: Tokens) -> range:
        """The indices of its tokens.

        A character stands for the token that it is in; where it is in none, the stretch begins with the next one.

        Raises:
            RequestError: an end is written otherwise, or outside the text; or no token lies between them.

        >>> Stretch("1", "-1").of(Tokens.of("abcd"))
        range(1, 3)
        """
        first = 0 if self.start is None else _index("from", self.start, tokens)
        end = len(tokens) if self.stop is None else _index("to", self.stop, tokens)
        if first >= end:
            raise RequestError(f"{self} holds no token: --to is where it ends, and must come after --from")
        return range(first, end)

    def __str__(self) -> str:
        ends = (("from", self.start), ("to", self.stop))
        return " ".join(f"--{name} {end}" for name, end in ends if end is not None)


def _index(name: str, typed: str, tokens: Tokens) -> int:
    """The index at which a stretch begins, or before which it ends."""
    if match := re.fullmatch(r"c([0-9]{1,18})", typed):
        return _of_character(name, int(match[1]), tokens)
    if not re.fullmatch(r"-?[0-9]{1,18}", typed):
        raise RequestError(
            f"--{name} {typed!r:.40}: type a position, such as 5000, -256 from the end, or c120 for a character"
        )
    if not len(tokens):
        raise RequestError(f"--{name} {typed}: there are no tokens")
    last = tokens.position(len(tokens) - 1) + 1
    position = int(typed) + (last if typed.startswith("-") else 0)
    least = tokens.position(0) + (name == "to")
    if not least <= position <= last - (name == "from"):
        raise RequestError(
            f"--{name} {typed}: the tokens are {tokens.position(0)} to {last - 1}, so it is"
            f" {least} to {last - (name == 'from')}"
        )
    return bisect_left(range(len(tokens)), position, key=tokens.position)


def _of_character(name: str, character: int, tokens: Tokens) -> int:
    placed = [i for i, (first, last) in enumerate(tokens.spans) if first < last]
    if not placed:
        raise RequestError(
            f"--{name} c{character}: these tokens do not say which characters they are: give positions of tokens"
        )
    end = max(tokens.spans[i][1] for i in placed)
    least = int(name == "to")
    if not least <= character < end + least:
        raise RequestError(
            f"--{name} c{character}: the tokens end with character {end - 1}, so it is c{least} to c{end - 1 + least}"
        )
    if name == "from":
        return next(i for i in placed if tokens.spans[i][1] > character)
    return max((i + 1 for i in placed if tokens.spans[i][0] < character), default=0)
