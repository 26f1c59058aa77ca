"""Provenance while a model runs: for each tensor, which sequences it comes from and what part it plays in attention."""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import torch


class Role(Enum):
    """What part a tensor plays."""

    NONE = "none"
    SCORES = "scores"
    """It comes from a product of queries and keys."""
    LOGITS = "logits"
    """It comes from a product with something learned: of a classifier, a router, or learned queries."""
    WEIGHTS = "weights"
    """A softmax over keys of scores."""
    GATE = "gate"
    """A softmax of something else: of a router, a classifier, or additive attention."""


class Folded(NamedTuple):
    """Two axes that are joined into one."""

    first: int
    second: int
    sure: bool = False
    """The first is known to be the batch, and the second the heads."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Where a tensor comes from.

    A lineage is a set of bits: one for each tensor that the model was given, one for each attention that a sequence
    went through. The output of attention has the lineage of its queries, not of its values, so that a sequence keeps
    its own: queries and keys of one sequence have lineages of which one contains the other.
    """

    lineage: int = 0
    static: bool = False
    """Made from parameters and constants alone."""
    role: Role = Role.NONE
    sides: tuple[int, int] = (0, 0)
    """Scores and weights: the lineages of the two factors."""
    key_axes: tuple[int, ...] = ()
    """Logits: the axes, from the end, that are not the learned factor's, and so can be keys."""
    folded: Folded | None = None
    """How the first of this tensor's three axes was made from two."""
    dropped: bool = False
    """Weights after dropout."""
    dead: torch.Tensor | None = None
    """Weights: booleans with the axis of the keys being 1, True where every score was masked."""


LEARNED = 1
"""The lineage of a sequence that is part of the model."""
STATIC = Tag(static=True)
PLAIN = Tag()


def same_sequence(one: int, other: int) -> bool:
    """Whether two lineages can be those of queries and keys of one sequence.

    >>> same_sequence(0b011, 0b001), same_sequence(0b101, 0b010)
    (True, False)
    """
    return one & ~other == 0 or other & ~one == 0


@dataclass(frozen=True, slots=True)
class Given:
    """An input of the model."""

    shape: tuple[int, ...]
    floating: bool


class Tags:
    """The tags of the tensors that are alive."""

    def __init__(self, static: Iterable[torch.Tensor], *, strangers_are_inputs: bool) -> None:
        self._static = {id(one) for one in static}
        self._strangers_are_inputs = strangers_are_inputs
        self._tags: dict[int, tuple[weakref.ref[torch.Tensor], Tag]] = {}
        """By identity, which another tensor may have once the first is gone: the reference tells."""
        self._plain: dict[int, Tag] = {}
        self._bits = 0
        self.inputs: list[Given] = []
        """What the run that goes on was given."""

    def bit(self) -> int:
        """A lineage of its own."""
        self._bits += 1
        return 1 << self._bits

    def of(self, x: torch.Tensor) -> Tag:
        """The tag of `x`; a tensor that nobody has seen made is one that depends on the input."""
        found = self._tags.get(id(x))
        if found is not None and found[0]() is x:
            return found[1]
        if id(x) in self._static or isinstance(x, torch.nn.Parameter):
            return STATIC
        if self._strangers_are_inputs and x.ndim > 0:
            return self.given(x)
        return PLAIN

    def plain(self, lineage: int) -> Tag:
        """The tag of a tensor that has this lineage and plays no part."""
        tag = self._plain.get(lineage)
        if tag is None:
            tag = self._plain[lineage] = Tag(lineage)
        return tag

    def put(self, x: torch.Tensor, tag: Tag) -> None:
        """Let `x` have this tag as long as it lives."""
        self._tags[id(x)] = weakref.ref(x), tag

    def known(self, x: torch.Tensor) -> bool:
        """Whether `x` has been seen made, or is a parameter."""
        found = self._tags.get(id(x))
        return (found is not None and found[0]() is x) or id(x) in self._static

    def given(self, x: torch.Tensor) -> Tag:
        """Tag `x` as an input."""
        tag = Tag(self.bit())
        self.put(x, tag)
        self.inputs.append(_given(x))
        return tag

    def begin(self, given: Sequence[torch.Tensor]) -> None:
        """A run begins with these; those that nobody has seen made are sequences of their own."""
        fresh = [x for x in given if id(x) not in self._static and (not self.known(x) or self.of(x).static)]
        for x in fresh:
            self.given(x)
        self.inputs = [_given(x) for x in given]

    def sweep(self) -> None:
        """Forget the tensors that are gone."""
        self._tags = {key: found for key, found in self._tags.items() if found[0]() is not None}

    def clear(self) -> None:
        """Forget everything."""
        self._tags.clear()
        self.inputs = []


def _given(x: torch.Tensor) -> Given:
    return Given(() if x.is_nested else tuple(x.shape), x.is_floating_point())


