"""Texts too long for a model, cut into windows that overlap: which tokens are in each."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from attnviz.errors import RequestError
from attnviz.maps import Provenance


@dataclass(frozen=True)
class Window:
    """One of the windows of a text."""

    number: int
    """From 1."""
    n_windows: int
    stride: int
    """How many tokens after the one before it begins."""
    tokens: tuple[int, ...]
    """The indices of its tokens, with the special ones that stand before and after every text."""
    first: int
    """The first that is its own, counted among the tokens of the text, without special ones."""
    last: int

    @property
    def note(self) -> str:
        """Where in the text it is."""
        return f"window {self.number} of {self.n_windows}: tokens {self.first} to {self.last} of the text"

    @property
    def provenance(self) -> Provenance:
        """What was made of the text."""
        return {"stride": self.stride, "window": self.number, "n_windows": self.n_windows}


def windows_of(special: Sequence[bool], limit: int, stride: int) -> list[Window]:
    """The windows of a text, each of at most `limit` tokens; the last one ends with the text.

    Args:
        special: of each token of the text, whether the tokenizer added it.
        limit: the most tokens that the model takes.
        stride: how many tokens apart the windows begin.

    Raises:
        RequestError: the model has no room beside special tokens, or so wide a stride would leave tokens out.

    >>> cut = windows_of([True, *[False] * 7, True], 5, 2)
    >>> [one.tokens for one in cut], cut[1].note
    ([(0, 1, 2, 3, 8), (0, 3, 4, 5, 8), (0, 5, 6, 7, 8)], 'window 2 of 3: tokens 2 to 4 of the text')
    """
    n = len(special)
    before = len(list(takewhile(bool, special)))
    after = len(list(takewhile(bool, reversed(special)))) if before < n else 0
    room, length = limit - before - after, n - before - after
    if room < 1:
        raise RequestError(f"the model takes at most {limit} tokens, which leaves no room beside the special ones")
    if not 1 <= stride <= room:
        raise RequestError(f"--stride {stride}: a window holds {room} tokens of the text, so it is 1 to {room}")
    starts = range(0, max(1, length - room + stride), stride)
    ends = [min(start + room, length) for start in starts]
    return [
        Window(
            number,
            len(starts),
            stride,
            (*range(before), *range(before + start, before + end), *range(n - after, n)),
            start,
            end - 1,
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
    ]
