"""Texts as a model of transformers takes them: ids, and the tokens that they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from attnviz.errors import RequestError
from attnviz.sources.huggingface_loading import quiet
from attnviz.sources.model import checked_text
from attnviz.sources.pieces import Read, reader, reader_by_joining, tokens_of
from attnviz.sources.tokenizer import too_long
from attnviz.sources.windows import Window, windows_of
from attnviz.tokens import Span, Tokens


@dataclass(frozen=True)
class Text:
    """A text, or two for a model that reads pairs, as ids and tokens."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    """0, and 1 for the second text where the model tells them apart."""
    tokens: Tokens
    """Spans count in the texts joined by a line end."""
    notes: tuple[str, ...]
    whole: str
    """What the spans count in."""


class Texts:
    """Makes texts ready for one model.

    Args:
        tokenizer: of transformers.
        limit: the most tokens that the model takes; None where it has no limit.
        in_windows: a longer text can be cut into windows.
    """

    def __init__(self, tokenizer: Any, limit: int | None, *, in_windows: bool) -> None:
        self._tokenizer, self._limit, self._in_windows = tokenizer, limit, in_windows
        backend = getattr(tokenizer, "backend_tokenizer", None)
        unknown = tokenizer.unk_token
        self._read: Read = (
            reader_by_joining(tokenizer.convert_tokens_to_string, unknown)
            if backend is None
            else reader(backend.to_str(), unknown)
        )

    @cached_property
    def _special(self) -> frozenset[int]:
        """The ids of special tokens; what stands for unknown words is none, unless it has another use."""
        tokenizer = self._tokenizer
        marked = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        used = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "cls", "sep", "mask")}
        return frozenset({*tokenizer.all_special_ids, *marked} - ({tokenizer.unk_token_id} - used))

    def vocabulary(self) -> dict[str, int]:
        """The pieces of the model, without special tokens and others that were added."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is not None:
            found: dict[str, int] = backend.get_vocab(with_added_tokens=False)
            return found
        added = {*self._tokenizer.get_added_vocab(), *self._tokenizer.all_special_tokens}
        return {piece: i for piece, i in self._tokenizer.get_vocab().items() if piece not in added}

    def ready(self, *texts: str, truncate: bool, is_whole: bool = False) -> Text:
        """One text, or the two of a pair.

        Args:
            texts: one or two.
            truncate: keep the first tokens of a text that is too long, instead of refusing it.
            is_whole: special tokens are in the text already, as a chat template puts them.

        Raises:
            RequestError: there are no tokens, or too many.
        """
        text, n_tokens = self._read_text(*texts, most=self._limit if truncate else None, is_whole=is_whole)
        if self._limit is not None and n_tokens > self._limit and not truncate:
            in_windows = self._in_windows and len(texts) == 1 and not is_whole
            raise RequestError(too_long(n_tokens, self._limit, in_windows=in_windows))
        return text

    def windows(self, text: str, stride: int) -> list[tuple[Text, Window | None]]:
        """Windows of a text that is too long, which begin `stride` tokens apart; one that is not stays whole.

        Raises:
            RequestError: there are no tokens, the windows would leave some out, or the model takes any number.
        """
        whole, _ = self._read_text(text, most=None, is_whole=False)
        if self._limit is None:
            raise RequestError("the model takes texts of any length: leave out --stride")
        windows = windows_of(whole.tokens.special, self._limit, stride)
        if len(whole.ids) <= self._limit:
            return [(whole, None)]
        return [(_window(whole, one), one) for one in windows]

    def _read_text(self, *texts: str, most: int | None, is_whole: bool) -> tuple[Text, int]:
        """The text cut to `most` tokens, and how many it has."""
        tokenizer = self._tokenizer
        texts = tuple(map(checked_text, texts))
        told: dict[str, Any] = {"return_special_tokens_mask": True, "return_offsets_mapping": tokenizer.is_fast}
        told["add_special_tokens"] = not is_whole
        with quiet():  # it warns of a long text, which is refused below
            encoded = tokenizer(*texts, **told)
            n_tokens = len(encoded["input_ids"])
            if most is not None and n_tokens > most:
                encoded = tokenizer(*texts, truncation=True, max_length=most, **told)
        ids, special = list(encoded["input_ids"]), [bool(flag) for flag in encoded["special_tokens_mask"]]
        if is_whole:
            special = [one in self._special for one in ids]
        if all(special):
            raise RequestError("the text is empty: it gives no tokens (special tokens alone are not shown)")
        notes = (f"the text has {n_tokens} tokens; only the first {most} are used",) if len(ids) < n_tokens else ()
        types = list(encoded.get("token_type_ids", [0] * len(ids)))
        spans = _spans(encoded, texts) if tokenizer.is_fast else None
        first = 1 if len(ids) > 1 and special[0] and ids[0] == ids[1] else 0  # the text began with it itself
        pieces, whole = tokenizer.convert_ids_to_tokens(ids[first:]), "\n".join(texts)
        tokens = tokens_of(pieces, whole, None if spans is None else spans[first:], special[first:], self._read)
        return Text(tuple(ids[first:]), tuple(types[first:]), tokens, notes, whole), n_tokens

    def check_length(self, n_tokens: int) -> None:
        """See that the model takes so many tokens.

        Raises:
            RequestError: it takes fewer.
        """
        if self._limit is not None and n_tokens > self._limit:
            raise RequestError(too_long(n_tokens, self._limit, in_windows=False))

    def chat(self, text: str) -> str:
        """`text` as a user's turn in the model's chat template, up to where the answer begins.

        Raises:
            RequestError: the model has no chat template.
        """
        if not self._tokenizer.chat_template:
            raise RequestError("the model has no chat template: leave out --chat")
        turns = [{"role": "user", "content": checked_text(text)}]
        whole: str = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return whole

    def continued(self, text: Text, ids: Sequence[int]) -> Text:
        """`text` with the tokens that the model wrote after it."""
        written = self.written(ids)
        start = len(text.whole)
        spans = tuple((a + start, b + start) if b else (0, 0) for a, b in written.tokens.spans)
        tokens = Tokens(
            text.tokens.pieces + written.tokens.pieces,
            text.tokens.text + written.tokens.text,
            text.tokens.spans + spans,
            text.tokens.special + written.tokens.special,
            generated=(False,) * len(text.ids) + (True,) * len(ids),
        )
        types = text.types + (text.types[-1],) * len(ids)
        return Text(text.ids + written.ids, types, tokens, text.notes, text.whole + written.whole)

    def written(self, ids: Sequence[int]) -> Text:
        """What the model wrote; an id that the tokenizer has no piece for, as models may have, is its number."""
        tokenizer = self._tokenizer
        special = [one in self._special for one in ids]
        whole = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        found = tokenizer.convert_ids_to_tokens(list(ids))
        pieces = [f"<{one}>" if piece is None else piece for one, piece in zip(ids, found, strict=True)]
        return Text(tuple(ids), (0,) * len(ids), tokens_of(pieces, whole, None, special, self._read), (), whole)


def _window(whole: Text, one: Window) -> Text:
    ids, types = (tuple(values[i] for i in one.tokens) for values in (whole.ids, whole.types))
    return Text(ids, types, replace(whole.tokens.pick(one.tokens), positions=None), (one.note,), whole.whole)


def _spans(encoded: Any, texts: Sequence[str]) -> list[Span]:
    """The characters of each token in the texts joined by a line end."""
    offset = len(texts[0]) + 1
    return [
        (first + offset, last + offset) if which == 1 and last else (first, last)
        for (first, last), which in zip(encoded["offset_mapping"], encoded.sequence_ids(0), strict=True)
    ]
