"""Scaled dot-product attention: scores, the division by √d_k, the softmax, and the weighted values."""

from dataclasses import dataclass

import numpy as np

from attnviz.arrays import Array
from attnviz.attention import attend, attention_weights, project_heads, scaled_scores
from attnviz.lessons import axes
from attnviz.lessons.inputs import EXAMPLE, own_or
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, highest, numbers
from attnviz.tokens import Tokens, visible
from attnviz.translation import Say


@dataclass(frozen=True)
class _Parts:
    """Queries, keys and values with their labels, and the row that is spoken of."""

    q: Array
    """[query, d_k]."""
    k: Array
    """[key, d_k]."""
    v: Array
    """[key, d_v]."""
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    row: int

    @property
    def said(self) -> str:
        """The token of that row, as sentences say it."""
        return visible(self.queries[self.row])


def scaled_dot_product(setting: Setting, say: Say) -> tuple[Step, ...]:
    """The four steps of softmax(QKᵀ / √d_k) V."""
    parts = _parts(setting)
    query, key = axes.queries(parts.queries, say), axes.keys(parts.keys, say)
    weights = attention_weights(parts.q[None], parts.k[None])
    return (
        _scores(parts, query, key, say),
        _divided(parts, query, key, say),
        _softmax(parts, weights[0], query, key, say),
        _values(parts, attend(weights, parts.v[None])[0], query, key, say),
    )


def _scores(parts: _Parts, query: Axis, key: Axis, say: Say) -> Step:
    scores = scaled_scores(parts.q[None], parts.k[None], scale=1.0)[0]
    inner = axes.dimensions(parts.q.shape[-1], say)
    best, high = highest(scores[parts.row], parts.keys)
    return Step(
        say("Scores"),
        say("Each query is multiplied with each key: their dot product is large where both point the same way."),
        "S = QKᵀ",
        (
            Matrix.of("queries", say("queries"), parts.q, query, inner),
            Matrix.of("keys", say("keys"), parts.k, key, inner),
            Matrix.of("scores", say("scores"), scores, query, key),
        ),
        say("“{query}” scores highest with “{key}”: {score:.3f}.", query=parts.said, key=visible(best), score=high),
    )


def _divided(parts: _Parts, query: Axis, key: Axis, say: Say) -> Step:
    scores = scaled_scores(parts.q[None], parts.k[None])[0]
    best, high = highest(scores[parts.row], parts.keys)
    width = parts.q.shape[-1]
    return Step(
        say("Divide by √d_k"),
        say(
            "The scores are divided by the square root of the keys' width, so that they do not grow with it:"
            " √{width} = {root:.3f}.",
            width=width,
            root=width**0.5,
        ),
        "S / √d_k",
        (Matrix.of("scaled_scores", say("scaled scores"), scores, query, key),),
        say(
            "The score of “{query}” with “{key}” becomes {score:.3f}.", query=parts.said, key=visible(best), score=high
        ),
    )


def _softmax(parts: _Parts, weights: Array, query: Axis, key: Axis, say: Say) -> Step:
    row = weights[parts.row]
    best, largest = highest(row, parts.keys)
    return Step(
        say("Softmax"),
        say("The softmax makes all weights positive, and each row sum to 1."),
        "A = softmax(S / √d_k)",
        (Matrix.of("weights", say("weights"), weights, query, key, "weights"),),
        say(
            "“{query}” gives “{key}” {weight:.3f} of its attention; the row sums to {total:.3f}.",
            query=parts.said,
            key=visible(best),
            weight=largest,
            total=float(row.sum()),
        ),
    )


def _values(parts: _Parts, output: Array, query: Axis, key: Axis, say: Say) -> Step:
    outer = axes.dimensions(parts.v.shape[-1], say)
    begins = numbers(output[parts.row][:4]) + (", …" if output.shape[-1] > 4 else "")
    return Step(
        say("Weighted values"),
        say("The output of a query is the sum of all values, each times its weight."),
        "O = softmax(QKᵀ / √d_k) V",
        (
            Matrix.of("values", say("values"), parts.v, key, outer),
            Matrix.of("output", say("output"), output, query, outer),
        ),
        say("The output of “{query}” is ({numbers}).", query=parts.said, numbers=begins),
    )


def _parts(setting: Setting) -> _Parts:
    if setting.text is None and setting.embeddings is None:
        q = np.array([[1.0, 0.0]])
        k = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        v = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        place = setting.placing
        return _Parts(place(q), place(k), place(v), ("q3",), ("k1", "k2", "k3"), _row(("q3",), setting))
    own = own_or(EXAMPLE, setting, d_model=4, n_heads=1)
    q, k, v = (x[0] for x in project_heads(own.x, own.x, own.projections, 1))
    return _Parts(q, k, v, own.labels, own.labels, _row(own.labels, setting))


def _row(labels: tuple[str, ...], setting: Setting) -> int:
    return 0 if setting.query is None else Tokens.of(labels).find(setting.query)[0]
