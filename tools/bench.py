"""Measure attnviz against its budgets: python tools/bench.py [--rounds 15] [--only WORD]

Every figure is a ratio within one run on one machine: the two commands of a pair take turns, each as a whole
process, and the median of the pairwise ratios is printed with both medians. Absolute times say little, on a busy
machine nothing. The development set must be installed (torch, transformers and matplotlib are what some rows
compare with). The last row is to be measured with OPENBLAS_NUM_THREADS=1, which the command line sets for itself.
"""

import argparse
import io
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from attnviz.collect import HeatmapCollector, collect
from attnviz.maps import AttentionMap, StoredWeights
from attnviz.measures.collector import MeasureCollector
from attnviz.render.panels import Board, heads_board
from attnviz.render.png import png
from attnviz.sources.registry import open_model
from attnviz.tokens import Tokens

Weights = npt.NDArray[np.float32]
"""[layer, head, query, key]."""
ORANGE = "Orange is my favorite fruit"
BUNDLED = Path(__file__).parent.parent / "attnviz" / "bundled" / "minilm"
ATTNVIZ = [str(Path(sys.executable).parent / "attnviz")]
BATCH = 1000
FLOOR_IMPORTS = "import numpy, typer, rich.console, tokenizers, safetensors.numpy"

BY_HAND = f"""
import torch, matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from transformers import AutoModel, AutoTokenizer
folder = {str(BUNDLED)!r}
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
inputs = tokenizer({ORANGE!r}, return_tensors="pt")
with torch.no_grad():
    weights = model(**inputs, output_attentions=True).attentions[0][0]
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
figure, axes = plt.subplots(3, 4, figsize=(12, 9))
for head, ax in enumerate(axes.flat):
    ax.imshow(weights[head], vmin=0, vmax=1)
    ax.set_xticks(range(len(tokens)), tokens, rotation=90)
    ax.set_yticks(range(len(tokens)), tokens)
    ax.set_title(f"head {{head}}")
figure.savefig({{out!r}})
"""


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


@dataclass(frozen=True)
class Pair:
    """Two things to time in turns, and what their ratio may be."""

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    what: str
    most: float | None = None
    least: float | None = None
    rounds: int | None = None


def process(*command: str, env: dict[str, str] | None = None) -> Callable[[], object]:
    environment = {**os.environ, **(env or {})}

    def run() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    return run


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(pair: Pair, rounds: int) -> str:
    pair.ours()
    pair.theirs()  # warm caches
    times = [(timed(pair.ours), timed(pair.theirs)) for _ in range(pair.rounds or rounds)]
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(a / b for a, b in times)
    if pair.most is not None:
        verdict, value = f"≤ {pair.most:g} ×", f"{ratio:.2f} ×"
        kept = ratio <= pair.most
    else:
        verdict, value = f"≥ {pair.least:g} × faster", f"{1 / ratio:.1f} × faster"
        kept = 1 / ratio >= (pair.least or 0)
    mark = "yes" if kept else "NO"
    return f"| {pair.name} | {ours * 1e3:.1f} ms | {pair.what}: {theirs * 1e3:.1f} ms | {value} | {verdict} | {mark} |"


def command_pairs(folder: Path) -> list[Pair]:
    typer = process(sys.executable, "-c", "import typer")
    floor = process(sys.executable, "-c", FLOOR_IMPORTS)
    heads = process(*ATTNVIZ, "heads", ORANGE)
    script = folder / "by_hand.py"
    script.write_text(BY_HAND.replace("{out!r}", repr(str(folder / "by_hand.png"))), encoding="utf-8")
    by_hand = process(sys.executable, str(script), env={"HF_HUB_OFFLINE": "1"})
    return [
        Pair("`attnviz --help`", process(*ATTNVIZ, "--help"), typer, "`import typer`", most=1.5),
        Pair("`attnviz --version`", process(*ATTNVIZ, "--version"), typer, "`import typer`", most=1.5),
        Pair(f'`attnviz heads "{ORANGE}"`', heads, floor, "its imports alone", most=2),
        Pair("the same", heads, by_hand, "transformers + matplotlib by hand", least=10, rounds=5),
    ]


