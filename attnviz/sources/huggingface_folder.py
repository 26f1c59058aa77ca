"""A folder with a Hugging Face model, looked at before anything in it is loaded: what is unsafe is refused."""

import hashlib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from attnviz.errors import AttnvizError
from attnviz.files import kind_at
from attnviz.sources.checkpoint import read_config

_TOKENIZERS = ("tokenizer*.json", "vocab*", "*.model", "*.tiktoken", "*.spm", "merges.txt", "tekken.json")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_BIN = "pytorch_model*.bin"
"""Weights as they were kept before safetensors; other pickles of a folder are of its training."""


def checked_folder(folder: Path, known: Container[str], *, allow_bin: bool = False) -> None:
    """See that nothing in a folder asks for code from elsewhere, and that it has what is needed.

    Args:
        folder: with a model.
        known: the types of models that can be run.
        allow_bin: weights in .bin files will do.

    Raises:
        RequestError: there is no such folder, or it is no checkpoint.
        AttnvizError: it has no weights in a format that is allowed, no tokenizer, or asks for code from elsewhere.
    """
    config = read_config(folder)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        own = "asks for its own Python code (auto_map), which is never run, and " if "auto_map" in config else ""
        raise AttnvizError(f"{folder} {own}is of model_type {kind!r}, which transformers does not support itself")
    refuse_unsafe(config, folder, allow_bin=allow_bin)
    if not any(path for pattern in _TOKENIZERS for path in folder.glob(pattern)):
        raise AttnvizError(f"{folder} has no tokenizer: without it every word would be unknown")


def refuse_unsafe(config: Mapping[str, Any], folder: Path, *, allow_bin: bool = False) -> None:
    """See that nothing compiled is asked for from elsewhere, and that weights are in a safe format.

    Raises:
        AttnvizError: they are not, or there are none.
    """
    for name, value in _settings(config):
        if name.endswith("attn_implementation") and "/" in str(value):
            raise AttnvizError(
                f"{folder}: config.json asks for an attention kernel from elsewhere ({name}: {value!r}):"
                " compiled code is never fetched"
            )
    if not weight_files(folder, allow_bin=allow_bin):
        pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
        other = f" ({', '.join(pickles[:3])}: a pickle can run code)" if pickles else ""
        how = f"; to read the weights in {_BIN}, and run nothing, add --allow-bin" if any(folder.glob(_BIN)) else ""
        raise AttnvizError(f"{folder} has no weights in safetensors format, the only one read unasked{other}{how}")


def weight_files(folder: Path, *, allow_bin: bool = True) -> list[Path]:
    """The files of weights in a folder: in safetensors format, and where there are none the .bin files."""
    safe = sorted(folder.glob("*.safetensors"))
    return safe or (sorted(folder.glob(_BIN)) if allow_bin else [])


_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers",
           "decoder_layers")  # fmt: skip
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads")


def sizes_of(config: Mapping[str, Any]) -> tuple[int, int]:
    """How many layers and heads a configuration speaks of, under the names that families have for them.

    Raises:
        AttnvizError: it speaks of none.

    >>> sizes_of({"n_layer": 3, "n_head": 4}), sizes_of({"text_config": {"num_layers": 2, "num_heads": 5}})
    ((3, 4), (2, 5))
    """
    text = config.get("text_config")
    own = text if isinstance(text, dict) else config
    layers, heads = ([own[name] for name in names if type(own.get(name)) is int] for names in (_LAYERS, _HEADS))
    if not layers or not heads:
        raise AttnvizError("the configuration does not say how many layers and heads there are")
    return max(layers), max(heads)


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All settings, those of the parts of composite models too."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, dict):
            yield from _settings(value)


def weights_sha256(folder: Path) -> str:
    """The SHA-256 of the weight file, which `folder` may be itself; of several that of their hashes, by name."""
    hashes = []
    for path in [folder] if folder.is_file() else weight_files(folder):
        if kind_at(path) != "file":
            raise AttnvizError(f"{path} is no file")
        with path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
