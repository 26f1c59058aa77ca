"""The tokenizer of a checkpoint folder: text to ids, with what each piece is and where it stands."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.model import checked_text
from attnviz.sources.windows import Window, windows_of
from attnviz.tokens import BLANKS, Tokens, visible

FILE, VOCABULARY, SETTINGS = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
UNKNOWN, FIRST, LAST = "[UNK]", "[CLS]", "[SEP]"


@dataclass(frozen=True)
class Encoded:
    """A text as the model takes it."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    """0 throughout for a single text."""
    tokens: Tokens
    notes: tuple[str, ...]


def load_tokenizer(folder: Path) -> Tokenizer:
    """The folder's tokenizer, from tokenizer.json or BERT's older vocab.txt, neither padding nor truncating.

    Raises:
        AttnvizError: there is none, or it is damaged.
    """
    path = folder / FILE
    try:
        if path.is_file():
            tokenizer = Tokenizer.from_file(str(path))
        elif (folder / VOCABULARY).is_file():
            tokenizer = _wordpiece(folder)
        else:
            raise AttnvizError(
                f"{folder} has no tokenizer ({FILE} or {VOCABULARY}): without it every word would be unknown"
            )
    except AttnvizError:
        raise
    except Exception as error:  # (tokenizers raises no narrower class)
        raise AttnvizError(f"the tokenizer in {folder} is damaged: {error}") from error
    tokenizer.no_padding()  # published files often pad or truncate to a fixed length
    tokenizer.no_truncation()
    return tokenizer


def _wordpiece(folder: Path) -> Tokenizer:
    """The tokenizer that BERT's vocab.txt stands for, put together from its parts."""
    settings = folder / SETTINGS
    config = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    if not isinstance(config, dict):
        raise AttnvizError(f"the tokenizer in {folder} is damaged: {SETTINGS} holds no JSON object")
    vocabulary = WordPiece.read_file(str(folder / VOCABULARY))
    if missing := [piece for piece in (UNKNOWN, FIRST, LAST) if piece not in vocabulary]:
        raise AttnvizError(f"the tokenizer in {folder} is damaged: {VOCABULARY} has no {', '.join(missing)}")
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = BertNormalizer(
        lowercase=config.get("do_lower_case", True),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens([piece for piece in ("[PAD]", UNKNOWN, FIRST, LAST, "[MASK]") if piece in vocabulary])
    tokenizer.post_processor = BertProcessing((LAST, vocabulary[LAST]), (FIRST, vocabulary[FIRST]))
    return tokenizer


def whole_words(vocabulary: Mapping[str, int]) -> tuple[str, ...]:
    """The pieces of a vocabulary that are words of two letters or more, in the order of their ids.

    Where the vocabulary writes Ġ or ▁ for a blank, those that have it, without it.

    >>> whole_words({"cat": 1, "the": 0, "##s": 2}), whole_words({"cat": 0, "Ġcat": 1})
    (('the', 'cat'), ('cat',))
    """
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    marked = [piece[1:] for piece in pieces if piece.startswith(BLANKS)]
    return tuple(word for word in marked or pieces if len(word) > 1 and word.isalpha())


def encode(tokenizer: Tokenizer, text: str, limit: int, *, pair: str | None = None, truncate: bool = False) -> Encoded:
    """`text` as ids and tokens, at most `limit` of them; with `pair`, of both texts, joined by a line end.

    Raises:
        RequestError: it has no tokens, or more than `limit` and either `truncate` is not set or none of them fits.
        AttnvizError: the tokenizer is damaged.
    """
    pair = None if pair is None else checked_text(pair)
    encoding = _encoding_of_some(tokenizer, text, pair)
    notes = []
    if len(encoding) > limit:
        if not truncate:
            raise RequestError(too_long(len(encoding), limit, in_windows=pair is None))
        if limit <= tokenizer.num_special_tokens_to_add(is_pair=pair is not None):
            raise RequestError(f"the model takes at most {limit} tokens, which leaves no room beside the special ones")
        notes.append(f"the text has {len(encoding)} tokens; only the first {limit} are used")
        tokenizer.enable_truncation(limit)
        encoding = _encoding(tokenizer, text, pair)
        tokenizer.no_truncation()
    return _encoded(tokenizer, encoding, text, pair, notes)


def encode_windows(tokenizer: Tokenizer, text: str, limit: int, stride: int) -> list[tuple[Encoded, Window | None]]:
    """`text` as `encode` has it, or where it is too long its windows of `limit` tokens, `stride` tokens apart.

    Raises:
        RequestError: it has no tokens, or the windows would leave some out.
        AttnvizError: the tokenizer is damaged.
    """
    encoding = _encoding_of_some(tokenizer, text, None)
    windows = windows_of([bool(flag) for flag in encoding.special_tokens_mask], limit, stride)
    whole = _encoded(tokenizer, encoding, text, None, ())
    if len(encoding) <= limit:
        return [(whole, None)]
    return [(_window(tokenizer, whole, text, one), one) for one in windows]


def _window(tokenizer: Tokenizer, whole: Encoded, text: str, one: Window) -> Encoded:
    ids, types = (tuple(values[i] for i in one.tokens) for values in (whole.ids, whole.types))
    tokens = replace(whole.tokens.pick(one.tokens), positions=None)
    notes = (one.note, *_unknown_notes(tokens, text, getattr(tokenizer.model, "unk_token", None)))
    return Encoded(ids, types, tokens, notes)


def too_long(n_tokens: int, limit: int, *, in_windows: bool) -> str:
    """What is said of a text with too many tokens.

    Args:
        n_tokens: how many it has.
        limit: how many the model takes.
        in_windows: the text can be cut into windows.
    """
    windows = f", or cut it into windows with --stride {max(1, limit // 2)}" if in_windows else ""
    return (
        f"the text has {n_tokens} tokens, special ones included, and the model takes at most {limit}: shorten it,"
        f"{'' if windows else ' or'} keep the first {limit} with --truncate{windows}"
    )


def _encoding_of_some(tokenizer: Tokenizer, text: str, pair: str | None) -> Encoding:
    encoding = _encoding(tokenizer, checked_text(text), pair)
    if all(encoding.special_tokens_mask):
        raise RequestError("the text is empty: it gives no tokens (special tokens alone are not shown)")
    return encoding


def _encoded(tokenizer: Tokenizer, encoding: Encoding, text: str, pair: str | None, notes: Sequence[str]) -> Encoded:
    unknown: str | None = getattr(tokenizer.model, "unk_token", None)
    whole = text if pair is None else f"{text}\n{pair}"
    tokens = _tokens(encoding, whole, len(text) + 1, unknown)
    notes = (*notes, *_unknown_notes(tokens, whole, unknown))
    return Encoded(tuple(encoding.ids), tuple(encoding.type_ids), tokens, notes)


def _encoding(tokenizer: Tokenizer, text: str, pair: str | None) -> Encoding:
    try:
        return tokenizer.encode(text, pair)
    except Exception as error:  # (tokenizers raises no narrower class)
        raise AttnvizError(f"the model's tokenizer is damaged, it cannot take the text: {error}") from error


def _tokens(encoding: Encoding, text: str, second: int, unknown: str | None) -> Tokens:
    """The tokens of an encoding; `second` is where the second text of a pair begins."""
    special = tuple(bool(flag) for flag in encoding.special_tokens_mask)
    starts = [second if which == 1 else 0 for which in encoding.sequence_ids]
    spans = tuple(
        (0, 0) if flag else (first + start, last + start)
        for (first, last), start, flag in zip(encoding.offsets, starts, special, strict=True)
    )
    shown = tuple(
        _shown(piece, text[first:last], unknown) for piece, (first, last) in zip(encoding.tokens, spans, strict=True)
    )
    return Tokens(tuple(encoding.tokens), shown, spans, special)


def _shown(piece: str, source: str, unknown: str | None) -> str:
    """The characters of the input, as they were typed; ## stays, and what is unknown is shown as such."""
    if not source or piece == unknown:
        return piece
    return f"##{source}" if piece.startswith("##") and not source.startswith("##") else source


def _unknown_notes(tokens: Tokens, text: str, unknown: str | None) -> list[str]:
    """Which words the model does not know, since all it sees of them is the same one token."""
    places: dict[str, list[str]] = {}
    for i, piece in enumerate(tokens.pieces):
        if piece == unknown and not tokens.special[i]:
            places.setdefault(visible(text[slice(*tokens.spans[i])]), []).append(str(i))
    if not places:
        return []
    words = ", ".join(f"{word} (token {_first(5, numbers)})" for word, numbers in list(places.items())[:5])
    more = f" and {len(places) - 5} other words" if len(places) > 5 else ""
    return [f"not in the model's vocabulary, so {unknown} to it: {words}{more}"]


def _first(most: int, items: list[str]) -> str:
    return ", ".join(items[:most]) + (", …" if len(items) > most else "")
