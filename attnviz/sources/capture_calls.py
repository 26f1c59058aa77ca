"""One attention that ran: what its weights are made from, its values, and some rows of what it gave."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import CodeType
from typing import Protocol

import numpy as np
import torch

from attnviz.arrays import Array, Floats, to_numpy
from attnviz.attention import Rule, attend
from attnviz.maps import ComputedWeights, StoredWeights, Weights
from attnviz.sources.capture_bands import band_of
from attnviz.sources.capture_leads import Leads
from attnviz.sources.capture_tags import Folded, Given, same_sequence

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}
"""How far the weights times the values may be from what the kernel gave, as a part of the largest value.

Half precision keeps 8 or 11 bits of the weights and of their sums; float32 kernels may run in TF32.
"""


_FEW = 32
"""Rows that cost less together than four of them one by one."""


class Recipe(Protocol):
    """What weights are made from."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The axes before query and key, then queries, then keys."""
        ...

    def item(self, leads: Leads, index: int) -> tuple[Weights, tuple[str, ...]]:
        """The weights [head, query, key] of one item of the batch, and what is to be said of them."""
        ...

    def copied(self) -> "Recipe":
        """The same, of tensors that the model does not write to as it goes on."""
        ...


@dataclass(frozen=True)
class Stored:
    """Weights that the model itself made."""

    weights: torch.Tensor
    """[..., query, key]."""
    dead: torch.Tensor | None
    """Booleans with as many elements as there are rows: every score of the row was masked."""
    dropped: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """The axes before query and key, then queries, then keys."""
        return tuple(self.weights.shape)

    def item(self, leads: Leads, index: int) -> tuple[Weights, tuple[str, ...]]:
        """The weights of one item; rows that may attend to nothing are 0, whatever the model has there."""
        array = to_numpy(leads.item(self.weights, index))
        empty = np.zeros(array.shape[:-1], np.bool_)
        if self.dead is not None and self.dead.numel() == self.weights[..., 0].numel():
            rows = leads.item(self.dead.reshape(self.weights.shape[:-1])[..., None], index)[..., 0].cpu().numpy()
            uniform = array.max(axis=-1) == array.min(axis=-1)
            empty = rows & (uniform | np.isnan(array).all(axis=-1))
        notes = []
        if empty.any():
            array = np.where(empty[..., None], array.dtype.type(0), array)
            notes.append(f"{int(empty.sum())} rows may attend to nothing: they are 0")
        if self.dropped:
            notes.append("the weights are those after dropout: call model.eval() to see them without")
        return StoredWeights(array), tuple(notes)

    def copied(self) -> "Stored":
        """The same weights: a model that has used them does not write to them."""
        return self


@dataclass(frozen=True)
class Computed:
    """Queries and keys, and what a kernel was told of them."""

    q: torch.Tensor
    """[..., query, d_head]."""
    k: torch.Tensor
    """[..., key, d_head]."""
    causal: bool = False
    mask: torch.Tensor | None = None
    """[..., query, key], or 1 for any of them."""
    scale: float | None = None
    dropout: float = 0.0
    softcap: float | None = None
    sink: torch.Tensor | None = None
    """[head]."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The axes before query and key, then queries, then keys."""
        return (*self.q.shape[:-1], self.k.shape[-2])

    def item(self, leads: Leads, index: int) -> tuple[Weights, tuple[str, ...]]:
        """The weights of one item, made when they are asked for; on the CPU by NumPy, from the model's own numbers."""
        q, k = (leads.item(x, index) for x in (self.q, self.k))
        mask = self._mask(leads, index, k.shape[-2])
        rule = Rule(causal=self.causal, mask=mask)
        rule.check(q.shape[-2], k.shape[-2], q.shape[-3])
        if mask is not None and mask.ndim == 2 and (band := band_of(mask)) is not None:
            rule, mask = Rule(causal=self.causal).also(band), None
        said = (f"dropout {self.dropout:g} was on: the weights are those before it",) if self.dropout else ()
        there: Callable[[torch.Tensor], Array] = wide
        if q.device.type == "cpu" and (mask is None or mask.dtype in _SHARED):
            there, rule = to_numpy, rule.placed(_numbers)
        sink = None if self.sink is None else there(self.sink)
        return ComputedWeights(there(q), there(k), rule, self.scale, self.softcap, sink), said

    def _mask(self, leads: Leads, index: int, n_keys: int) -> torch.Tensor | None:
        """What of the mask is for one item: [query, key], with an axis before them where heads differ."""
        mask = self.mask
        if mask is None:
            return None
        mask = leads.item(mask.expand(*mask.shape[:-1], n_keys) if mask.ndim > 1 else mask[None], index)
        return mask[0] if mask.shape[0] == 1 else mask

    def copied(self) -> "Computed":
        """The same of copies of the queries and keys."""
        return replace(self, q=self.q.clone(), k=self.k.clone())


