"""Fetching a model from the Hugging Face Hub into the local cache, where that is asked for."""

from huggingface_hub import snapshot_download

from attnviz.errors import AttnvizError

_WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""Weights in a safe format, configurations and tokenizers; no code and no pickles."""


def fetch(name: str) -> None:
    """Fetch what attnviz reads of the model `name`, with progress on standard error where that is a terminal.

    Raises:
        AttnvizError: it cannot be fetched.
    """
    try:
        snapshot_download(name, allow_patterns=list(_WANTED))
    except Exception as error:  # (of the network, the Hub, and the disk, each with classes of its own)
        first, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise AttnvizError(f"{name} cannot be fetched: {first}") from error
