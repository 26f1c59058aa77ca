"""Any Hugging Face model: loaded by transformers, run by torch, its attention captured.

Nothing is fetched, no code that comes with a model is run, and weights are read in safetensors or gguf format; in
.bin files only where that is allowed.
"""

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from attnviz._version import __version__
from attnviz.attention import EVERYTHING, Rule
from attnviz.backend import NUMPY, Placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionMap, Provenance
from attnviz.sources.capture_stream import streamed
from attnviz.sources.encoder import BUNDLED
from attnviz.sources.huggingface_folder import weights_sha256
from attnviz.sources.huggingface_loading import check_squares, load, quiet, refuse_incomplete
from attnviz.sources.huggingface_text import Text, Texts
from attnviz.sources.model import Part
from attnviz.sources.parts import PARTS
from attnviz.sources.registry import GGUF
from attnviz.sources.tokenizer import whole_words
from attnviz.tokens import Tokens, visible

_LAYERS = "num_hidden_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"
_HEADS = "num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"


def open_huggingface(
    path: Path, placing: Placing = NUMPY, *, name: str | None = None, allow_bin: bool = False
) -> "HuggingFace":
    """The model in a folder or a gguf file, of any type that transformers knows itself.

    It runs on torch; of `placing`, the device and the dtype count. Unless a dtype is given, it is the one in which the
    model was stored. It is called like the folder unless a name is given. With `allow_bin` its weights may be in .bin
    files, of which nothing but the weights is read.

    Raises:
        RequestError: there is no such folder, or it is no checkpoint.
        AttnvizError: the model or its tokenizer is missing, damaged, or asks for code that is not part of transformers.
    """
    return HuggingFace(path, placing, name or path.resolve().name.removesuffix(GGUF), allow_bin=allow_bin)


def open_bundled(placing: Placing = NUMPY) -> "HuggingFace":
    """The model that comes with attnviz, captured."""
    return HuggingFace(BUNDLED / "minilm", placing, "minilm")


