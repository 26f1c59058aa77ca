"""What a source is: a model that takes a text and hands over one attention map a layer."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from attnviz.attention import EVERYTHING, Rule
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, Provenance
from attnviz.tokens import Tokens

Part: TypeAlias = Literal["encoder", "decoder", "cross"]
"""The attention of what a model reads, of what it writes, and of what it writes on what it reads."""


class Prepared(Protocol):
    """A text made ready for a model."""

    @property
    def tokens(self) -> Tokens:
        """The tokens that attend, as the model sees them: the queries."""
        ...

    @property
    def key_tokens(self) -> Tokens:
        """The tokens attended to; in self-attention the very same object as `tokens`."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know about the text's way into the model."""
        ...

    @property
    def provenance(self) -> Provenance:
        """What was made of the text, so that it can be made again; nothing where it went in as it is."""
        ...

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """Run the model; the maps of `layers`, in order, each ready to be forgotten before the next is made.

        Args:
            layers: which layers, counted from 0; nothing after the last of them is run.
            rule: what may be attended in every layer, over and above the model's own rule.
            single: put the full-width head of the same projections before the heads.
            output: with each layer's attention output.

        Raises:
            RequestError: the rule is made for other numbers of tokens or heads.
        """
        ...


class Model(Protocol):
    """A source of attention."""

    @property
    def name(self) -> str:
        """What the reader calls it."""
        ...

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        ...

    @property
    def attending(self) -> Sequence[int]:
        """The layers that have attention, in ascending order: all of them, but in hybrids."""
        ...

    @property
    def n_heads(self) -> int:
        """How many heads a layer has."""
        ...

    @property
    def gives_output(self) -> bool:
        """Whether records hold the attention output unasked."""
        ...

    @property
    def provenance(self) -> Provenance:
        """What is needed to make the same numbers again."""
        ...

    @property
    def words(self) -> Sequence[str]:
        """Words that are likely to be one token each, whatever stands beside them, for probes to draw from."""
        ...

    def prepare(self, text: str, *, truncate: bool = False) -> Prepared:
        """Tokens for `text`.

        Args:
            text: any text.
            truncate: keep the first tokens of a text that is too long, instead of refusing it.

        Raises:
            RequestError: the text has no tokens, or too many.
        """
        ...


@runtime_checkable
class ReadsPairs(Protocol):
    """A model that reads two texts as a pair."""

    def prepare_pair(self, text: str, pair: str, *, truncate: bool = False) -> Prepared:
        """Tokens for both texts; arguments and errors as in `Model.prepare`."""
        ...


@runtime_checkable
class ReadsWindows(Protocol):
    """A model that takes so many tokens and no more, and a longer text window by window."""

    def prepare_windows(self, text: str, stride: int) -> Sequence[Prepared]:
        """The text as it is where it is not too long, else its windows, which begin `stride` tokens apart.

        Special tokens are added to each, and the last one ends with the text.

        Raises:
            RequestError: the text has no tokens, or the windows would leave some out.
        """
        ...


@runtime_checkable
class Writes(Protocol):
    """A model that may write a text, or answer in a chat."""

    @property
    def parts(self) -> Mapping[Part, Sequence[int]]:
        """The layers of each part that it has."""
        ...

    def prepare_chat(self, text: str, *, truncate: bool = False) -> Prepared:
        """Tokens for `text` in the model's chat template; arguments and errors as in `Model.prepare`."""
        ...

    def prepare_written(self, text: str, n_tokens: int, *, chat: bool = False, truncate: bool = False) -> Prepared:
        """Tokens for `text`, and for the `n_tokens` tokens that the model writes after it."""
        ...

    def prepare_both(self, source: str, target: str, *, truncate: bool = False) -> Prepared:
        """Tokens for what the model reads and for what it writes: the attention of both parts and between them."""
        ...


def checked_text(text: str) -> str:
    """`text`, if it is text: valid Unicode without NUL characters.

    Raises:
        RequestError: naming the place of what is not text.

    >>> checked_text("a b")
    'a b'
    """
    if not isinstance(text, str):
        raise RequestError(f"the text must be a string, got {type(text).__name__}")
    for i, character in enumerate(text):
        if character == "\0":
            raise RequestError(f"the text holds a NUL character at position {i}: is it a binary file?")
        if "\ud800" <= character <= "\udfff":
            what = f"byte 0x{ord(character) - 0xDC00:02X}" if character >= "\udc80" else "half a surrogate pair"
            raise RequestError(f"the text is not valid UTF-8: {what} at position {i}")
    return text
