"""Trained encoders of the BERT kind, run by attnviz's own maths: no torch needed.

Source: Devlin et al. 2019, "BERT"; tensor names and settings as in the checkpoints that transformers writes.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnviz._version import __version__
from attnviz.activations import ACTIVATIONS
from attnviz.arrays import Array, namespace, to_numpy
from attnviz.attention import EVERYTHING, Rule, heads_message
from attnviz.errors import AttnvizError
from attnviz.maps import AttentionMap, Provenance
from attnviz.sources.checkpoint import CONFIG, Checkpoint
from attnviz.sources.projected import Place, Projected, head_names
from attnviz.sources.tokenizer import Encoded, encode, load_tokenizer
from attnviz.tokens import Tokens


@dataclass(frozen=True)
class Settings:
    """What of a checkpoint's config.json the maths depends on."""

    n_layers: int
    n_heads: int
    d_model: int
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
    required = {
        "num_hidden_layers": int, "num_attention_heads": int, "hidden_size": int, "max_position_embeddings": int
    }  # fmt: skip
    for key, kind in required.items():
        if not isinstance(config.get(key), kind) or config[key] < 1:
            raise AttnvizError(f"{path}: {key} must be a whole number of at least 1, got {config.get(key)!r}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise AttnvizError(f"{path}: position_embedding_type {config['position_embedding_type']!r}: only 'absolute'")
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise AttnvizError(f"{path}: hidden_act {activation!r}: attnviz knows {', '.join(ACTIVATIONS)}")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise AttnvizError(f"{path}: {heads_message(config['hidden_size'], config['num_attention_heads'])}")
    return Settings(
        n_layers=config["num_hidden_layers"],
        n_heads=config["num_attention_heads"],
        d_model=config["hidden_size"],
        n_positions=config["max_position_embeddings"],
        eps=float(config.get("layer_norm_eps", 1e-12)),
        activation=ACTIVATIONS[activation],
        rule=Rule(causal=True) if config.get("is_decoder") else EVERYTHING,
    )


class Encoder:
    """A BERT checkpoint as a source of attention.

    Args:
        checkpoint: the folder.
        name: what to call the model.
        sha256: the hash of its weight file, if it is known already.
        place: puts arrays where the maths is to run; NumPy unless given.

    Raises:
        AttnvizError: the folder is damaged, incomplete, or asks for what BERT does not do.
    """

    def __init__(self, checkpoint: Checkpoint, name: str, sha256: str | None = None, place: Place = np.asarray) -> None:
        self.name = name
        self._checkpoint = checkpoint
        self._sha256 = sha256
        self._place = place
        self._settings = read_settings(checkpoint)
        self._tokenizer = load_tokenizer(checkpoint.folder)
        self._prefix = "bert." if "bert.embeddings.word_embeddings.weight" in checkpoint.names else ""

    @property
    def n_layers(self) -> int:
        """How many layers have attention."""
        return self._settings.n_layers

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
            "backend": "numpy",
            "device": "cpu",
            "dtype": "float32",
        }

    def prepare(self, text: str, *, truncate: bool = False) -> "EncoderRun":
        """Tokens for `text`, special tokens added as the model was trained.

        Raises:
            RequestError: the text has no tokens, or more than the model has positions.
        """
        return EncoderRun(self, encode(self._tokenizer, text, self._settings.n_positions, truncate=truncate))

    def embed(self, encoded: Encoded) -> Array:
        """Word, position and type embeddings, added and normalised: [token, d_model].

        Only the rows of these tokens are read.
        """
        words, positions, types = (
            f"{self._prefix}embeddings.{part}_embeddings.weight" for part in ("word", "position", "token_type")
        )
        n_words, n = self._checkpoint.shape(words)[0], len(encoded.ids)
        if max(encoded.ids) >= n_words:
            raise AttnvizError(
                f"{self._checkpoint.folder}: the tokenizer gives token {max(encoded.ids)}, but the model has embeddings"
                f" for {n_words}: they do not belong together"
            )
        rows = self._checkpoint.rows
        x = rows(words, list(encoded.ids)) + rows(positions, list(range(n))) + rows(types, list(encoded.types))
        return self._checked(self.norm(self._place(x), "embeddings.LayerNorm"), "embeddings.")

    def linear(self, x: Array, name: str) -> Array:
        """x Wᵀ + b, with the weight and bias of that name."""
        full = self._prefix + name
        y = x @ self._place(self._checkpoint.lent(f"{full}.weight")).T
        y += self._place(self._checkpoint.tensor(f"{full}.bias"))
        return y

    def norm(self, x: Array, name: str) -> Array:
        """Layer normalisation over the columns: (x − mean) / √(variance + eps) · weight + bias.

        Source: Ba, Kiros and Hinton 2016, "Layer Normalization". Older checkpoints call the weight
        gamma and the bias beta.
        """
        full = self._prefix + name
        old = f"{full}.gamma" in self._checkpoint.names
        weight, bias = (
            self._place(self._checkpoint.tensor(f"{full}.{part}"))
            for part in (("gamma", "beta") if old else ("weight", "bias"))
        )
        xp = namespace(x)
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        deviation = xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + self._settings.eps)
        return centred / deviation * weight + bias

    def layers(
        self, encoded: Encoded, wanted: Collection[int], *, single: bool, output: bool
    ) -> Iterator[AttentionMap]:
        """Run the layers up to the last one wanted; the maps of those wanted."""
        x, last = self.embed(encoded), max(wanted)
        for layer in range(last + 1):
            part = f"encoder.layer.{layer}.attention.self"
            q, k = (self._checked(self.linear(x, f"{part}.{which}"), part) for which in ("query", "key"))
            projected = Projected(q, k, self._settings.n_heads, self._settings.rule)
            attended = None
            if layer == last and not output:
                weights = projected.weights(single=single)
            else:
                v = self._checked(self.linear(x, f"{part}.value"), part)
                weights, joined = projected.weights_and_output(v, single=single)
                attended = self.linear(joined, f"encoder.layer.{layer}.attention.output.dense")
            if layer in wanted:
                yield AttentionMap(
                    self._prefix + part,
                    layer,
                    head_names(self._settings.n_heads, single=single),
                    weights,
                    encoded.tokens,
                    encoded.tokens,
                    output=to_numpy(attended) if output else None,
                )
            if layer < last:
                x = self._rest(x, attended, f"encoder.layer.{layer}")

    def _rest(self, x: Array, attended: Array, layer: str) -> Array:
        """What follows the attention in a layer: the feed-forward part, residuals and norms."""
        x = self.norm(attended + x, f"{layer}.attention.output.LayerNorm")
        hidden = self._settings.activation(self.linear(x, f"{layer}.intermediate.dense"))
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
                        f" ({len(bad)} such values in this tensor)"
                    )
        raise AttnvizError(f"{self._checkpoint.folder}: the numbers overflow in {part}; the weights are damaged")


