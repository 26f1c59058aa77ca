"""What torch's attention kernels were told, in one form whatever their signature."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional

from attnviz.sources.capture_calls import Computed, Recipe
from attnviz.sources.capture_flex import flexed
from attnviz.sources.capture_tags import Folded

Arguments = Mapping[str, Any]
_NAMES = "scaled_dot_product_attention", "attention_in_blocks"
"""torch's own function, and that of `huggingface_attention`."""
_PUBLIC = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


@dataclass(frozen=True)
class Kernel:
    """A kernel that ran."""

    recipe: Recipe
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor


def kernel_of(name: str, func: Any, args: Sequence[Any], kwargs: Arguments, out: Any) -> Kernel | None:
    """The attention kernel that this call is; None where it is another function."""
    if name == "flex_attention" and len(args) > 5:  # the operator, not the function around it
        return Kernel(flexed(args), args[0], args[1], args[2], out[0])
    if name in _NAMES:
        names: Iterable[str] = _PUBLIC
    elif name.startswith("_scaled_dot_product"):
        names = (one.name for one in func._schema.arguments)
    else:
        return None
    told = {**dict(zip(names, args, strict=False)), **kwargs}
    q, k, v = told["query"], told["key"], told["value"]
    out = out[0] if isinstance(out, tuple) else out
    mask, sink = told.get("attn_mask", told.get("attn_bias")), told.get("sink")
    shape = out.shape[:-1]
    recipe = Computed(
        q.detach() if q.shape[:-1] == shape else q.detach().expand(*shape, -1),  # one item may serve a batch of keys
        k.detach(),
        causal=bool(told.get("is_causal", False)),
        mask=None if mask is None else mask.detach(),
        scale=told.get("scale"),
        dropout=float(told.get("dropout_p", 0.0)),
        softcap=told.get("softcap"),
        sink=None if sink is None else sink.detach(),
    )
    return Kernel(recipe, q, k, v, out)


def _never(_: Any) -> bool:
    return False


_multi_head = functional.multi_head_attention_forward
_MULTI_HEAD_NAMES = _multi_head.__code__.co_varnames[: _multi_head.__code__.co_argcount]


def open_multi_head() -> Callable[..., Any]:
    """torch's own multi-head attention, which does not hand itself over whole to who watches, but runs in their sight.

    The code, and everything that it calls, is the same, and so is what it gives.
    """
    seeing = {**vars(functional), "has_torch_function": _never}
    return FunctionType(_multi_head.__code__, seeing, argdefs=_multi_head.__defaults__)


def is_multi_head(func: Any) -> bool:
    """Whether this is torch's own multi-head attention."""
    return func is _multi_head


def batch_and_heads(args: Sequence[Any], kwargs: Arguments) -> Folded:
    """The sizes that torch's own multi-head attention joins into one axis."""
    told = dict(zip(_MULTI_HEAD_NAMES, args, strict=False)) | dict(kwargs)
    query: torch.Tensor = told["query"]
    return Folded(query.shape[1] if query.ndim == 3 else 1, int(told["num_heads"]), sure=True)
