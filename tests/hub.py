"""Folders with small models of many families, as transformers writes them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from tests.families import FAMILIES
from tests.models import wordpiece


def save_family(
    folder: Path, name: str, tokenizer: Tokenizer | None = None, dtype: torch.dtype = torch.float32
) -> Path:
    """Write a small model of a family, with a tokenizer."""
    from transformers.utils import logging

    bars: Any = logging
    bars.disable_progress_bar()
    FAMILIES[name].make("eager").to(dtype).save_pretrained(folder)
    bars.enable_progress_bar()
    save_tokenizer(folder, tokenizer or wordpiece())
    return folder


def save_tokenizer(folder: Path, tokenizer: Tokenizer, **settings: Any) -> None:
    """Write a tokenizer as transformers does."""
    from transformers import TokenizersBackend

    kind: Any = TokenizersBackend
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    kind(tokenizer_object=tokenizer, **{**special, **settings}).save_pretrained(folder)
