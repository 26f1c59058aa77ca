"""Weights of many heads at once, beside torch's own way and the matrix product that no way avoids."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from attnviz.maps import ComputedWeights
from tools.benchmarks.rows import Row, Work, fastest, pair

Floats = npt.NDArray[np.float32]


def rows() -> list[Row]:
    name = "weights of 12 heads × 2,048 tokens, d_head 32, one thread"
    sizes = 12, 2048, 32
    return [
        pair(name, "torch's softmax(QKᵀ), the best of its block sizes", partial(beside_torch, *sizes), most=1.4),
        pair(name, "the matrix product, written once", partial(beside_product, *sizes), most=2.4),
    ]


def inputs(n_heads: int, n_tokens: int, d_head: int) -> tuple[Floats, Floats]:
    """Queries and keys [head, token, d_head] whose weights are neither uniform nor a single one."""
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((n_heads, n_tokens, d_head), dtype=np.float32) for _ in range(2))
    return q * np.float32(1.5), k


def beside_torch(n_heads: int, n_tokens: int, d_head: int) -> tuple[Work, Work]:
    q, k = inputs(n_heads, n_tokens, d_head)
    sizes = sorted({min(n_tokens, n_rows) for n_rows in (64, 128, 256, 512)})
    return ours(q, k), fastest(by_torch(q, k, n_rows) for n_rows in sizes)


def beside_product(n_heads: int, n_tokens: int, d_head: int) -> tuple[Work, Work]:
    q, k = inputs(n_heads, n_tokens, d_head)
    return ours(q, k), product(q, k)


def ours(q: Floats, k: Floats) -> Work:
    """All rows by `ComputedWeights`, put into an array that is there."""
    computed = ComputedWeights(q, k)
    weights = np.zeros(computed.shape, np.float32)

    def run() -> Floats:
        computed.write(0, weights)
        return weights

    return run


def by_torch(q: Floats, k: Floats, n_rows: int) -> Work:
    """Head by head and block by block, with neither a copy nor new memory."""
    keys, queries = torch.from_numpy(k).mT, torch.from_numpy(q) * q.shape[2] ** -0.5
    weights = torch.zeros(len(q), q.shape[1], k.shape[1])

    def run() -> Floats:
        with one_thread():
            for head, of_head in enumerate(weights):
                for block, some in zip(of_head.split(n_rows), queries[head].split(n_rows), strict=True):
                    torch.mm(some, keys[head], out=block)
                    torch.softmax(block, 1, out=block)
        return weights.numpy()

    return run


def product(q: Floats, k: Floats) -> Work:
    """q kᵀ, written where it belongs."""
    queries, keys = q * np.float32(q.shape[2] ** -0.5), k.transpose(0, 2, 1)
    scores = np.zeros((len(q), q.shape[1], k.shape[1]), np.float32)
    return partial(np.matmul, queries, keys, out=scores)


@contextmanager
def one_thread() -> Iterator[None]:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
