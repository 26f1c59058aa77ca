"""Many narrow heads against one wide head: parameters, matrix products and softmax, counted while they run."""

import numpy as np

from attnviz.lessons.counted import Tally, attention
from attnviz.lessons.inputs import EXAMPLE, of_text
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step
from attnviz.translation import Say

D_MODEL = 64
HEADS = (1, 2, 4, 8)


def cost(setting: Setting, say: Say) -> tuple[Step, ...]:
    """Run attention with 1, 2, 4 and 8 heads over as many tokens as the sentence has, and count."""
    labels = of_text(EXAMPLE if setting.text is None else setting.text, setting, d_model=D_MODEL, n_heads=1).labels
    tallies = [_run(len(labels), n_heads) for n_heads in HEADS]
    axis = Axis(say("heads"), tuple(map(str, HEADS)))
    count = Axis(say("count"), ("Σ",))
    parameters = np.array([[float(tally.parameters)] for tally in tallies])
    flops = np.array([[float(tally.flops)] for tally in tallies])
    exponentials = np.array([[float(tally.exponentials)] for tally in tallies])
    n = len(labels)
    return (
        _same(
            say("Parameters"),
            say(
                "Each of h heads has three matrices of d × d/h, and one output matrix joins them. All heads together"
                " have as many numbers as one head of full width."
            ),
            "3 · h · d · (d/h) + d² = 4d²",
            Matrix.of("parameters", say("parameters, d = {d}", d=D_MODEL), parameters, axis, count, "numbers"),
            say,
        ),
        _same(
            say("Matrix products"),
            say("The scores of a head that is 1/h as wide take 1/h of the work, and there are h heads."),
            "8 n d² + h · 4 n² (d/h) = 8 n d² + 4 n² d",
            Matrix.of("flops", say("FLOPs, n = {n}", n=n), flops, axis, count, "numbers"),
            say,
        ),
        Step(
            say("Only the softmax grows"),
            say("Each head has its own n × n weights, and each weight takes an exponential."),
            "h · n²",
            (Matrix.of("exponentials", say("exponentials, n = {n}", n=n), exponentials, axis, count, "numbers"),),
            say(
                "One head takes {one:.0f}, {n_heads} heads take {many:.0f}: {times:.0f} times as many, but few beside"
                " {flops:.0f} FLOPs.",
                one=exponentials[0, 0],
                n_heads=HEADS[-1],
                many=exponentials[-1, 0],
                times=exponentials[-1, 0] / exponentials[0, 0],
                flops=flops[-1, 0],
            ),
        ),
    )


def _run(n: int, n_heads: int) -> Tally:
    rng = np.random.default_rng(0)  # what is counted does not depend on the numbers
    tally = Tally()
    matrices = [rng.standard_normal((D_MODEL, D_MODEL)) / D_MODEL**0.5 for _ in range(4)]
    attention(tally.given(rng.standard_normal((n, D_MODEL))), matrices, n_heads)
    return tally


def _same(title: str, sentence: str, formula: str, matrix: Matrix, say: Say) -> Step:
    one, many = float(matrix.values[0, 0]), float(matrix.values[-1, 0])
    notice = say(
        "One head: {one:.0f}. {n_heads} heads: {many:.0f}. The ratio is {ratio:g}.",
        one=one,
        n_heads=HEADS[-1],
        many=many,
        ratio=many / one,
    )
    return Step(title, sentence, formula, (matrix,), notice)
