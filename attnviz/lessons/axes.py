"""The axes that lessons share, named in the reader's language."""

from collections.abc import Sequence

from attnviz.lessons.lesson import Axis, counted
from attnviz.translation import Say


def queries(labels: Sequence[str], say: Say) -> Axis:
    """The tokens that attend."""
    return Axis(say("query"), tuple(labels))


def keys(labels: Sequence[str], say: Say) -> Axis:
    """The tokens attended to."""
    return Axis(say("key"), tuple(labels))


def tokens(labels: Sequence[str], say: Say) -> Axis:
    """Tokens that neither attend nor are attended to."""
    return Axis(say("token"), tuple(labels))


def dimensions(width: int, say: Say) -> Axis:
    """The entries of a vector."""
    return Axis(say("dimension"), counted(width))


def heads(n_heads: int, say: Say, *, single: bool = False) -> Axis:
    """Heads by their numbers, after the single head where there is one."""
    return Axis(say("head"), (*((say("single"),) if single else ()), *counted(n_heads)))
