"""What is made of each operation while a model runs: attention is kept, all else is tagged."""

import math
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch

from attnviz.sources.capture_calls import Attended, Recipe, Stored, some_rows
from attnviz.sources.capture_kernels import kernel_of
from attnviz.sources.capture_products import PRODUCTS, SOFTMAX, Product, product_of, softmax_axis, weighting_of
from attnviz.sources.capture_tags import LEARNED, STATIC, Folded, Role, Tag, Tags, same_sequence, spread, tensors_in
from attnviz.sources.handover import Stopped

MASKED = -1e9
"""Scores at or below it, or half the dtype's minimum where that is nearer, are masked."""
_GATE = "a softmax weighs values, but not by scores of queries and keys: it is not taken for attention"
_HERE, _TORCH = str(Path(__file__).parent / "capture_"), str(Path(torch.__file__).parent)


_See: TypeAlias = Callable[[str, Any, tuple[Any, ...], dict[str, Any], Any], bool]
"""Of an operation's name, the function itself, its arguments and its result: whether all is seen that there is."""


class _Frame(NamedTuple):
    """A module that is running."""

    path: str
    call: int


class Keeper(Protocol):
    """Who is told of attention as it runs, in the thread of the model."""

    def keep(self, one: Attended) -> None:
        """Attention ran; its tensors are the model's own."""
        ...

    def leave(self, path: str, call: int) -> None:
        """A call of a module has ended."""
        ...


