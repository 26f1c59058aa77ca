"""Every head of a long text in one picture: python -m tools.benchmarks.pooled_sketch FOLDER TEXTFILE PICTURE TILES

By hand: an attention function for transformers that leaves the output to torch's fused kernel and makes the pooled map
from blocks of rows; then one palette picture. It is for causal models with grouped queries, and checks nothing.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from tools.benchmarks.floor import Floats, picture

ROWS_AT_ONCE = 64


def pooled(q: torch.Tensor, k: torch.Tensor, scale: float, n_tiles: int) -> torch.Tensor:
    """The mean of each tile [head, tile, tile] of causal attention.

    Args:
        q: [head, token, d_head].
        k: [kv_head, token, d_head].
        scale: of the scores.
        n_tiles: the most tiles a side.
    """
    heads, n, d = q.shape
    groups = k.shape[0]
    size = -(-n // n_tiles)
    n_tiles, at_once = -(-n // size), -(-ROWS_AT_ONCE // size)
    step = size * at_once
    tiles, keys = torch.zeros(heads, n_tiles, n_tiles), k.mT
    queries = pad(q * scale, (0, 0, 0, -n % step)).view(groups, heads // groups, -1, d)
    future = torch.ones(step, step, dtype=torch.bool).triu(1)
    for first in range(0, n, step):
        last = min(first + step, n)
        block = queries[:, :, first : first + step].reshape(groups, -1, d) @ keys[:, :, :last]
        weights = block.view(heads, step, last)
        weights[:, :, first:].masked_fill_(future[:, : last - first], float("-inf"))
        torch.softmax(weights, -1, out=weights)
        weights[:, last - first :] = 0
        rows = pad(weights, (0, -last % size)).view(heads, at_once, size, -1).sum(2)
        sums = rows.view(heads, at_once, -1, size).sum(3)
        at = first // size
        tiles[:, at : at + at_once, : sums.shape[2]] = sums[:, : n_tiles - at]
    sizes = torch.full((n_tiles,), float(size))
    sizes[-1] = n - size * (n_tiles - 1)
    return tiles / (sizes[:, None] * sizes)


def maps_of(folder: Path, text: str, n_tiles: int) -> Floats:
    """[layer, head, tile, tile] of every layer."""
    found: list[torch.Tensor] = []

    def attend(
        module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _mask: object, scaling: float, **_: object
    ) -> tuple[torch.Tensor, None]:
        found.append(pooled(q[0], k[0], scaling, n_tiles))
        output = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=True)
        return output.transpose(1, 2), None

    transformers.AttentionInterface.register("pooled", attend)
    transformers.AttentionMaskInterface.register("pooled", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model: Any = transformers.AutoModel
    tokenizer: Any = transformers.AutoTokenizer
    model = model.from_pretrained(folder, dtype=torch.float32, attn_implementation="pooled").eval()
    with torch.inference_mode():
        model(**tokenizer.from_pretrained(folder)(text, return_tensors="pt"), use_cache=False)
    return torch.stack(found).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("tiles", type=int)
    chosen = parser.parse_args()
    maps = maps_of(chosen.folder, chosen.text.read_text("utf-8"), chosen.tiles)
    shown = np.sqrt(maps / maps.max())  # most tiles are far below the largest
    picture(shown, scale=1).save(chosen.picture, compress_level=1)
    os._exit(0)  # all is written


if __name__ == "__main__":
    main()
