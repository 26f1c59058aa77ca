"""Options in groups: a command takes a few frozen dataclasses, and each of their fields is an option."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with a parameter for each field of its parameters' types, in their order, for Typer to read.

    Args:
        command: every parameter is annotated with a dataclass, whose fields have the annotations that Typer reads.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 2
    ...     height: int = 3
    >>> @grouped
    ... def area(size: Size) -> None:
    ...     print(size.width * size.height)
    >>> signature(area)
    <Signature (*, width: int = 2, height: int = 3)>
    >>> area(width=5, height=7)
    35
    """
    groups: dict[str, type[Any]] = {name: get_type_hints(command)[name] for name in signature(command).parameters}
    parameters = [parameter for group in groups.values() for parameter in _parameters(group)]

    @wraps(command)
    def flat(**values: Any) -> None:
        command(**{name: group(**{f.name: values[f.name] for f in fields(group)}) for name, group in groups.items()})

    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _parameters(group: type[Any]) -> list[Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
        for field in fields(group)
    ]