def picture_pairs() -> list[Pair]:
    pairs = []
    for layers, heads, n in ((1, 12, 7), (6, 12, 16)):
        weights, tokens = synthetic(layers, heads, n), [f"token{i}" for i in range(n)]
        name = f"{layers * heads} heads × {n} tokens to PNG"
        ours = partial(png, board_of(weights, tokens))
        pairs.append(Pair(name, ours, partial(composed, weights, tokens), "one palette image", most=2))
        pairs.append(Pair(name, ours, partial(axes, weights, tokens), "labelled axes", least=20, rounds=3))
    return pairs


def vector_pairs(folder: Path) -> list[Pair]:
    pairs = []
    for suffix in ("svg", "pdf"):
        drawn, empty = folder / f"heads.{suffix}", folder / f"empty.{suffix}"
        ours = process(*ATTNVIZ, "heads", ORANGE, "-o", str(drawn))
        program = f"import attnviz.cli.heads, matplotlib.figure as f; f.Figure().savefig({str(empty)!r})"
        theirs = process(sys.executable, "-c", program)
        pairs.append(Pair(f"12 heads to {suffix}, as a process", ours, theirs, "imports and an empty figure", most=2))
    return pairs


def file_pairs(folder: Path) -> list[Pair]:
    saved, drawn, plain = folder / "saved.npy", folder / "saved.png", folder / "plain.png"
    np.save(saved, synthetic(6, 12, 512))
    ours = process(*ATTNVIZ, "heads", "--attention", str(saved), "--layer", "all", "-o", str(drawn))
    script = folder / "plain.py"
    script.write_text(PLAIN_PNG.format(saved=str(saved), plain=str(plain)), encoding="utf-8")
    theirs = process(sys.executable, str(script))
    return [Pair("72 heads × 512 tokens, npy to PNG, as a process", ours, theirs, "NumPy and Pillow", most=2, rounds=5)]


def memory_row(folder: Path) -> str:
    """What a saved array costs beyond what a small one does, for its size."""
    small, large = folder / "small.npy", folder / "large.npy"
    np.save(small, synthetic(1, 2, 4))
    array = synthetic(12, 12, 512)
    np.save(large, array)
    out = str(folder / "memory.txt")
    before, after = (
        peak(*ATTNVIZ, "heads", "--attention", str(one), "--layer", "all", "-o", out) for one in (small, large)
    )
    ratio = (after - before) / array.nbytes
    what = (
        f"144 heads × 512 tokens, npy to text | {(after - before) / 1e6:.0f} MB more | its {array.nbytes / 1e6:.0f} MB"
    )
    return f"| memory for {what} | {ratio:.2f} × | ≤ 1.2 × | {'yes' if ratio <= 1.2 else 'NO'} |"


