"""Trained encoders of the BERT kind, run by attnviz's own maths: no torch needed.

Source: Devlin et al. 2019, "BERT"; tensor names and settings as in the checkpoints that transformers writes.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnviz._version import __version__
from attnviz.activations import ACTIVATIONS
from attnviz.arrays import Array, Floats, like, namespace, quiet, to_numpy
from attnviz.attention import EVERYTHING, Rule, heads_message
from attnviz.backend import NUMPY, Placing
from attnviz.errors import AttnvizError
from attnviz.maps import AttentionMap, Provenance, Weights
from attnviz.sources.checkpoint import CONFIG, WEIGHTS, Checkpoint
from attnviz.sources.projected import Projected, dtype_name, head_names
from attnviz.sources.tokenizer import Encoded, encode, encode_windows, load_tokenizer, whole_words
from attnviz.tokens import Tokens

MAX_EPS = 1e6
"""More than this in a config is no epsilon but damage."""


@dataclass(frozen=True)
class Settings:
    """What of a checkpoint's config.json the maths depends on."""

    n_layers: int
    n_heads: int
    d_model: int
    d_inner: int
    """The width between the two matrices of the feed-forward part."""
    n_positions: int
    eps: float
    activation: Callable[[Array], Array]
    rule: Rule
    """Causal where BERT is used as a decoder."""


