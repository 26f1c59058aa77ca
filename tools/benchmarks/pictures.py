"""Pictures of many heads, beside the least that shows them and beside what people draw by hand."""

import io
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont
from safetensors.numpy import load_file, save_file

from attnviz.collect import HeatmapCollector, collect
from attnviz.maps import AttentionMap, StoredWeights
from attnviz.render.panels import Board, heads_board
from attnviz.render.png import png
from attnviz.tokens import Tokens
from tools.benchmarks.rows import Row, Work, fastest, pair, process, within
from tools.benchmarks.start import ATTNVIZ, BUNDLED, ORANGE
from tools.benchmarks.texts import ROOT, excerpt

Weights = npt.NDArray[np.float32]
"""[layer, head, query, key]."""


def rows(folder: Path) -> list[Row]:
    return [
        *_rendered(1, 12, 7, most=2),
        *_rendered(6, 12, 16, most=2),
        _beside_one_image(6, 12, 128, most=3),
        within("576 heads × 16 tokens to PNG", partial(drawn, 24, 24, 16), seconds=0.5),
        *(_from_text(folder, n_tokens) for n_tokens in (128, 512)),
        *(_vector(folder, suffix) for suffix in ("svg", "pdf")),
    ]


def _rendered(layers: int, heads: int, n: int, most: float) -> list[Row]:
    name = f"{layers * heads} heads × {n} tokens to PNG"
    by_hand = pair(
        name, "labelled axes", lambda: (drawn(layers, heads, n), by_axes(layers, heads, n)), least=20, rounds=3
    )
    return [_beside_one_image(layers, heads, n, most), by_hand]


def _beside_one_image(layers: int, heads: int, n: int, most: float) -> Row:
    name = f"{layers * heads} heads × {n} tokens to PNG"
    return pair(name, "one palette image", lambda: (drawn(layers, heads, n), by_image(layers, heads, n)), most=most)


def _from_text(folder: Path, n_tokens: int) -> Row:
    """The bundled model and its picture as a process; the floor has the model in the numbers that it computes in,
    and one thread or all, whichever is faster."""

    def sides() -> tuple[Work, Work]:
        text, wide = folder / f"text-{n_tokens}.txt", folder / "minilm-float32"
        text.write_text(excerpt(BUNDLED, n_tokens), encoding="utf-8")
        widened(BUNDLED, wide)
        ours = process(*ATTNVIZ, "heads", "-f", str(text), "--layer", "all", "-o", str(folder / "heads.png"))
        floor = [sys.executable, "-m", "tools.benchmarks.floor", str(wide), str(text), str(folder / "floor.png")]
        threads = "OPENBLAS_NUM_THREADS"
        one, all_there = (process(*floor, env={threads: n}, folder=ROOT) for n in ("1", str(os.cpu_count())))
        return ours, fastest([one, all_there])

    return pair(f"72 heads × {n_tokens} tokens of a text to PNG, as a process", "the floor sketch", sides, most=2)


def widened(folder: Path, wide: Path) -> None:
    """A copy of a model with all its numbers in float32."""
    wide.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json"):
        (wide / name).write_bytes((folder / name).read_bytes())
    tensors = load_file(folder / "model.safetensors")
    save_file({name: array.astype(np.float32) for name, array in tensors.items()}, wide / "model.safetensors")


def _vector(folder: Path, suffix: str) -> Row:
    drawn, empty = folder / f"heads.{suffix}", folder / f"empty.{suffix}"
    program = f"import attnviz.cli.heads, matplotlib.figure as f; f.Figure().savefig({str(empty)!r})"
    ours = process(*ATTNVIZ, "heads", ORANGE, "-o", str(drawn))
    theirs = process(sys.executable, "-c", program)
    name = f"12 heads to {suffix}, as a process"
    return pair(name, "imports and an empty figure", lambda: (ours, theirs), most=2)


def synthetic(layers: int, heads: int, n: int) -> Weights:
    scores = np.random.default_rng(0).normal(0, 2, (layers, heads, n, n)).astype(np.float32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Weights = weights / weights.sum(-1, keepdims=True)
    return result


def drawn(layers: int, heads: int, n: int) -> Work:
    """The picture of attnviz."""
    return partial(png, board_of(synthetic(layers, heads, n), labels(n)))


def by_image(layers: int, heads: int, n: int) -> Work:
    """The least that shows the same."""
    return partial(composed, synthetic(layers, heads, n), labels(n))


def by_axes(layers: int, heads: int, n: int) -> Work:
    """The way people draw it."""
    return partial(axes, synthetic(layers, heads, n), labels(n))


def labels(n: int) -> list[str]:
    return [f"token{i}" for i in range(n)]


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
