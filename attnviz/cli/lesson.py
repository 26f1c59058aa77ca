"""`attnviz lesson`: the worked examples, step by step, on the example or on a sentence of one's own."""

import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import typer

from attnviz.boards.lessons import lesson_board
from attnviz.cli.command import Command
from attnviz.cli.grouped import grouped
from attnviz.cli.inputs import typed
from attnviz.cli.options import LookOptions, OutputOptions, PlaceOptions
from attnviz.cli.outputs import parse_outputs
from attnviz.cli.results import Result, write_result
from attnviz.cli.sources import placed
from attnviz.errors import RequestError
from attnviz.lessons.export import lesson_table, to_fields
from attnviz.lessons.lesson import Lesson, Setting
from attnviz.lessons.registry import LESSONS, run_lesson
from attnviz.render import RESULT_FORMATS
from attnviz.render.panels import describe
from attnviz.translation import LANGUAGES, Say, translator


@dataclass(frozen=True)
class LessonOptions:
    """Which lesson, in which language, and what the student changes."""

    name: Annotated[str | None, typer.Argument(show_default=False, help="Which lesson; unsaid, they are listed.")] = (
        None
    )
    text: Annotated[str | None, typer.Option(show_default=False, help="Your own sentence through the same steps.")] = (
        None
    )
    source: Annotated[
        str | None, typer.Option(show_default=False, help="Cross-attention: the sentence that is attended to.")
    ] = None
    query: Annotated[str | None, typer.Option(show_default=False, help="The token whose row is looked at.")] = None
    embeddings: Annotated[
        Path | None, typer.Option(show_default=False, help="Your own token vectors, in place of a sentence.")
    ] = None
    module: Annotated[Path | None, typer.Option(show_default=False, help="The state dict of a multi-head module.")] = (
        None
    )
    n_heads: Annotated[int | None, typer.Option(min=1, show_default=False, help="How many heads.")] = None
    seed: Annotated[int, typer.Option(min=0, help="What is drawn is drawn from it.")] = 0
    shared_projections: Annotated[
        bool, typer.Option("--shared-projections", help="All heads project as the first does.")
    ] = False
    timed: Annotated[bool, typer.Option("--timed", help="Also take the time, where a lesson is about it.")] = False
    lang: Annotated[
        str | None, typer.Option(show_default="the locale's", help=f"The language: {' or '.join(LANGUAGES)}.")
    ] = None


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
@grouped
def lesson(what: LessonOptions, place: PlaceOptions, where: OutputOptions, how: LookOptions) -> None:
    """Work through a lesson about attention, step by step.

    attnviz lesson

    attnviz lesson heads

    attnviz lesson single-against-many --text "o cachorro mordeu o homem" --lang pt
    """
    say = translator(what.lang)
    if what.name is None:
        _refuse_said(what, place, where, how)
        _list_lessons(say)
        return
    look = replace(how.look, say=say)
    read = [path for path in (what.embeddings, what.module, *how.files) if path is not None]
    outputs = parse_outputs(where.output or [], where.format, read, places=(), formats=RESULT_FORMATS)
    worked = run_lesson(what.name, _setting(what, place), say)
    write_result(_result(worked), outputs, look, how.color_scale)


def _setting(what: LessonOptions, place: PlaceOptions) -> Setting:
    text = None if what.text is None else typed(what.text, "--text")
    source = None if what.source is None else typed(what.source, "--source")
    return Setting(
        text=text,
        source=source,
        query=what.query,
        embeddings=what.embeddings,
        module=what.module,
        n_heads=what.n_heads,
        seed=what.seed,
        shared_projections=what.shared_projections,
        placing=placed(place),
        timer=time.perf_counter if what.timed else None,
    )


def _refuse_said(*options: LessonOptions | PlaceOptions | OutputOptions | LookOptions) -> None:
    """A list takes its language and nothing else.

    Raises:
        RequestError: something else is said.
    """
    for group in options:
        for field in fields(group):
            if field.name not in ("name", "lang") and getattr(group, field.name) != field.default:
                option = field.name.replace("_", "-")
                raise RequestError(f"--{option} is for a lesson: name one of {', '.join(LESSONS)}")


def _list_lessons(say: Say) -> None:
    width = max(map(len, LESSONS))
    lines = [f"{name:{width}}  {say(entry.title)}" for name, entry in LESSONS.items()]
    encoding = sys.stdout.encoding or "ascii"
    typer.echo("\n".join(lines).encode(encoding, "backslashreplace").decode(encoding))


def _result(worked: Lesson) -> Result:
    return Result(
        board=lesson_board(worked, spelled=True),
        description=describe(worked.provenance),
        fields=to_fields(worked),
        table=lesson_table(worked),
        text_board=lesson_board(worked),
    )
