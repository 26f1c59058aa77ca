"""Whole runs on files: saved attention into pictures and text, and a picture for each of many lines."""

import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tools.benchmarks.pictures import synthetic
from tools.benchmarks.rows import Figure, Row, Work, pair, process, timed
from tools.benchmarks.start import ATTNVIZ

BATCH = 1000

PLAIN_PNG = """
import attnviz.cli.heads, numpy
from PIL import Image
weights = numpy.load({saved!r})
layers, heads, n, _ = weights.shape
canvas = numpy.minimum(weights * 256, 255).astype("u1").transpose(0, 2, 1, 3).reshape(layers * n, heads * n)
image = Image.fromarray(canvas)
image.putpalette(bytes(range(256)) * 3)
image.save({plain!r}, compress_level=1)
"""
"""The least that makes one palette image of a file, without a label, in a process that has the same imports."""


def rows(folder: Path) -> list[Row]:
    return [
        pair(
            "72 heads × 512 tokens, npy to PNG, as a process",
            "NumPy and Pillow",
            partial(_saved, folder),
            most=2,
            rounds=5,
        ),
        Row("memory for 144 heads × 512 tokens, npy to text", "the array", lambda _: _memory(folder)),
        Row(f"{BATCH} lines, a PNG each, one core", "", lambda _: _batch(folder)),
    ]


def _saved(folder: Path) -> tuple[Work, Work]:
    saved, drawn, plain = folder / "saved.npy", folder / "saved.png", folder / "plain.png"
    np.save(saved, synthetic(6, 12, 512))
    ours = process(*ATTNVIZ, "heads", "--attention", str(saved), "--layer", "all", "-o", str(drawn))
    script = folder / "plain.py"
    script.write_text(PLAIN_PNG.format(saved=str(saved), plain=str(plain)), encoding="utf-8")
    return ours, process(sys.executable, str(script))


def _memory(folder: Path) -> Iterator[Figure]:
    """What a saved array costs beyond what a small one does, for its size."""
    small, large = folder / "small.npy", folder / "large.npy"
    np.save(small, synthetic(1, 2, 4))
    array = synthetic(12, 12, 512)
    np.save(large, array)
    out = str(folder / "memory.txt")
    before, after = (
        peak(*ATTNVIZ, "heads", "--attention", str(one), "--layer", "all", "-o", out) for one in (small, large)
    )
    more = after - before
    ratio = more / array.nbytes
    yield Figure(f"{more / 1e6:.0f} MB more", f"{array.nbytes / 1e6:.0f} MB", f"{ratio:.2f} ×", "≤ 1.2 ×", ratio <= 1.2)


def peak(*command: str) -> int:
    """The most memory that a command held, in bytes: told by a small parent, whose own size counts for nothing."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    told = subprocess.run([sys.executable, "-c", program, *command], check=True, capture_output=True, text=True)
    return int(told.stdout) * (1 if sys.platform == "darwin" else 1024)


def _batch(folder: Path) -> Iterator[Figure]:
    lines = folder / "lines.txt"
    lines.write_text("".join(f"Sentence number {i} is my favorite fruit\n" for i in range(BATCH)), encoding="utf-8")
    command = ["taskset", "-c", "0"] if shutil.which("taskset") else []
    command += [*ATTNVIZ, "heads", "-", "-o", str(folder / "batch" / "{n}.png")]

    def run() -> None:
        with lines.open("rb") as stdin:
            subprocess.run(command, check=True, stdin=stdin)

    seconds = statistics.median(timed(run) for _ in range(3))
    rate = BATCH / seconds
    yield Figure(f"{seconds:.1f} s", "", f"{rate:.0f} a second", "≥ 20 a second", rate >= 20)
