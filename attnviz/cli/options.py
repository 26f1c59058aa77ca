"""Options that mean the same in every command."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from attnviz.render import FORMATS
from attnviz.render.colors import DEFAULT_COLORMAP, NAMES
from attnviz.sources.registry import NAMED

OutputFormat = StrEnum("OutputFormat", {name: name for name in ("terminal", *FORMATS)})  # type: ignore[misc]
ColorMap = StrEnum("ColorMap", {name: name for name in NAMES})  # type: ignore[misc]
DEFAULT_CMAP = ColorMap(DEFAULT_COLORMAP)

Text: TypeAlias = Annotated[
    str | None,
    typer.Argument(show_default=False, help="The text; - reads standard input, one sentence a line."),
]
File: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "-f", "--file", show_default=False, readable=False, help="Take the text from this file, as one input."
    ),
]
Model: TypeAlias = Annotated[str, typer.Option(help=f"{' or '.join(NAMED)}, or the folder of a BERT checkpoint.")]
Layer: TypeAlias = Annotated[
    str | None,
    typer.Option(show_default=False, help="Layers, from 0: 0,3-5 or -1 or all. Unsaid: 0, in json and npz all."),
]
Heads: TypeAlias = Annotated[
    str | None, typer.Option(show_default=False, help="Heads, from 0: 0,3-5 or 5.3, which is head 3 of layer 5.")
]
Query: TypeAlias = Annotated[
    str | None,
    typer.Option(show_default=False, help="Only the rows of this token, all its repeats, or of this position."),
]
HideSpecial: TypeAlias = Annotated[
    bool, typer.Option("--hide-special", help="Leave out [CLS], [SEP] and the like, and say what they took.")
]
Single: TypeAlias = Annotated[
    bool, typer.Option("--single", help="Also one full-width head from the same projections, first.")
]
Truncate: TypeAlias = Annotated[
    bool, typer.Option("--truncate", help="Keep the first tokens of a text too long for the model.")
]
WithOutput: TypeAlias = Annotated[
    bool, typer.Option("--with-output", help="Put each layer's attention output into json and npz too.")
]

NHeads: TypeAlias = Annotated[
    int | None, typer.Option(min=1, show_default="4", help="Scratch model: heads; must divide --d-model.")
]
DModel: TypeAlias = Annotated[
    int | None, typer.Option(min=1, show_default="32", help="Scratch model: width of the embeddings.")
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, show_default="0", help="Scratch model: embeddings and projections are drawn from it."),
]
NoPositions: TypeAlias = Annotated[
    bool, typer.Option("--no-positions", help="Scratch model: add no positional encoding.")
]
NoScale: TypeAlias = Annotated[
    bool, typer.Option("--no-scale", help="Scratch model: do not divide the scores by sqrt(d_head).")
]
SharedProjections: TypeAlias = Annotated[
    bool, typer.Option("--shared-projections", help="Scratch model: every head uses the first head's projections.")
]

Out: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "-o",
        "--output",
        show_default=False,
        help=f"Write to this file ({', '.join(FORMATS)}), again for more; - is stdout.",
    ),
]
Format: TypeAlias = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format", show_default="terminal", help="The format of stdout, or of a file without a known suffix."
    ),
]
Cmap: TypeAlias = Annotated[ColorMap, typer.Option(help="Colours of the heatmaps.")]
Precision: TypeAlias = Annotated[int, typer.Option(min=1, max=9, help="Digits after the point, in text.")]
Width: TypeAlias = Annotated[
    int | None,
    typer.Option(min=20, show_default="the terminal's, else 80", help="Cells a line, in text."),
]
