"""Why attention runs in parallel and a recurrence does not: steps that wait, work in all, and time."""

import numpy as np

from attnviz.lessons.counted import Doubles, Tally, attention, recurrence
from attnviz.lessons.inputs import of_text
from attnviz.lessons.lesson import Axis, Matrix, Setting, Step, Timer
from attnviz.translation import Say

D_MODEL = 16
LENGTHS = (10, 100, 1000)
REPEATS = 3
_INSTANT = 1e-9
"""Seconds; a clock too coarse may see none pass."""


def parallel(setting: Setting, say: Say) -> tuple[Step, ...]:
    """Count steps and work at several lengths, the student's sentence among them; time both where there is a timer."""
    lengths: tuple[int, ...] = LENGTHS

    if setting.text is not None:
        own = len(of_text(setting.text, setting, d_model=D_MODEL, n_heads=1).labels)
        lengths = tuple(sorted({own, *LENGTHS}))
    rows = np.array([_counted(n) for n in lengths], np.float64)
    axis = Axis(say("tokens"), tuple(map(str, lengths)))
    steps = (_waiting(rows[:, :2], lengths, axis, say), _work(rows[:, 2:], lengths, axis, say))
    return steps if setting.timer is None else (*steps, _timed(setting.timer, lengths, axis, say))


def _drawn(n: int) -> tuple[Doubles, list[Doubles]]:
    """Tokens [n, d_model], and four matrices of either layer."""
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, D_MODEL)), [rng.standard_normal((D_MODEL, D_MODEL)) / D_MODEL**0.5 for _ in range(4)]


def _counted(n: int) -> tuple[int, int, int, int]:
    """The steps of a recurrence and of attention over n tokens, and then the FLOPs that grow with them."""
    x, matrices = _drawn(n)
    recurrent, attending, projecting = Tally(), Tally(), Tally()
    states = recurrence(recurrent.given(x), *matrices[:2])
    output = attention(attending.given(x), matrices, 1)
    for matrix in matrices:
        projecting.given(x) @ projecting.given(matrix)
    return states.depth, output.depth, recurrent.flops, attending.flops - projecting.flops


def _sides(say: Say) -> Axis:
    return Axis(say("layer"), (say("recurrence"), say("attention")))


def _waiting(steps: Doubles, lengths: tuple[int, ...], axis: Axis, say: Say) -> Step:
    return Step(
        say("Steps that wait for one another"),
        say(
            "A recurrence needs the state before to make the next one. Attention makes all rows at once. Counted is the"
            " longest chain of matrix products of which each waits for the one before."
        ),
        "h_t = tanh(x_t W + h_{t−1} U)  /  softmax(QKᵀ / √d) V W_o",
        (Matrix.of("steps_in_a_row", say("steps in a row"), steps, axis, _sides(say), "numbers"),),
        say(
            "Over {n} tokens the recurrence waits {recurrent:.0f} times, attention {attending:.0f}: the first number"
            " is n, the second the same at every length.",
            n=lengths[-1],
            recurrent=steps[-1, 0],
            attending=steps[-1, 1],
        ),
    )


def _work(flops: Doubles, lengths: tuple[int, ...], axis: Axis, say: Say) -> Step:
    recurrent, attending = flops[-1] / flops[-2]
    return Step(
        say("Work in all"),
        say(
            "Attention does not do less work: every token is compared with every other. Counted are multiplications and"
            " additions in matrix products, for attention those of scores and weighted values."
        ),
        "4 n d²  /  4 n² d",
        (Matrix.of("flops", say("FLOPs, d = {d_model}", d_model=D_MODEL), flops, axis, _sides(say), "numbers"),),
        say(
            "From {n} to {more} tokens the work of the recurrence grows {recurrent:.0f}-fold, that of attention"
            " {attending:.0f}-fold.",
            n=lengths[-2],
            more=lengths[-1],
            recurrent=recurrent,
            attending=attending,
        ),
    )


def _timed(timer: Timer, lengths: tuple[int, ...], axis: Axis, say: Say) -> Step:
    seconds = np.array([_seconds(timer, n) for n in lengths])
    ratios = seconds / seconds[0]
    return Step(
        say("Time, where it runs"),
        say(
            "Both are run here, and their times divided by that of the shortest text. What runs in parallel can use a"
            " machine's units all at once; what waits cannot."
        ),
        f"t(n) / t({lengths[0]})",
        (Matrix.of("time_ratio", say("time, as a ratio"), ratios, axis, _sides(say), "numbers"),),
        say(
            "{times:g} times as many tokens take the recurrence {recurrent:.1f} times as long, attention"
            " {attending:.1f} times.",
            times=lengths[-1] / lengths[0],
            recurrent=ratios[-1, 0],
            attending=ratios[-1, 1],
        ),
    )


def _seconds(timer: Timer, n: int) -> tuple[float, float]:
    """The shortest of a few runs of each."""
    x, matrices = _drawn(n)
    best = [np.inf, np.inf]
    for _ in range(REPEATS):
        start = timer()
        recurrence(Tally().given(x), *matrices[:2])
        between = timer()
        attention(Tally().given(x), matrices, 1)
        best = [min(best[0], between - start), min(best[1], timer() - between)]
    return max(best[0], _INSTANT), max(best[1], _INSTANT)
