"""The least that draws every head of a BERT on a text: python -m tools.benchmarks.floor FOLDER TEXTFILE PICTURE

NumPy, tokenizers, safetensors and Pillow, one palette picture with a title to each head. It checks nothing, so that it
shows what a product can come near.
"""

import argparse
import json
from collections.abc import Callable
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from safetensors import safe_open
from tokenizers import Tokenizer

Floats = npt.NDArray[np.float32]
Get = Callable[[str], Floats]
COLORS, GREYS, GAP, TITLE = 239, 16, 12, 16


def weights_of(folder: Path, text: str) -> Floats:
    """[layer, head, query, key], by plain NumPy."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = tokenizer.encode(text).ids
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    with safe_open(folder / "model.safetensors", "np") as file:
        get: Get = file.get_tensor
        maps = np.empty((layers, heads, len(ids), len(ids)), np.float32)
        rows = file.get_slice("embeddings.word_embeddings.weight")
        x = np.concatenate([rows[i : i + 1] for i in ids]) + get("embeddings.position_embeddings.weight")[: len(ids)]
        x = _norm(x + get("embeddings.token_type_embeddings.weight")[0], get, "embeddings.LayerNorm")
        for layer, one in enumerate(maps):
            x = _layer(x, get, f"encoder.layer.{layer}.", one, last=layer + 1 == layers)
    return maps


def _layer(x: Floats, get: Get, at: str, weights: Floats, *, last: bool) -> Floats:
    heads, n, _ = weights.shape
    q, k, v = (
        _linear(x, get, f"{at}attention.self.{name}").reshape(n, heads, -1).transpose(1, 0, 2)
        for name in ("query", "key", "value")
    )
    np.matmul(q * np.float32(1 / sqrt(q.shape[2])), k.transpose(0, 2, 1), out=weights)
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    if last:
        return x
    mixed = (weights @ v).transpose(1, 0, 2).reshape(n, -1)
    x = _norm(_linear(mixed, get, f"{at}attention.output.dense") + x, get, f"{at}attention.output.LayerNorm")
    y = _linear(x, get, f"{at}intermediate.dense")
    y = _linear(0.5 * y * (1 + _erf(y / np.float32(sqrt(2)))), get, f"{at}output.dense")
    return _norm(y + x, get, f"{at}output.LayerNorm")


def _linear(x: Floats, get: Get, name: str) -> Floats:
    return np.asarray(x @ get(f"{name}.weight").T + get(f"{name}.bias"))


def _norm(x: Floats, get: Get, name: str) -> Floats:
    x = x - x.mean(-1, keepdims=True)
    x /= np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-12))
    return np.asarray(x * get(f"{name}.weight") + get(f"{name}.bias"))


def _erf(x: Floats) -> Floats:
    """Abramowitz and Stegun 7.1.26: within 1.5e-7."""
    size = np.abs(x)
    t = 1 / (1 + 0.3275911 * size)
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return np.asarray(np.sign(x) * (1 - series * np.exp(-size * size)))


def picture(maps: Floats, scale: int | None = None) -> Image.Image:
    """Every map [layer, head, row, column] of values in 0..1 with its title, in one palette picture."""
    layers, heads, n, _ = maps.shape
    scale = scale or max(1, 192 // n)
    cell, step = n * scale, n * scale + GAP
    canvas = np.full((layers * (step + TITLE) + GAP, heads * step + GAP), COLORS + GREYS, np.uint8)
    font = ImageFont.load_default(10)
    for layer in range(layers):
        for head in range(heads):
            top, left = GAP + TITLE + layer * (step + TITLE), GAP + head * step
            shown = np.minimum(maps[layer, head] * COLORS, COLORS - 1).astype(np.uint8)
            canvas[top : top + cell, left : left + cell] = shown.repeat(scale, 0).repeat(scale, 1)
            box = Image.new("L", (60, 13), 255)
            ImageDraw.Draw(box).text((0, 0), f"L{layer} H{head}", fill=0, font=font)
            title = canvas[top - TITLE + 1 : top - TITLE + 14, left : left + 60]
            title[:] = ((np.asarray(box) >> 4) + np.uint8(COLORS + 1))[:, : title.shape[1]]
    image = Image.fromarray(canvas)
    image.putpalette(_palette())
    return image


def _palette() -> bytes:
    """A ramp like viridis, one colour that is not used, and greys for smooth letters."""
    stops = ((68, 59, 33, 94, 253), (1, 82, 145, 201, 231), (84, 139, 140, 98, 37))
    at = np.linspace(0, 1, COLORS)
    ramp = np.stack([np.interp(at, np.linspace(0, 1, 5), channel) for channel in stops], axis=1)
    greys = np.arange(GREYS)[:, None].repeat(3, axis=1) * 17
    return np.concatenate([ramp, ramp[-1:], greys]).astype(np.uint8).tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("picture", type=Path)
    chosen = parser.parse_args()
    maps = weights_of(chosen.folder, chosen.text.read_text("utf-8"))
    picture(maps).save(chosen.picture, compress_level=1)


if __name__ == "__main__":
    main()
