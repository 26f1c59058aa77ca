"""One full-width head and several narrow ones on the same embeddings, and in what they differ."""

from dataclasses import dataclass

import numpy as np

from attnviz.arrays import Floats, to_numpy
from attnviz.attention import attention_weights, project_heads
from attnviz.backend import Placing
from attnviz.lessons import axes
from attnviz.lessons.inputs import EXAMPLE, example_or_own, with_shared_projections
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step
from attnviz.lessons.measured import between_heads, entropy
from attnviz.sources.registry import DEFAULT_MODEL, open_model
from attnviz.translation import Say


@dataclass(frozen=True)
class _Compared:
    """The single head and the others on the same tokens."""

    name: str
    """What the names of its matrices begin with."""
    labels: tuple[str, ...]
    weights: Floats
    """[1 + head, query, key], the single head first."""

    @property
    def n_heads(self) -> int:
        """How many narrow heads there are."""
        return len(self.weights) - 1


def single_against_many(setting: Setting, say: Say) -> tuple[Step, ...]:
    """Both on random projections and on the bundled model's: the weights, how far they are apart, and what it means."""
    text = EXAMPLE if setting.text is None else setting.text
    steps = _steps(_random(setting), say("on random projections"), say)
    if setting.embeddings is None:
        steps += _steps(_trained(text, setting.placing), say("in layer 0 of the bundled model"), say)
    return steps


def _random(setting: Setting) -> _Compared:
    own = example_or_own(setting, d_model=32, n_heads=4)
    own = with_shared_projections(own, own.n_heads) if setting.shared_projections else own
    one, many = (project_heads(own.x, own.x, own.projections, n)[:2] for n in (1, own.n_heads))
    weights = np.concatenate([to_numpy(attention_weights(q, k)) for q, k in (one, many)])
    return _Compared("random", own.labels, weights)


def _trained(text: str, placing: Placing) -> _Compared:
    prepared = open_model(DEFAULT_MODEL, {}, placing).prepare(text)
    (layer,) = prepared.maps([0], single=True)
    return _Compared("trained", prepared.tokens.text, layer.rows(0, len(prepared.tokens)))


def _steps(both: _Compared, where: str, say: Say) -> tuple[Step, ...]:
    return _side_by_side(both, where, say), _difference(both, where, say)


def _side_by_side(both: _Compared, where: str, say: Say) -> Step:
    query, key = axes.queries(both.labels, say), axes.keys(both.labels, say)
    names = ["single", *map(str, range(both.n_heads))]
    titles = [say("single head"), *(say("head {head}", head=head) for head in range(both.n_heads))]
    span = np.exp(entropy(both.weights).mean(-1))
    return Step(
        say("Side by side, {where}", where=where),
        say(
            "The single head uses all columns of Q and K at once; each of the others uses its share of the same"
            " columns. Nothing else differs."
        ),
        "softmax(QKᵀ / √d_model)  /  softmax(Q_h K_hᵀ / √d_head)",
        tuple(
            Matrix.of(f"{both.name}_{name}", title, values, query, key, "weights")
            for name, title, values in zip(names, titles, both.weights, strict=True)
        ),
        say(
            "exp(H) says over how many keys a row is spread: {single:.1f} for the single head, {least:.1f} to"
            " {most:.1f} for the others, of {n}.",
            single=float(span[0]),
            least=float(span[1:].min()),
            most=float(span[1:].max()),
            n=len(both.labels),
        ),
    )


def _difference(both: _Compared, where: str, say: Say) -> Step:
    divergence = between_heads(both.weights)
    head = axes.heads(both.n_heads, say, single=True)
    rows = entropy(both.weights).mean(-1)
    column = Axis(say("entropy"), ("H",))
    return Step(
        say("What they do differently, {where}", where=where),
        _paragraph(divergence, rows, say),
        "JS(a, b) = ½ Σⱼ [aⱼ ln(aⱼ / mⱼ) + bⱼ ln(bⱼ / mⱼ)],  m = (a + b) / 2",
        (
            Matrix.of(f"{both.name}_divergence", say("divergence in nats"), divergence, head, head, "weights"),
            Matrix.of(f"{both.name}_entropy", say("entropy in nats, mean"), rows[:, None], head, column, "numbers"),
        ),
        _apart(divergence, say),
    )


def _paragraph(divergence: Floats, rows: Floats, say: Say) -> str:
    """From the measured divergences and entropies, what several heads do that one does not."""
    to_single = divergence[0, 1:]
    near, far = int(to_single.argmin()), int(to_single.argmax())
    if to_single.max() < 1e-9:
        return say("All rows are equal, and one head sees all that the others see: there is nothing to tell apart.")
    first = say(
        "One head has one row of weights for each token, in which everything that it looks for must find a place."
        " Several heads have a row each. Head {near} is most like the single head (divergence {nearest:.3f}), head"
        " {far} least ({farthest:.3f}).",
        near=near,
        nearest=float(to_single[near]),
        far=far,
        farthest=float(to_single[far]),
    )
    return f"{first} {_sharpness(int((rows[1:] < rows[0]).sum()), len(to_single), say)}"


def _sharpness(sharper: int, n: int, say: Say) -> str:
    if sharper == 0:
        return say("All {n} heads spread wider than the single one: they keep in view what it lets go.", n=n)
    if sharper == n:
        return say("All {n} heads are sharper than the single one: they pick out what it blends.", n=n)
    return say.many(
        "Of {heads} heads, {n} is sharper than the single one and picks out what it blends; the rest spread wider and"
        " keep in view what it lets go.",
        "Of {heads} heads, {n} are sharper than the single one and pick out what it blends; the rest spread wider and"
        " keep in view what it lets go.",
        sharper,
        heads=n,
    )


def _apart(divergence: Floats, say: Say) -> str:
    heads = divergence[1:, 1:]
    if len(heads) == 1:
        return say("There is one head only, and nothing to compare it with.")
    if heads.max() == 0:
        return say("No two heads differ.")
    one, other = (int(i) for i in np.unravel_index(heads.argmax(), heads.shape))
    return say(
        "The two heads that differ most are {one} and {other}: {most:.3f}; the mean over all pairs is {mean:.3f}.",
        one=min(one, other),
        other=max(one, other),
        most=float(heads.max()),
        mean=float(heads[~np.eye(len(heads), dtype=bool)].mean()),
    )
