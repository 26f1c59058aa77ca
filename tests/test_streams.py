"""Streams that are closed, full or left, and terminals that say odd things about themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import error, run


def shell(redirection: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """`attnviz` from a shell that redirects its streams."""
    command = f'exec "$0" -m attnviz "$@" {redirection}'
    settings = {**os.environ, **(env or {})}
    return subprocess.run(
        ["bash", "-c", command, sys.executable, *arguments], capture_output=True, check=False, env=settings
    )


@pytest.mark.parametrize(
    ("arguments", "redirection", "code"),
    [
        (["heads", "a b"], "2>&-", 0),
        (["heads", ""], "2>&-", 2),
        (["heads", "-"], "<&-", 2),
        (["heads", "-f", "-"], "<&-", 2),
        (["heads", "the 𓂀 b"], "2>/dev/full", 0),
        (["heads", "a b"], ">/dev/full", 3),
        (["heads", "a b", "--format", "json"], ">/dev/full", 3),
        (["--version"], ">/dev/full", 3),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_closed_or_full_stream_gives_a_code_and_no_traceback(
    arguments: list[str], redirection: str, code: int
) -> None:
    done = shell(redirection, *arguments)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)


def test_a_closed_stdout_does_not_keep_files_from_being_written(tmp_path: Path) -> None:
    assert shell(">&-", "heads", "a b", "-o", str(tmp_path / "x.json")).returncode == 0
    assert (tmp_path / "x.json").exists()


@pytest.mark.parametrize("arguments", [["heads", "a b"], ["heads", "a b", "--format", "txt"], ["--version"]])
def test_a_reader_who_left_is_no_failure_to_report(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "attnviz", *arguments], check=False, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("columns", ["0", "-1", "many", ""])
def test_columns_that_say_nothing_count_as_unset(columns: str) -> None:
    assert run("heads", "a b", env={"COLUMNS": columns}).out == run("heads", "a b", env={"COLUMNS": "80"}).out


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
@pytest.mark.parametrize("arguments", [["--help"], ["heads", "--help"]])
def test_help_can_be_read_in_any_encoding(arguments: list[str], encoding: str) -> None:
    done = shell("", *arguments, env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_models_own_files_are_no_output(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    message = error("heads", "a b", "--model", str(tmp_path), "-o", str(tmp_path / "config.json"), code=2)
    assert "also the input" in message
    assert (tmp_path / "config.json").read_text(encoding="utf-8") == "{}"


def test_a_loop_of_links_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("x.json")
    assert "x.json" in error("heads", "a b", "-o", str(tmp_path / "x.json"), code=3)


def test_a_word_in_several_pieces_can_be_asked_for() -> None:
    out = run("heads", "o cachorro mordeu", "--query", "Cachorro", "--layer", "0", "--format", "json").json
    assert "".join(text.removeprefix("##") for text in out["query_text"]) == "cachorro"
    assert len(out["query_text"]) > 1


def test_a_query_is_written_out_where_panels_would_be_pooled() -> None:
    text = " ".join(f"w{i}" for i in range(150))
    shown = run("heads", text, "--model", "scratch", "--query", "w5", "--width", "80").text
    assert "mean of" not in shown
    assert "w149" in shown


@pytest.mark.parametrize("name", ["p/{layer}.{head}.png", "{n}/{layer}.json", "{head}.npz"])
def test_a_name_with_places_writes_a_file_for_each(name: str, tmp_path: Path) -> None:
    done = run("heads", "-", "--layer", "0,2", "--head", "1,3", "-o", str(tmp_path / name), stdin=b"a cat\n")
    assert (done.code, done.err) == (0, "")
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    expected = {
        "p/{layer}.{head}.png": ["p/0.1.png", "p/0.3.png", "p/2.1.png", "p/2.3.png"],
        "{n}/{layer}.json": ["1/0.json", "1/2.json"],
        "{head}.npz": ["1.npz", "3.npz"],
    }
    assert found == expected[name]
