"""From a dictionary, which gives one value, to attention, which gives a mixture of all of them."""

import numpy as np

from attnviz.arrays import Array, namespace, to_numpy
from attnviz.attention import attend, attention_weights, scaled_scores
from attnviz.lessons import axes
from attnviz.lessons.inputs import EXAMPLE, own_or
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, highest
from attnviz.tokens import Tokens, visible
from attnviz.translation import Say

SHARPNESS = (1.0, 4.0, 16.0, 64.0)


def lookup(setting: Setting, say: Say) -> tuple[Step, ...]:
    """The steps from a hard look-up to a soft one, and back by making the softmax sharper."""
    labels, k = _keys(setting, say)
    place = 0 if setting.query is None else Tokens.of(labels).find(setting.query)[0]
    q = k[place : place + 1, :]
    v = setting.placing(10.0 * np.arange(1, len(labels) + 1)[:, None])
    equal = (to_numpy(k) == to_numpy(q)).all(-1)
    hard = setting.placing(1.0 * (np.arange(len(labels)) == equal.argmax())[None, :])
    weights = attention_weights(q[None], k[None], scale=1.0)
    answer, hard_answer = attend(weights, v[None])[0], hard @ v
    query, key = axes.queries(labels[place : place + 1], say), axes.keys(labels, say)
    return (
        _exact(k, v, hard, query, key, say),
        _compared(scaled_scores(q[None], k[None], scale=1.0)[0], query, key, say),
        _weighted(weights[0], query, key, say),
        Step(
            say("The answer is a mixture"),
            say("Every value counts as much as its weight says; the answer is their sum."),
            "o = softmax(q Kᵀ) V",
            (Matrix.of("output", say("soft look-up"), answer, query, Axis(say("value"), ("v",)), "numbers"),),
            say(
                "The hard look-up gave {hard:.2f}, the soft one gives {soft:.2f}.",
                hard=float(hard_answer[0, 0]),
                soft=float(answer[0, 0]),
            ),
        ),
        _sharpened(q, k, key, place, int(equal.sum()), say),
    )


def _exact(k: Array, v: Array, hard: Array, query: Axis, key: Axis, say: Say) -> Step:
    return Step(
        say("A dictionary: one key, one value"),
        say("A dictionary looks for the one key that is equal to the query, and gives that key's value."),
        "wⱼ = [q = kⱼ]",
        (
            Matrix.of("keys", say("keys"), k, key, axes.dimensions(k.shape[-1], say)),
            Matrix.of("values", say("values"), v, key, Axis(say("value"), ("v",)), "numbers"),
            Matrix.of("hard_weights", say("hard look-up"), hard, query, key, "weights"),
        ),
        say(
            "The key of “{token}” matches: its weight is 1 and every other is 0, so the answer is {answer:.0f}.",
            token=visible(query.labels[0]),
            answer=float((hard @ v)[0, 0]),
        ),
    )


def _keys(setting: Setting, say: Say) -> tuple[tuple[str, ...], Array]:
    """Labels, and keys [key, d] of length 1, so that a key is most similar to itself."""
    if setting.text is None and setting.embeddings is None:
        return (say("cat"), say("dog"), say("car")), setting.placing(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
    own = own_or(EXAMPLE, setting, d_model=4, n_heads=1, positions=False)
    xp = namespace(own.x)
    length = xp.sqrt(xp.sum(own.x * own.x, axis=-1, keepdims=True))
    return own.labels, own.x / xp.where(length > 0, length, 1.0)


def _compared(scores: Array, query: Axis, key: Axis, say: Say) -> Step:
    best, high = highest(scores[0], key.labels)
    least, negative = highest(-scores[0], key.labels)
    return Step(
        say("Compare with every key"),
        say(
            "Attention asks how similar the query is to each key: the score is their dot product. All keys here have"
            " length 1, so that equal ones score 1."
        ),
        "s = q Kᵀ",
        (Matrix.of("scores", say("scores"), scores, query, key),),
        say(
            "The highest score is {high:.2f}, for “{best}”; the lowest is {low:.2f}, for “{least}”.",
            high=high,
            best=visible(best),
            low=-negative,
            least=visible(least),
        ),
    )


def _weighted(weights: Array, query: Axis, key: Axis, say: Say) -> Step:
    return Step(
        say("From scores to weights"),
        say("The softmax turns scores into weights that are positive and sum to 1."),
        "wⱼ = exp(sⱼ) / Σᵢ exp(sᵢ)",
        (Matrix.of("weights", say("weights"), weights, query, key, "weights"),),
        say(
            "The smallest weight is {smallest:.3f}, which is still above 0; the sum is {total:.3f}.",
            smallest=float(weights.min()),
            total=float(weights.sum()),
        ),
    )


def _sharpened(q: Array, k: Array, key: Axis, place: int, copies: int, say: Say) -> Step:
    rows = [attention_weights(q[None], k[None], scale=beta)[0, 0] for beta in SHARPNESS]
    named = {"token": visible(key.labels[place]), "first": float(rows[0][place]), "last": float(rows[-1][place])}
    if copies > 1:
        notice = say(
            "The weight of “{token}” goes from {first:.3f} to {last:.3f}: {copies} keys are equal, and share.",
            copies=copies,
            **named,
        )
    else:
        notice = say(
            "The weight of “{token}” goes from {first:.3f} to {last:.3f}: the sharper the softmax, the more it is a"
            " dictionary.",
            **named,
        )
    beta = Axis("β", tuple(f"{beta:.0f}" for beta in SHARPNESS))
    sharper = namespace(k).stack(rows)
    return Step(
        say("From soft back to hard"),
        say("Larger scores make the softmax sharper. Here they are multiplied by β = 1, 4, 16 and 64."),
        "softmax(β q Kᵀ)",
        (Matrix.of("sharper_weights", say("weights for each β"), sharper, beta, key, "weights"),),
        notice,
    )
