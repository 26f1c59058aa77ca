"""Small modules that attend, each spelled in another way, and what their weights must be."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

BATCH, HEADS, QUERIES, KEYS, WIDTH, D_VALUE = 2, 3, 5, 7, 4, 6
"""Distinct sizes on every axis."""
D_MODEL, D_CONTEXT = 10, 11

Tensor = torch.Tensor
F = nn.functional
Style = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
STYLES: dict[str, Style] = {}
"""Attention of q, k [batch, head, token, 4] and v [batch, head, key, 6] where it is allowed [query, key]."""


def style(function: Style) -> Style:
    STYLES[function.__name__] = function
    return function


def scale(q: Tensor) -> float:
    return 1 / math.sqrt(q.shape[-1])


@style
def functional_softmax(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    return F.softmax((q @ k.transpose(-2, -1) * scale(q)).masked_fill(~allowed, -math.inf), dim=-1) @ v


@style
def torch_softmax_and_matmul(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = torch.matmul(q, k.mT).mul(scale(q)).masked_fill(allowed.logical_not(), -1e9)
    return torch.matmul(torch.softmax(scores, -1), v)


@style
def softmax_module(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    return torch.matmul(nn.Softmax(dim=-1)((q @ k.mT * scale(q)).masked_fill(~allowed, -math.inf)), v)


@style
def additive_mask(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    bias = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(q.dtype).min)
    return (q @ k.mT / math.sqrt(q.shape[-1]) + bias).softmax(-1) @ v


@style
def where_and_scaled_queries(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = (q * scale(q)).matmul(k.permute(0, 1, 3, 2))
    return torch.where(allowed, scores, torch.finfo(scores.dtype).min).softmax(dim=-1).matmul(v)


@style
def in_place(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    weights = q @ k.mT
    weights *= scale(q)
    weights.masked_fill_(~allowed, -math.inf)
    weights = weights.softmax(-1)
    return weights @ v


@style
def set_by_index(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = q @ k.mT * scale(q)
    scores[~allowed.expand_as(scores)] = -math.inf
    return scores.softmax(-1) @ v


@style
def einsum(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    energy = torch.einsum("nqhd,nkhd->nhqk", [q, k]).masked_fill(~allowed, float("-1e20"))
    return torch.einsum("nhql,nlhd->nqhd", [torch.softmax(energy * scale(q), dim=3), v]).transpose(1, 2)


@style
def einsum_with_heads_last(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = torch.einsum("bihd,bjhd->bijh", q, k) * scale(q)
    weights = scores.masked_fill(~allowed[:, :, None], -math.inf).softmax(2)
    return torch.einsum("bijh,bjhd->bhid", weights, v)


@style
def einsum_with_ellipsis(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = torch.einsum("...id,...jd->...ij", q, k).masked_fill(~allowed, -math.inf)
    return torch.einsum("...ij,...jd->...id", (scores * scale(q)).softmax(-1), v)


@style
def bmm(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    batch, heads, n, m = *q.shape[:3], k.shape[2]
    q, k, v = (x.reshape(batch * heads, *x.shape[2:]) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)) * scale(q)
    scores = (scores.view(batch, heads, n, m) + torch.where(allowed, 0.0, -1e9).to(q)).view(batch * heads, n, m)
    return torch.bmm(scores.softmax(dim=-1), v).view(batch, heads, n, -1)


@style
def bmm_heads_first(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    batch, heads = q.shape[:2]
    q, k, v = (torch.cat([x[:, h] for h in range(heads)]) for x in (q, k, v))
    weights = F.softmax((q.bmm(k.mT) * scale(q)).masked_fill(~allowed, -math.inf), -1)
    return torch.bmm(weights, v).view(heads, batch, *q.shape[1:2], -1).transpose(0, 1)


@style
def baddbmm(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    batch, heads, n, m = *q.shape[:3], k.shape[2]
    bias = torch.where(allowed, 0.0, -1e9).expand(batch * heads, n, m)
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    weights = F.softmax(torch.baddbmm(bias, q, k.mT, beta=1.0, alpha=scale(q)), -1, dtype=torch.float32)
    return (weights @ v).view(batch, heads, n, -1)


@style
def transposed_product(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    weights = (q @ k.mT * scale(q)).masked_fill(~allowed, -math.inf).softmax(-1)
    return (v.mT @ weights.mT).mT


@style
def keys_first(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    weights = (k @ q.mT * scale(q)).masked_fill(~allowed.mT, -math.inf).softmax(-2)
    return weights.mT @ v


@style
def by_hand(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    exponents = torch.exp(q @ k.mT * scale(q)) * allowed
    return exponents / exponents.sum(-1, keepdim=True) @ v


@style
def by_hand_with_maximum(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = (q @ k.mT * scale(q)).masked_fill(~allowed, -math.inf)
    exponents = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return torch.matmul(exponents.div(exponents.sum(dim=-1, keepdim=True)), v)


@style
def exponent_of_log_softmax(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = (q @ k.mT * scale(q)).masked_fill(~allowed, -math.inf)
    return F.log_softmax(scores, dim=-1).exp() @ v


@style
def sink_column(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = (q @ k.mT * scale(q)).masked_fill(~allowed, -math.inf)
    scores = torch.cat([scores, scores.new_full((*scores.shape[:-1], 1), -40.0)], dim=-1)
    return scores.softmax(-1)[..., :-1] @ v


@style
def loop_over_heads(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    heads = []
    for h in range(q.shape[1]):
        scores = (q[:, h] @ k[:, h].transpose(1, 2) * scale(q)).masked_fill(~allowed, -math.inf)
        heads.append(scores.softmax(-1) @ v[:, h])
    return torch.stack(heads, dim=1)


@style
def sdpa(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


@style
def sdpa_with_bias(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    bias = torch.where(allowed, 0.0, -math.inf)
    return F.scaled_dot_product_attention(q * 2, k, v, bias[None, None], scale=scale(q) / 2)


@style
def sdpa_of_joined_heads(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    out = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), attn_mask=allowed)
    return out.view(*q.shape[:3], -1)


class Attention(nn.Module):
    """Multi-head attention of x [2, 5, 10] on a context [2, 7, 11], in one of the styles."""

    def __init__(self, style: Style, allowed: Tensor | None = None) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.style = style
        self.to_q = nn.Linear(D_MODEL, HEADS * WIDTH)
        self.to_k = nn.Linear(D_CONTEXT, HEADS * WIDTH)
        self.to_v = nn.Linear(D_CONTEXT, HEADS * D_VALUE)
        self.to_out = nn.Linear(HEADS * D_VALUE, D_MODEL)
        rng = np.random.default_rng(5)
        some = rng.random((QUERIES, KEYS)) < 0.6
        some[:, 2] = True
        self.register_buffer("allowed", torch.from_numpy(some) if allowed is None else allowed)

    def heads(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = (one.view(*one.shape[:2], HEADS, -1).transpose(1, 2) for one in (q, k, v))
        return q, k, v

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        allowed: Any = self.allowed
        out = self.style(*self.heads(x, context), allowed)
        joined: Tensor = self.to_out(out.transpose(1, 2).flatten(2))
        return joined

    def expected(self, x: Tensor, context: Tensor) -> npt.NDArray[np.float64]:
        """Weights [batch, head, query, key], from float64 NumPy."""
        with torch.no_grad():
            q, k, _ = self.heads(x, context)
        allowed: Any = self.allowed
        return softmax_of(q.double().numpy(), k.double().numpy(), allowed.numpy())


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, QUERIES, D_MODEL, generator=generator)
    return x, torch.randn(BATCH, KEYS, D_CONTEXT, generator=generator)


def softmax_of(
    q: npt.NDArray[np.float64], k: npt.NDArray[np.float64], allowed: npt.NDArray[np.bool_] | bool = True
) -> npt.NDArray[np.float64]:
    """softmax(q kᵀ / √d) over what is allowed, written out; rows without anything are 0."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    exponents = np.where(allowed, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0.0)
    sums = exponents.sum(axis=-1, keepdims=True)
    return exponents / np.where(sums == 0, 1.0, sums)
