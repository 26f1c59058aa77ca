"""What was probably meant by a name that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(name: str, known: Iterable[str]) -> str:
    """A question after the nearest of the `known` names; empty where none is near.

    >>> meant("entrpy", ["entropy", "span"]), meant("xyz", ["entropy"])
    ('; did you mean entropy?', '')
    """
    near = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
