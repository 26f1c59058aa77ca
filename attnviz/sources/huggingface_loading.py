"""Models of transformers and their tokenizers, loaded from a folder or a gguf file; nothing is fetched."""

import importlib.util
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from logging import ERROR, getLogger
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers import modeling_gguf_pytorch_utils as _gguf_reading
from transformers.utils import logging as _logging
from transformers.utils.import_utils import is_kernels_available

from attnviz.backend import AUTO, BACKENDS, TORCH_NAME, Placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at
from attnviz.memory import check_room
from attnviz.sources.huggingface_attention import run_in_blocks
from attnviz.sources.huggingface_folder import checked_folder, weight_files
from attnviz.sources.registry import EXTRA, GGUF

logging: Any = _logging  # its functions have no types
gguf_reading: Any = _gguf_reading

_HEAD = re.compile(r"(^|\.)(pooler|lm_head|cls|classifier|score)(\.|$)")
"""Tensors that a checkpoint may lack: attention does not depend on them."""
_POOLER = re.compile(r"(^|\.)pooler(\.|$)")


class Loaded(NamedTuple):
    """A model and its tokenizer."""

    model: Any
    """On its device, in eval mode; its configuration does not ask for a cache."""
    tokenizer: Any
    writer: Any
    """The model around it that also tells which token comes next; None where it was not made by one."""
    lacking: tuple[str, ...]
    """The weights that the checkpoint does not have of what tells the next token; attention needs none of them."""


def load(path: Path, placing: Placing, *, allow_bin: bool = False) -> Loaded:
    """The model at `path` and its tokenizer, and what tells the next token where there is one: all loaded once.

    Args:
        path: a folder with a model in safetensors format, or a gguf file.
        placing: the device, or all that there are, and the dtype; unless that is given, it is the one in which the
            model was stored.
        allow_bin: where there is no file in safetensors format, read the .bin files: the weights, and nothing else.

    Raises:
        RequestError: there is no such folder or file, or it is no checkpoint.
        AttnvizError: the model or its tokenizer is missing, damaged, or asks for code that is not part of transformers.
    """
    place, spread = _checked(path, allow_bin=allow_bin), placing.device == AUTO
    if spread and importlib.util.find_spec("accelerate") is None:
        raise AttnvizError(f"--device {AUTO} is done by accelerate, which is not installed: {EXTRA}")
    with _loading(path):
        settings = AutoConfig.from_pretrained(**place)
        tokenizer = AutoTokenizer.from_pretrained(**place)
    kind = _writer(settings)
    with _loading(path):
        model, report = (kind or AutoModel).from_pretrained(
            **place,
            config=settings,
            dtype=getattr(torch, placing.runs(_own_dtype(settings))),
            attn_implementation=_implementation(settings),
            use_safetensors=path.is_file() or any(file.suffix == ".safetensors" for file in weight_files(path)),
            weights_only=True,
            device_map=AUTO if spread else None,
            output_loading_info=True,
        )
        run_in_blocks(model)
    missing = sorted(report["missing_keys"])
    refuse_incomplete(path, [name for name in missing if not _HEAD.search(name)])
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise AttnvizError(f"{path}: the tokenizer has no vocabulary: every word would be unknown")
    model.config.use_cache = False
    model = (model if spread else model.to(placing.device)).eval()
    lacking = tuple(name for name in missing if not _POOLER.search(name))
    return Loaded(model.base_model if kind else model, tokenizer, model if kind else None, lacking)


def refuse_incomplete(path: Path, missing: Sequence[str]) -> None:
    """See that no weights are missing.

    Raises:
        AttnvizError: some are.
    """
    if missing:
        raise AttnvizError(f"{path}: the weights are incomplete: no {', '.join(missing[:3])} ({len(missing)} missing)")


def _checked(path: Path, *, allow_bin: bool) -> dict[str, Any]:
    """Where the loaders of transformers find the model, when it is safe to let them."""
    safe = {"local_files_only": True, "trust_remote_code": False}
    if path.suffix.lower() != GGUF:
        checked_folder(path, transformers.CONFIG_MAPPING, allow_bin=allow_bin)
        return {"pretrained_model_name_or_path": path, **safe}
    if kind_at(path) != "file":
        raise RequestError(f"model file {path} does not exist, or is no file")
    missing = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
    if missing:
        raise AttnvizError(f"{path} is read by gguf and accelerate ({', '.join(missing)} missing): {EXTRA}")
    return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, **safe}


