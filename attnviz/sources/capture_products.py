"""Products of two tensors, however they are spelled: which axis of which tensor is which, in letters as einsum has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

_BROADCAST = "αβγδεζηθικλμνξοπρστυφχψω"
"""Letters for axes that an equation does not name."""

_PLAIN = frozenset({"matmul", "__matmul__", "mm", "bmm", "mv"})
_ADDING = frozenset({"baddbmm", "addmm", "baddbmm_", "addmm_", "addmv"})
PRODUCTS = _PLAIN | _ADDING | {"einsum", "linear", "__rmatmul__"}
SOFTMAX = frozenset({"softmax", "_softmax", "_safe_softmax", "special_softmax", "log_softmax", "_log_softmax"})


@dataclass(frozen=True)
class Product:
    """A product of two tensors, summed over the axes that its result lacks."""

    factors: tuple[torch.Tensor, torch.Tensor]
    axes: tuple[str, str]
    out_axes: str

    def own_axes(self, i: int) -> tuple[int, ...]:
        """The axes of the result, counted from its end, that only factor `i` has."""
        size = len(self.out_axes)
        return tuple(at - size for at, a in enumerate(self.out_axes) if a in self.axes[i] and a not in self.axes[1 - i])


@dataclass(frozen=True)
class Weighting:
    """A product read as weights times values, its axes in one order."""

    weights: torch.Tensor
    """[..., query, key]."""
    values: torch.Tensor
    """[..., key, d_value], each axis before the last two as in the weights, or 1."""
    out: torch.Tensor
    """[..., query, d_value]."""
    rows: torch.Tensor | None
    """[..., query, 1]: what was known of each row of the weights."""


def product_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Product | None:
    """The product that the function `name` makes of its arguments; None where it makes none of two tensors."""
    if name == "einsum":
        return _einsum(args)
    parts = [*args, *kwargs.values()]
    factors = [one for one in parts if isinstance(one, torch.Tensor)]
    if name in _ADDING:
        factors = factors[1:]
    if name == "__rmatmul__":
        factors.reverse()
    if name == "linear" and len(factors) > 1 and factors[1].ndim == 2:
        lead = _BROADCAST[: factors[0].ndim - 1]
        return Product((factors[0], factors[1]), (f"{lead}d", "kd"), f"{lead}k")
    if name == "linear" or len(factors) != 2:
        return None
    x, y = factors
    own_x, own_y = ("" if x.ndim == 1 else "q"), ("" if y.ndim == 1 else "d")
    lead = _BROADCAST[: max(x.ndim, y.ndim, 2) - 2]
    lead_x, lead_y = (lead[len(lead) - max(one.ndim - 2, 0) :] for one in (x, y))
    return Product((x, y), (f"{lead_x}{own_x}k", f"{lead_y}k{own_y}"), f"{lead}{own_x}{own_y}")


def _einsum(args: Sequence[Any]) -> Product | None:
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = list(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        return None
    terms, arrow, result = equation.replace(" ", "").partition("->")
    named = terms.split(",")
    extra = [one.ndim - len(term.replace("...", "")) for one, term in zip(operands, named, strict=True)]
    lead = _BROADCAST[: max(extra)] if "..." in terms else ""
    spelled = [term.replace("...", lead[len(lead) - n :]) for term, n in zip(named, extra, strict=True)]
    if not arrow:
        letters = sorted(set(terms) - set(",."))
        result = "..." * ("..." in terms) + "".join(a for a in letters if terms.count(a) == 1)
    if any(len(set(term)) != len(term) for term in spelled):
        return None  # a diagonal
    return Product((operands[0], operands[1]), (spelled[0], spelled[1]), result.replace("...", lead))


def weighting_of(product: Product, i: int, out: torch.Tensor, rows: torch.Tensor | None = None) -> Weighting | None:
    """The product read as weights times values; None where it cannot be that.

    Args:
        product: of two tensors.
        i: which of its factors are the weights.
        out: its result.
        rows: something of each row of the weights, in the order of their axes, that of the keys being 1.
    """
    weights, values = product.factors[i], product.factors[1 - i]
    axes, value_axes, out_axes = product.axes[i], product.axes[1 - i], product.out_axes
    keys = [a for a in axes if a in value_axes and a not in out_axes]
    if len(keys) != 1 or any(a not in out_axes and a not in keys for a in axes + value_axes):
        return None
    key = axes.index(keys[0])
    own = sorted((at for at, a in enumerate(axes) if a not in value_axes), key=lambda at: abs(at - key))
    query = axes[own[0]] if own else ""
    lead = "".join(a for a in axes if a not in query + keys[0])
    width = "".join(a for a in value_axes if a not in axes)
    if rows is not None and rows.shape == (*weights.shape[:key], 1, *weights.shape[key + 1 :]):
        rows = _ordered(rows, axes, lead, query, keys[0])
    return Weighting(
        _ordered(weights, axes, lead, query, keys[0]),
        _ordered(values, value_axes, lead, keys[0], width),
        _ordered(out, out_axes, lead, query, width),
        rows,
    )


def _ordered(x: torch.Tensor, axes: str, lead: str, first: str, second: str) -> torch.Tensor:
    """`x` as [lead..., first, second]: axes that it lacks are 1, several axes in the place of one are joined."""
    if axes == lead + first + second and len(first) == len(second) == 1:
        return x
    missing = [a for a in lead if a not in axes]
    for a in missing:
        x, axes = x[None, ...], a + axes
    order = lead + first + second
    x = x.permute([axes.index(a) for a in order])
    sizes = dict(zip(order, x.shape, strict=True))
    ends = [int(torch.Size([sizes[a] for a in part]).numel()) for part in (first, second)]
    return x.reshape(*(sizes[a] for a in lead), *ends)


def softmax_axis(x: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """Over which axis, from the end, a softmax of `x` runs."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if axis is None:
        axis = 0 if x.ndim in (0, 1, 3) else 1  # what torch takes where nothing is said
    return None if not isinstance(axis, int) or x.ndim == 0 else axis % x.ndim - x.ndim
