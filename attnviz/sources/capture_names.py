"""What attention that ran is called: heads put together, layers numbered, stacks told apart."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attnviz.maps import Kind, Stack
from attnviz.sources.capture_calls import Attended


@dataclass(frozen=True)
class Named:
    """Attention whose parts are the heads of one layer: one part that has all of them, or one part for each."""

    name: str
    """The module's path, and for its second attention and further ones their number: `attn`, `attn#1`."""
    layer: int
    stack: Stack
    kind: Kind
    parts: tuple[Attended, ...]


def named(groups: Sequence[tuple[Attended, ...]], model: str) -> list[Named]:
    """Names and numbers for attention in the order in which it ran.

    Args:
        groups: parts that belong together.
        model: what a module without a path is called.
    """
    paths = [_path(group) for group in groups]
    kinds = [_kind(group) for group in groups]
    seen: Counter[str] = Counter()
    result = []
    for i, group in enumerate(groups):
        same = [paths[j] for j in range(len(groups)) if kinds[j] == kinds[i]]
        at = sum(kinds[j] == kinds[i] for j in range(i))
        number = seen[paths[i]]
        seen[paths[i]] += 1
        name = (paths[i] or model) + (f"#{number}" if number else "")
        result.append(Named(name, layer_numbers(same)[at], *kinds[i], group))
    return result


def layer_numbers(paths: Sequence[str]) -> list[int]:
    """The layers of attention of one kind: the number in each path where each has one of its own, else the order.

    >>> layer_numbers(["h.1.attn", "h.3.attn"]), layer_numbers(["a.0.b.0", "a.0.b.1"]), layer_numbers(["x", "x"])
    ([1, 3], [0, 1], [0, 1])
    """
    numbers = [re.findall(r"(?<![^.])[0-9]{1,9}(?![^.])", path) for path in paths]
    own = [int(found[0]) for found in numbers if len(found) == 1]
    return own if len(set(own)) == len(paths) else list(range(len(paths)))


def _kind(group: tuple[Attended, ...]) -> tuple[Stack, Kind]:
    if group[0].cross:
        return "decoder", "cross"
    return ("decoder" if "decoder" in group[0].path.split(".") else "encoder"), "self"


def _path(group: tuple[Attended, ...]) -> str:
    """The path of the only part, or what the paths of the parts have in common."""
    path = group[0].path
    return path if all(part.path == path for part in group) else path.rpartition(".")[0]


def heads_together(attended: Sequence[Attended]) -> list[tuple[Attended, ...]]:
    """Attention of one head each put together where it is the heads of one layer.

    That is, one after the other: the same line of code in one call of a module; or modules in one list, in one call
    of the module around them, that were given the same tensors.
    """
    groups: list[list[Attended]] = []
    for one in attended:
        if groups and _is_next_head(groups[-1][-1], one):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [tuple(group) for group in groups]


def _is_next_head(before: Attended, one: Attended) -> bool:
    if before.recipe.sizes != one.recipe.sizes or len(one.recipe.sizes) > 3 or before.cross != one.cross:
        return False
    if before.call == one.call:
        return before.lines == one.lines
    (folder, _, number), (folder_before, _, number_before) = (x.path.rpartition(".") for x in (one, before))
    siblings = folder == folder_before and number.isdecimal() and number_before.isdecimal()
    return siblings and before.parent == one.parent and before.given == one.given