@dataclass(frozen=True)
class EncoderRun:
    """A text made ready for an encoder."""

    encoder: Encoder
    encoded: Encoded

    @property
    def tokens(self) -> Tokens:
        """The text's tokens, [CLS] and [SEP] among them."""
        return self.encoded.tokens

    @property
    def notes(self) -> tuple[str, ...]:
        """Which words the model does not know, and whether the text was cut."""
        return self.encoded.notes

    def maps(self, layers: Collection[int], *, single: bool = False, output: bool = False) -> Iterator[AttentionMap]:
        """Run the encoder up to the last of `layers`; their maps in order.

        The output is that of the layer's output projection, before the residual is added.
        """
        return self.encoder.layers(self.encoded, layers, single=single, output=output)


BUNDLED = Path(__file__).parent.parent / "bundled"
MINILM_SHA256 = "eac79f871750eee91edb67fd3f8e1dd6450a9654149088bb73e5f9e4b4c6065a"
"""Of the bundled weight file, so that it need not be read whole to be named."""


def open_bundled() -> Encoder:
    """The model that comes with attnviz: all-MiniLM-L6-v2, six layers of twelve heads."""
    return Encoder(Checkpoint(BUNDLED / "minilm"), "minilm", MINILM_SHA256)


def open_folder(folder: Path, place: Place = np.asarray) -> Encoder:
    """The BERT checkpoint in `folder`.

    Raises:
        RequestError: the folder does not exist or is no checkpoint.
        AttnvizError: it is of another kind, damaged or incomplete.
    """
    checkpoint = Checkpoint(folder)
    _refuse_others(checkpoint.config, folder)
    return Encoder(checkpoint, folder.resolve().name, place=place)


def _refuse_others(config: Any, folder: Path) -> None:
    if "auto_map" in config:
        raise AttnvizError(f"{folder} asks for its own Python code (auto_map): custom code is never run")
    if (kind := config.get("model_type")) != "bert":
        raise AttnvizError(
            f"{folder} is of model_type {kind!r}: attnviz itself runs 'bert';"
            " other types need the extra hf: pip install 'attnviz[hf]'"
        )
