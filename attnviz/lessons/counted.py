"""Arrays that count what is done with them: products and exponentials, and how many steps wait for one another.

With them a lesson runs attention and a recurrence, and reads the numbers off instead of stating them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnviz.attention import softmax

Doubles = npt.NDArray[np.float64]


class Tally:
    """What has been done so far with the arrays that it has given out."""

    def __init__(self) -> None:
        self.parameters = 0
        self.flops = 0
        """Of matrix products: two for each multiplication and addition."""
        self.exponentials = 0

    def given(self, values: Doubles) -> "Counted":
        """An array that is there from the start."""
        return Counted(values, 0, self)

    def parameter(self, values: Doubles) -> "Counted":
        """An array that training would set."""
        self.parameters += values.size
        return self.given(values)


@dataclass(frozen=True)
class Counted:
    """An array, and how many matrix products one after the other it took."""

    values: Doubles
    depth: int
    """The longest chain of products of which each waits for the one before."""
    tally: Tally

    def __matmul__(self, other: "Counted") -> "Counted":
        rows, inner = self.values.shape
        self.tally.flops += 2 * rows * inner * other.values.shape[1]
        return Counted(self.values @ other.values, max(self.depth, other.depth) + 1, self.tally)

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(self.values + other.values, max(self.depth, other.depth), self.tally)

    @property
    def mT(self) -> "Counted":  # noqa: N802 (as arrays call it)
        """The transpose."""
        return Counted(self.values.T, self.depth, self.tally)

    def rows(self, start: int, stop: int) -> "Counted":
        """Some rows."""
        return Counted(self.values[start:stop], self.depth, self.tally)

    def columns(self, start: int, stop: int) -> "Counted":
        """Some columns."""
        return Counted(self.values[:, start:stop], self.depth, self.tally)

    def scaled(self, factor: float) -> "Counted":
        """Each entry times a number."""
        return Counted(self.values * factor, self.depth, self.tally)

    def tanh(self) -> "Counted":
        """The hyperbolic tangent of each entry."""
        return Counted(np.tanh(self.values), self.depth, self.tally)

    def softmax(self) -> "Counted":
        """The softmax of each row: an exponential for each entry."""
        self.tally.exponentials += self.values.size
        return Counted(softmax(self.values), self.depth, self.tally)


def joined(parts: Sequence[Counted], axis: int) -> Counted:
    """Arrays side by side, or one below the other."""
    values = np.concatenate([part.values for part in parts], axis=axis)
    return Counted(values, max(part.depth for part in parts), parts[0].tally)


def attention(x: Counted, matrices: Sequence[Doubles], n_heads: int) -> Counted:
    """Multi-head self-attention.

    Args:
        x: [token, d_model].
        matrices: W_q, W_k, W_v and W_o, [d_model, d_model] each.
        n_heads: must divide d_model.

    Returns:
        [token, d_model].
    """
    w_q, w_k, w_v, w_o = map(x.tally.parameter, matrices)
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    width = q.values.shape[1] // n_heads
    outputs = []
    for start in range(0, n_heads * width, width):
        own_q, own_k, own_v = (part.columns(start, start + width) for part in (q, k, v))
        outputs.append((own_q @ own_k.mT).scaled(width**-0.5).softmax() @ own_v)
    return joined(outputs, axis=1) @ w_o


def recurrence(x: Counted, w: Doubles, u: Doubles) -> Counted:
    """The states of a recurrent layer, h_t = tanh(x_t W + h_{t−1} U), from h = 0.

    Args:
        x: [token, d_model].
        w, u: [d_model, d_model].

    Returns:
        [token, d_model].
    """
    inward, onward = x @ x.tally.parameter(w), x.tally.parameter(u)
    state = x.tally.given(np.zeros((1, u.shape[0])))
    states = []
    for t in range(len(x.values)):
        state = (inward.rows(t, t + 1) + state @ onward).tanh()
        states.append(state)
    return joined(states, axis=0)
