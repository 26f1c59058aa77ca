"""The repeat probe: random words twice over, on which induction and duplicate-token heads show themselves."""

import itertools
from collections.abc import Iterator

import numpy as np

from attnviz.errors import RequestError
from attnviz.sources.model import Model
from attnviz.sources.scratch import check_seed
from attnviz.tokens import Tokens

PROBE_WORDS = 50
"""How many words are repeated unless it is said."""


def repeat_probe(model: Model, n_words: int = PROBE_WORDS, seed: int = 0) -> str:
    """A text of `n_words` different words in random order, then the same again in the same order.

    Each word is one token of the model, so that its second copy stands n tokens after the first: what lies on the
    stripe key = query − n + 1 of the second copy is induction, on key = query − n attention to the same token. Nothing
    else in the text tells what comes next. It is a text as any other: special tokens are added as always, and whoever
    has the text has the probe.

    Args:
        model: whose words are drawn, each equally likely and none twice.
        n_words: 1 or more; with the special tokens twice as many must fit the model.
        seed: 0 or more.

    Raises:
        RequestError: the model has not so many words, or takes fewer tokens.

    Source: Olsson et al. 2022, "In-context Learning and Induction Heads"; N = 50 as in TransformerLens' main demo.
    Theirs are random tokens; here they are whole words, so that they can be written as text.

    >>> from attnviz.sources.scratch import open_scratch
    >>> repeat_probe(open_scratch(), 3)
    'dolo dide topa dolo dide topa'
    """
    if n_words < 1:
        raise RequestError(f"the repeat probe needs at least 1 word, got {n_words}")
    check_seed(seed)
    most = 0
    for before in ("", " "):  # byte-level tokenizers see a first word without a blank as another one
        words = list(itertools.islice(_single_tokens(model, before, seed), n_words))
        most = max(most, len(words))
        text = before + " ".join(words * 2)
        if len(words) == n_words and _is_twice(ordinary(model.prepare(text).tokens), n_words):
            return text
    raise RequestError(
        f"the repeat probe needs {n_words} words that are one token each, and model {model.name} has {most}: choose"
        " fewer"
    )


def _single_tokens(model: Model, before: str, seed: int) -> Iterator[str]:
    """The model's words in random order, those that are a token of their own, after `before` and beside others."""
    words = model.words
    seen: set[str] = set()
    for i in np.random.Generator(np.random.PCG64(seed)).permutation(len(words)).tolist():
        pieces = ordinary(model.prepare(f"{before}{words[i]} {words[i]}").tokens)
        if len(pieces) == 2 and pieces[1] not in seen:
            seen.add(pieces[1])
            yield words[i]


def _is_twice(pieces: tuple[str, ...], n_words: int) -> bool:
    """Whether `pieces` are `n_words` different ones and the same again."""
    return pieces[:n_words] == pieces[n_words:] and len(set(pieces)) == n_words


def ordinary(tokens: Tokens) -> tuple[str, ...]:
    """The pieces that are not special tokens."""
    return tuple(piece for piece, special in zip(tokens.pieces, tokens.special, strict=True) if not special)