def _writer(settings: Any) -> Any:
    """The loader of models of this kind with what tells the next token; None where another kind made the checkpoint."""
    auto: Any = transformers
    kinds: tuple[tuple[Any, Any], ...] = (
        (auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.AutoModelForCausalLM),
        (auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, auto.AutoModelForImageTextToText),
    )
    if settings.is_encoder_decoder:
        kinds = ((auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, auto.AutoModelForSeq2SeqLM),)
    for mapping, loader in kinds:
        kind = mapping.get(type(settings), None)
        if kind is not None and (not settings.architectures or kind.__name__ in settings.architectures):
            return loader
    return None


def _own_dtype(settings: Any) -> str:
    """The dtype in which the model was stored, where its configuration says it."""
    dtype = getattr(settings.get_text_config(), "dtype", None) or getattr(settings, "dtype", None)
    name = str(dtype).removeprefix("torch.")
    return name if name in BACKENDS[TORCH_NAME] else "float32"


def _implementation(settings: Any) -> str:
    """The fused kernel, of which nothing of size n × n is kept, but where it leaves something out of the maths."""
    model: Any = transformers.MODEL_MAPPING.get(type(settings), None)
    fused = getattr(model, "_supports_sdpa", False)
    softcap = getattr(settings.get_text_config(), "attn_logit_softcapping", None)
    return "sdpa" if fused and softcap is None else "eager"


def check_squares(settings: Any, n_heads: int, n_tokens: int) -> None:
    """See that the memory holds what a model makes of one layer that keeps its weights; those of a fused kernel do not.

    At the softmax there are two arrays [head, query, key] of float32: the scores and the weights.

    Args:
        settings: the configuration of the model as it was loaded.
        n_heads: the heads of a layer.
        n_tokens: the length of the text.

    Raises:
        RequestError: they are more than the machine has.
    """
    if settings._attn_implementation == "eager":
        what = f"one layer of this model, which makes {n_heads} maps of {n_tokens} × {n_tokens},"
        check_room(2 * 4 * n_heads * n_tokens**2, what, "give it fewer tokens, half as many take a quarter")


@contextmanager
def _loading(path: Path) -> Iterator[None]:
    """Errors of transformers as ours; and no code that it would take from elsewhere."""
    try:
        with quiet(), _without_kernels():
            yield
    except Exception as error:  # (what transformers raises of a damaged folder is of any class)
        if "Safetensor" in type(error).__name__ or "safetensor" in str(error).lower():
            raise AttnvizError(f"{path}: the weight file is damaged or incomplete: {error}") from error
        if isinstance(error, UnpicklingError):
            said = "is damaged, or holds more than weights, none of which was run"
            raise AttnvizError(f"{path}: the weight file {said}") from error
        raise AttnvizError(f"{path} cannot be loaded: {error}") from error


@contextmanager
def _without_kernels() -> Iterator[None]:
    """As if the package kernels were not there, by which transformers takes compiled code from the Hub."""
    forget = getattr(is_kernels_available, "cache_clear", lambda: None)
    modules: dict[str, Any] = sys.modules
    there = {name: module for name, module in modules.items() if name == "kernels"}
    modules["kernels"] = None
    forget()
    try:
        yield
    finally:
        del modules["kernels"]
        modules |= there
        forget()


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings and no progress bars of transformers; the one for gguf files has no switch of its own."""
    bars, verbosity, bar = logging.is_progress_bar_enabled(), logging.get_verbosity(), gguf_reading.tqdm
    spreading = getLogger("accelerate")
    level = spreading.level
    logging.disable_progress_bar()
    gguf_reading.tqdm = partial(bar, disable=True)
    logging.set_verbosity_error()
    spreading.setLevel(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="torch._weights_only_unpickler")
            yield
    finally:
        gguf_reading.tqdm = bar
        spreading.setLevel(level)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