_SHARED = (torch.bool, torch.float32, torch.float64)
"""The dtypes of masks that mean the same in NumPy; what half precision cannot hold begins elsewhere."""


def _numbers(x: torch.Tensor) -> Array:
    return x.numpy()


def wide(x: torch.Tensor) -> torch.Tensor:
    """`x` in float32 at least: kernels for half precision make their softmax in it."""
    return x if x.dtype == torch.float64 else x.float()


@dataclass(frozen=True)
class Attended:
    """One attention that ran."""

    path: str
    """The module in which it ran, from the model on."""
    call: int
    """The module's calls are counted over the whole run."""
    parent: int
    """The call of the module around it."""
    lines: tuple[tuple[CodeType, int], ...]
    """Where in the code it ran."""
    recipe: Recipe
    values: torch.Tensor
    """[..., key, d_value]."""
    rows: range
    """Some queries, and what the kernel gave for them:"""
    out: torch.Tensor
    """[..., row, d_value]."""
    sides: tuple[int, int]
    """The lineages of queries and keys, or the other way round."""
    made: int
    """The lineage that what comes of it has besides that of its queries."""
    folded: Folded | None
    inputs: tuple[Given, ...]

    @property
    def cross(self) -> bool:
        """Whether queries and keys are of two sequences."""
        return not same_sequence(*self.sides)

    def copied(self) -> "Attended":
        """The same, whatever the model does next to the tensors that it attended with."""
        return replace(self, recipe=self.recipe.copied(), values=self.values.clone(), out=self.out.clone())

    def after(self, other: "Attended") -> bool:
        """Whether this attention builds on what came of the other one."""
        one, another = self.sides
        return bool((one | another) & other.made)

    def item(self, leads: Leads, index: int) -> tuple[Weights, tuple[str, ...], str | None]:
        """The weights of one item of the batch, what is to be said of them, and why they are refused, if they are."""
        weights, notes = self.recipe.item(leads, index)
        return weights, notes, self._fault(weights, leads, index)

    def _some_rows(self, weights: Weights) -> Floats:
        """The weights of the rows of which the output is known."""
        rows = self.rows
        if rows.stop - rows.start <= _FEW:
            return weights.rows(rows.start, rows.stop)[:, :: rows.step]
        return np.concatenate([weights.rows(row, row + 1) for row in rows], axis=1)

    def _fault(self, weights: Weights, leads: Leads, index: int) -> str | None:
        """Why these are not the weights that the kernel used, or None: weights · values must be what it gave."""
        values, out = (to_numpy(leads.item(x, index)) for x in (self.values, self.out))
        block = self._some_rows(weights)
        if not np.isfinite(block).all() or block.min(initial=0) < 0:
            return "they are negative or no numbers"
        if isinstance(self.recipe, Computed) and self.recipe.dropout:
            return None  # the kernel's output is random
        sums = block.sum(axis=-1)
        if sums.max(initial=0) > 1.02 and not (isinstance(self.recipe, Stored) and self.recipe.dropped):
            return f"their rows sum to as much as {sums.max():.3g}"
        alive = sums > 0
        with np.errstate(invalid="ignore", over="ignore"):
            error = float(np.abs(attend(block, values) - out)[alive].max(initial=0))
        largest = float(np.abs(values).max(initial=0))
        if not error <= TOLERANCE.get(self.out.dtype, 1e-4) * largest:
            return f"times the values, they miss what the kernel gave by {error:.2g}, of values up to {largest:.2g}"
        return None


def some_rows(n: int) -> range:
    """The queries by which attention is verified: the last and up to three before it, evenly apart.

    >>> list(some_rows(10)), list(some_rows(2))
    ([0, 3, 6, 9], [0, 1])
    """
    step = max(1, -(-n // 4))
    return range((n - 1) % step, n, step)
