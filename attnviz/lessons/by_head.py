"""What lessons on several heads share: a matrix for each, and a sentence on the first and the last of them."""

from attnviz.arrays import Array
from attnviz.lessons.lesson import Axis, Kind, Matrix, highest
from attnviz.tokens import visible
from attnviz.translation import Say


def matrices_by_head(
    name: str, arrays: Array, query: Axis, key: Axis, say: Say, kind: Kind = "weights"
) -> tuple[Matrix, ...]:
    """One matrix for each head.

    Args:
        name: of the matrices, with {head} in the place of the number.
        arrays: [head, query, key].
        query, key: the axes.
        say: the language.
        kind: what the values are.
    """
    return tuple(
        Matrix.of(name.format(head=head), say("head {head}", head=head), arrays[head], query, key, kind)
        for head in range(arrays.shape[0])
    )


def first_against_last(weights: Array, labels: tuple[str, ...], say: Say) -> str:
    """What the first and the last head make of the last token; or why there is nothing to tell apart.

    Args:
        weights: [head, query, key].
        labels: the tokens, which are queries and keys.
        say: the language.
    """
    n_heads, n_tokens, _ = weights.shape
    if n_heads == 1:
        return say("There is one head only, and nothing to compare it with.")
    if n_tokens == 1:
        return say("There is one token only: every weight is 1, and heads can differ only where there is a choice.")
    (first, weight), (last, last_weight) = (highest(weights[head, n_tokens - 1], labels) for head in (0, n_heads - 1))
    return say(
        "For “{query}”, head 0 looks most at “{key}” ({weight:.2f}), head {last} at “{last_key}” ({last_weight:.2f}).",
        query=visible(labels[-1]),
        key=visible(first),
        weight=weight,
        last=n_heads - 1,
        last_key=visible(last),
        last_weight=last_weight,
    )
