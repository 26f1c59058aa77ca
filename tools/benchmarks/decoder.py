"""What is done with a decoder on a long text: work for a process of its own."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from attnviz.collect import HeatmapCollector, collect
from attnviz.measures.collector import MeasureCollector
from attnviz.pooling import tile_edges
from attnviz.sources.huggingface_loading import quiet
from attnviz.sources.registry import open_model
from tools.benchmarks.rows import Work
from tools.benchmarks.texts import excerpt

Array = npt.NDArray[np.float64]

SIX = ("entropy", "distance", "self", "previous", "first", "largest")
"""The measures that are taken; as in `MEASURES`."""
SHORT = "The cat"


def looked_at(folder: str, n_tokens: int, n_tiles: int = 256) -> Work:
    """Every head of the model, pooled and measured, by attnviz."""
    model = open_model(folder, {})
    prepared = model.prepare(excerpt(folder, n_tokens))
    for _ in model.prepare(SHORT).maps(model.attending):
        pass  # reads the model's numbers, which lie in a file until then

    def run() -> None:
        collectors = HeatmapCollector(n_tiles, n_tiles), MeasureCollector(SIX)
        collect(prepared.maps(model.attending), collectors)

    return run


def plain(folder: str, n_tokens: int) -> Work:
    """The fused forward pass of the same model, of which nothing is seen."""
    model = _load(folder, "sdpa")
    ids = _ids(folder, n_tokens)

    def run(some: torch.Tensor = ids) -> None:
        with torch.inference_mode():
            model(input_ids=some, use_cache=False)

    run(ids[:, :2])
    return run


def differences(folder: str, n_tokens: int, layer: int, n_tiles: int = 256) -> Work:
    """How far a layer's pooled map and measures are from those of its full matrix, as eager attention gives it.

    The full matrix is that of transformers, pooled and measured in float64. The result is the largest difference of a
    tile and, by measure, the largest over the larger of 1 and the measure.
    """
    model = open_model(folder, {})
    prepared = model.prepare(excerpt(folder, n_tokens))

    def run() -> dict[str, float]:
        heatmaps, measures = HeatmapCollector(n_tiles, n_tiles), MeasureCollector(SIX)
        collect(prepared.maps([layer]), [heatmaps, measures])
        weights = _eager(folder, n_tokens, layer)
        found = {"tiles": float(np.abs(heatmaps.result()[0].values - pooled(weights, n_tiles)).max())}
        values = measures.result()[0].values
        for name, expected in _measured(weights).items():
            off = np.abs(values[name][0] - expected) / np.maximum(1, expected)
            found[name] = float(off.max())
        return found

    return run


def _load(folder: str, implementation: str) -> Any:
    kind: Any = transformers.AutoModel
    with quiet():
        return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation=implementation).eval()


def _ids(folder: str, n_tokens: int) -> torch.Tensor:
    kind: Any = transformers.AutoTokenizer
    ids: torch.Tensor = kind.from_pretrained(folder)(excerpt(folder, n_tokens), return_tensors="pt")["input_ids"]
    return ids


class _Enough(Exception):  # noqa: N818 (no error: the layer has been seen)
    pass


def _eager(folder: str, n_tokens: int, layer: int) -> npt.NDArray[np.float32]:
    """[head, query, key] of one layer, by transformers; the layers after it are not run."""
    model = _load(folder, "eager")
    seen: list[npt.NDArray[np.float32]] = []

    def look(_module: object, _given: object, output: tuple[torch.Tensor, torch.Tensor]) -> None:
        seen.append(output[1][0].numpy())
        raise _Enough

    model.layers[layer].self_attn.register_forward_hook(look)
    try:
        with torch.inference_mode():
            model(input_ids=_ids(folder, n_tokens), use_cache=False)
    except _Enough:
        pass
    return seen[0]


def pooled(weights: npt.NDArray[np.float32], n_tiles: int) -> Array:
    """The mean of each tile [head, tile, tile]."""
    edges = tile_edges(weights.shape[1], n_tiles)
    sums = np.add.reduceat(np.add.reduceat(weights, edges[:-1], axis=2, dtype=np.float64), edges[:-1], axis=1)
    sizes = np.diff(edges)
    return np.asarray(sums / (sizes[:, None] * sizes))


def _measured(weights: npt.NDArray[np.float32]) -> dict[str, Array]:
    """[head] of each of the six."""
    rows = np.arange(weights.shape[1])
    heads = {name: np.empty(len(weights)) for name in SIX}
    for head, one in enumerate(weights.astype(np.float64)):
        of_weights = np.where(one > 0, one, 1)
        heads["entropy"][head] = -(one * np.log(of_weights)).sum(1).mean()
        heads["distance"][head] = (one * np.abs(rows[:, None] - rows)).sum() / one.sum()
        heads["self"][head] = one.diagonal().mean()
        heads["previous"][head] = one.diagonal(-1).mean()
        heads["first"][head] = one[1:, 0].mean()
        heads["largest"][head] = one.max(1).mean()
    return heads
