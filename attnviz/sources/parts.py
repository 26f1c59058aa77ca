"""The parts that attention is of: what a model reads, what it writes, and what it writes on what it reads."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import get_args

from attnviz.attention import EVERYTHING, Rule
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, Provenance
from attnviz.sources.model import Part, Prepared
from attnviz.tokens import Tokens

PARTS: tuple[Part, ...] = get_args(Part)


def part_of(one: AttentionMap) -> Part:
    """The part that a map is of: cross-attention is one of its own."""
    return "cross" if one.kind == "cross" else one.stack


def check_part(part: Part, there: Collection[Part], name: str) -> None:
    """See that a part is there.

    Raises:
        RequestError: it is not; it names those that are.
    """
    if part not in there:
        raise RequestError(f"{name} has no stack {part}: --stack is {' or '.join(there)} there, or left out")


@dataclass(frozen=True)
class OnePart:
    """Two texts made ready for a model of two parts, of which one part is looked at."""

    whole: Prepared
    part: Part

    @property
    def tokens(self) -> Tokens:
        """The tokens that attend in this part."""
        return self.whole.key_tokens if self.part == "encoder" else self.whole.tokens

    @property
    def key_tokens(self) -> Tokens:
        """The tokens attended to in this part."""
        return self.whole.tokens if self.part == "decoder" else self.whole.key_tokens

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of both texts."""
        return self.whole.notes

    @property
    def provenance(self) -> Provenance:
        """What was made of the texts, and the part."""
        return {**self.whole.provenance, "stack": self.part}

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """The maps of this part; arguments and errors as in `Prepared.maps`."""
        every = self.whole.maps(layers, rule=rule, single=single, output=output)
        return (one for one in every if part_of(one) == self.part)