def read_settings(checkpoint: Checkpoint) -> Settings:
    """The settings of a BERT checkpoint.

    Raises:
        AttnvizError: something is missing, or asks for what BERT does not do.
    """
    config, path = checkpoint.config, checkpoint.folder / CONFIG
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "max_position_embeddings")
    for key in sizes:
        if type(config.get(key)) is not int or config[key] < 1:
            raise AttnvizError(f"{path}: {key} must be a whole number of at least 1, got {config.get(key)!r}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise AttnvizError(f"{path}: position_embedding_type {config['position_embedding_type']!r}: only 'absolute'")
    activation = config.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise AttnvizError(f"{path}: hidden_act {activation!r}: attnviz knows {', '.join(ACTIVATIONS)}")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise AttnvizError(f"{path}: {heads_message(config['hidden_size'], config['num_attention_heads'])}")
    eps = config.get("layer_norm_eps", 1e-12)
    if type(eps) not in (int, float) or not 0 < eps <= MAX_EPS:
        raise AttnvizError(f"{path}: layer_norm_eps must be a number above 0, got {eps!r}")
    return Settings(
        n_layers=config["num_hidden_layers"],
        n_heads=config["num_attention_heads"],
        d_model=config["hidden_size"],
        d_inner=config["intermediate_size"],
        n_positions=config["max_position_embeddings"],
        eps=eps,
        activation=ACTIVATIONS[activation],
        rule=Rule(causal=True) if config.get("is_decoder") is True else EVERYTHING,
    )


class Encoder:
    """A BERT checkpoint as a source of attention.

    Args:
        checkpoint: the folder.
        name: what to call the model.
        sha256: the hash of its weight file, if it is known already.
        placing: where the maths runs.

    Raises:
        AttnvizError: the folder is damaged, incomplete, or asks for what BERT does not do.
    """

    gives_output = False

    def __init__(self, checkpoint: Checkpoint, name: str, sha256: str | None = None, placing: Placing = NUMPY) -> None:
        self.name = name
        self._checkpoint = checkpoint
        self._sha256 = sha256
        self._place = placing
        self._settings = read_settings(checkpoint)
        self._tokenizer = load_tokenizer(checkpoint.folder)
        self._prefix = "bert." if "bert.embeddings.word_embeddings.weight" in checkpoint.names else ""
        self._check_layers()

    def _check_layers(self) -> None:
        pattern = re.compile(re.escape(self._prefix) + r"encoder\.layer\.(\d+)\.")
        there = {match[1] for match in map(pattern.match, self._checkpoint.names) if match}
        if len(there) < self.n_layers:
            raise AttnvizError(
                f"{self._checkpoint.folder / CONFIG}: num_hidden_layers is {self.n_layers}, but {WEIGHTS} holds"
                f" {len(there)} layers"
            )

    @property
    def n_layers(self) -> int:
        """How many layers have attention."""
        return self._settings.n_layers

    @property
    def attending(self) -> range:
        """All layers."""
        return range(self.n_layers)

    @property
    def n_heads(self) -> int:
        """How many heads a layer has."""
        return self._settings.n_heads

    @cached_property
    def provenance(self) -> Provenance:
        """The model, its hash, and where the maths runs."""
        return {
            "attnviz": __version__,
            "source": "encoder",
            "model": self.name,
            "model_sha256": self._sha256 or self._checkpoint.sha256,
            **self._place.provenance(),
        }

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The whole words of the vocabulary."""
        return whole_words(self._tokenizer.get_vocab(with_added_tokens=False))

    def prepare(self, text: str, *, truncate: bool = False) -> "EncoderRun":
        """Tokens for `text`, special tokens added as the model was trained.

        Raises:
            RequestError: the text has no tokens, or more than the model has positions.
        """
        return EncoderRun(self, encode(self._tokenizer, text, self._settings.n_positions, truncate=truncate))

    def prepare_pair(self, text: str, pair: str, *, truncate: bool = False) -> "EncoderRun":
        """Tokens for two texts that are read as a pair; errors as in `prepare`."""
        encoded = encode(self._tokenizer, text, self._settings.n_positions, pair=pair, truncate=truncate)
        return EncoderRun(self, encoded, {"pair": pair})

    def prepare_windows(self, text: str, stride: int) -> list["EncoderRun"]:
        """Windows of a text that is too long, which begin `stride` tokens apart; one that is not stays whole.

        Raises:
            RequestError: the text has no tokens, or the windows would leave some out.
        """
        windows = encode_windows(self._tokenizer, text, self._settings.n_positions, stride)
        return [EncoderRun(self, encoded, {} if one is None else one.provenance) for encoded, one in windows]

    def embed(self, encoded: Encoded) -> Array:
        """Word, position and type embeddings, added and normalised: [token, d_model].

        Only the rows of these tokens are read.
        """
        positions = range(len(encoded.ids))
        x = self._rows("word", "token", encoded.ids) + self._rows("position", "position", positions)
        x = self._place(x + self._rows("token_type", "type", encoded.types))
        with quiet(namespace(x)):
            return self._checked(self.norm(x, "embeddings.LayerNorm"), "embeddings.")

    def _rows(self, table: str, what: str, indices: Sequence[int]) -> Floats:
        """Rows of one of the embedding tables."""
        name = f"{self._prefix}embeddings.{table}_embeddings.weight"
        n_rows = self._settings.n_positions if table == "position" else (*self._checkpoint.shape(name), 0)[0]
        self._checkpoint.check(name, (n_rows, self._settings.d_model))
        if max(indices) >= n_rows:
            raise AttnvizError(
                f"{self._checkpoint.folder}: the tokenizer gives {what} {max(indices)}, but the model has embeddings"
                f" for {n_rows}: they do not belong together"
            )
        return self._checkpoint.rows(name, list(indices))

    def linear(self, x: Array, name: str, width: int | None = None) -> Array:
        """x Wᵀ + b, with the weight and bias of that name; `width` columns, d_model unless given."""
        full, width = self._prefix + name, width or self._settings.d_model
        self._checkpoint.check(f"{full}.weight", (width, x.shape[-1]))
        y = x @ self._place(self._checkpoint.lent(f"{full}.weight")).T
        y += self._vector(f"{full}.bias", width)
        return y

    def _vector(self, name: str, width: int) -> Array:
        self._checkpoint.check(name, (width,))
        return self._place(self._checkpoint.tensor(name))

    def norm(self, x: Array, name: str) -> Array:
        """Layer normalisation over the columns: (x − mean) / √(variance + eps) · weight + bias.

        Source: Ba, Kiros and Hinton 2016, "Layer Normalization". Older checkpoints call the weight
        gamma and the bias beta.
        """
        full = self._prefix + name
        parts = ("gamma", "beta") if f"{full}.gamma" in self._checkpoint.names else ("weight", "bias")
        weight, bias = (self._vector(f"{full}.{part}", self._settings.d_model) for part in parts)
        xp = namespace(x)
        half = xp.finfo(x.dtype).bits < 32  # its squares overflow at 256
        wide = xp.asarray(x, dtype=xp.float32) if half else x
        centred = wide - xp.mean(wide, axis=-1, keepdims=True)
        deviation = xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + self._settings.eps)
        return like(centred / deviation, x) * weight + bias

    def layers(
        self, encoded: Encoded, wanted: Collection[int], rule: Rule = EVERYTHING, *, single: bool, output: bool
    ) -> Iterator[AttentionMap]:
        """Run the layers up to the last one wanted, `rule` applied in each; the maps of those wanted."""
        rule = self._settings.rule.also(rule).placed(self._place)
        x, last = self.embed(encoded), max(wanted)
        for layer in range(last + 1):
            part = f"encoder.layer.{layer}"
            weights, attended = self._attention(x, part, rule, single=single, output=output or layer < last)
            if layer in wanted:
                yield AttentionMap(
                    f"{self._prefix}{part}.attention.self",
                    layer,
                    head_names(self._settings.n_heads, single=single),
                    weights,
                    encoded.tokens,
                    encoded.tokens,
                    output=to_numpy(attended) if output else None,
                )
            if layer < last:
                x = self._rest(x, attended, part)

    def _attention(
        self, x: Array, layer: str, rule: Rule, *, single: bool, output: bool
    ) -> tuple[Weights, Array | None]:
        """The weights of one layer, and where `output` asks for it the projected output [token, d_model]."""
        part = f"{layer}.attention.self"
        with quiet(namespace(x)):
            q, k = (self._checked(self.linear(x, f"{part}.{which}"), part) for which in ("query", "key"))
            projected = Projected(q, k, self.n_heads, rule)
            if projected.overflows():
                raise self._overflow(q, part)
            if not output:
                return projected.weights(single=single), None
            v = self._checked(self.linear(x, f"{part}.value"), part)
            weights, joined = projected.weights_and_output(v, single=single)
            dense = f"{layer}.attention.output.dense"
            return weights, self._checked(self.linear(joined, dense), dense)

    def _rest(self, x: Array, attended: Array, layer: str) -> Array:
        """What follows the attention in a layer: the feed-forward part, residuals and norms."""
        with quiet(namespace(x)):
            x = self.norm(attended + x, f"{layer}.attention.output.LayerNorm")
            hidden = self.linear(x, f"{layer}.intermediate.dense", self._settings.d_inner)
            hidden = self._settings.activation(hidden)
            x = self.norm(self.linear(hidden, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
            return self._checked(x, f"{layer}.")

    def _checked(self, x: Array, part: str) -> Array:
        """`x`, if all of it is finite; else the tensor to blame is looked for and named."""
        xp = namespace(x)
        if bool(xp.all(xp.isfinite(x))):
            return x
        for name in sorted(self._checkpoint.names):
            if name.startswith(self._prefix + part):
                bad = np.argwhere(~np.isfinite(to_numpy(self._checkpoint.tensor(name))))
                if len(bad):
                    place = ", ".join(str(int(i)) for i in bad[0])
                    raise AttnvizError(
                        f"{self._checkpoint.folder}: {name}[{place}] is not a finite number"
                        f" ({len(bad)} such value{'s' if len(bad) > 1 else ''} in this tensor)"
                    )
        raise self._overflow(x, part)

    def _overflow(self, x: Array, part: str) -> AttnvizError:
        dtype = dtype_name(x)
        why = "choose a wider --dtype" if dtype == "float16" else "the weights are damaged"
        return AttnvizError(f"{self._checkpoint.folder}: the numbers overflow {dtype} in {part}; {why}")


@dataclass(frozen=True)
class EncoderRun:
    """A text made ready for an encoder."""

    encoder: Encoder
    encoded: Encoded
    provenance: Provenance = field(default_factory=dict)
    """What was made of the text."""

    @property
    def tokens(self) -> Tokens:
        """The text's tokens, [CLS] and [SEP] among them."""
        return self.encoded.tokens

    @property
    def notes(self) -> tuple[str, ...]:
        """Which words the model does not know, and whether the text was cut."""
        return self.encoded.notes

    @property
    def key_tokens(self) -> Tokens:
        """The same tokens."""
        return self.encoded.tokens

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """Run the encoder up to the last of `layers`; their maps in order.

        The output is that of the layer's output projection, before the residual is added.
        """
        return self.encoder.layers(self.encoded, layers, rule, single=single, output=output)


BUNDLED = Path(__file__).parent.parent / "bundled"
MINILM_SHA256 = "eac79f871750eee91edb67fd3f8e1dd6450a9654149088bb73e5f9e4b4c6065a"
"""Of the bundled weight file, so that it need not be read whole to be named."""


def open_bundled(placing: Placing = NUMPY) -> Encoder:
    """The model that comes with attnviz: all-MiniLM-L6-v2, six layers of twelve heads."""
    return Encoder(Checkpoint(BUNDLED / "minilm", placing.reads), "minilm", MINILM_SHA256, placing)


def open_folder(folder: Path, placing: Placing = NUMPY, *, name: str | None = None) -> Encoder:
    """The BERT checkpoint in `folder`, called like the folder unless a name is given.

    Raises:
        RequestError: the folder does not exist or is no checkpoint.
        AttnvizError: it is of another kind, damaged or incomplete.
    """
    checkpoint = Checkpoint(folder, placing.reads)
    _refuse_others(checkpoint.config, folder)
    return Encoder(checkpoint, name or folder.resolve().name, placing=placing)


def _refuse_others(config: Any, folder: Path) -> None:
    if "auto_map" in config:
        raise AttnvizError(f"{folder} asks for its own Python code (auto_map): custom code is never run")
    if (kind := config.get("model_type")) != "bert":
        raise AttnvizError(
            f"{folder} is of model_type {kind!r}: attnviz itself runs 'bert';"
            " other types need the extra hf: pip install 'attnviz[hf]'"
        )
