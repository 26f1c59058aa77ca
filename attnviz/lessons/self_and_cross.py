"""Self-attention and cross-attention: one function, with keys and values from the same or another sequence."""

from dataclasses import replace

from attnviz.attention import MultiHead, multi_head_attention
from attnviz.errors import RequestError
from attnviz.lessons import axes
from attnviz.lessons.inputs import Inputs, of_text, own_or
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, bound, highest, largest_difference
from attnviz.tokens import visible
from attnviz.translation import Say

TARGET, SOURCE = "o gato sentou", "the cat sat on the mat"
D_MODEL = 8


def self_and_cross(setting: Setting, say: Say) -> tuple[Step, ...]:
    """A sequence that attends to itself, then to another one, with the same matrices."""
    x, context = _sequences(setting)
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


def _sequences(setting: Setting) -> tuple[Inputs, Inputs]:
    """The sequence that attends, and the other one: of vectors from a file the first half, and the rest."""
    if setting.embeddings is None:
        x, context = (
            of_text(example if text is None else text, setting, d_model=D_MODEL, n_heads=1)
            for text, example in ((setting.text, TARGET), (setting.source, SOURCE))
        )
        return x, context
    if setting.source is not None:
        raise RequestError("--embeddings brings both sequences: leave out --source, or the file")
    whole = own_or(TARGET, setting, d_model=D_MODEL, n_heads=1)
    half = len(whole.labels) // 2 or 1
    rest = half if len(whole.labels) > 1 else 0  # of one vector there is no rest: it attends to itself
    first = replace(whole, labels=whole.labels[:half], x=whole.x[:half])
    return first, replace(whole, labels=whole.labels[rest:], x=whole.x[rest:])


def _own(attention: MultiHead, query: Axis, key: Axis, say: Say) -> Step:
    looks, weight = highest(attention.weights[0, 0], key.labels)
    outer = axes.dimensions(attention.output.shape[-1], say)
    return Step(
        say("Self-attention"),
        say("Queries, keys and values all come from the same sequence: each token looks at every token, itself too."),
        "softmax(X W_q (X W_k)ᵀ / √d_k) X W_v",
        (
            Matrix.of("self_weights", say("weights"), attention.weights[0], query, key, "weights"),
            Matrix.of("self_output", say("output"), attention.output, query, outer),
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
    outer = axes.dimensions(attention.output.shape[-1], say)
    return Step(
        say("Cross-attention"),
        say(
            "Queries come from one sequence, keys and values from another, as where a translation looks back at its"
            " source."
        ),
        "softmax(X W_q (Y W_k)ᵀ / √d_k) Y W_v",
        (
            Matrix.of("cross_weights", say("weights"), attention.weights[0], query, axes.keys(labels, say), "weights"),
            Matrix.of("cross_output", say("output"), attention.output, query, outer),
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
