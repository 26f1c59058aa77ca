"""What can be run on this machine: models by name, checkpoints in the local cache, backends and their devices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from attnviz.backend import BACKENDS, NUMPY_NAME
from attnviz.errors import AttnvizError
from attnviz.lazy import function
from attnviz.sources.checkpoint import read_config
from attnviz.sources.hub_cache import cached_models
from attnviz.sources.huggingface_folder import refuse_unsafe, sizes_of
from attnviz.sources.model import Model
from attnviz.sources.registry import BERT, DEFAULT_MODEL, NAMED, open_model

CACHED = "in the local cache"

EXTRAS: Mapping[str, tuple[str, ...]] = {"torch": ("torch",), "hf": ("transformers", "accelerate", "gguf")}
"""The packages that each extra of attnviz adds to those before it."""


@dataclass(frozen=True)
class RunnableModel:
    """A model that can be run."""

    name: str
    """What goes after --model."""
    n_layers: int
    n_heads: int
    origin: str
    """Where it is from, in a few words."""


@dataclass(frozen=True)
class RunnableBackend:
    """A library that does the maths."""

    name: str
    version: str | None
    """None where it is not installed."""
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]


def models_here() -> tuple[RunnableModel, ...]:
    """The named models, and the checkpoints in the local Hugging Face cache that can be run.

    >>> [(one.name, one.n_layers) for one in models_here()[:2]]
    [('minilm', 6), ('scratch', 1)]
    """
    origins = {DEFAULT_MODEL: "bundled, the default"}
    named = [_entry(name, open_model(name, {}), origins.get(name, "seeded, nothing trained")) for name in NAMED]
    return (*named, *_cached())


def backends_here() -> tuple[RunnableBackend, ...]:
    """The backends, installed or not; asking torch for its devices imports it.

    >>> backends_here()[0].devices
    ('cpu',)
    """
    return tuple(RunnableBackend(name, installed(name), _devices(name), dtypes) for name, dtypes in BACKENDS.items())


def installed(package: str) -> str | None:
    """The version of an installed package, None where it is not.

    >>> installed("numpy") is None, installed("no-such-package")
    (False, None)
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices(backend: str) -> tuple[str, ...]:
    if backend == NUMPY_NAME:
        return ("cpu",)
    if installed(backend) is None:
        return ()
    devices: tuple[str, ...] = function("attnviz.torch_place:devices")()
    return devices


def _entry(name: str, model: Model, origin: str) -> RunnableModel:
    return RunnableModel(name, model.n_layers, model.n_heads, origin)


def _cached() -> Iterator[RunnableModel]:
    for name, folder in cached_models():
        try:
            config = read_config(folder)
            if config.get("model_type") == BERT:
                yield _entry(name, open_model(name, {}), CACHED)
            else:
                refuse_unsafe(config, folder)
                yield RunnableModel(name, *sizes_of(config), CACHED if _has_hf() else f"{CACHED}; needs the extra hf")
        except AttnvizError:
            continue  # of a kind that attnviz does not run, or not whole


def _has_hf() -> bool:
    return installed("torch") is not None and installed("transformers") is not None
