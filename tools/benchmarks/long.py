"""One head of a long text: its pooled map beside torch's fused attention, and how its memory grows."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tools.benchmarks.children import Budget, Task, children
from tools.benchmarks.rows import Figure, Row

LENGTHS = tuple(2**i for i in range(10, 16))
MOST_EXPONENT = 1.1


def rows() -> list[Row]:
    sizes = {"n_tokens": 32768, "d_head": 64}
    name = "one head × 32,768 tokens, d_head 64, pooled to 256 × 256"
    sides = Task("tools.benchmarks.head:pooled", sizes), Task("tools.benchmarks.head:fused", sizes)
    return [
        children(name, "torch's fused attention", sides, Budget(1.3, extra_bytes=100 * 2**20), rounds=5),
        Row("memory of one pooled head, 1,024 to 32,768 tokens", "a straight line", _growth),
    ]


def _growth(_: int) -> Iterator[Figure]:
    tasks = [Task("tools.benchmarks.head:pooled", {"n_tokens": n, "d_head": 64}) for n in LENGTHS]
    extra = [task.cost().extra for task in tasks]
    slope, r_squared, exponent = fit(LENGTHS, extra)
    told = ", ".join(f"{size / 1e6:.1f}" for size in extra)
    yield Figure(
        f"{told} MB more",
        f"{slope:.0f} bytes a token, R² {r_squared:.3f}",
        f"n^{exponent:.2f}",
        f"≤ n^{MOST_EXPONENT:g}",
        exponent <= MOST_EXPONENT,
    )


def fit(lengths: Sequence[int], sizes: Sequence[int]) -> tuple[float, float, float]:
    """The slope of the best straight line, its R², and the exponent of the best power of the length."""
    slope, start = np.polyfit(lengths, sizes, 1)
    left = np.asarray(sizes) - (slope * np.asarray(lengths) + start)
    spread = float(np.var(sizes))
    exponent = np.polyfit([math.log(n) for n in lengths], [math.log(max(1, size)) for size in sizes], 1)[0]
    return float(slope), 1 - float(np.var(left)) / spread if spread else 1.0, float(exponent)