def peak(*command: str) -> int:
    """The most memory that a command held, in bytes: told by a small parent, whose own size counts for nothing."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    told = subprocess.run([sys.executable, "-c", program, *command], check=True, capture_output=True, text=True)
    return int(told.stdout) * (1 if sys.platform == "darwin" else 1024)


def batch_row(folder: Path) -> str:
    """A picture for each of many lines, on one core."""
    lines = folder / "lines.txt"
    lines.write_text("".join(f"Sentence number {i} is my favorite fruit\n" for i in range(BATCH)), encoding="utf-8")
    command = ["taskset", "-c", "0"] if shutil.which("taskset") else []
    command += [*ATTNVIZ, "heads", "-", "-o", str(folder / "batch" / "{n}.png")]

    def run() -> None:
        with lines.open("rb") as stdin:
            subprocess.run(command, check=True, stdin=stdin)

    rate = BATCH / statistics.median(timed(run) for _ in range(3))
    what = f"{BATCH} lines, a PNG each, one core | {BATCH / rate:.1f} s | "
    return f"| {what} | {rate:.0f} a second | ≥ 20 a second | {'yes' if rate >= 20 else 'NO'} |"


def measure_pairs() -> list[Pair]:
    model = open_model("minilm", {})
    prepared = model.prepare("the cat sat on the mat " * 85)

    def forward() -> None:
        for _ in prepared.maps(range(model.n_layers)):
            pass

    def measured() -> None:
        collect(prepared.maps(range(model.n_layers)), [MeasureCollector()])

    return [Pair(f"measuring 72 heads × {len(prepared.tokens)} tokens", measured, forward, "the model alone", most=1.5)]


def synthetic(layers: int, heads: int, n: int) -> Weights:
    scores = np.random.default_rng(0).normal(0, 2, (layers, heads, n, n)).astype(np.float32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Weights = weights / weights.sum(-1, keepdims=True)
    return result


def board_of(weights: Weights, tokens: list[str]) -> Board:
    collector, axis = HeatmapCollector(512, 512), Tokens.of(tokens)
    heads = tuple(range(weights.shape[1]))
    collect([AttentionMap("a", i, heads, StoredWeights(one), axis, axis) for i, one in enumerate(weights)], [collector])
    return heads_board(collector.result(), "benchmark")


def composed(weights: Weights, tokens: list[str]) -> bytes:
    """The least that shows every head with its title and tokens: one index array, labels drawn once, a palette."""
    layers, heads, n, _ = weights.shape
    scale, gap, side = max(1, 192 // n), 12, 48
    cell = n * scale
    width, height = heads * (cell + gap + side), layers * (cell + gap + side)
    canvas = np.full((height, width), 255, np.uint8)
    font = ImageFont.load_default(10)

    def label(text: str) -> npt.NDArray[np.uint8]:
        box = Image.new("L", (44, 12), 255)
        ImageDraw.Draw(box).text((0, 0), text, fill=0, font=font)
        return np.asarray(np.asarray(box) // 16 + 240, np.uint8)

    labels = [label(token) for token in tokens]
    for layer in range(layers):
        for head in range(heads):
            top, left = layer * (cell + gap + side) + side, head * (cell + gap + side) + side
            index = np.minimum(weights[layer, head] * 239, 238).astype(np.uint8)
            canvas[top : top + cell, left : left + cell] = index.repeat(scale, 0).repeat(scale, 1)
            canvas[top - 44 : top - 32, left : left + 44] = label(f"L{layer} H{head}")
            for i, one in enumerate(labels):
                y, x = top + i * scale, left + i * scale
                canvas[y : y + 12, left - 44 : left] = one
                canvas[top - 44 : top, x : x + 12] = one.T[::-1]
    image = Image.fromarray(canvas)
    image.putpalette(np.repeat(np.arange(256, dtype=np.uint8), 3).tobytes())
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def axes(weights: Weights, tokens: list[str]) -> None:
    """The way people draw it: one matplotlib axes a head, with its tokens."""
    layers, heads, n, _ = weights.shape
    figure = Figure(figsize=(2 * heads, 2 * layers))
    for i, ax in enumerate(figure.subplots(layers, heads, squeeze=False).flat):
        ax.imshow(weights[i // heads, i % heads], vmin=0, vmax=1)
        ax.set_xticks(range(n), tokens, rotation=90)
        ax.set_yticks(range(n), tokens)
        ax.set_title(f"head {i % heads}")
    figure.savefig(io.BytesIO())


def machine() -> str:
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "typer", "rich", "pillow", "matplotlib", "torch")
    )
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="rows whose name or comparison holds this word")
    chosen = parser.parse_args()
    print(f"{machine()}\n\n| what | attnviz | against | ratio | budget | kept |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = [*command_pairs(folder), *picture_pairs(), *vector_pairs(folder), *file_pairs(folder), *measure_pairs()]
        for pair in pairs:
            if chosen.only in pair.name + pair.what:
                print(measure(pair, chosen.rounds), flush=True)
        for what, row in {"memory for heads from npy": memory_row, "lines, a PNG each": batch_row}.items():
            if chosen.only in what:
                print(row(folder), flush=True)


if __name__ == "__main__":
    main()