SLICES = frozenset(
    {"__getitem__", "select", "narrow", "slice", "unbind", "chunk", "split", "split_with_sizes", "tensor_split"}
)
_TURNING = frozenset({"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "__get__", "adjoint"})
_JOINING = frozenset({"cat", "concat", "concatenate", "stack"})
_DROPOUT = frozenset({"dropout", "dropout_", "native_dropout"})

_RANK = (Role.WEIGHTS, Role.SCORES, Role.GATE, Role.LOGITS)


def spread(tags: Tags, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Tag what an operation made after what it was made from.

    This runs for every operation of a model: what most of them are, one tensor made of some that play no part, is
    looked up in place.
    """
    if not isinstance(out, torch.Tensor):
        _spread_roles(tags, name, args, kwargs, out)
        return
    known, static = tags._tags, tags._static
    lineage, all_static, first = 0, True, None
    for x in (*args, *kwargs.values()) if kwargs else args:
        if not isinstance(x, torch.Tensor):
            if isinstance(x, tuple | list | dict) and tensors_in(x):
                _spread_roles(tags, name, args, kwargs, out)
                return
            continue
        first = x if first is None else first
        entry = known.get(id(x))
        if entry is not None and entry[0]() is x:
            tag = entry[1]
        elif id(x) in static:
            continue
        else:
            tag = tags.of(x)
        if tag.role is not Role.NONE or tag.folded is not None:
            _spread_roles(tags, name, args, kwargs, out)
            return
        lineage |= tag.lineage
        all_static = all_static and tag.static
    if first is not None and out.ndim == 3 and first.ndim == 4:
        _spread_roles(tags, name, args, kwargs, out)
        return
    known[id(out)] = weakref.ref(out), STATIC if all_static else tags.plain(lineage)


def _spread_roles(tags: Tags, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The same where several things are made, or of several in a list, or they may play a part, or are folded."""
    outputs = tensors_in(args[0] if name == "__setitem__" else out)
    if not outputs:
        return
    sources = tensors_in(args) + tensors_in(kwargs)
    found = [tags.of(x) for x in sources]
    lineage, static = 0, True
    for tag in found:
        lineage |= tag.lineage
        static = static and tag.static
    plain = STATIC if static else tags.plain(lineage)
    leading = _leading(name, found)
    for x in outputs:
        tag = plain
        if leading is not None and x.is_floating_point() and not x.is_nested:
            tag = _passed_on(tag, found[leading], sources[leading], x, name)
            if name in _DROPOUT and _drops(args, kwargs):
                tag = replace(tag, dropped=True)
        if x.ndim == 3 and sources and not x.is_nested:
            folded = _folded(name, found, sources, x)
            tag = tag if folded is None else replace(tag, folded=folded)
        tags.put(x, tag)


def _leading(name: str, found: list[Tag]) -> int | None:
    """The source whose role its results have, if any has one."""
    roles = [i for i, tag in enumerate(found) if tag.role is not Role.NONE]
    if not roles or (name in _JOINING and len(found) > 2 and len(roles) < len(found) - 1):
        return None
    return min(roles, key=lambda i: _RANK.index(found[i].role))


def _passed_on(tag: Tag, role: Tag, source: torch.Tensor, x: torch.Tensor, name: str) -> Tag:
    """`tag` with the role of its source, where `x` still holds the same numbers or some of them."""
    whole = x.numel() == source.numel() or (x.ndim == source.ndim and x.shape[:-1] == source.shape[:-1])
    reduced = source.ndim > 0 and x.ndim > 0 and x.shape[-1] == 1 != source.shape[-1] and x.numel() != source.numel()
    if not (whole or name in SLICES or name in _JOINING) or reduced:
        return tag
    if role.role is Role.LOGITS and (name in _TURNING or x.shape[-2:] != source.shape[-2:]):
        return tag
    dead = role.dead if whole else None
    if role.lineage == tag.lineage and dead is role.dead and role.folded is None and not role.static:
        return role
    return replace(
        tag, role=role.role, sides=role.sides, key_axes=role.key_axes, dropped=role.dropped, dead=dead, static=False
    )


def _folded(name: str, found: list[Tag], sources: list[torch.Tensor], x: torch.Tensor) -> Folded | None:
    """The two axes that are one in the first axis of `x`, now or since an operation before this one."""
    first = sources[0]
    if first.ndim == 4 and first.shape[0] * first.shape[1] == x.shape[0] and first.shape[2:] == x.shape[1:]:
        return Folded(first.shape[0], first.shape[1])
    if name in _JOINING and len(sources) > 1 and first.shape[0] * len(sources) == x.shape[0]:
        return Folded(len(sources), first.shape[0])
    for tag, source in zip(found, sources, strict=True):
        if tag.folded is not None and source.ndim == 3 and source.shape[0] == x.shape[0]:
            return tag.folded
    return None


def _drops(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether dropout(input, p, training) does something."""
    p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return bool(training) and p > 0


def tensors_in(value: Any, depth: int = 3) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list) or isinstance(value, torch.Size):
        return []
    found = []
    for part in value:
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif depth and isinstance(part, tuple | list | dict) and part:
            found += tensors_in(part, depth - 1)
    return found
