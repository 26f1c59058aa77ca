"""A real decoder on long texts: all heads pooled and measured beside the model alone, and drawn beside a sketch."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from attnviz.render import PICTURE_TILES
from tools.benchmarks.children import Budget, Task, children
from tools.benchmarks.rows import Figure, Row, Work, pair, process
from tools.benchmarks.start import ATTNVIZ
from tools.benchmarks.texts import ROOT, excerpt

MOST_DIFFERENCE = 1e-5
LAYER = 15
"""The layer that is compared with its full matrix: in the middle."""


def rows(checkpoint: Path, folder: Path) -> list[Row]:
    name = "SmolLM2-135M, {:,} tokens: 270 heads pooled to 256 × 256, six measures"
    against = "its fused forward pass"
    exact = Task("tools.benchmarks.decoder:differences", _sizes(checkpoint, 2048) | {"layer": LAYER})
    return [
        children(name.format(2048), against, _tasks(checkpoint, 2048), Budget(2, peak=1.3), rounds=5),
        Row(f"the same, layer {LAYER}", "its full matrix by transformers", lambda _: _exactness(exact)),
        children(name.format(8192), against, _tasks(checkpoint, 8192), Budget(2, peak_bytes=2e9), rounds=2),
        pair(
            "SmolLM2-135M, 4,096 tokens: 270 heads to PNG, as a process",
            "a pooled sketch by hand",
            partial(_drawn, checkpoint, folder, 4096),
            most=1.3,
            rounds=3,
        ),
    ]


def _sizes(checkpoint: Path, n_tokens: int) -> dict[str, str | int]:
    return {"folder": str(checkpoint), "n_tokens": n_tokens}


def _tasks(checkpoint: Path, n_tokens: int) -> tuple[Task, Task]:
    sizes = _sizes(checkpoint, n_tokens)
    return Task("tools.benchmarks.decoder:looked_at", sizes), Task("tools.benchmarks.decoder:plain", sizes)


def _exactness(task: Task) -> Iterator[Figure]:
    found: dict[str, float] = task.cost().result
    told = ", ".join(f"{name} {value:.0e}" for name, value in found.items())
    most = max(found.values())
    yield Figure(told, "", f"{most:.1e}", f"≤ {MOST_DIFFERENCE:g}", most <= MOST_DIFFERENCE)


def _drawn(checkpoint: Path, folder: Path, n_tokens: int) -> tuple[Work, Work]:
    text = folder / f"long-{n_tokens}.txt"
    text.write_text(excerpt(checkpoint, n_tokens), encoding="utf-8")
    ours = [*ATTNVIZ, "heads", "--model", str(checkpoint), "-f", str(text), "--layer", "all"]
    theirs = [sys.executable, "-m", "tools.benchmarks.pooled_sketch", str(checkpoint), str(text)]
    sketch = process(*theirs, str(folder / "sketch.png"), str(PICTURE_TILES), folder=ROOT)
    return process(*ours, "-o", str(folder / "long.png")), sketch
