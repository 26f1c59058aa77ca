"""The application: its commands, and what each kind of ending means to the shell."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from attnviz._version import __version__
from attnviz.cli.console import complain
from attnviz.errors import AttnvizError

BROKEN_PIPE = 141
UsageError = typer.BadParameter.__base__
"""What Typer raises when options are wrong; it has no public name of its own."""


class Group(TyperGroup):
    """Turns the library's errors into one line on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except AttnvizError as error:
            complain(str(error))
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        except MemoryError:
            complain("not enough memory: choose fewer layers with --layer or heads with --head")
            raise typer.Exit(AttnvizError.exit_code) from None
        except UsageError as error:  # type: ignore[misc]
            _explain_dash(error, ctx)
            raise
        return result


def _forget_stdout() -> None:
    """Let nothing more be flushed to a reader who is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain_dash(error: Any, ctx: Any) -> None:
    """Where an unknown option may have been meant as a text, say how to type it."""
    option = getattr(error, "option_name", None)
    if option and not getattr(error, "possibilities", None):
        error.message += "\nA text that begins with - goes after --, as in: attnviz heads -- '-5 degrees'"


app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"attnviz {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """See the attention heads of a trained model side by side: in the terminal, as a picture, as numbers."""
