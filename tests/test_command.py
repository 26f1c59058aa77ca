"""Values that commands make themselves are those that Typer would make, and nothing but doubt brings its library in."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from attnviz.cli.app import COMMANDS, app
from attnviz.cli.command import UNSURE, Command, plain_value
from attnviz.lazy import function


def command_of(target: str) -> Any:
    return typer.main.get_command(function(target))  # type: ignore[arg-type]


GROUP: Any = typer.main.get_command(app)
CONTEXT = typer.Context(GROUP)
OPTIONS = {
    f"{param.opts[-1]} {param.type_descriptor.annotation}": param
    for entry in COMMANDS.values()
    for param in command_of(entry.app).params
}
AWKWARD = (
    "",
    " ",
    "-",
    "--",
    "0",
    "1",
    "7",
    "007",
    "10",
    "-3",
    " 5",
    "5.0",
    "1e3",
    "1_0",
    "9" * 25,
    "१",
    "nan",
    "true",
)
NAMES = (
    "mean",
    "MEAN",
    "repeat",
    "8",
    "16",
    "png",
    "terminal",
    "torch",
    "float16",
    "viridis",
    "heads",
    "largest",
    "80",
    "pytorch",
    "decoder",
    "linear",
)


def by_typer(param: Any, typed: Any) -> Any:
    """What Typer makes of it, or its error."""
    try:
        return param.get_runtime_param().coerce(typed, param, CONTEXT)
    except typer.BadParameter as error:
        return type(error)


def agrees(param: Any, typed: str) -> bool:
    """Whether a value is made, after it was seen to be Typer's, of the same type."""
    given = (typed,) if param.multiple else typed
    asked = param.type_descriptor
    made, expected = plain_value(given, asked.annotation, asked.parameter_info), by_typer(param, given)
    if made is UNSURE:
        return False
    assert made == expected, typed
    assert type(made) is type(expected)
    return True


@pytest.mark.parametrize("name", OPTIONS)
def test_a_value_is_typer_s_or_left_to_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    paths = [str(tmp_path), str(tmp_path / "file"), str(tmp_path / "none" / "x"), "file/"]
    made = [agrees(OPTIONS[name], typed) for typed in (*AWKWARD, *NAMES, *paths)]
    kind = OPTIONS[name].type_descriptor.annotation
    assert any(made) or kind in (bool, float), f"nothing was made for {kind}"


@given(typed=st.text(st.characters(codec="utf-8", exclude_characters="\0")), name=st.sampled_from(sorted(OPTIONS)))
def test_whatever_is_typed(name: str, typed: str) -> None:
    agrees(OPTIONS[name], typed)


def test_bounds_are_kept_and_what_is_beyond_them_is_left_to_typer() -> None:
    between = typer.Option(min=2, max=4)
    made = [plain_value(str(number), int, between) for number in (1, 2, 4, 5)]
    assert made == [UNSURE, 2, 4, UNSURE]


def test_an_unreadable_file_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.cli.command.os.access", lambda *_: False)
    assert plain_value(__file__, Path, typer.Option()) is UNSURE
    assert plain_value(__file__, Path, typer.Option(readable=False)) == Path(__file__)
    assert plain_value(__file__, Path, typer.Option(exists=True)) is UNSURE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_quick(name: str) -> None:
    assert isinstance(command_of(COMMANDS[name].app), Command)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["heads", "The cat", "--layer", "all", "--head", "0-2", "-o", "heads.png", "-o", "heads.json"],
        ["heads", "--model", "scratch", "The cat", "--seed", "3", "--reduce", "max", "--cmap", "viridis", "--causal"],
        ["metrics", "The cat", "--by", "entropy", "--top", "3"],
        ["compare", "The cat", "The dog", "--by", "mean"],
    ],
)
def test_a_plain_command_does_without_the_library_that_validates(arguments: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\nfrom attnviz.cli.app import app\ntry:\n    app(prog_name='attnviz')\nexcept SystemExit as end:\n"
        "    print(end.code or 0, *[name for name in sys.modules if 'pydantic' in name], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, cwd=tmp_path)
    assert ran.stderr.decode().splitlines()[-1] == "0"
