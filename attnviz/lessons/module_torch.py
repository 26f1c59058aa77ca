"""What torch's own module makes of the same matrices."""

import torch

from attnviz.arrays import Array
from attnviz.attention import Projections


def torch_attention(x: Array, projections: Projections, n_heads: int) -> tuple[Array, Array]:
    """Causal self-attention by the function that `torch.nn.MultiheadAttention` runs.

    Args:
        x: [token, d_model], of torch.
        projections: on the same device; every matrix [d_model, d_model].
        n_heads: must divide d_model.

    Returns:
        Weights [head, query, key] and output [query, d_model].
    """
    p = projections
    n_tokens, d_model = x.shape
    none = torch.zeros(d_model, dtype=x.dtype, device=x.device)
    row = x[:, None]
    with torch.inference_mode():
        output, weights = torch.nn.functional.multi_head_attention_forward(
            query=row,
            key=row,
            value=row,
            embed_dim_to_check=d_model,
            num_heads=n_heads,
            in_proj_weight=torch.cat([w.mT for w in (p.w_q, p.w_k, p.w_v)]),
            in_proj_bias=torch.cat([none if b is None else b for b in (p.b_q, p.b_k, p.b_v)]),
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=torch.eye(d_model, dtype=x.dtype, device=x.device) if p.w_o is None else p.w_o.mT,
            out_proj_bias=p.b_o,
            training=False,
            attn_mask=torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=x.device).triu(1),
            average_attn_weights=False,
        )
    assert weights is not None  # noqa: S101 (they were asked for)
    return weights[0], output[:, 0]
