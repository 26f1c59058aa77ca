"""Running commands in-process, as a person or a script would."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner

from attnviz.cli.app import app

SETTINGS = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM")


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return strict_json(self.out)


def strict_json(content: str | bytes) -> Any:
    """What it holds, without NaN and infinities, which are no JSON."""
    return json.loads(content, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def run(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Answer:
    """`attnviz` with these arguments; only the settings in `env` reach it."""
    kept = {key: value for key, value in os.environ.items() if key not in SETTINGS}
    with patch.dict(os.environ, {**kept, **(env or {})}, clear=True):
        result = CliRunner().invoke(app, list(arguments), input=stdin, prog_name="attnviz")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout_bytes, result.stderr)


def error(*arguments: str, code: int, stdin: bytes = b"") -> str:
    """The message of a command that fails as it should: nothing on stdout, a few lines on stderr, no traceback."""
    answer = run(*arguments, stdin=stdin)
    assert answer.code == code, answer
    assert answer.out == b""
    assert "Traceback" not in answer.err
    assert 0 < len(answer.err.splitlines()) <= 6
    return answer.err