class HuggingFace:
    """A model of transformers as a source of attention; arguments as in `open_huggingface`."""

    gives_output = False

    def __init__(self, path: Path, placing: Placing, name: str, *, allow_bin: bool = False) -> None:
        self.name = name
        self._path = path
        self._loaded = load(path, placing, allow_bin=allow_bin)
        self._model = self._loaded.model
        self._settings = self._model.config.get_text_config()
        self._texts = Texts(self._loaded.tokenizer, self._limit, in_windows=not self.writes)

    @property
    def writes(self) -> bool:
        """Whether the model reads one text and writes another."""
        return bool(self._model.config.is_encoder_decoder)

    @cached_property
    def _decodes(self) -> bool:
        """Whether the model is a decoder alone, whose tokens do not see those after them."""
        if self.writes:
            return False
        causal = {getattr(module, "is_causal", None) for module in self._model.modules()}
        if causal & {True, False}:
            return True in causal
        kind = type(self._settings)  # of a family whose modules do not say it
        return kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING and kind not in transformers.MODEL_FOR_MASKED_LM_MAPPING

    @property
    def n_layers(self) -> int:
        """How many layers there are, in the larger part of a model that has two; not all of them need attend."""
        return max(self._numbers(_LAYERS))

    @property
    def attending(self) -> tuple[int, ...]:
        """The layers that have attention, as the configuration of a hybrid lists them; all where it lists nothing."""
        kinds = (getattr(self._settings, name, None) for name in ("layers_block_type", "layer_types"))
        listed = next((kind for kind in kinds if isinstance(kind, list | tuple)), ())
        layers = [i for i, kind in enumerate(listed) if "attention" in str(kind) and "linear" not in str(kind)]
        return tuple(layers or range(self.n_layers))

    @property
    def parts(self) -> Mapping[Part, Sequence[int]]:
        """The layers of each part that the model has."""
        if not self.writes:
            return {"decoder" if self._decodes else "encoder": self.attending}
        sizes = {part: size for path, size in self._lists() for part in path.split(".") if part in PARTS}
        read, written = (range(sizes.get(part, self.n_layers)) for part in ("encoder", "decoder"))
        return {"encoder": read, "decoder": written, "cross": written}

    @property
    def n_heads(self) -> int:
        """How many heads a layer has, in the part that has more of them."""
        return max(self._numbers(_HEADS))

    def _numbers(self, names: Sequence[str]) -> set[int]:
        """The numbers that the configuration has under these names, and that of its encoder where that has its own."""
        both = (self._settings, getattr(self._model.config, "encoder", None))
        found = {number for one in both for name in names if isinstance(number := getattr(one, name, None), int)}
        if not found:
            raise AttnvizError(
                f"{self._path}: its configuration does not say {names[0]}: models without attention have none to show"
            )
        return found

    @cached_property
    def provenance(self) -> Provenance:
        """The model, its hash, and where it runs."""
        return {
            "attnviz": __version__,
            "source": "huggingface",
            "model": self.name,
            "model_sha256": weights_sha256(self._path),
            "backend": "torch",
            "device": ", ".join(self._devices),
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    @property
    def _devices(self) -> list[str]:
        """The devices that hold the model."""
        spread = getattr(self._loaded.writer or self._model, "hf_device_map", None) or {"": self._model.device}
        names = (f"cuda:{one}" if isinstance(one, int) else str(one) for one in spread.values())
        return list(dict.fromkeys(names))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The whole words of the vocabulary."""
        return whole_words(self._texts.vocabulary())

    def prepare(self, text: str, *, truncate: bool = False) -> "Run":
        """Tokens for `text`, special tokens added as the model was trained.

        Raises:
            RequestError: the text has no tokens, or too many; or the model writes a text and needs it too.
        """
        self._check_reads_one()
        return Run.of(self, self._texts.ready(text, truncate=truncate))

    def prepare_pair(self, text: str, pair: str, *, truncate: bool = False) -> "Run":
        """Tokens for two texts that the model reads as a pair; errors as in `prepare`."""
        self._check_reads_one()
        return Run.of(self, self._texts.ready(text, pair, truncate=truncate), pair=pair)

    def prepare_windows(self, text: str, stride: int) -> list["Run"]:
        """Windows of a text that is too long, which begin `stride` tokens apart; one that is not stays whole.

        Raises:
            RequestError: the text has no tokens, the windows would leave some out, the model takes texts of any length,
                or writes a text and needs it too.
        """
        self._check_reads_one()
        windows = self._texts.windows(text, stride)
        return [Run(self, read, None, read.notes, {} if one is None else one.provenance) for read, one in windows]

    def prepare_chat(self, text: str, *, truncate: bool = False) -> "Run":
        """Tokens for `text` as a user's turn, in the model's chat template.

        Raises:
            RequestError: the model has no chat template, or takes fewer tokens.
        """
        self._check_reads_one()
        whole = self._texts.chat(text)
        return Run.of(self, self._texts.ready(whole, truncate=truncate, is_whole=True), chat=True, prompt=whole)

    def _check_reads_one(self) -> None:
        if self.writes:
            raise RequestError(
                f"{self.name} reads one text and writes another: give both, with --target TEXT or with attnviz cross,"
                " or let it write with --generate N"
            )

    def prepare_both(self, source: str, target: str, *, truncate: bool = False) -> "Run":
        """Tokens for what the model reads and for what it writes, and attention in both parts and between them.

        Args:
            source: what it reads: the keys of cross-attention.
            target: what it writes, given to the decoder as it is: the queries.
            truncate: keep the first tokens of texts that are too long, instead of refusing them.

        Raises:
            RequestError: a text has no tokens, or too many; or the model has no cross-attention.
        """
        if not self.writes:
            raise RequestError(f"{self.name} reads one text and has no cross-attention: give it one text")
        read, written = (self._texts.ready(text, truncate=truncate) for text in (source, target))
        return Run(self, read, written, (*read.notes, *written.notes))

    def prepare_written(self, text: str, n_tokens: int, *, chat: bool = False, truncate: bool = False) -> "Run":
        """Tokens for `text` and for what the model writes after it, or of it, always the likeliest token next.

        Args:
            text: what the model reads.
            n_tokens: the most tokens to be written; the model may end before.
            chat: put the text into the chat template first.
            truncate: keep the first tokens of a text that is too long, instead of refusing it.

        Raises:
            RequestError: the text has no tokens, or too many; or the model does not write.
            AttnvizError: the part of the model that writes is missing.
        """
        prompt = self._texts.chat(text) if chat else text
        read = self._texts.ready(prompt, truncate=truncate, is_whole=chat)
        self._texts.check_length(len(read.ids) * (not self.writes) + n_tokens)
        ids = self._write(read, n_tokens)
        said: dict[str, Any] = {"generate": n_tokens, **({"chat": True, "prompt": prompt} if chat else {})}
        if self.writes:
            written = self._texts.written(ids)
            begun = replace(written.tokens, generated=(False,) + (True,) * (len(ids) - 1))
            written = replace(written, tokens=begun)
            notes = (*read.notes, _written_note(written, 0, n_tokens))
            return Run(self, read, written, notes, {**said, "generated": written.whole})
        written = self._texts.written(ids)
        whole = self._texts.continued(read, ids)
        notes = (*read.notes, _written_note(written, len(read.ids), n_tokens))
        said |= {"generated": written.whole, "n_prompt_tokens": len(read.ids)}
        return Run(self, whole, None, notes, said)

    def _write(self, text: Text, n_tokens: int) -> tuple[int, ...]:
        """The ids that the model writes; of a model of two parts with the one that it begins with."""
        writer = self._writer
        ids = torch.tensor([text.ids], device=self._model.device)
        cached = not self.writes  # the cache of T5 has no room for more layers that write than layers that read
        try:
            with torch.inference_mode(), quiet():
                written = writer.generate(
                    input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_tokens, do_sample=False,
                    num_beams=1, num_return_sequences=1, return_dict_in_generate=False, use_cache=cached,
                )[0].tolist()  # fmt: skip
        except Exception as error:  # (of what a model's own preferences for writing ask for)
            raise AttnvizError(f"{self.name} cannot go on with the text: {error}") from error
        return tuple(written if self.writes else written[len(text.ids) :])

    @property
    def _writer(self) -> Any:
        """The model with the part that writes.

        Raises:
            RequestError: there is none.
            AttnvizError: its weights are missing.
        """
        if self._loaded.writer is None:
            kind = " or ".join(self._model.config.architectures or []) or self._model.config.model_type
            raise RequestError(f"{self.name} ({kind}) does not tell which token comes next: leave out --generate")
        refuse_incomplete(self._path, self._loaded.lacking)
        return self._loaded.writer

    def maps(
        self, read: Text, written: Text | None, layers: Collection[int], notes: list[str]
    ) -> Iterator[AttentionMap]:
        """Run the model once, up to the last of these layers: their maps while it runs.

        Args:
            read, written: what the model reads, and in a model of two parts what it writes.
            layers: which layers, counted from 0.
            notes: what is to be said of attention that was left out is added to them.

        Raises:
            AttnvizError: no attention ran, or none could be verified.
            RequestError: the model keeps n × n weights, which are more than the machine's memory.
        """
        check_squares(self._model.config, self.n_heads, max(len(one.ids) for one in (read, written) if one is not None))
        given = self._given(read, written)

        def run() -> None:
            with torch.inference_mode():
                self._model(**given)

        tokens, keys = (read.tokens, None) if written is None else (written.tokens, read.tokens)
        return streamed(self._model, run, tokens, keys, layers=layers, modules=self._modules(layers), notes=notes)

    def placed(self, one: AttentionMap) -> AttentionMap:
        """A map that was captured, in the stack that it is of: paths alone do not tell decoders."""
        return replace(one, stack="decoder") if self._decodes else one

    def _given(self, read: Text, written: Text | None) -> dict[str, torch.Tensor]:
        """Texts as the model takes them."""
        given = {"input_ids": read.ids}
        if any(read.types) and "token_type_ids" in inspect.signature(self._model.forward).parameters:
            given["token_type_ids"] = read.types
        if written is not None:
            given["decoder_input_ids"] = written.ids
        return {name: torch.tensor([ids], device=self._model.device) for name, ids in given.items()}

    def _modules(self, layers: Collection[int]) -> list[str] | None:
        """The paths of these layers; None where the model has no list of them."""
        return [f"{path}.{layer}" for path, size in self._lists() for layer in layers if layer < size] or None

    def _lists(self) -> list[tuple[str, int]]:
        """The path of each list of layers, and how many it has."""
        sizes = self._numbers(_LAYERS)
        modules = self._model.named_modules()
        lists = ((path, len(module)) for path, module in modules if isinstance(module, torch.nn.ModuleList))
        return [(path, size) for path, size in lists if size in sizes]

    @cached_property
    def _limit(self) -> int | None:
        """The most tokens that the model has positions for; None where it has no limit."""
        sizes = [getattr(self._settings, name, None) for name in ("max_position_embeddings", "n_positions")]
        limits = [size for size in sizes if isinstance(size, int) and size > 0]
        for name, module in self._model.named_modules():
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
                limits.append(module.num_embeddings - module.padding_idx - 1)  # RoBERTa begins to count after it
        return min(limits, default=None)


def _written_note(written: Text, first: int, n_asked: int) -> str:
    """Which tokens the model wrote."""
    n_tokens = len(written.ids)
    where = f"token {first} was" if n_tokens == 1 else f"tokens {first} to {first + n_tokens - 1} were"
    before = f"tokens 0 to {first - 1} are the prompt; " if first else ""
    ended = "; the model ended there" if n_tokens < n_asked else ""
    return f"{before}{where} generated: {visible(written.whole)}{ended}"


@dataclass(frozen=True)
class Run:
    """A text, or two, made ready for a model."""

    model: HuggingFace
    read: Text
    """What the model reads."""
    written: Text | None
    """What it writes, in a model of two parts."""
    told: tuple[str, ...]
    """What there is to know of the texts."""
    provenance: Provenance = field(default_factory=dict)
    """What was made of the text."""
    said: list[str] = field(default_factory=list, compare=False)
    """What there is to know of the attention that was captured last."""

    @classmethod
    def of(cls, model: HuggingFace, text: Text, **said: str | bool) -> "Run":
        """A text for a model of one part."""
        return cls(model, text, None, text.notes, said)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know; once the maps have been seen, also of attention that was left out."""
        return (*self.told, *self.said)

    @property
    def tokens(self) -> Tokens:
        """The tokens that attend: of two texts, those written."""
        return (self.read if self.written is None else self.written).tokens

    @property
    def key_tokens(self) -> Tokens:
        """The tokens read."""
        return self.read.tokens

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """Run the model; the maps of `layers`, in the order in which they attend. Layers without attention have none.

        Raises:
            RequestError: something is asked for that a model of transformers does not give.
            AttnvizError: no attention ran.
        """
        for asked, what in (
            (rule != EVERYTHING, "--causal, --window or --mask"), (single, "--single"), (output, "--with-output"),
        ):  # fmt: skip
            if asked:
                raise RequestError(
                    f"{what} is only for models that attnviz runs itself, not for {self.model.name}: leave it out"
                )
        self.said.clear()
        maps = self.model.maps(self.read, self.written, layers, self.said)
        yield from map(self.model.placed, maps)
