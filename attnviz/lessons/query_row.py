"""One token's row of weights, as a table: what a trained model lets it attend to."""

import numpy as np

from attnviz.arrays import Floats
from attnviz.lessons import axes
from attnviz.lessons.inputs import EXAMPLE
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, highest
from attnviz.sources.registry import DEFAULT_MODEL, open_model
from attnviz.tokens import Tokens, visible
from attnviz.translation import Say

LAYER = 0


def query_row(setting: Setting, say: Say) -> tuple[Step, ...]:
    """The row of one query: the mean over heads, the same without special tokens, and each head's own."""
    prepared = open_model(DEFAULT_MODEL, {}, setting.placing).prepare(EXAMPLE if setting.text is None else setting.text)
    tokens = prepared.tokens
    place = _first_word(tokens) if setting.query is None else tokens.find(setting.query)[0]
    (layer,) = prepared.maps([LAYER])
    rows = layer.rows(place, place + 1)[:, 0]
    query = axes.queries(tokens.text[place : place + 1], say)
    words = [i for i, special in enumerate(tokens.special) if not special]
    return (
        _mean(rows, query, tokens, say),
        _of_words(rows.mean(0)[words], query, tokens.pick(words), say),
        _by_head(rows, query, tokens, say),
    )


def _first_word(tokens: Tokens) -> int:
    return next((i for i, special in enumerate(tokens.special) if not special), 0)


def _mean(rows: Floats, query: Axis, tokens: Tokens, say: Say) -> Step:
    mean, key = rows.mean(0), axes.keys(tokens.text, say)
    best, weight = highest(mean, tokens.text)
    return Step(
        say("A row of weights"),
        say(
            "One token is the query, and its row says how its attention is shared out. Here is the mean over the"
            " {n} heads of layer {layer} of the bundled model.",
            n=len(rows),
            layer=LAYER,
        ),
        "a = (1/h) Σ_h softmax(q_h K_hᵀ / √d_head)",
        (Matrix.of("mean_weights", say("mean of all heads"), mean[None], query, key, "weights"),),
        say(
            "“{query}” gives “{key}” most, {weight:.2f}; the row sums to {total:.2f}.",
            query=visible(query.labels[0]),
            key=visible(best),
            weight=weight,
            total=float(mean.sum()),
        ),
    )


def _of_words(mean: Floats, query: Axis, words: Tokens, say: Say) -> Step:
    best, weight = highest(mean, words.text)
    key = axes.keys(words.text, say)
    return Step(
        say("The words alone"),
        say(
            "The model adds tokens of its own, [CLS] and [SEP], and they take part of the attention. Left out, the rest"
            " is shown as it is, not scaled up to 1."
        ),
        "Σⱼ aⱼ < 1",
        (Matrix.of("word_weights", say("mean of all heads"), mean[None], query, key, "weights"),),
        say(
            "The words get {words:.2f}, the tokens that the model adds {rest:.2f}. Among words, “{key}” gets most:"
            " {weight:.2f}.",
            words=float(mean.sum()),
            rest=float(1 - mean.sum()),
            key=visible(best),
            weight=weight,
        ),
    )


def _by_head(rows: Floats, query: Axis, tokens: Tokens, say: Say) -> Step:
    head, key = np.unravel_index(rows.argmax(), rows.shape)
    return Step(
        say("Each head's row"),
        say("The mean hides what single heads do: each has a row of its own for the same query."),
        "a_h = softmax(q_h K_hᵀ / √d_head)",
        (
            Matrix.of(
                "head_weights",
                say("query {query}", query=visible(query.labels[0])),
                rows,
                axes.heads(len(rows), say),
                axes.keys(tokens.text, say),
                "weights",
            ),
        ),
        say(
            "Head {head} is the most decided: it gives “{key}” {weight:.2f}.",
            head=int(head),
            key=visible(tokens.text[int(key)]),
            weight=float(rows.max()),
        ),
    )
