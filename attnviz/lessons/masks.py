"""Masks: no looking ahead, only near tokens, no padding; and a row that may attend to nothing."""

import numpy as np

from attnviz.arrays import namespace
from attnviz.attention import EVERYTHING, MultiHead, Rule, multi_head_attention
from attnviz.lessons import axes
from attnviz.lessons.inputs import Inputs, example_or_own
from attnviz.lessons.lesson import Matrix, Setting, Step, numbers
from attnviz.tokens import visible
from attnviz.translation import Say

PADDING = "[PAD]"
WINDOW = 2


def masks(setting: Setting, say: Say) -> tuple[Step, ...]:
    """The same attention under each rule; head 0 is shown."""
    own = example_or_own(setting, d_model=8, n_heads=2)
    n = len(own.labels)
    after, before = _padded(own, last=True), _padded(own, last=False)
    keep_first, keep_last = (setting.placing(np.arange(n + 1) != place) for place in (n, 0))
    return (
        _causal(own, say),
        _window(own, say),
        _padding(after, Rule(keys=keep_first), say),
        _nothing(before, Rule(causal=True, keys=keep_last), say),
    )


def _padded(own: Inputs, *, last: bool) -> Inputs:
    """The tokens with a padding token, whose vector is 0, after or before them."""
    xp = namespace(own.x)
    zero = xp.zeros_like(own.x[:1, :])
    parts, labels = ([own.x, zero], (*own.labels, PADDING)) if last else ([zero, own.x], (PADDING, *own.labels))
    return Inputs(labels, xp.concat(parts, axis=0), own.projections, own.n_heads)


def _run(own: Inputs, rule: Rule = EVERYTHING) -> MultiHead:
    return multi_head_attention(own.x, own.projections, own.n_heads, rule=rule)


def _matrix(name: str, title: str, own: Inputs, attention: MultiHead, say: Say) -> Matrix:
    labels = own.labels
    return Matrix.of(name, title, attention.weights[0], axes.queries(labels, say), axes.keys(labels, say), "weights")


def _causal(own: Inputs, say: Say) -> Step:
    everything, causal = _run(own), _run(own, Rule(causal=True))
    ahead = float((everything.weights[0] - everything.weights[0] * _below(own)).sum()) / len(own.labels)
    return Step(
        say("Causal: nothing ahead"),
        say(
            "A model that writes a text word by word must not see the words to come. Scores above the diagonal are"
            " taken out before the softmax, and the rest still sums to 1."
        ),
        "allowed(i, j): j ≤ i",
        (
            _matrix("unmasked_weights", say("no mask"), own, everything, say),
            _matrix("causal_weights", say("causal"), own, causal, say),
        ),
        say(
            "Unmasked, {ahead:.0%} of the attention goes ahead; causal, nothing does. “{token}”, the first, has only"
            " itself: {weight:.2f}.",
            ahead=ahead,
            token=visible(own.labels[0]),
            weight=float(causal.weights[0, 0, 0]),
        ),
    )


def _below(own: Inputs) -> object:
    xp, n = namespace(own.x), len(own.labels)
    return xp.asarray(np.tril(np.ones((n, n))), dtype=own.x.dtype, device=own.x.device)


def _window(own: Inputs, say: Say) -> Step:
    weights = _run(own, Rule(window=WINDOW))
    both = _run(own, Rule(causal=True, window=WINDOW))
    allowed = int((both.weights[0, -1] > 0).sum())
    return Step(
        say("Window: only what is near"),
        say(
            "With a window of {window} a token sees itself and its next neighbours; causal as well, itself and the one"
            " before. Long texts stay affordable: the work grows with n, not n².",
            window=WINDOW,
        ),
        "allowed(i, j): |i − j| < w",
        (
            _matrix("window_weights", say("window {window}", window=WINDOW), own, weights, say),
            _matrix("causal_window_weights", say("causal, window {window}", window=WINDOW), own, both, say),
        ),
        say(
            "Causal and in the window, “{token}”, the last, sees {seen} of {n} tokens.",
            token=visible(own.labels[-1]),
            seen=allowed,
            n=len(own.labels),
        ),
    )


def _padding(own: Inputs, rule: Rule, say: Say) -> Step:
    seen, masked = _run(own), _run(own, rule)
    share = float(seen.weights[0][:, -1].mean())
    return Step(
        say("Padding: what is no word"),
        say(
            "Texts of different lengths are filled up with {padding} to one length. Nothing may attend to it.",
            padding=PADDING,
        ),
        f"allowed(i, j): j ≠ {PADDING}",
        (
            _matrix("padding_seen_weights", say("padding seen"), own, seen, say),
            _matrix("padding_weights", say("padding masked"), own, masked, say),
        ),
        say(
            "Unmasked, {padding} takes {share:.0%} of the attention; masked, {masked:.0%}.",
            padding=PADDING,
            share=share,
            masked=float(masked.weights[0][:, -1].mean()),
        ),
    )


def _nothing(own: Inputs, rule: Rule, say: Say) -> Step:
    attention = _run(own, rule)
    row = attention.weights[0, 0]
    output = axes.dimensions(attention.output.shape[-1], say)
    return Step(
        say("A row that may attend to nothing"),
        say(
            "Padding in front, and causal: the first row has nothing left to attend to. A softmax over nothing is 0/0;"
            " here such a row has weights 0 throughout, and the output 0."
        ),
        "Σⱼ wᵢⱼ = 0",
        (
            _matrix("nothing_weights", say("padding first, causal"), own, attention, say),
            Matrix.of("nothing_output", say("output"), attention.output, axes.tokens(own.labels, say), output),
        ),
        say(
            "The row of {padding} sums to {total:g}: neither NaN nor 1/n. Every other row sums to {others}.",
            padding=PADDING,
            total=float(row.sum()),
            others=numbers(attention.weights[0, 1].sum(), 0),
        ),
    )
