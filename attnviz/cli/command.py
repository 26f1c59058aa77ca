"""Commands that take plain values as they are typed, and leave only the doubtful ones to Typer.

Typer makes a validator for every option that a command has, typed or not, and imports the library that does it: a
quarter of the first command's time. Whatever is not plainly right still goes there, so that all messages are Typer's.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand

UNSURE = object()
"""In place of a value that Typer is to judge."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Command(TyperCommand):
    """A command of Typer's whose options cost nothing where they are not typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `args` into the context's parameters."""
        quicken(self.get_params(ctx))
        return super().parse_args(ctx, args)


def quicken(params: Iterable[Any]) -> None:
    """Let the options and arguments make plain values themselves."""
    for param in params:
        param.process_value = partial(_processed, param, param.process_value)


def _processed(param: Any, by_typer: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """The value of an option, from what was typed or else from its default."""
    asked = param.type_descriptor
    untyped = value is None or value is param.default
    made = value if untyped else plain_value(value, asked.annotation, asked.parameter_info)
    if made is UNSURE or (made is None and param.required):
        return by_typer(context, value)
    return made if param.callback is None else param.callback(context, param, made)


def plain_value(typed: str | Sequence[str], kind: Any, info: Any) -> Any:
    """What Typer would make of what was typed, or `UNSURE`.

    Args:
        typed: as it stands on the command line; several where an option may be repeated.
        kind: what the option is annotated with, without None.
        info: the `typer.Option` or `typer.Argument`.

    >>> import typer
    >>> plain_value("7", int, typer.Option(min=1)), plain_value("7.0", int, typer.Option()) is UNSURE
    (7, True)
    """
    if get_origin(kind) is list:
        several = [plain_value(one, get_args(kind)[0], info) for one in typed]
        return UNSURE if UNSURE in several else several
    if not isinstance(typed, str) or info.parser is not None:
        return UNSURE
    if kind is Path:
        return Path(typed) if _is_plain_path(typed, info) else UNSURE
    if kind is int:
        return int(typed) if _INTEGER.fullmatch(typed) and _is_within(int(typed), info) else UNSURE
    if kind is str:
        return typed
    choices = kind if isinstance(kind, type) and issubclass(kind, Enum) else get_args(kind)
    return next((choice for choice in choices if choice == typed), UNSURE)


def _is_plain_path(typed: str, info: Any) -> bool:
    """Whether nothing is asked of the file except that it can be read where it exists."""
    if info.exists or info.writable or info.resolve_path or not (info.file_okay and info.dir_okay):
        return False
    return not info.readable or os.access(typed, os.R_OK) or not os.path.exists(typed)  # noqa: PTH110 (no path yet)


def _is_within(number: int, info: Any) -> bool:
    return not info.clamp and (info.min is None or number >= info.min) and (info.max is None or number <= info.max)
