"""Heads differ because their projections do: with one projection for all they are all the same."""

import numpy as np

from attnviz.arrays import Array
from attnviz.attention import attention_weights, project_heads
from attnviz.lessons import axes
from attnviz.lessons.by_head import first_against_last, matrices_by_head
from attnviz.lessons.inputs import Inputs, example_or_own, with_shared_projections
from attnviz.lessons.lesson import Matrix, Setting, Step
from attnviz.lessons.measured import between_heads
from attnviz.translation import Say


def diversity(setting: Setting, say: Say) -> tuple[Step, ...]:
    """The heads with their own projections and with a shared one, and how far apart they are."""
    own = example_or_own(setting, d_model=32, n_heads=4)
    shared = with_shared_projections(own, own.n_heads)
    weights, shared_weights = _weights(own), _weights(shared)
    query, key = axes.queries(own.labels, say), axes.keys(own.labels, say)
    return (
        Step(
            say("Projections of their own"),
            say("Each head has its own columns of W_q and W_k, and so its own view of the same embeddings."),
            "A_h = softmax(E W_q,h (E W_k,h)ᵀ / √d_head)",
            matrices_by_head("weights_{head}", weights, query, key, say),
            first_against_last(weights, own.labels, say),
        ),
        _measured("divergence", weights, own, say),
        Step(
            say("One projection for all"),
            say("Now every head uses the columns of head 0."),
            "W_q,h = W_q,0,  W_k,h = W_k,0",
            matrices_by_head("shared_weights_{head}", shared_weights, query, key, say),
            say("Every panel is the same: the heads have nothing of their own left to see with."),
        ),
        _measured("shared_divergence", shared_weights, own, say),
    )


def _weights(own: Inputs) -> Array:
    q, k, _ = project_heads(own.x, own.x, own.projections, own.n_heads)
    return attention_weights(q, k)


def _measured(name: str, weights: Array, own: Inputs, say: Say) -> Step:
    divergence = between_heads(weights)
    head = axes.heads(own.n_heads, say)
    apart = divergence[~np.eye(own.n_heads, dtype=bool)]
    if own.n_heads == 2:
        notice = say("Between the two heads it is {value:.4f}.", value=float(apart[0]))
    elif apart.size:
        notice = say(
            "Between two different heads it is {least:.4f} at least and {most:.4f} at most.",
            least=float(apart.min()),
            most=float(apart.max()),
        )
    else:
        notice = say("There is one head only, and nothing to compare it with.")
    return Step(
        say("How far apart"),
        say(
            "The Jensen-Shannon divergence says how unlike two rows of weights are: 0 where they are equal, ln 2 ="
            " {most:.3f} where they have no key in common. Here is its mean over all tokens, for every two heads.",
            most=float(np.log(2)),
        ),
        "JS(a, b) = ½ Σⱼ [aⱼ ln(aⱼ / mⱼ) + bⱼ ln(bⱼ / mⱼ)],  m = (a + b) / 2",
        (Matrix.of(name, say("divergence in nats"), divergence, head, head, "weights"),),
        notice,
    )
