"""Small random BERT checkpoints of distinct sizes, and what transformers makes of a checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

Tensors = dict[str, npt.NDArray[Any]]

VOCABULARY = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "un", "##want", "##able", "##s",
    "##ed", "dog", "bird", "fruit", "orange", "is", "my", "favorite", ".", ",", "!", "-", "'", "[", "]", "cls", "sep",
    "e", "##t", "##e", "café", "cafe", "文", "字", "😀", "a", "b",
)  # fmt: skip
"""41 pieces, special tokens first."""

CONFIG: Mapping[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": len(VOCABULARY),
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "hidden_size": 35,
    "intermediate_size": 48,
    "max_position_embeddings": 29,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
}
"""Distinct sizes on every axis."""


def random_tensors(config: Mapping[str, Any] = CONFIG, seed: int = 0) -> Tensors:
    """Float32 tensors under the names of a BertModel, large enough that attention is far from uniform."""
    rng = np.random.default_rng(seed)
    d, inner = config["hidden_size"], config["intermediate_size"]

    def normal(*shape: int, mean: float = 0.0, deviation: float = 0.3) -> npt.NDArray[np.float32]:
        return (mean + deviation * rng.standard_normal(shape)).astype(np.float32)

    def norm(name: str) -> Tensors:
        return {f"{name}.weight": normal(d, mean=1.0), f"{name}.bias": normal(d)}

    def linear(name: str, d_in: int, d_out: int) -> Tensors:
        return {f"{name}.weight": normal(d_out, d_in), f"{name}.bias": normal(d_out)}

    tensors = {
        "embeddings.word_embeddings.weight": normal(config["vocab_size"], d, deviation=1.0),
        "embeddings.position_embeddings.weight": normal(config["max_position_embeddings"], d),
        "embeddings.token_type_embeddings.weight": normal(config["type_vocab_size"], d),
        **norm("embeddings.LayerNorm"),
    }
    for layer in range(config["num_hidden_layers"]):
        part = f"encoder.layer.{layer}"
        for which in ("query", "key", "value"):
            tensors |= linear(f"{part}.attention.self.{which}", d, d)
        tensors |= linear(f"{part}.attention.output.dense", d, d) | norm(f"{part}.attention.output.LayerNorm")
        tensors |= linear(f"{part}.intermediate.dense", d, inner) | linear(f"{part}.output.dense", inner, d)
        tensors |= norm(f"{part}.output.LayerNorm")
    return tensors


def wordpiece() -> Tokenizer:
    """BERT's lower-casing tokenizer over `VOCABULARY`."""
    tokenizer = Tokenizer(WordPiece({piece: i for i, piece in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(list(VOCABULARY[:5]))
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def make_bert(
    folder: Path,
    tensors: Tensors | None = None,
    config: Mapping[str, Any] = CONFIG,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Write a checkpoint folder; tensors are random unless given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    save_file(random_tensors(config) if tensors is None else tensors, folder / "model.safetensors")
    (tokenizer or wordpiece()).save(str(folder / "tokenizer.json"))
    return folder


class Eager:
    """A BertModel of transformers in float32, as an independent answer.

    Args:
        source: a checkpoint folder, or a configuration and tensors under the names of a BertModel.
    """

    def __init__(self, source: Path | tuple[Mapping[str, Any], Tensors]) -> None:
        import torch
        from transformers import BertConfig, BertModel

        self._torch = torch
        kind: Any = BertModel
        if isinstance(source, Path):
            model = kind.from_pretrained(
                source, dtype=torch.float32, attn_implementation="eager", add_pooling_layer=False
            )
        else:
            config, tensors = source
            settings = BertConfig(**{**config, "attn_implementation": "eager"})
            model = kind(settings, add_pooling_layer=False)
            state = {name: torch.from_numpy(array.astype(np.float32)) for name, array in tensors.items()}
            model.load_state_dict(state)
        self._model = model.eval()

    def run(self, ids: tuple[int, ...]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Weights [layer, head, query, key], and what attention.output.dense gives [layer, query, d_model]."""
        outputs = []
        hooks = [
            layer.attention.output.dense.register_forward_hook(lambda _module, _args, out: outputs.append(out[0]))
            for layer in self._model.encoder.layer
        ]
        with self._torch.no_grad():
            result = self._model(self._torch.tensor([ids]), output_attentions=True)
        for hook in hooks:
            hook.remove()
        weights = np.stack([layer[0].numpy() for layer in result.attentions])
        return weights, np.stack([output.numpy() for output in outputs])
