"""Any Hugging Face model in a folder: loaded by transformers, run by torch, its attention captured.

Nothing is fetched, no code that comes with a model is run, and weights are read in safetensors format only.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging as _logging

from attnviz._version import __version__
from attnviz.attention import EVERYTHING, Rule
from attnviz.backend import BACKENDS, NUMPY, TORCH_NAME, Placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionMap, Provenance
from attnviz.sources.huggingface_folder import checked_folder, weights_sha256
from attnviz.sources.model import checked_text
from attnviz.sources.pieces import reader, tokens_of
from attnviz.sources.pytorch import Seen, capture
from attnviz.tokens import Tokens

logging: Any = _logging  # its functions have no types

Part: TypeAlias = Literal["encoder", "decoder", "cross"]
"""The attention of what a model reads, of what it writes, and of what it writes on what it reads."""

_UNUSED = re.compile(r"(^|\.)(pooler|lm_head|cls|classifier|score)(\.|$)")
"""Tensors that a checkpoint may lack: attention does not depend on them."""

_LAYERS = "num_hidden_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"
_HEADS = "num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"


def open_huggingface(folder: Path, placing: Placing = NUMPY) -> "HuggingFace":
    """The model in `folder`, of any type that transformers knows itself.

    It runs on torch; of `placing`, the device and the dtype count. Unless a dtype is given, it is the one in which the
    model was stored.

    Raises:
        RequestError: there is no such folder, or it is no checkpoint.
        AttnvizError: the model or its tokenizer is missing, damaged, or asks for code that is not part of transformers.
    """
    checked_folder(folder, transformers.CONFIG_MAPPING)
    with _loading(folder):
        settings = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        dtype = placing.runs(_own_dtype(settings))
        model, report = AutoModel.from_pretrained(
            folder,
            config=settings,
            dtype=getattr(torch, dtype),
            attn_implementation=_implementation(settings),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    missing = sorted(name for name in report["missing_keys"] if not _UNUSED.search(name))
    if missing:
        raise AttnvizError(
            f"{folder}: the weights are incomplete: no {', '.join(missing[:3])} ({len(missing)} missing)"
        )
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise AttnvizError(f"{folder}: the tokenizer has no vocabulary: every word would be unknown")
    model.config.use_cache = False
    return HuggingFace(folder, model.to(placing.device).eval(), tokenizer)


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


@contextmanager
def _loading(folder: Path) -> Iterator[None]:
    """Errors of transformers as ours."""
    try:
        with _quiet():
            yield
    except Exception as error:  # (what transformers raises of a damaged folder is of any class)
        if "Safetensor" in type(error).__name__ or "safetensor" in str(error).lower():
            raise AttnvizError(f"{folder}: the weight file is damaged or incomplete: {error}") from error
        raise AttnvizError(f"{folder} cannot be loaded: {error}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings and no progress bars of transformers."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


class HuggingFace:
    """A model of transformers as a source of attention.

    Args:
        folder: where it was loaded from.
        model: on its device, in eval mode.
        tokenizer: its own.
    """

    gives_output = False

    def __init__(self, folder: Path, model: Any, tokenizer: Any) -> None:
        self.name = folder.resolve().name
        self._folder, self._model, self._tokenizer = folder, model, tokenizer
        self._settings = model.config.get_text_config()
        backend = getattr(tokenizer, "backend_tokenizer", None)
        unknown = tokenizer.unk_token
        self._read = reader(None if backend is None else backend.to_str(), unknown)

    @property
    def writes(self) -> bool:
        """Whether the model reads one text and writes another."""
        return bool(self._model.config.is_encoder_decoder)

    @property
    def n_layers(self) -> int:
        """How many layers there are, in the larger part of a model that has two; not all of them need attend."""
        return max(self._numbers(_LAYERS))

    @property
    def n_heads(self) -> int:
        """How many heads a layer has, in the part that has more of them."""
        return max(self._numbers(_HEADS))

    def _numbers(self, names: Sequence[str]) -> set[int]:
        """The numbers that the configuration has under these names."""
        found = {number for name in names if isinstance(number := getattr(self._settings, name, None), int)}
        if not found:
            raise AttnvizError(f"{self._folder}: its configuration does not say {names[0]}")
        return found

    @cached_property
    def provenance(self) -> Provenance:
        """The model, its hash, and where it runs."""
        return {
            "attnviz": __version__,
            "source": "huggingface",
            "model": self.name,
            "model_sha256": weights_sha256(self._folder),
            "backend": "torch",
            "device": str(self._model.device),
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def prepare(self, text: str, *, truncate: bool = False) -> "Run":
        """Tokens for `text`, special tokens added as the model was trained.

        Raises:
            RequestError: the text has no tokens, or too many; or the model writes a text and needs it too.
        """
        if self.writes:
            raise RequestError(f"{self.name} reads one text and writes another: give both")
        ids, tokens, notes = self._encoded(text, truncate=truncate)
        return Run(self, {"input_ids": ids}, tokens, tokens, notes, ("encoder", "decoder"))

    def prepare_cross(
        self, source: str, target: str, *, truncate: bool = False, parts: Sequence[Part] = ("cross",)
    ) -> "Run":
        """Tokens for what the model reads and for what it writes.

        Args:
            source: what it reads: the keys of cross-attention.
            target: what it writes, given to the decoder as it is: the queries.
            truncate: keep the first tokens of texts that are too long, instead of refusing them.
            parts: which attention to show.

        Raises:
            RequestError: a text has no tokens, or too many; or the model has no cross-attention.
        """
        if not self.writes:
            raise RequestError(f"{self.name} reads one text and has no cross-attention: give it one text")
        ids, keys, notes = self._encoded(source, truncate=truncate)
        written, queries, more = self._encoded(target, truncate=truncate)
        given = {"input_ids": ids, "decoder_input_ids": written}
        return Run(self, given, queries, keys, (*notes, *more), tuple(parts))

    def run(self, given: dict[str, torch.Tensor], layers: Collection[int]) -> Seen:
        """Run the model once and see the attention of these layers."""
        with torch.inference_mode(), capture(self._model, modules=self._modules(layers)) as seen:
            self._model(**given)
        return seen

    def _modules(self, layers: Collection[int]) -> list[str] | None:
        """The paths of these layers; None where the model has no list of them."""
        sizes = self._numbers(_LAYERS)
        lists = [
            (name, len(module)) for name, module in self._model.named_modules()
            if isinstance(module, torch.nn.ModuleList) and len(module) in sizes
        ]  # fmt: skip
        return [f"{name}.{layer}" for name, size in lists for layer in layers if layer < size] or None

    def _encoded(self, text: str, *, truncate: bool) -> tuple[torch.Tensor, Tokens, tuple[str, ...]]:
        """`text` as ids [1, token] and as tokens."""
        tokenizer, limit = self._tokenizer, self._limit
        told = {"return_special_tokens_mask": True, "return_offsets_mapping": tokenizer.is_fast}
        text = checked_text(text)
        with _quiet():  # it warns of a long text, which is refused below
            encoded = tokenizer(text, **told)
            whole = len(encoded["input_ids"])
            if truncate and limit is not None and whole > limit:
                encoded = tokenizer(text, truncation=True, max_length=limit, **told)
        ids, special = list(encoded["input_ids"]), [bool(flag) for flag in encoded["special_tokens_mask"]]
        if all(special):
            raise RequestError("the text is empty: it gives no tokens (special tokens alone are not shown)")
        if limit is not None and len(ids) > limit:
            raise RequestError(
                f"the text has {whole} tokens, special ones included, and the model takes at most {limit}: shorten it,"
                f" or keep the first {limit} with --truncate"
            )
        notes = (f"the text has {whole} tokens; only the first {limit} are used",) if len(ids) < whole else ()
        spans = [(first, last) for first, last in encoded["offset_mapping"]] if tokenizer.is_fast else None
        first = 1 if len(ids) > 1 and special[0] and ids[0] == ids[1] else 0  # the text began with it itself
        pieces = tokenizer.convert_ids_to_tokens(ids[first:])
        tokens = tokens_of(pieces, text, None if spans is None else spans[first:], special[first:], self._read)
        return torch.tensor([ids[first:]], device=self._model.device), tokens, notes

    @cached_property
    def _limit(self) -> int | None:
        """The most tokens that the model has positions for; None where it has no limit."""
        sizes = [getattr(self._settings, name, None) for name in ("max_position_embeddings", "n_positions")]
        limits = [size for size in sizes if isinstance(size, int) and size > 0]
        for name, module in self._model.named_modules():
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
                limits.append(module.num_embeddings - module.padding_idx - 1)  # RoBERTa begins to count after it
        return min(limits, default=None)


@dataclass(frozen=True)
class Run:
    """A text, or two, made ready for a model."""

    model: HuggingFace
    given: dict[str, torch.Tensor]
    tokens: Tokens
    key_tokens: Tokens
    notes: tuple[str, ...]
    parts: tuple[Part, ...]

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """Run the model; the maps of `layers`, in order. Layers without attention have none.

        Raises:
            RequestError: something is asked for that a model of transformers does not give.
            AttnvizError: no attention ran.
        """
        if rule != EVERYTHING or single or output:
            asked = "another mask" if rule != EVERYTHING else "the single head" if single else "the attention output"
            raise RequestError(f"{asked} is only for models that attnviz runs itself, not for {self.model.name}")
        keys = None if self.key_tokens is self.tokens else self.key_tokens
        record = self.model.run(self.given, layers).record(self.tokens, keys)
        for one in record.maps:
            part: Part = "cross" if one.kind == "cross" else one.stack
            if one.layer in layers and part in self.parts:
                yield one
