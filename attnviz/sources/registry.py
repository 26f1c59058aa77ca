"""Which models there are, by name; each is imported when it is opened and not before."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnviz.backend import NUMPY, Placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at
from attnviz.lazy import function
from attnviz.near import meant
from attnviz.sources.hub_cache import is_hub_name, snapshot_of
from attnviz.sources.model import Model

DEFAULT_MODEL = "minilm"
SCRATCH = "scratch"

NAMED = {DEFAULT_MODEL: "attnviz.sources.encoder:open_bundled", SCRATCH: "attnviz.sources.scratch:open_scratch"}
"""The models that have a name; any other is a checkpoint folder, a gguf file or a name in the local cache."""
SHAPES = ("n_heads", "d_model", "seed", "positions", "scale", "shared_projections")
"""What shapes the scratch model: the fields of `ScratchOptions`."""

OWN, PYTORCH = "own", "pytorch"
RUNNERS = OWN, PYTORCH
"""What can run a checkpoint: attnviz's own maths, for models of the BERT kind; or torch, the attention captured."""
OPENERS = {OWN: "attnviz.sources.encoder:open_folder", PYTORCH: "attnviz.sources.huggingface:open_huggingface"}
"""What opens a path, for each of `RUNNERS`."""
_READ_CONFIG = "attnviz.sources.checkpoint:read_config"
_FETCH = "attnviz.sources.hub_download:fetch"
_CAPTURED = "attnviz.sources.huggingface:open_bundled"
_NEEDED = "torch", "transformers"
EXTRA = "pip install 'attnviz[hf]'"
"""What installs what is needed for all models that attnviz does not run itself."""
GGUF = ".gguf"
_WEIGHTS = "*.safetensors", "pytorch_model*.bin"
BERT = "bert"
"""The model_type that attnviz runs itself."""


@dataclass(frozen=True)
class Found:
    """A model that is there, not opened yet."""

    name: str
    """What the reader calls it."""
    runner: str
    """One of `RUNNERS`."""
    path: Path | None
    """Its folder or file; None for a model of `NAMED`."""
    allow_bin: bool = False
    """Its weights may be in .bin files, which our own maths does not read."""

    def open(self, placing: Placing = NUMPY, **scratch: Any) -> Model:
        """The model; arguments as in `open_model`."""
        opened: Model
        if self.path is None:
            opened = function(NAMED[self.name] if self.runner == OWN else _CAPTURED)(placing, **scratch)
        else:
            more = {"allow_bin": True} if self.allow_bin else {}
            opened = function(OPENERS[self.runner])(self.path, placing, name=self.name, **more)
        return opened


def open_model(
    model: str,
    scratch: Mapping[str, Any],
    placing: Placing = NUMPY,
    runner: str | None = None,
    *,
    allow_download: bool = False,
    allow_bin: bool = False,
) -> Model:
    """The model of that name, or the checkpoint of that path.

    Args:
        model: a key of `NAMED`, the path of a folder or of a gguf file, or a name of the Hub in the local cache.
        scratch: fields of `ScratchOptions`, for the scratch model only; what is left out has its default.
        placing: where the maths runs.
        runner: one of `RUNNERS`; unless given, attnviz's own maths where it can.
        allow_download: fetch a model of the Hub that is not in the local cache.
        allow_bin: read weights that are not in safetensors format from .bin files, and nothing else in them.

    Raises:
        RequestError: there is no such model or folder, or `scratch` is given for another model.
        AttnvizError: the folder is damaged, or of a kind that attnviz does not run; or packages are missing.
    """
    refuse_shape(model, scratch)
    found = find_model(model, runner, allow_download=allow_download, allow_bin=allow_bin)
    return found.open(placing, **scratch)


def refuse_shape(model: str, scratch: Mapping[str, Any]) -> None:
    """See that only the scratch model is shaped.

    Raises:
        RequestError: another one is.
    """
    if scratch and model != SCRATCH:
        raise RequestError(
            "--n-heads, --d-model, --seed, --no-positions, --no-scale and --shared-projections"
            f" shape the scratch model, not {model}: say --model {SCRATCH}"
        )


def find_model(
    model: str, runner: str | None = None, *, allow_download: bool = False, allow_bin: bool = False
) -> Found:
    """Where the model is, and what runs it; arguments as in `open_model`.

    Raises:
        RequestError: there is no such model or folder, or `runner` cannot run it.
        AttnvizError: its configuration is damaged, or packages that run it are missing.
    """
    found = _found(model, runner, allow_download=allow_download, allow_bin=allow_bin)
    missing = [package for package in _NEEDED if find_spec(package) is None] if found.runner == PYTORCH else []
    if missing:
        raise AttnvizError(f"{model} is run by torch and transformers ({', '.join(missing)} missing): {EXTRA}")
    return found


def _found(model: str, runner: str | None, *, allow_download: bool, allow_bin: bool) -> Found:
    if model == SCRATCH and runner == PYTORCH:
        raise RequestError(f"--source {PYTORCH} runs trained models, and {SCRATCH} is none: leave it out")
    if model in NAMED:
        return Found(model, runner or OWN, None)
    path, name = _located(model, allow_download=allow_download, allow_bin=allow_bin)
    if path.suffix.lower() == GGUF:
        if runner == OWN:
            raise RequestError(f"{model} is a gguf file, which --source {OWN} does not read: leave it out")
        return Found(name, PYTORCH, path)
    is_own = function(_READ_CONFIG)(path).get("model_type") == BERT
    needs_bin = allow_bin and not any(path.glob("*.safetensors"))
    if needs_bin and runner == OWN:
        raise RequestError(f"{model} has .bin files, which --source {OWN} does not read: leave it out")
    runner = runner or (OWN if is_own and not needs_bin else PYTORCH)
    return Found(name, runner, path, allow_bin=needs_bin)


def _located(model: str, *, allow_download: bool, allow_bin: bool) -> tuple[Path, str]:
    """The folder or file of a model, and what the model is called."""
    path = Path(model)
    if kind_at(path) != "nothing":
        return path, path.resolve().name.removesuffix(GGUF)
    snapshot = snapshot_of(model) if is_hub_name(model) else None
    lacking = snapshot is None or (allow_bin and not any(any(snapshot.glob(kind)) for kind in _WEIGHTS))
    if lacking and allow_download and is_hub_name(model):
        function(_FETCH)(model, allow_bin=allow_bin)
        snapshot = snapshot_of(model)
    if snapshot is not None:
        return snapshot, model
    kinds = f"neither {' nor '.join(NAMED)} nor a folder that exists"
    fetched = ""
    if is_hub_name(model):
        kinds += " nor in the local cache"
        fetched = "; to fetch it, add --allow-download" if "/" in model else ""
    raise RequestError(f"model {model!r} is not found: it is {kinds}{meant(model, NAMED)}{fetched}")
