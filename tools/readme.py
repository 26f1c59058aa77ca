"""What cog calls to write the generated parts of README.md: real help texts and real output."""

import os
import shlex
from unittest.mock import patch

from typer.testing import CliRunner

from attnviz.cli.app import app
from attnviz.measures.table import MEASURES

PLAIN = {"TERMINAL_WIDTH": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def shell(command: str, columns: int = 100) -> str:
    """`command` and what it prints, as a fenced block; it must succeed."""
    program, *arguments = shlex.split(command)
    if program != "attnviz":
        raise ValueError(f"only attnviz runs here, not {program}")
    with patch.dict(os.environ, {**PLAIN, "COLUMNS": str(columns)}):
        result = CliRunner().invoke(app, arguments, prog_name="attnviz", catch_exceptions=False)
    if result.exit_code:
        raise RuntimeError(f"{command}: exit {result.exit_code}: {result.stderr}")
    lines = (line.rstrip() for line in result.stdout.rstrip("\n").split("\n"))
    return "```console\n$ " + command + "\n" + "\n".join(lines) + "\n```\n"


def measures() -> str:
    """The table of measures."""
    head = "| name | unit | what it says | how | source |\n| --- | --- | --- | --- | --- |\n"
    cells = ((f"`{m.name}`", m.unit, m.meaning, m.formula, m.source) for m in MEASURES.values())
    rows = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells)
    return head + "".join(rows)
