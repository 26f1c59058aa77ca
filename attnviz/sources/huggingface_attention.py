"""Attention that caps its scores or has learned sinks, of which torch's fused kernel knows nothing: in blocks of rows.

A block is made by the model's own code, of some queries and of the keys that these may attend to.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

BLOCKED = "attnviz"
"""What transformers calls it."""
_OWN = "eager_attention_forward"
"""What each file of models in transformers calls its own attention, which makes all rows at once."""
_BYTES, _ROWS = 32 << 20, 256
"""What the scores of a block take at most, and its rows: the keys of grouped heads are repeated for each block."""

_Block = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Of queries, keys, values and what is added to the scores, the output [batch, head, row, d_value]."""


def run_in_blocks(model: Any) -> None:
    """Let a loaded model with capped scores or sinks attend in blocks of rows, if nothing else is special in it.

    What flash attention takes is queries, keys, a mask by place and padding, a scale, a cap and sinks, so that a model
    which it runs has attention of that form. Any other stays as it is.
    """
    special = [module for module in model.modules() if _capped_or_sunk(module)]
    known = all(hasattr(sys.modules[type(module).__module__], _OWN) for module in special)
    if special and known and model._supports_flash_attn:
        model.set_attn_implementation(BLOCKED)


def _capped_or_sunk(module: torch.nn.Module) -> bool:
    cap, sinks = getattr(module, "attn_logit_softcapping", None), getattr(module, "sinks", None)
    return isinstance(cap, int | float) or isinstance(sinks, torch.Tensor)


def attention_in_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> torch.Tensor:
    """Attention as a kernel, which whoever watches torch's functions sees as one; arguments are called as in torch's.

    Args:
        query: [batch, head, query, d_head].
        key, value: [batch, kv_head, key, d_head] and [.., d_value].
        attn_mask: [batch, 1, query, key], booleans, or floats that are added to the scores.
        dropout_p, is_causal: as in `torch.nn.functional.scaled_dot_product_attention`.
        more: `block`, which makes the output of some rows; and what it knows of them: `scale`, `softcap` and `sink`.

    Returns:
        [batch, head, query, d_value].
    """
    given = query, key, value
    if has_torch_function(given):
        told = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, **more}
        seen: torch.Tensor = handle_torch_function(attention_in_blocks, given, *given, **told)
        return seen
    block: _Block = more["block"]
    n_items, n_heads, n_queries, _ = query.shape
    n_keys = key.shape[2]
    size = max(1, min(_ROWS, _BYTES // (4 * max(1, n_items * n_heads * n_keys))))
    made = value.new_empty(n_items, n_queries, n_heads, value.shape[-1]).transpose(1, 2)  # as models go on with it
    for start in range(0, n_queries, size):
        rows = slice(start, min(start + size, n_queries))
        keys, mask = _part(attn_mask, is_causal, rows, n_keys, query)
        made[:, :, rows] = block(query[:, :, rows], key[:, :, keys], value[:, :, keys], mask)
    return made


def _part(
    mask: torch.Tensor | None, causal: bool, rows: slice, n_keys: int, like: torch.Tensor
) -> tuple[slice, torch.Tensor | None]:
    """The keys that matter to these rows, and what is added to their scores."""
    if mask is not None and mask.dtype != torch.bool:
        return slice(0, n_keys), mask[..., rows, :]
    if mask is not None:
        allowed = mask[..., rows, :]
    elif causal:
        places = torch.arange(n_keys, device=like.device)
        allowed = (places <= places[rows, None])[None, None]
    else:
        return slice(0, n_keys), None
    keys = slice(0, n_keys)
    if bool(allowed.any(-1).all()):  # rows that may attend to nothing would show which keys were left out
        there = allowed.flatten(0, -2).any(0).nonzero()
        keys = slice(int(there[0]), int(there[-1]) + 1)
    added = torch.zeros((), dtype=like.dtype, device=like.device)
    return keys, added.where(allowed[..., keys], torch.finfo(like.dtype).min)


def _forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **told: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls: [batch, query, head, d_value]; `_mask` made the mask."""
    softcap, sink = told.get("softcap"), told.get("s_aux")
    own: Any = getattr(sys.modules[type(module).__module__], _OWN, None)
    fits = query.shape[-1] == value.shape[-1]  # of other widths torch's kernel makes all rows at once
    if softcap is None and sink is None and (fits or own is None):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **told)

    def block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        out: torch.Tensor = own(module, q, k, v, mask, **told)[0]
        return out.transpose(1, 2)

    out = attention_in_blocks(
        query,
        key,
        value,
        attention_mask,
        told.get("dropout", 0.0),
        attention_mask is None and query.shape[2] > 1,
        block=block,
        scale=told.get("scaling"),
        softcap=softcap,
        sink=sink,
    )
    return out.transpose(1, 2).contiguous(), None


def _mask(**told: Any) -> torch.Tensor | None:
    """What transformers masks with: booleans [batch, 1, query, key], or None for causal and nothing else.

    To `sdpa` None is also everything, and it asks the module which of the two is meant; that of PaliGemma says the
    wrong one.
    """
    mask: torch.Tensor | None = sdpa_mask(**told)
    if mask is None and told.get("allow_is_bidirectional_skip"):
        everything = torch.ones((), dtype=torch.bool, device=told["device"])
        return everything.expand(told["batch_size"], 1, told["q_length"], told["kv_length"])  # of one element
    return mask


AttentionInterface.register(BLOCKED, _forward)
AttentionMaskInterface.register(BLOCKED, _mask)
