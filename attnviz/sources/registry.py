"""Which models there are, by name; each is imported when it is opened and not before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.backend import NUMPY, Placing
from attnviz.errors import RequestError
from attnviz.files import kind_at
from attnviz.lazy import function
from attnviz.near import meant
from attnviz.sources.model import Model

DEFAULT_MODEL = "minilm"
SCRATCH = "scratch"

NAMED = {DEFAULT_MODEL: "attnviz.sources.encoder:open_bundled", SCRATCH: "attnviz.sources.scratch:open_scratch"}
"""The models that have a name; any other is a checkpoint folder."""
SHAPES = ("n_heads", "d_model", "seed", "positions", "scale", "shared_projections")
"""What shapes the scratch model: the fields of `ScratchOptions`."""
FOLDER = "attnviz.sources.encoder:open_folder"


def open_model(model: str, scratch: Mapping[str, Any], placing: Placing = NUMPY) -> Model:
    """The model of that name, or the checkpoint folder of that path.

    Args:
        model: a key of `NAMED`, or the path of a folder.
        scratch: fields of `ScratchOptions`, for the scratch model only; what is left out has its default.
        placing: where the maths runs.

    Raises:
        RequestError: there is no such model or folder, or `scratch` is given for another model.
        AttnvizError: the folder is damaged, or of a kind that attnviz does not run.
    """
    if scratch and model != SCRATCH:
        raise RequestError(
            "--n-heads, --d-model, --seed, --no-positions, --no-scale and --shared-projections"
            f" shape the scratch model, not {model}: say --model {SCRATCH}"
        )
    opened: Model
    if model in NAMED:
        opened = function(NAMED[model])(placing, **scratch)
    else:
        folder = Path(model)
        if kind_at(folder) == "nothing":
            raise RequestError(_unknown(model))
        opened = function(FOLDER)(folder, placing)
    return opened


def _unknown(model: str) -> str:
    kinds = f"neither {' nor '.join(NAMED)} nor a folder that exists"
    return f"model {model!r} is not found: it is {kinds}{meant(model, NAMED)}"
