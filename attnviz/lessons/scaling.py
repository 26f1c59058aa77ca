"""Why scores are divided by √d_k: without it they grow with the width, and the softmax saturates."""

from dataclasses import dataclass

import numpy as np

from attnviz.arrays import Array, Floats, to_numpy
from attnviz.attention import attention_weights, project_heads, scaled_scores
from attnviz.lessons import axes
from attnviz.lessons.inputs import EXAMPLE, own_or
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, highest
from attnviz.lessons.measured import entropy, jacobian_size
from attnviz.tokens import visible
from attnviz.translation import Say

WIDTHS = (4, 16, 64, 256, 1024)
SAID = 64
"""The width that the sentences speak of."""
N_KEYS = 32
N_SCORES = 8192
"""How many scores are drawn for each width, so that their deviation is known to about a hundredth."""


@dataclass(frozen=True)
class _Drawn:
    """What was measured on scores drawn at random: [width], and [width, 2] without the division and with it."""

    deviation: Floats
    entropy: Floats
    largest: Floats
    gradient: Floats


def scaling(setting: Setting, say: Say) -> tuple[Step, ...]:
    """What the width does to scores, weights and gradient, with the division and without it."""
    own = own_or(EXAMPLE, setting, d_model=SAID, n_heads=1, positions=False)
    n_keys = N_KEYS if setting.text is None else len(own.labels)
    drawn = _draw(setting, n_keys)
    widths = Axis("d_k", tuple(map(str, WIDTHS)))
    both = Axis(say("scores"), (say("undivided"), say("divided")))
    return (
        _growing(drawn, widths, say),
        _saturating(drawn, widths, both, n_keys, say),
        _vanishing(drawn, widths, both, n_keys, say),
        _on_a_sentence(own.labels, project_heads(own.x, own.x, own.projections, 1)[:2], both, say),
    )


def _draw(setting: Setting, n_keys: int) -> _Drawn:
    """Measure rows of `n_keys` scores of queries and keys drawn from a standard normal distribution."""
    rows = []
    for width in WIDTHS:
        rng = np.random.default_rng([setting.seed, width])
        n_queries = -(-N_SCORES // n_keys)
        q = setting.placing(rng.standard_normal((n_queries, 1, 1, width)))
        k = setting.placing(rng.standard_normal((n_queries, 1, n_keys, width)))
        pair = [to_numpy(attention_weights(q, k, scale=scale)) for scale in (1.0, None)]
        rows.append(
            (
                [float(to_numpy(scaled_scores(q, k, scale=1.0)).std())],
                [float(entropy(weights).mean()) for weights in pair],
                [float(weights.max(-1).mean()) for weights in pair],
                [float(jacobian_size(weights).mean()) for weights in pair],
            )
        )
    deviation, *others = (np.array(column) for column in zip(*rows, strict=True))
    return _Drawn(deviation[:, 0], *others)


def _growing(drawn: _Drawn, widths: Axis, say: Say) -> Step:
    beside = np.stack([drawn.deviation, np.sqrt(WIDTHS)], axis=-1)
    return Step(
        say("Scores grow with the width"),
        say(
            "Queries and keys are drawn at random, every entry with mean 0 and variance 1. A score is a sum of d_k"
            " products, so its variance is d_k."
        ),
        "Var(q · k) = d_k,  σ = √d_k",
        (
            Matrix.of(
                "deviation",
                say("standard deviation of the scores"),
                beside,
                widths,
                Axis(say("standard deviation"), (say("measured"), "√d_k")),
                "numbers",
            ),
        ),
        say(
            "At d_k = {width} the scores have a standard deviation of {deviation:.2f}; √{width} is {root:.0f}.",
            width=SAID,
            deviation=float(drawn.deviation[WIDTHS.index(SAID)]),
            root=SAID**0.5,
        ),
    )


def _saturating(drawn: _Drawn, widths: Axis, both: Axis, n_keys: int, say: Say) -> Step:
    at = WIDTHS.index(SAID)
    values = {
        "undivided": float(drawn.largest[at, 0]),
        "divided": float(drawn.largest[at, 1]),
        "narrow": float(drawn.entropy[at, 0]),
        "wide": float(drawn.entropy[at, 1]),
        "most": float(np.log(n_keys)),
    }
    return Step(
        say("The softmax saturates"),
        say.many(
            "The softmax of scores so large gives nearly all weight to one key. Here it chooses among {n} key.",
            "The softmax of scores so large gives nearly all weight to one key. Here it chooses among {n} keys.",
            n_keys,
        ),
        "H = −Σⱼ wⱼ ln wⱼ",
        (
            Matrix.of("largest", say("largest weight, mean"), drawn.largest, widths, both, "weights"),
            Matrix.of("entropy", say("entropy in nats, mean"), drawn.entropy, widths, both, "numbers"),
        ),
        say(
            "At d_k = {width} the largest weight is {undivided:.2f} on average, and {divided:.2f} with the division;"
            " the entropy is {narrow:.2f} against {wide:.2f} nats, of {most:.2f} where all weights are even.",
            width=SAID,
            **values,
        ),
    )


def _vanishing(drawn: _Drawn, widths: Axis, both: Axis, n_keys: int, say: Say) -> Step:
    if n_keys == 1:
        notice = say("With one key the weight is 1 whatever the score: there is no gradient at any width.")
    else:
        raw, scaled = (float(drawn.gradient[-1, i] / drawn.gradient[0, i]) for i in (0, 1))
        notice = say(
            "From d_k = {narrow} to {wide} the gradient falls to {raw:.0%} without the division; with it, it is at"
            " {scaled:.0%}.",
            narrow=WIDTHS[0],
            wide=WIDTHS[-1],
            raw=raw,
            scaled=scaled,
        )
    return Step(
        say("Its gradient vanishes"),
        say(
            "Where one weight is nearly 1 and the others nearly 0, a change of the scores changes nothing, and training"
            " stops. The size of all derivatives of a row is measured."
        ),
        "∂wᵢ/∂sⱼ = wᵢ (δᵢⱼ − wⱼ)",
        (Matrix.of("gradient", say("size of the gradient, mean"), drawn.gradient, widths, both, "numbers"),),
        notice,
    )


def _on_a_sentence(labels: tuple[str, ...], qk: tuple[Array, ...], both: Axis, say: Say) -> Step:
    q, k = qk
    pair = [to_numpy(attention_weights(q, k, scale=scale))[0, 0] for scale in (1.0, None)]
    best, raw = highest(pair[0], labels)
    return Step(
        say("One row, both ways"),
        say(
            "The first token of a sentence, with random embeddings and projections of d_k = {width}, attends without"
            " the division and with it.",
            width=SAID,
        ),
        "softmax(q Kᵀ)  /  softmax(q Kᵀ / √d_k)",
        (Matrix.of("row", visible(labels[0]), np.stack(pair), both, axes.keys(labels, say), "weights"),),
        say(
            "Without the division “{key}” takes {raw:.2f} of the attention, with it {scaled:.2f}.",
            key=visible(best),
            raw=raw,
            scaled=float(pair[1][pair[0].argmax()]),
        ),
    )
