"""Attention between words: the pieces of each word put together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from attnviz.arrays import Floats
from attnviz.maps import AttentionMap, Weights
from attnviz.tokens import Tokens


@dataclass(frozen=True)
class WordWeights:
    """Weights whose rows and columns are words, made from those of pieces a few rows at a time."""

    base: Weights
    queries: npt.NDArray[np.intp]
    """Where the words of the queries begin, and after the last where it ends."""
    keys: npt.NDArray[np.intp]
    """Likewise of the keys."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, words that attend, words attended to."""
        return self.base.shape[0], len(self.queries) - 1, len(self.keys) - 1

    def rows(self, start: int, stop: int) -> Floats:
        """Words `start` to `stop`: summed over the pieces of a key, averaged over the pieces of a query."""
        edges = self.queries[start : stop + 1]
        block = self.base.rows(int(edges[0]), int(edges[-1]))
        if not block.size or start == stop:
            return np.zeros((block.shape[0], stop - start, len(self.keys) - 1), block.dtype)
        summed = np.add.reduceat(block, self.keys[:-1], axis=2) if len(self.keys) <= block.shape[2] else block
        if len(edges) > block.shape[1]:
            return np.asarray(summed)
        means = np.add.reduceat(summed, edges[:-1] - edges[0], axis=1)
        means /= np.diff(edges)[:, None]
        return np.asarray(means)


def into_words(one: AttentionMap) -> AttentionMap:
    """The map between words: the sum over the pieces of a key, the mean over the pieces of a query.

    Rows that summed to 1 still do. Which pieces are a word is what `Tokens.words` says. The attention output, which is
    of pieces, is left out.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 4.1.
    """
    query, queries = merged(one.query)
    key, keys = (query, queries) if one.key == one.query else merged(one.key)
    return replace(one, weights=WordWeights(one.weights, queries, keys), query=query, key=key, output=None)


def merged(tokens: Tokens) -> tuple[Tokens, npt.NDArray[np.intp]]:
    """The words of `tokens`, and where each begins, with the end of the last.

    >>> words, edges = merged(Tokens.of(["a", "##b", "c"]))
    >>> words.text, edges.tolist()
    (('ab', 'c'), [0, 2, 3])
    """
    words = tokens.words()
    texts = tuple(tokens.spelled(word) for word in words)
    spans = tuple((tokens.spans[word[0]][0], tokens.spans[word[-1]][1]) for word in words)
    special = tuple(tokens.special[word[0]] for word in words)
    generated = tuple(tokens.generated[word[0]] for word in words) if tokens.generated else ()
    return Tokens(_pieces(tokens, words, texts), texts, spans, special, generated=generated), np.array(
        [*(word[0] for word in words), len(tokens)], np.intp
    )


def _pieces(tokens: Tokens, words: Sequence[range], texts: Sequence[str]) -> tuple[str, ...]:
    """The model's own piece where it is a whole word, else the word as it is shown."""
    pairs = zip(words, texts, strict=True)
    return tuple(tokens.pieces[word[0]] if len(word) == 1 else text for word, text in pairs)
