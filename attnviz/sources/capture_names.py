"""What attention that ran is called: heads put together, layers numbered, stacks told apart."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from attnviz.maps import Kind, Stack
from attnviz.sources.capture_calls import Attended

_NUMBER = re.compile(r"(?<![^.])[0-9]{1,9}(?![^.])")
"""A part of a path that is a number."""


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
    layers = layer_numbers(paths, kinds)
    seen: Counter[str] = Counter()
    result = []
    for path, kind, layer, group in zip(paths, kinds, layers, groups, strict=True):
        name = (path or model) + (f"#{seen[path]}" if seen[path] else "")
        seen[path] += 1
        result.append(Named(name, layer, *kind, group))
    return result


def layer_numbers(paths: Sequence[str], kinds: Sequence[Hashable]) -> list[int]:
    """Which layer of its kind each attention is: as the model counts where its paths do, else in order.

    Of paths that differ in their numbers alone, the first number that is another in each of them counts the layers.

    >>> layer_numbers(["h.1.attn", "h.3.attn", "pool"], "eee"), layer_numbers(["a.0.b.0", "a.0.b.1", "a.1.b.0"], "eee")
    ([1, 3, 2], [0, 1, 2])
    """
    alike: defaultdict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for i, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        alike[_NUMBER.sub("#", path), kind].append(i)
    layers = [sum(kind == before for before in kinds[:i]) for i, kind in enumerate(kinds)]
    for indices in alike.values():
        modules = list(dict.fromkeys(paths[i] for i in indices))
        columns = zip(*(map(int, _NUMBER.findall(path)) for path in modules), strict=True)
        counting = [dict(zip(modules, column, strict=True)) for column in columns if len(set(column)) == len(column)]
        if counting and (len(modules) > 1 or len(indices) == 1):  # a single module that is called again has no number
            for i in indices:
                layers[i] = counting[0][paths[i]]
    return layers


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

    That is, one after the other and none building on another: the same line of code in one call of a module, or
    modules of one list in one call of the module around them.
    """
    groups: list[list[Attended]] = []
    for one in attended:
        if groups and _is_next_head(groups[-1], one):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [tuple(group) for group in groups]


def _is_next_head(heads: Sequence[Attended], one: Attended) -> bool:
    before = heads[-1]
    if before.recipe.sizes != one.recipe.sizes or len(one.recipe.sizes) > 3 or before.cross != one.cross:
        return False
    if any(one.after(head) for head in heads):
        return False
    if before.call == one.call:
        return before.lines == one.lines
    (folder, _, number), (folder_before, _, number_before) = (x.path.rpartition(".") for x in (one, before))
    siblings = folder == folder_before and number.isdecimal() and number_before.isdecimal()
    return siblings and before.parent == one.parent
