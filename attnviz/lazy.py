"""Names of functions that are imported when they are used: what registries hold."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def function(target: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    >>> function("math:sqrt")(9.0)
    3.0
    """
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]
