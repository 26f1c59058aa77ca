"""Attention does not see order: words moved about give the same rows moved about, until positions are added."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.arrays import Array
from attnviz.attention import MultiHead, multi_head_attention
from attnviz.lessons import axes
from attnviz.lessons.inputs import own_or
from attnviz.lessons.lesson import Matrix, Setting, Step, bound, largest_difference
from attnviz.positions import sinusoidal
from attnviz.tokens import visible
from attnviz.translation import Say

SENTENCE = "o cachorro mordeu o homem"
SWAPPED = (0, 4, 2, 3, 1)
"""Makes of it: o homem mordeu o cachorro."""


@dataclass(frozen=True)
class _Pair:
    """The attention of a sentence and of its words in another order."""

    labels: tuple[str, ...]
    order: tuple[int, ...]
    """For each word of the second sentence, its place in the first."""
    first: MultiHead
    second: MultiHead

    @property
    def moved_labels(self) -> tuple[str, ...]:
        """The words of the second sentence."""
        return tuple(self.labels[i] for i in self.order)

    def gap(self) -> float:
        """How far the second sentence's weights are from the first's, moved about in the same way."""
        moved = _rows(self.first.weights, self.order)[..., list(self.order)]
        return largest_difference(moved, self.second.weights)

    def output_gap(self) -> float:
        """The same of the outputs."""
        return largest_difference(_rows(self.first.output, self.order), self.second.output)


def order(setting: Setting, say: Say) -> tuple[Step, ...]:
    """A sentence and its words in another order, without positions and with them."""
    own = own_or(SENTENCE, setting, d_model=8, n_heads=1, positions=False)
    example = setting.text is None and setting.embeddings is None
    moved = SWAPPED if example else tuple(reversed(range(len(own.labels))))
    places = setting.placing(np.arange(len(own.labels), dtype=np.float64))
    x, other = own.x, _rows(own.x, moved)

    def pair(added: Array | float) -> _Pair:
        attended = (multi_head_attention(one + added, own.projections, own.n_heads) for one in (x, other))
        return _Pair(own.labels, moved, *attended)

    plain = pair(0.0)
    return _without(plain, say), _outputs(plain, say), _with(pair(sinusoidal(places, own.d_model)), say)


def _rows(x: Array, order: Sequence[int]) -> Array:
    return x[..., list(order), :]


def _panels(name: str, pair: _Pair, say: Say) -> tuple[Matrix, Matrix]:
    first, second = (
        Matrix.of(
            f"{name}_{which}",
            " ".join(map(visible, labels)),
            attention.weights[0],
            axes.queries(labels, say),
            axes.keys(labels, say),
            "weights",
        )
        for which, labels, attention in (
            ("first", pair.labels, pair.first),
            ("second", pair.moved_labels, pair.second),
        )
    )
    return first, second


def _without(pair: _Pair, say: Say) -> Step:
    return Step(
        say("Without positions"),
        say(
            "The same words in another order have the same queries, keys and values in another order. So have the rows"
            " and columns of the weights."
        ),
        "A(PX) = P A(X) Pᵀ",
        _panels("plain", pair, say),
        say(
            "Put back in order, the weights of both sentences differ by less than {difference}: to attention they are"
            " one sentence.",
            difference=bound(pair.gap()),
        ),
    )


def _outputs(pair: _Pair, say: Say) -> Step:
    width = axes.dimensions(pair.first.output.shape[-1], say)
    return Step(
        say("The same outputs"),
        say("What a word gets from the others does not depend on where it stands."),
        "O(PX) = P O(X)",
        (
            Matrix.of("output_first", say("output"), pair.first.output, axes.tokens(pair.labels, say), width),
            Matrix.of("output_second", say("output"), pair.second.output, axes.tokens(pair.moved_labels, say), width),
        ),
        say(
            "Word for word, the outputs of both sentences differ by less than {difference}.",
            difference=bound(pair.output_gap()),
        ),
    )


def _with(pair: _Pair, say: Say) -> Step:
    if pair.moved_labels == pair.labels:
        notice = say("In that order it is the same sentence: there is nothing to tell apart.")
    else:
        notice = say(
            "Put back in order, the weights now differ by up to {difference:.3f}: attention tells the sentences apart.",
            difference=pair.gap(),
        )
    return Step(
        say("With positions"),
        say("Now each embedding has its position's encoding added, and the same word in two places is two vectors."),
        "X + PE",
        _panels("placed", pair, say),
        notice,
    )
