"""See the attention heads of a trained model side by side: in the terminal, as a picture, as numbers.

>>> import attnviz
>>> record = attnviz.attend("Orange is my favorite fruit")
>>> record.weights.shape
(6, 12, 7, 7)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz._version import __version__
from attnviz.lazy import function

if TYPE_CHECKING:
    from attnviz.api import attend
    from attnviz.attention import Rule
    from attnviz.backend import placing
    from attnviz.errors import AttnvizError, RequestError
    from attnviz.maps import AttentionMap, AttentionRecord
    from attnviz.sources.pytorch import capture
    from attnviz.sources.saved import load
    from attnviz.tokens import Tokens

__all__ = [
    "AttentionMap",
    "AttentionRecord",
    "AttnvizError",
    "RequestError",
    "Rule",
    "Tokens",
    "__version__",
    "attend",
    "capture",
    "load",
    "placing",
]

_HOMES = {
    "AttentionMap": "attnviz.maps",
    "AttentionRecord": "attnviz.maps",
    "AttnvizError": "attnviz.errors",
    "RequestError": "attnviz.errors",
    "Rule": "attnviz.attention",
    "Tokens": "attnviz.tokens",
    "attend": "attnviz.api",
    "capture": "attnviz.sources.pytorch",
    "load": "attnviz.sources.saved",
    "placing": "attnviz.backend",
}


def __dir__() -> list[str]:
    """The public names, those not yet imported too."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first used (PEP 562): the command line must start at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return function(f"{_HOMES[name]}:{name}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        errors = import_module("attnviz.errors")
        raise errors.AttnvizError(f"attnviz.{name} needs torch: pip install 'attnviz[torch]'") from None
