"""What attention that ran is called: heads put together, layers numbered, stacks told apart."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

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
        result.append(Named(_called(path, seen[path], model), layer, *kind, group))
        seen[path] += 1
    return result


def layer_numbers(paths: Sequence[str], kinds: Sequence[Hashable]) -> list[int]:
    """Which layer of its kind each attention is: as the model counts where its paths do, else in order.

    Of paths that differ in their numbers alone, the first number that is another in each of them counts the layers.

    >>> layer_numbers(["h.1.attn", "h.3.attn", "pool"], "eee"), layer_numbers(["a.0.b.0", "a.0.b.1", "a.1.b.0"], "eee")
    ([1, 3, 2], [0, 1, 2])
    """
    alike: defaultdict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for i, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        alike[_pattern(path), kind].append(i)
    layers = [sum(kind == before for before in kinds[:i]) for i, kind in enumerate(kinds)]
    for indices in alike.values():
        counted = _counted([paths[i] for i in indices])
        if len(counted) > 1 or len(indices) == 1:  # a single module that is called again has no number
            for i in indices:
                layers[i] = counted.get(paths[i], layers[i])
    return layers


def _pattern(path: str) -> str:
    """The path without its numbers."""
    return _NUMBER.sub("#", path)


def _counted(paths: Iterable[str]) -> dict[str, int]:
    """The number that counts the layers in each of these paths, which differ in nothing else; none where none does."""
    modules = list(dict.fromkeys(paths))
    for column in zip(*(map(int, _NUMBER.findall(path)) for path in modules), strict=True):
        if len(set(column)) == len(column):
            return dict(zip(modules, column, strict=True))
    return {}


class Namer:
    """Names and numbers for attention while the model still runs.

    They are those of `named` where all modules that are there attend; which of them will is not known yet.

    Args:
        there: the paths of the model's modules.
        model: what a module without a path is called.
    """

    def __init__(self, there: Iterable[str], model: str) -> None:
        self._there, self._model = there, model
        self._calls: Counter[str] = Counter()
        self._kinds: Counter[tuple[Stack, Kind]] = Counter()

    def name(self, parts: tuple[Attended, ...]) -> Named:
        """The attention of parts that belong together."""
        path, kind = _path(parts), _kind(parts)
        counted = self._alike.get(_pattern(path), {})
        is_called_again = len(counted) == 1 and self._calls[path] > 0
        layer = self._kinds[kind] if is_called_again else counted.get(path, self._kinds[kind])
        name = _called(path, self._calls[path], self._model)
        self._calls[path] += 1
        self._kinds[kind] += 1
        return Named(name, layer, *kind, parts)

    @cached_property
    def _alike(self) -> dict[str, dict[str, int]]:
        """The layer of each path that has a number, by what the path is without it."""
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._there:
            alike[_pattern(path)].append(path)
        return {pattern: _counted(paths) for pattern, paths in alike.items()}


def _called(path: str, calls: int, model: str) -> str:
    """The name of attention in a module that has attended so many times before."""
    return (path or model) + (f"#{calls}" if calls else "")


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
        if groups and is_next_head(groups[-1], one):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [tuple(group) for group in groups]


def is_next_head(heads: Sequence[Attended], one: Attended) -> bool:
    """Whether this attention is of one layer with those before it."""
    before = heads[-1]
    if before.recipe.sizes != one.recipe.sizes or not is_one_head(one) or before.cross != one.cross:
        return False
    if any(one.after(head) for head in heads):
        return False
    if before.call == one.call:
        return before.lines == one.lines
    (folder, number), (folder_before, number_before) = _place_in_list(one.path), _place_in_list(before.path)
    siblings = folder == folder_before and number is not None and number_before is not None
    return siblings and before.parent == one.parent


def is_one_head(one: Attended) -> bool:
    """Whether this attention may be that of one head, as it has no axis for heads beside that for the batch."""
    return len(one.recipe.sizes) <= 3


def ends_with(one: Attended, call: int) -> bool:
    """Whether no head of the same layer can follow when this call of a module has ended."""
    return call == (one.call if _place_in_list(one.path)[1] is None else one.parent)


def _place_in_list(path: str) -> tuple[str, str | None]:
    """The path of a list of modules, and the place in it; None where the module is in no list."""
    folder, _, last = path.rpartition(".")
    return folder, last if last.isdecimal() else None
