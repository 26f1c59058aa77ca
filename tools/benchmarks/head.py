"""What is done with one head of a long text: work for a process of its own."""

import numpy as np
import numpy.typing as npt

from attnviz.collect import HeatmapCollector, collect
from attnviz.lazy import function
from attnviz.maps import AttentionMap, ComputedWeights
from attnviz.tokens import Tokens
from tools.benchmarks.rows import Work

Floats = npt.NDArray[np.float32]


def inputs(n_tokens: int, d_head: int) -> tuple[Floats, Floats]:
    """Queries and keys [token, d_head], some of which are alike."""
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((n_tokens, d_head), dtype=np.float32) for _ in range(2))
    k[: n_tokens // 64] += q[: n_tokens // 64] * 0.3
    return q * np.float32(1.5), k


def pooled(n_tokens: int, d_head: int, n_tiles: int = 256) -> Work:
    """The pooled map of attnviz."""
    q, k = inputs(n_tokens, d_head)
    axis = Tokens.of(map(str, range(n_tokens)))
    one = AttentionMap("a", 0, (0,), ComputedWeights(q[None], k[None]), axis, axis)

    def run() -> float:
        collector = HeatmapCollector(n_tiles, n_tiles)
        collect([one], [collector])
        return float(collector.result()[0].values.max())

    return run


def fused(n_tokens: int, d_head: int) -> Work:
    """Attention's output by torch's fused kernel, without any map."""
    attend = function("torch.nn.functional:scaled_dot_product_attention")
    tensor = function("torch:from_numpy")
    q, k = (tensor(one)[None, None] for one in inputs(n_tokens, d_head))
    attend(q[:, :, :64], k[:, :, :64], k[:, :, :64])  # starts the threads

    def run() -> float:
        return float(attend(q, k, k).sum())

    return run
