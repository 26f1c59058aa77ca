"""Self-attention and cross-attention: one function, with keys and values from the same or another sequence."""

from attnviz.attention import MultiHead, multi_head_attention
from attnviz.lessons import axes
from attnviz.lessons.inputs import of_text
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, bound, highest, largest_difference
from attnviz.tokens import visible
from attnviz.translation import Say

TARGET, SOURCE = "o gato sentou", "the cat sat on the mat"
D_MODEL = 8


def self_and_cross(setting: Setting, say: Say) -> tuple[Step, ...]:
    """A sequence that attends to itself, then to another one, with the same matrices."""
    x, context = (
        of_text(example if text is None else text, setting, d_model=D_MODEL, n_heads=1)
        for text, example in ((setting.text, TARGET), (setting.source, SOURCE))
    )
    own = multi_head_attention(x.x, x.projections, 1)
    again = multi_head_attention(x.x, x.projections, 1, context=x.x)
    query, key = axes.queries(x.labels, say), axes.keys(x.labels, say)
    return (
        _own(own, query, key, say),
        _crossed(multi_head_attention(x.x, x.projections, 1, context=context.x), query, context.labels, say),
        Step(
            say("The same function"),
            say("Put the sequence itself in the place of the other one, and cross-attention is self-attention."),
            "Y = X",
            (Matrix.of("again_weights", say("weights with Y = X"), again.weights[0], query, key, "weights"),),
            say(
                "They differ from the weights of self-attention by less than {difference}.",
                difference=bound(largest_difference(again.weights, own.weights)),
            ),
        ),
    )


def _own(attention: MultiHead, query: Axis, key: Axis, say: Say) -> Step:
    looks, weight = highest(attention.weights[0, 0], key.labels)
    return Step(
        say("Self-attention"),
        say("Queries, keys and values all come from the same sequence: each token looks at every token, itself too."),
        "softmax(X W_q (X W_k)ᵀ / √d_k) X W_v",
        (
            Matrix.of("self_weights", say("weights"), attention.weights[0], query, key, "weights"),
            Matrix.of("self_output", say("output"), attention.output, query, axes.dimensions(D_MODEL, say)),
        ),
        say(
            "The weights are {n} × {n}. “{query}” looks most at “{key}”, with {weight:.2f}.",
            n=len(key.labels),
            query=visible(query.labels[0]),
            key=visible(looks),
            weight=weight,
        ),
    )


def _crossed(attention: MultiHead, query: Axis, labels: tuple[str, ...], say: Say) -> Step:
    looks, weight = highest(attention.weights[0, 0], labels)
    return Step(
        say("Cross-attention"),
        say(
            "Queries come from one sequence, keys and values from another, as where a translation looks back at its"
            " source."
        ),
        "softmax(X W_q (Y W_k)ᵀ / √d_k) Y W_v",
        (
            Matrix.of("cross_weights", say("weights"), attention.weights[0], query, axes.keys(labels, say), "weights"),
            Matrix.of("cross_output", say("output"), attention.output, query, axes.dimensions(D_MODEL, say)),
        ),
        say(
            "The weights are {queries} × {keys}: a row for each query, and as many outputs. “{query}” looks most at"
            " “{key}”, with {weight:.2f}.",
            queries=len(query.labels),
            keys=len(labels),
            query=visible(query.labels[0]),
            key=visible(looks),
            weight=weight,
        ),
    )
