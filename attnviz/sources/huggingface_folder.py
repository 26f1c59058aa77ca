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


def checked_folder(folder: Path, known: Container[str]) -> None:
    """See that nothing in a folder asks for code from elsewhere, and that it has what is needed.

    Args:
        folder: with a model.
        known: the types of models that can be run.

    Raises:
        RequestError: there is no such folder, or it is no checkpoint.
        AttnvizError: it has no weights in safetensors format, no tokenizer, or asks for code from elsewhere.
    """
    config = read_config(folder)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        own = "asks for its own Python code (auto_map), which is never run, and " if "auto_map" in config else ""
        raise AttnvizError(f"{folder} {own}is of model_type {kind!r}, which transformers does not support itself")
    for name, value in _settings(config):
        if name.endswith("attn_implementation") and "/" in str(value):
            raise AttnvizError(
                f"{folder}: config.json asks for an attention kernel from elsewhere ({name}: {value!r}):"
                " compiled code is never fetched"
            )
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
        other = f" ({', '.join(pickles[:3])}: a pickle can run code)" if pickles else ""
        raise AttnvizError(f"{folder} has no weights in safetensors format, the only one supported{other}")
    if not any(path for pattern in _TOKENIZERS for path in folder.glob(pattern)):
        raise AttnvizError(f"{folder} has no tokenizer: without it every word would be unknown")


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All settings, those of the parts of composite models too."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, dict):
            yield from _settings(value)


def weights_sha256(folder: Path) -> str:
    """The SHA-256 of the weight file; of several files, that of their hashes, in the order of their names."""
    hashes = []
    for path in sorted(folder.glob("*.safetensors")):
        if kind_at(path) != "file":
            raise AttnvizError(f"{path} is no file")
        with path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
