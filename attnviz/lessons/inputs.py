"""What a lesson works on: the worked example, a sentence of the student's own, or vectors from a file."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from attnviz.arrays import Array, namespace
from attnviz.attention import Projections, heads_message
from attnviz.errors import RequestError
from attnviz.lessons.lesson import Setting, counted
from attnviz.sources.embeddings import open_embeddings
from attnviz.sources.scratch import Scratch, ScratchOptions
from attnviz.tokens import Tokens

MAX_TOKENS = 256
EXAMPLE = "Orange is my favorite fruit"
"""The sentence of lessons that need one."""


@dataclass(frozen=True)
class Inputs:
    """Vectors and projections, where the maths runs."""

    labels: tuple[str, ...]
    """One for each row of `x`."""
    x: Array
    """[token, d_model]."""
    projections: Projections
    n_heads: int

    @property
    def d_model(self) -> int:
        """Columns of `x`."""
        return int(self.x.shape[-1])


def example_of_four(setting: Setting) -> Inputs:
    """The worked example of the lessons on heads: four vectors of four numbers, the first two nearly the same.

    W_q, W_k and W_v are drawn in that order from a standard normal distribution.
    """
    x = np.array([[1.0, 0.0, 0.0, 0.0], [0.9, 0.1, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    n_heads = 2 if setting.n_heads is None else setting.n_heads
    if n_heads < 1 or x.shape[1] % n_heads:
        raise RequestError(heads_message(x.shape[1], n_heads))
    rng = np.random.default_rng(setting.seed)
    matrices = (rng.normal(0, 1, (4, 4)) for _ in range(3))
    return Inputs(
        counted(4, "e"),
        setting.placing(x),
        Projections(*(setting.placing(matrix) for matrix in matrices)),
        n_heads,
    )


def example_or_own(setting: Setting, *, d_model: int, n_heads: int) -> Inputs:
    """The example of four vectors, unless the student brings a text or vectors."""
    if setting.text is None and setting.embeddings is None:
        return example_of_four(setting)
    return own_or(EXAMPLE, setting, d_model=d_model, n_heads=n_heads)


def own_or(example: str, setting: Setting, *, d_model: int, n_heads: int, positions: bool = True) -> Inputs:
    """The student's vectors or text, or else the text `example`, on the scratch model.

    Args:
        example: a text.
        setting: what the student says.
        d_model, n_heads: of the scratch model; the student's number of heads goes before.
        positions: add positions to the scratch model's embeddings; vectors from a file get none.
    """
    if setting.embeddings is not None:
        return _from_file(setting.embeddings, setting)
    text = example if setting.text is None else setting.text
    wanted = n_heads if setting.n_heads is None else setting.n_heads
    return of_text(text, setting, d_model=d_model, n_heads=wanted, positions=positions)


def of_text(text: str, setting: Setting, *, d_model: int, n_heads: int, positions: bool = True) -> Inputs:
    """A text's vectors and projections on the scratch model, in the lessons' precision.

    Raises:
        RequestError: the text has no tokens, or more than a lesson shows; or the sizes do not go together.
    """
    scratch = Scratch(ScratchOptions(n_heads=n_heads, d_model=d_model, seed=setting.seed, positions=positions))
    tokens = _few_enough(scratch.prepare(text).tokens)
    p = scratch.projections()
    matrices = (setting.placing(np.asarray(w, np.float64)) for w in (p.w_q, p.w_k, p.w_v))
    x = setting.placing(scratch.embeddings(tokens).astype(np.float64))
    return Inputs(tokens.text, x, Projections(*matrices), n_heads)


def _from_file(path: Path, setting: Setting) -> Inputs:
    own = open_embeddings(path, n_heads=setting.n_heads, seed=setting.seed, placing=setting.placing)
    return Inputs(_few_enough(own.tokens).text, setting.placing(own.x), own.projections, own.n_heads)


def _few_enough(tokens: Tokens) -> Tokens:
    if len(tokens) > MAX_TOKENS:
        raise RequestError(
            f"a lesson shows every number, of at most {MAX_TOKENS} tokens; here are {len(tokens)}: give fewer, or see"
            " them all with attnviz heads"
        )
    return tokens


def with_shared_projections(inputs: Inputs, n_heads: int) -> Inputs:
    """The same inputs, every head with the first head's columns of each projection.

    Raises:
        RequestError: the columns cannot be shared out among the heads.
    """
    p = inputs.projections

    def first_for_all(w: Array | None) -> Array | None:
        if w is None:
            return None
        return namespace(w).concat([w[..., : w.shape[-1] // n_heads]] * n_heads, axis=-1)

    shared = {name: first_for_all(getattr(p, name)) for name in ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v")}
    return replace(inputs, projections=replace(p, **shared))
