"""The application: its commands, and what each kind of ending means to the shell."""

import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from attnviz._version import __version__
from attnviz.cli.command import quicken
from attnviz.cli.messages import complain
from attnviz.errors import AttnvizError
from attnviz.lazy import function

BROKEN_PIPE = 141
UsageError: Any = typer.BadParameter.__base__
"""What Typer raises when options are wrong; it has no public name of its own."""


@dataclass(frozen=True)
class Entry:
    """A command that is imported when it is called."""

    app: str
    """`module:name` of the Typer application that is the command."""
    summary: str
    """Its line in the list of commands."""


COMMANDS = {
    "heads": Entry("attnviz.cli.heads:app", "Show the attention heads of a model on a text, side by side."),
    "metrics": Entry("attnviz.cli.metrics:app", "Measure the attention of every head, and rank the heads."),
    "compare": Entry("attnviz.cli.compare:app", "Compare two attentions head by head, the most changed heads first."),
    "check": Entry("attnviz.cli.check:app", "Report what is wrong with attention; exit with 1 if anything is."),
    "cross": Entry("attnviz.cli.cross:app", "Show cross-attention: rows of the target, columns of the source."),
    "positions": Entry("attnviz.cli.positions:app", "Show the sinusoidal encoding of positions."),
    "lesson": Entry("attnviz.cli.lesson:app", "Work through a lesson about attention, step by step."),
    "models": Entry("attnviz.cli.models:app", "List what can be run here: models, backends, devices and extras."),
}


class Commands(TyperGroup):
    """The commands, and the library's errors as one line on standard error and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `args` into the context's parameters."""
        quicken(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        entry = COMMANDS.get(cmd_name)
        return typer.main.get_command(function(entry.app)) if entry else None  # type: ignore[arg-type]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with.

        Raises:
            UsageError: there is no such command.
        """
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            meant = f"did you mean {near[0]}?" if near else 'for a text, type: attnviz heads "…"'
            ctx.fail(f"No such command {name!r}; there is {', '.join(COMMANDS)}; {meant}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        arguments = list(ctx.args)
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except AttnvizError as error:
            complain(str(error))
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            raise typer.Exit(leave_stdout(error)) from None
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            complain("not enough memory: choose fewer layers with --layer or heads with --head")
            raise typer.Exit(AttnvizError.exit_code) from None
        except UsageError as error:
            _explain(error, arguments)
            raise
        return result


def leave_stdout(error: OSError) -> int:
    """Let nothing more be flushed to where it cannot go; the exit code: a reader who left is no failure to report."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    complain(f"standard output cannot be written: {error.strerror}")
    return AttnvizError.exit_code


def _is_out_of_memory(error: Exception) -> bool:
    """Whether it is that: torch has an error of its own for devices, and only words for the CPU."""
    of_torch = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or of_torch


def _explain(error: Any, arguments: list[str]) -> None:
    """Say what Typer leaves out: the value that was got, and how to type a text that looks like an option."""
    if hasattr(error, "possibilities") and not error.possibilities:  # no such option, and none like it
        error.message += "\nA text that begins with - goes after --, as in: attnviz heads -- '-5 degrees outside'"
    for option in getattr(getattr(error, "param", None), "opts", ()):
        given = [value for name, value in pairwise(arguments) if name == option]
        given += [one.partition("=")[2] for one in arguments if one.startswith(f"{option}=")]
        if given:
            error.message += f", got {given[-1]!r}"


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        try:
            typer.echo(f"attnviz {__version__}")
        except OSError as error:
            raise typer.Exit(leave_stdout(error)) from None
        raise typer.Exit


@app.callback(no_args_is_help=True)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """See the attention heads of a trained model side by side: in the terminal, as a picture, as numbers."""
