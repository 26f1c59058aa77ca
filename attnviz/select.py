"""Which layers, heads and tokens to keep."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

from attnviz.errors import RequestError
from attnviz.maps import HEAD_NAMES, AttentionMap

ALL = "all"
_MOST_DIGITS = 20


@dataclass(frozen=True)
class Selection:
    """Layers and heads that were asked for."""

    layers: tuple[int, ...] | None
    """In ascending order; None where nothing was said."""
    heads: frozenset[tuple[int | None, int]] | None
    """(layer, head), the layer None where the head was asked for in every layer; None where nothing was said."""

    @classmethod
    def parse(
        cls, layer: str | None, head: str | None, layers_there: Sequence[int], heads_there: Sequence[int]
    ) -> "Selection":
        """From what is typed: `0,3-5`, `all` or `-1` for layers; for heads also `5.3`, head 3 of layer 5.

        Args:
            layer, head: what is typed; None where nothing is.
            layers_there, heads_there: the numbers that there are, in ascending order; -1 is the last of them.

        Raises:
            RequestError: it is no such list, or a layer or head that is not there.

        >>> Selection.parse("0,2-3", "1", range(6), range(12)).layers
        (0, 2, 3)
        >>> Selection.parse(None, "5.3", range(6), range(12)).layers, Selection.parse("all", None, [2, 5], [0]).layers
        ((5,), (2, 5))
        """
        layers = None if layer is None else _numbers(layer, layers_there, "layer")
        if head is None:
            return cls(layers, None)
        heads: set[tuple[int | None, int]] = set()
        for part in head.split(","):
            dotted = re.fullmatch(r"\s*(-?\d+)\.(.+)", part)
            inside = _numbers(dotted[1], layers_there, "layer") if dotted else (None,)
            numbers = _numbers(dotted[2] if dotted else part, heads_there, "head")
            heads.update((one, number) for one in inside for number in numbers)
        return cls(_with_heads(layers, heads), frozenset(heads))

    @classmethod
    def of(
        cls,
        layers: Collection[int] | None,
        heads: Collection[int] | None,
        layers_there: Sequence[int],
        heads_there: Sequence[int],
    ) -> "Selection":
        """From numbers.

        Raises:
            RequestError: a layer or head is not there, or not a list of whole numbers is given.
        """
        for what, some in (("layers", layers), ("heads", heads)):
            if some is not None and not (isinstance(some, Iterable) and all(isinstance(n, Integral) for n in some)):
                raise RequestError(f"{what} is {some!r:.80}: give a list of whole numbers, such as [0, 3]")
        layer, head = (None if some is None else ",".join(map(str, some)) for some in (layers, heads))
        return cls.parse(layer, head, layers_there, heads_there)

    def layers_or(self, default: Iterable[int]) -> tuple[int, ...]:
        """The layers asked for, or `default` where none were, with those of which single heads were asked for."""
        if self.layers is not None:
            return self.layers
        named = {layer for layer, _ in self.heads or () if layer is not None}
        return tuple(sorted(named.union(default)))

    def count_heads(self, n_heads: int) -> int:
        """The most heads that one layer keeps of its `n_heads`."""
        return n_heads if self.heads is None else len({head for _, head in self.heads})

    def heads_of(self, one: AttentionMap) -> AttentionMap:
        """The map with the heads asked for; what has a name and no number stays."""
        if self.heads is None:
            return one
        wanted = {head for layer, head in self.heads if layer in (None, one.layer)}
        return one.pick(heads=[i for i, head in enumerate(one.heads) if head in HEAD_NAMES or head in wanted])


def _with_heads(layers: tuple[int, ...] | None, heads: Collection[tuple[int | None, int]]) -> tuple[int, ...] | None:
    """The layers, where heads of certain layers were asked for: those, if nothing else was said."""
    named = sorted({layer for layer, _ in heads if layer is not None})
    everywhere = any(layer is None for layer, _ in heads)
    if layers is None:
        return None if everywhere else tuple(named)
    for layer in named:
        if layer not in layers:
            chosen = ", ".join(map(str, layers))
            raise RequestError(f"a head of layer {layer} is asked for, but only layer {chosen}: add it to --layer")
    return layers if everywhere else tuple(named)


def _numbers(spec: str, there: Sequence[int], what: str) -> tuple[int, ...]:
    """Those of the numbers `there` that `spec` lists, in ascending order."""
    chosen: set[int] = set()
    for part in spec.split(","):
        text = part.strip()
        if text == ALL:
            chosen.update(there)
            continue
        match = re.fullmatch(r"(-?\d+)(?:-(\d+))?", text)
        if not match:
            raise RequestError(f"--{what} {spec!r} is no list of {what}s: type numbers such as 0,3-5, -1 or {ALL}")
        first = _number(match[1], there, what)
        last = _number(match[2], there, what) if match[2] else first
        if last < first:
            raise RequestError(f"--{what} {text!r} runs backwards: type {last}-{first}")
        chosen.update(number for number in there if first <= number <= last)
    return tuple(sorted(chosen))


def _number(digits: str, there: Sequence[int], what: str) -> int:
    """The number that is typed, counted from the end of those `there` where it is negative."""
    number = int(digits) if len(digits) <= _MOST_DIGITS else None
    if number is not None and -len(there) <= number < 0:
        return there[number]
    if number is None or number not in there:
        shown = digits if len(digits) <= _MOST_DIGITS else f"{digits[:_MOST_DIGITS]}…"
        raise RequestError(f"no {what} {shown}: {what}s are counted from 0, here {_listed(there)}")
    return number


def _listed(there: Sequence[int]) -> str:
    """The numbers that there are, in words."""
    if not there:
        return "none"
    if len(there) == 1:
        return f"only {there[0]}"
    gapless = there[-1] - there[0] == len(there) - 1
    return f"{there[0]} to {there[-1]}" if gapless else ", ".join(map(str, there))


def without_special(one: AttentionMap) -> AttentionMap:
    """The map without tokens that the tokenizer added: rows lose what they gave to them."""
    queries = [i for i, special in enumerate(one.query.special) if not special]
    keys = [i for i, special in enumerate(one.key.special) if not special]
    return one.pick(queries=queries, keys=keys)
