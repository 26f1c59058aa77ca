"""Fetching a model from the Hugging Face Hub into the local cache, where that is asked for."""

from pathlib import Path

from huggingface_hub import snapshot_download

from attnviz.errors import AttnvizError

_WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""Weights in a safe format, configurations and tokenizers; no code and no pickles."""
_BIN = "pytorch_model*.bin"


def fetch(name: str, *, allow_bin: bool = False) -> None:
    """Fetch what attnviz reads of the model `name`, with progress on standard error where that is a terminal.

    Args:
        name: of a model on the Hub.
        allow_bin: fetch its .bin files where it has no weights in a safe format.

    Raises:
        AttnvizError: it cannot be fetched.
    """
    try:
        folder = snapshot_download(name, allow_patterns=list(_WANTED))
        if allow_bin and not any(Path(folder).glob("*.safetensors")):
            snapshot_download(name, allow_patterns=[_BIN])
    except Exception as error:  # (of the network, the Hub, and the disk, each with classes of its own)
        first, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise AttnvizError(f"{name} cannot be fetched: {first}") from error
