"""Options that mean the same in every command, in groups that a command takes whole.

The groups have no methods that nothing calls: making them would cost every command several milliseconds.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from attnviz.backend import AUTO, BACKENDS, DEVICES, NUMPY_NAME
from attnviz.lazy import function
from attnviz.render import FORMATS
from attnviz.render.colors import DEFAULT_COLORMAP, NAMES
from attnviz.render.panels import Look
from attnviz.render.scale import DEFAULT_SCALE, SCALES
from attnviz.sources.model import Part
from attnviz.sources.registry import DEFAULT_MODEL, NAMED, RUNNERS, SCRATCH

OutputFormat = StrEnum("OutputFormat", {name: name for name in ("terminal", *FORMATS)})  # type: ignore[misc]
ColorMap = StrEnum("ColorMap", {name: name for name in NAMES})  # type: ignore[misc]
ColorScale = StrEnum("ColorScale", {name: name for name in SCALES})  # type: ignore[misc]
Backend = StrEnum("Backend", {name: name for name in BACKENDS})  # type: ignore[misc]
Dtype = StrEnum("Dtype", {name: name for names in BACKENDS.values() for name in names})  # type: ignore[misc]

Reduction = StrEnum("Reduction", ["mean", "max", "rollout"])
Over = StrEnum("Over", ["heads", "layers", "all"])
Probe = StrEnum("Probe", ["repeat"])
Runner = StrEnum("Runner", {name: name for name in RUNNERS})  # type: ignore[misc]

Width = Annotated[
    int | None, typer.Option(min=20, show_default="the terminal's, else 80", help="Cells a line, in text.")
]

_HEADS = Over("heads")
_COLORS = ColorMap(DEFAULT_COLORMAP)


@dataclass(frozen=True, repr=False, eq=False)
class TextOptions:
    """What is attended to."""

    text: Annotated[
        str | None,
        typer.Argument(show_default=False, help="The text; - reads standard input, one sentence a line."),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", show_default=False, readable=False, help="Take the text from this file, as one."),
    ] = None
    probe: Annotated[
        Probe | None,
        typer.Option(show_default=False, help="Instead of a text: random words twice over, for induction heads."),
    ] = None
    probe_words: Annotated[
        int | None, typer.Option(min=1, show_default="50", help="How many words the probe repeats.")
    ] = None
    pair: Annotated[
        str | None,
        typer.Option(metavar="TEXT", show_default=False, help="A second text, for models that read two as a pair."),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", show_default=False, help="Encoder-decoders: what is written."),
    ] = None
    chat: Annotated[
        bool, typer.Option("--chat", help="Put the text into the model's chat template, as the user's turn.")
    ] = False
    generate: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default=False, help="Let the model go on for N tokens, the likeliest."),
    ] = None
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep the first tokens of a text too long for the model.")
    ] = False
    stride: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default=False, help="Cut it into windows that begin N tokens apart."),
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class SourceOptions:
    """Whose attention."""

    model: Annotated[
        str | None,
        typer.Option(
            show_default=DEFAULT_MODEL,
            help=f"{', '.join(NAMED)}, a checkpoint folder, a gguf file, or a Hub name in the local cache.",
        ),
    ] = None
    source: Annotated[
        Runner | None,
        typer.Option(show_default=False, help="What runs a BERT model: our own maths, unless said, or pytorch."),
    ] = None
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:NAME]", show_default=False, help="Show saved attention instead of running a model."
        ),
    ] = None
    tokens: Annotated[
        Path | None,
        typer.Option(show_default=False, help="Saved attention: its tokens, one a line or a list in json."),
    ] = None
    key_tokens: Annotated[
        Path | None,
        typer.Option(show_default=False, help="Saved attention: the keys' tokens, where they are others."),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(min=0, show_default=False, help="Saved attention: which entry of its batch, from 0."),
    ] = None
    embeddings: Annotated[
        Path | None,
        typer.Option(show_default=False, help="Run on own token vectors, with the projections in the file if it has."),
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class FetchOptions:
    """Whether a model may be fetched, and what may be read of it."""

    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="Fetch a model of the Hub that is not in the local cache.")
    ] = False
    allow_bin: Annotated[
        bool,
        typer.Option("--allow-bin", help="Read .bin files where there is no safetensors file: weights only, no code."),
    ] = False


@dataclass(frozen=True, repr=False, eq=False)
class ShapeOptions:
    """What shapes attention that is drawn and not trained."""

    n_heads: Annotated[
        int | None,
        typer.Option(min=1, show_default="4", help="Scratch model, embeddings: heads; must divide the width."),
    ] = None
    d_model: Annotated[
        int | None, typer.Option(min=1, show_default="32", help="Scratch model: width of the embeddings.")
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(min=0, show_default="0", help="Scratch model, embeddings, probe: what is drawn is drawn from it."),
    ] = None
    no_positions: Annotated[bool, typer.Option("--no-positions", help="Scratch model: add no positional encoding.")] = (
        False
    )
    no_scale: Annotated[
        bool, typer.Option("--no-scale", help="Scratch model, embeddings: do not divide the scores by sqrt(d_head).")
    ] = False
    shared_projections: Annotated[
        bool,
        typer.Option("--shared-projections", help="Scratch model, embeddings: all heads project as the first does."),
    ] = False


@dataclass(frozen=True, repr=False, eq=False)
class RuleOptions:
    """What may be attended."""

    causal: Annotated[bool, typer.Option("--causal", help="No token attends to a later one.")] = False
    window: Annotated[
        int | None,
        typer.Option(show_default=False, help="A token attends to less than this many to each side, itself included."),
    ] = None
    mask: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:NAME]",
            show_default=False,
            help="True where a query may attend to a key; npy, npz, safetensors, json or csv.",
        ),
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class PlaceOptions:
    """Where the maths runs."""

    backend: Annotated[
        Backend | None, typer.Option(show_default=f"{NUMPY_NAME}, or what the model needs", help="What does the maths.")
    ] = None
    device: Annotated[
        str, typer.Option(help=f"Where torch does it: {DEVICES}; {AUTO} spreads a model of transformers over all.")
    ] = "cpu"
    dtype: Annotated[
        Dtype | None, typer.Option(show_default="float32", help="In which numbers; the last two for torch.")
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class InputOptions(PlaceOptions, RuleOptions, ShapeOptions, FetchOptions, SourceOptions, TextOptions):
    """Whose attention, on what, and where the maths runs; the options of the last base come first."""


@dataclass(frozen=True, repr=False, eq=False)
class CrossOptions(PlaceOptions, RuleOptions, ShapeOptions, FetchOptions):
    """Two texts, of which the target attends to the source."""

    source: Annotated[str, typer.Argument(show_default=False, help="What is attended to: the columns.")] = ""
    target: Annotated[str, typer.Argument(show_default=False, help="What attends: the rows.")] = ""
    model: Annotated[
        str, typer.Option(help=f"{SCRATCH}, or an encoder-decoder: a folder, or a Hub name in the local cache.")
    ] = SCRATCH


@dataclass(frozen=True, repr=False, eq=False)
class EncodingOptions:
    """Which positions are encoded, and how wide."""

    d_model: Annotated[int, typer.Option(min=1, help="Dimensions of an encoding.")] = 16
    length: Annotated[int, typer.Option(min=1, help="How many positions.")] = 16
    at: Annotated[
        int | None, typer.Option(show_default=False, help="Only this position; one below 0 counts from the end.")
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class HeadOptions:
    """Which heads."""

    layer: Annotated[
        str | None,
        typer.Option(show_default=False, help="Layers, from 0: 0,3-5 or -1 or all. Unsaid: the first, in files all."),
    ] = None
    head: Annotated[
        str | None, typer.Option(show_default=False, help="Heads, from 0: 0,3-5 or 5.3, which is head 3 of layer 5.")
    ] = None
    stack: Annotated[
        Part | None,
        typer.Option(show_default=False, help="Encoder-decoders: only what reads, what writes, or what is between."),
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class ViewOptions:
    """Which part of their attention, and in which form."""

    query: Annotated[
        str | None,
        typer.Option(show_default=False, help="Only the rows of this token, all its repeats, or of this position."),
    ] = None
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="N", show_default=False, help="Only from token N on, or from character cN on."),
    ] = None
    stop: Annotated[
        str | None, typer.Option("--to", metavar="N", show_default=False, help="Up to before token N, or character cN.")
    ] = None
    tiles: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default=False, help="Pool longer maps to N tiles a side, in files too."),
    ] = None
    pool: Annotated[
        Literal["mean", "max"] | None,
        typer.Option(show_default="mean", help="What a tile is of its weights: their mean, or the largest."),
    ] = None
    hide_special: Annotated[
        bool, typer.Option("--hide-special", help="Leave out [CLS], [SEP] and the like, and say what they took.")
    ] = False
    single: Annotated[
        bool, typer.Option("--single", help="Also one full-width head from the same projections, first.")
    ] = False
    with_output: Annotated[
        bool, typer.Option("--with-output", help="Put each layer's attention output into json and npz too.")
    ] = False
    words: Annotated[
        bool,
        typer.Option("--words", help="Put the pieces of each word together: the sum of keys, the mean of queries."),
    ] = False
    reduce: Annotated[
        Reduction | None,
        typer.Option(show_default=False, help="Instead of each head their mean, their maximum, or attention rollout."),
    ] = None
    over: Annotated[
        Over, typer.Option(help="What --reduce mean or max puts together: the heads of a layer, the layers, or all.")
    ] = _HEADS
    page_bits: Annotated[
        Literal["8", "16"] | None,
        typer.Option(show_default="16, or 8 for very many", help="In html: in how many bits a weight is kept."),
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class OutputOptions:
    """Where the result goes."""

    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            show_default=False,
            help=f"Write to this file ({', '.join(FORMATS)}), again for more; - is stdout.",
        ),
    ] = None
    format: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format", show_default="terminal", help="The format of stdout, or of a file without a known suffix."
        ),
    ] = None


@dataclass(frozen=True, repr=False, eq=False)
class LookOptions:
    """How pictures and text look."""

    cmap: Annotated[ColorMap, typer.Option(help="Colours of the heatmaps.")] = _COLORS
    color_scale: Annotated[
        ColorScale | None,
        typer.Option(
            show_default=f"{DEFAULT_SCALE}, of pooled maps log, in text sqrt",
            help="How colours follow the weights; row and rank are relative.",
        ),
    ] = None
    font: Annotated[
        Path | None, typer.Option(show_default=False, help="A font file for pictures, used before all others.")
    ] = None
    precision: Annotated[int, typer.Option(min=1, max=9, help="Digits after the point, in text.")] = 2
    width: Width = None

    @property
    def look(self) -> Look:
        """The same for renderers.

        Raises:
            RequestError: the font file is not there.
            AttnvizError: it cannot be used.
        """
        if self.font is not None:
            function("attnviz.render.lettering:check_font")(self.font)
        return Look(self.cmap, self.precision, self.width, font=self.font)

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        return [] if self.font is None else [self.font]


@dataclass(frozen=True, repr=False, eq=False)
class ProseOptions:
    """How text looks that has no values to draw."""

    width: Width = None

    @property
    def look(self) -> Look:
        """The same for renderers."""
        return Look(width=self.width)