class Watch:
    """What has been seen so far, in the thread that began it.

    Args:
        tags: of the tensors that the model works with.
        keeper: who is told.
        wanted: paths of modules; attention elsewhere is not kept. None keeps all.
    """

    def __init__(self, tags: Tags, keeper: Keeper, wanted: Collection[str] | None) -> None:
        self.refused: list[str] = []
        """Attention that ran but could not be kept, and why."""
        self.elsewhere: dict[str, None] = {}
        """Modules with attention that is not wanted."""
        self.gates: dict[str, None] = {}
        """Modules in which a softmax weighs values that is none over scores of queries and keys."""
        self.softmaxes = 0
        self.operations = 0
        self._tags, self._keeper, self._wanted = tags, keeper, wanted
        self._seeing: dict[Callable[..., Any], tuple[str, _See | None]] = {}
        self._stopped = False
        self._stack: list[_Frame] = []
        self._calls = 0
        self._folded: Folded | None = None
        self._thread = threading.get_ident()

    def operation(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operation, and see what it was."""
        if self._stopped and sys.exception() is None:  # what is done on the way out is not stopped
            raise Stopped
        self.operations += 1
        out = func(*args, **kwargs)
        seeing = self._seeing.get(func)
        if seeing is None:
            seeing = self._seeing[func] = self._seeing_of(func)
        name, see = seeing
        if see is None or not see(name, func, args, kwargs, out):
            spread(self._tags, name, args, kwargs, out)
        return out

    def _seeing_of(self, func: Callable[..., Any]) -> tuple[str, _See | None]:
        """The name of an operation, and who looks at its results before anyone else."""
        name = str(getattr(func, "__name__", "")).partition(".")[0]
        if name in SOFTMAX:
            return name, self._softmax
        if name in PRODUCTS:
            return name, self._layer if name == "linear" else self._product
        return name, self._kernel if "attention" in name else None

    def stop(self) -> None:
        """Let the next operation raise `Stopped`; any thread may say so."""
        self._stopped = True

    def _kernel(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> bool:
        kernel = kernel_of(name, func, args, kwargs, out)
        if kernel is None:
            return False
        q, k = self._tags.of(kernel.q), self._tags.of(kernel.k)
        first, *others = kernel.out.shape[:-2] or (1,)
        folded = Folded(first, math.prod(others), sure=True) if others else q.folded or k.folded
        made = self._keep(kernel.recipe, kernel.v.detach(), kernel.out, (_side(q), _side(k)), folded)
        self._tags.put(kernel.out, Tag(_side(q) | made))
        return True

    def _softmax(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> bool:
        self.softmaxes += 1
        x = tensors_in((args, kwargs))[0]
        tag, axis = self._tags.of(x), softmax_axis(x, args, kwargs)
        spread(self._tags, name, (x,), {}, out)
        if axis is None or tag.static:
            return True
        scored = tag.role is Role.SCORES or (tag.role is Role.LOGITS and axis in tag.key_axes)
        role, dead = (Role.WEIGHTS, _dead(x.detach(), axis)) if scored else (Role.GATE, None)
        self._tags.put(out, replace(self._tags.of(out), role=role, dead=dead))
        return True

    def _layer(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> bool:
        """A product with a matrix: of what plays no part where the matrix is the model's, as most operations are."""
        if len(args) < 2:
            return self._product(name, func, args, kwargs, out)
        x, matrix = self._tags.of(args[0]), self._tags.of(args[1])
        if x.static or not matrix.static or x.role not in (Role.NONE, Role.LOGITS):
            return self._product(name, func, args, kwargs, out)
        self._tags.put(out, self._tags.plain(x.lineage))
        return True

    def _product(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> bool:
        product = product_of(name, args, kwargs)
        if product is None:
            return False
        found = (self._tags.of(product.factors[0]), self._tags.of(product.factors[1]))
        for i in (0, 1):
            if found[i].role not in (Role.NONE, Role.LOGITS) and self._weighted(product, i, found, out):
                return True
        layer = name == "linear" and found[1].static > found[0].static  # not a product of queries and keys
        self._tags.put(out, self._tags.plain(found[0].lineage) if layer else _tag_of_product(product, found))
        return True

    def _weighted(self, product: Product, i: int, found: tuple[Tag, Tag], out: torch.Tensor) -> bool:
        """Whether this product of weights and values is attention, which is then kept."""
        tag, values = found[i], found[1 - i]
        read = None if values.static else weighting_of(product, i, out, tag.dead)
        if read is None:
            return False
        if tag.role is Role.GATE:
            self.gates[self._path()] = None
            return False
        if tag.role is Role.SCORES and not _is_normalised(read.weights):
            return False
        recipe = Stored(read.weights.detach(), read.rows, tag.dropped)
        made = self._keep(recipe, read.values.detach(), read.out, tag.sides, tag.folded)
        self._tags.put(out, Tag(_lineage_of_queries(tag.sides, values.lineage) | made))
        return True

    def _path(self) -> str:
        return self._stack[-1].path if self._stack else ""

    def _keep(
        self,
        recipe: Recipe,
        values: torch.Tensor,
        out: torch.Tensor,
        sides: tuple[int, int],
        folded: Folded | None,
    ) -> int:
        """Keep an attention that ran, if it is wanted; the lineage of its own that its output has."""
        path, made = self._path(), self._tags.bit()
        if self._wanted is not None and not any(path == one or path.startswith(f"{one}.") for one in self._wanted):
            self.elsewhere[path] = None
            return made
        if not _holds_numbers(values):
            where = "on the meta device" if values.device.type == "meta" else "inside vmap, or with nested tensors"
            self.refused.append(f"{path or 'the model'}: it ran {where}, where there are no numbers to keep")
            return made
        if 0 in recipe.sizes:
            self.refused.append(f"{path or 'the model'}: it ran on no tokens ({' × '.join(map(str, recipe.sizes))})")
            return made
        rows = some_rows(out.shape[-2])
        frame = self._stack[-1] if self._stack else _Frame("", 0)
        self._keeper.keep(
            Attended(
                path=path,
                call=frame.call,
                parent=self._stack[-2].call if len(self._stack) > 1 else 0,
                lines=_lines() if len(recipe.sizes) <= 3 else (),  # for heads one by one
                recipe=recipe,
                values=values,
                rows=rows,
                out=out.detach()[..., rows.start : rows.stop : rows.step, :],
                sides=sides,
                made=made,
                folded=self._folded or folded,
                inputs=tuple(self._tags.inputs),
            )
        )
        return made

    @contextmanager
    def joining(self, folded: Folded) -> Iterator[None]:
        """While this lasts, batch and heads are joined so."""
        before, self._folded = self._folded, folded
        try:
            yield
        finally:
            self._folded = before

    def enter(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module begins."""
        if threading.get_ident() != self._thread:
            return
        self._calls += 1
        if not self._stack:
            with torch._C.DisableTorchFunction():  # looking at tensors is no part of the run
                self._tags.begin(tensors_in(args) + tensors_in(kwargs))
        self._stack.append(_Frame(path, self._calls))

    def leave(self, args: tuple[Any, ...], out: Any) -> None:
        """A module ends; what it made out of sight comes from what it was given."""
        if threading.get_ident() != self._thread:
            return
        ended = self._stack.pop()
        unseen = [x for x in tensors_in(out) if not self._tags.known(x)]
        if unseen:
            with torch._C.DisableTorchFunction():
                self._unseen(tensors_in(args), unseen)
        if not self._stack:
            self._tags.sweep()
        self._keeper.leave(ended.path, ended.call)

    def _unseen(self, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        lineage = 0
        for x in given:
            lineage |= self._tags.of(x).lineage
        for x in made:
            self._tags.put(x, Tag(lineage))

    def left_out(self) -> list[str]:
        """Attention that ran but could not be kept."""
        return [f"left out: {why}" for why in self.refused]

    def not_taken(self, model: str) -> list[str]:
        """What in a model of this name looks like attention and is none."""
        return [f"{path or model}: {_GATE}" for path in self.gates]

    def nothing(self, model: str) -> str:
        """Why there is no attention in a model of this name."""
        if self.elsewhere:
            return f"no attention ran in the modules asked for, but in {', '.join(self.elsewhere)}"
        if not self.operations:
            return f"no attention ran: {model} was not called inside the with block"
        if self.gates:
            return f"no attention ran: in {', '.join(path or model for path in self.gates)}, {_GATE}"
        if self.softmaxes:
            return f"no attention ran: no softmax of {model} is over scores of queries and keys, and weighs values"
        return f"no attention ran: {model} has no softmax over keys"


def _tag_of_product(product: Product, found: tuple[Tag, Tag]) -> Tag:
    """What a product is that is no attention."""
    if found[0].static and found[1].static:
        return STATIC
    sides = _side(found[0]), _side(found[1])
    lineage, folded = found[0].lineage | found[1].lineage, found[0].folded or found[1].folded
    static = [i for i in (0, 1) if found[i].static]
    playing = [one for one in found if one.role not in (Role.NONE, Role.LOGITS)]
    if playing and static:  # heads that are mixed with each other
        return replace(playing[0], lineage=lineage, dead=None)
    if static:
        return Tag(lineage, role=Role.LOGITS, sides=sides, folded=folded, key_axes=product.own_axes(1 - static[0]))
    if product.own_axes(0) or product.own_axes(1):
        return Tag(lineage, role=Role.SCORES, sides=sides, folded=folded)
    return Tag(lineage)


def _side(tag: Tag) -> int:
    """The lineage of queries or keys."""
    return LEARNED if tag.static else tag.lineage


def _dead(scores: torch.Tensor, axis: int) -> torch.Tensor | None:
    """Where every score is masked."""
    if not _holds_numbers(scores) or not scores.is_floating_point() or not scores.numel():
        return None
    return scores.amax(axis, keepdim=True) <= _masked(scores.dtype)


@cache
def _masked(dtype: torch.dtype) -> float:
    """At which score and below one is masked."""
    return max(MASKED, torch.finfo(dtype).min / 2)


def _is_normalised(weights: torch.Tensor) -> bool:
    """Whether these are weights that were made by hand: nothing negative, and each row sums to 1 or is 0."""
    if not _holds_numbers(weights) or not weights.numel():
        return False
    sums = weights.detach().float().sum(-1)
    tolerance = 1e-3 if weights.dtype in (torch.float32, torch.float64) else 2e-2
    fits = ((sums - 1).abs() <= tolerance) | (sums == 0)
    return bool(fits.all() & (weights.detach().amin() >= 0) & sums.any())


def _holds_numbers(x: torch.Tensor) -> bool:
    """Whether numbers can be read: not of meta, fake and nested tensors, and not inside torch.func transforms."""
    unreal = x.is_meta or x.is_nested or (type(x) is not torch.Tensor and getattr(x, "fake_mode", None) is not None)
    return not unreal and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def _lineage_of_queries(sides: tuple[int, int], values: int) -> int:
    """Of the two factors of the scores, the lineage of the one that is not of the sequence of the values."""
    one, other = sides
    if same_sequence(one, other):
        return one | other
    return other if same_sequence(one, values) and not same_sequence(other, values) else one


def _lines() -> tuple[tuple[CodeType, int], ...]:
    """Where in the code this is, without what torch and these files add."""
    lines = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_HERE, _TORCH)):
            lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
