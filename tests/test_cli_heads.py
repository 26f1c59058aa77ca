"""What `attnviz heads` gives, seen from outside."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from wcwidth import wcswidth

import attnviz
from attnviz.render import FORMATS
from tests.cli import run

ORANGE = "Orange is my favorite fruit"
ESCAPE = b"\x1b"


def process(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """`attnviz` as a process of its own, with these variables."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    command = [sys.executable, "-m", "attnviz", *arguments]
    return subprocess.run(
        command, check=False, env={**kept, **(env or {})}, capture_output=True, stdin=subprocess.DEVNULL
    )


def test_the_main_job_shows_twelve_heads_of_the_first_layer() -> None:
    answer = run("heads", ORANGE, env={"COLUMNS": "100"})
    assert answer.code == 0
    assert answer.err == ""
    assert [int(n) for n in re.findall(r"\bhead (\d+)", answer.text)] == list(range(12))
    assert "layer 0" in answer.text
    assert answer.text.count("favorite  ") + answer.text.count("favorite ") >= 12
    assert "weight 0 to 1" in answer.text
    record = attnviz.attend(ORANGE, layers=[0])
    row = " ".join(f"{round(100 * w):2d}" for w in record.weights[0, 0, 4])
    assert f"favorite  {row}" in answer.text


def test_three_panels_stand_on_a_line_of_100_columns() -> None:
    titles = re.findall(r"^head 0 .*$", run("heads", ORANGE, env={"COLUMNS": "100"}).text, re.M)
    assert [re.findall(r"head \d+", line) for line in titles] == [["head 0", "head 1", "head 2"]]


@pytest.mark.parametrize("columns", [20, 40, 80, 100, 200])
@pytest.mark.parametrize("text", [ORANGE, "a b c d e f g h i j k l", "日本語と 👩‍👩‍👧 [/INST] $x$ שלום e\u0301", "cat"])
def test_no_line_is_wider_than_the_terminal(columns: int, text: str) -> None:
    for arguments in ([], ["--layer", "all"], ["--query", "2"], ["--hide-special"]):
        by_variable = run("heads", text, *arguments, env={"COLUMNS": str(columns)})
        by_option = run("heads", text, *arguments, "--width", str(columns))
        assert by_variable.code == 0
        assert by_variable.out == by_option.out
        for line in by_variable.text.splitlines():
            assert wcswidth(line.rstrip()) <= columns, line


@pytest.mark.parametrize("text", ["[red]stop[/red] [/]", ":smile: :warning:", "[CLS] [/INST] [link=x]"])
def test_tokens_are_never_markup(text: str) -> None:
    shown = run("heads", text, "--model", "scratch", "--layer", "0", "--query", "0", "--width", "200").text
    for piece in attnviz.attend(text, model="scratch").maps[0].query.pieces:
        assert piece in shown
    assert text in shown


@pytest.mark.parametrize("options", [[], ["--layer", "all"], ["--query", "b"], ["--color-scale", "rank"]])
def test_colour_follows_the_variables(options: list[str]) -> None:
    asked = ["heads", "a b c", "--model", "scratch", *options]
    plain = run(*asked)
    assert ESCAPE not in plain.out
    assert ESCAPE not in run(*asked, env={"NO_COLOR": "1"}).out
    assert ESCAPE not in run(*asked, env={"NO_COLOR": "1", "FORCE_COLOR": "1"}).out
    assert ESCAPE in run(*asked, env={"FORCE_COLOR": "1"}).out
    assert ESCAPE in run(*asked, env={"FORCE_COLOR": "1", "TERM": "dumb"}).out
    assert ESCAPE not in run(*asked, "--format", "json", env={"FORCE_COLOR": "1"}).out


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_any_encoding_of_the_terminal_will_do(encoding: str) -> None:
    done = process("heads", "the cat 日本 👩‍👩‍👧 café", "--head", "0", env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    text = done.stdout.decode(encoding)
    assert "cat" in text
    if encoding != "utf-8":
        assert r"\u65e5" in text


@pytest.mark.parametrize("word", ["cão", "שלום"])
def test_a_c_locale_will_do(tmp_path: Path, word: str) -> None:
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    asked = ["heads", f"o {word} b", "--model", "scratch"]
    done = process(*asked, "--format", "json", "-o", "-", *(f"-o{tmp_path}/x.{name}" for name in FORMATS), env=bare)
    assert done.returncode == 0
    for content in (done.stdout, (tmp_path / "x.json").read_bytes(), (tmp_path / "x.jsonl").read_bytes()):
        assert json.loads(content.decode("utf-8"))["query_text"] == ["o", word, "b"]
    assert word in (tmp_path / "x.csv").read_text("utf-8")
    assert word in (tmp_path / "x.txt").read_text("utf-8")
    shown = process(*asked, env=bare)
    assert (shown.returncode, shown.stdout.isascii()) == (0, True)


@pytest.mark.parametrize(
    "env",
    [
        {"MPLBACKEND": "TkAgg", "DISPLAY": ""},
        {"MPLBACKEND": "module://no.such", "MPLCONFIGDIR": "/proc/none"},
        {"HOME": "/proc"},
        {"HOME": "", "XDG_CACHE_HOME": "/dev/null", "XDG_CONFIG_HOME": "/dev/null"},
    ],
)
def test_pictures_need_no_display_and_no_home(env: dict[str, str], tmp_path: Path) -> None:
    outputs = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}
    done = process("heads", "a b", *(f"-o{tmp_path}/x.{name}" for name in outputs), env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    for name, start in outputs.items():
        assert (tmp_path / f"x.{name}").read_bytes().startswith(start)


def test_several_outputs_of_one_run_agree(tmp_path: Path) -> None:
    names = [f"all.{name}" for name in FORMATS]
    answer = run("heads", ORANGE, "--layer", "all", *(x for n in names for x in ("-o", str(tmp_path / n))))
    assert (answer.code, answer.out, answer.err) == (0, b"", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    record = attnviz.attend(ORANGE)
    for name in ("all.json", "all.npz"):
        loaded = attnviz.load(tmp_path / name)
        np.testing.assert_array_equal(loaded.weights, record.weights)
        assert [one.query for one in loaded.maps] == [one.query for one in record.maps]
        assert loaded.provenance == record.provenance


def test_machines_get_every_layer_and_people_the_first(tmp_path: Path) -> None:
    assert run("heads", ORANGE, "--format", "json").json["layers"] == [0, 1, 2, 3, 4, 5]
    assert "layer 1" not in run("heads", ORANGE).text
    assert run("heads", ORANGE, "--layer", "2", "--format", "json").json["layers"] == [2]
    assert "layer 2" in run("heads", ORANGE, "--layer", "2").text


def test_layer_all_is_an_overview_of_layers_by_heads() -> None:
    text = run("heads", ORANGE, "--layer", "all", "--width", "120").text
    for layer in range(6):
        assert f"layer {layer}" in text
    assert len(text.splitlines()) < 80


@pytest.mark.parametrize(
    ("arguments", "shape", "heads"),
    [
        (["--layer", "0,3-5", "--head", "0,3"], (4, 2, 7, 7), [0, 3]),
        (["--layer", "-1", "--head", "11"], (1, 1, 7, 7), [11]),
        (["--head", "5.3"], (1, 1, 7, 7), [3]),
        (["--query", "favorite"], (6, 12, 1, 7), list(range(12))),
        (["--query", "-1", "--layer", "1"], (1, 12, 1, 7), list(range(12))),
        (["--hide-special", "--layer", "1"], (1, 12, 5, 5), list(range(12))),
        (["--hide-special", "--query", "is"], (6, 12, 1, 5), list(range(12))),
        (["--single", "--layer", "2"], (1, 13, 7, 7), ["single", *range(12)]),
        (["--single", "--head", "7", "--layer", "2"], (1, 2, 7, 7), ["single", 7]),
    ],
)
def test_what_is_selected_is_what_numbers_hold(
    arguments: list[str], shape: tuple[int, ...], heads: list[object], tmp_path: Path
) -> None:
    out = run("heads", ORANGE, *arguments, "--format", "json")
    assert out.code == 0
    weights = np.array(out.json["weights"])
    assert weights.shape == shape
    assert out.json["heads"] == heads
    full = attnviz.attend(ORANGE, single=True).weights
    indices = [0 if head == "single" else int(str(head)) + 1 for head in heads]
    expected = full[np.ix_(out.json["layers"], indices)]
    if "--query" in arguments:
        row = {"favorite": 4, "-1": 6, "is": 2}[arguments[arguments.index("--query") + 1]]
        expected = expected[:, :, [row]]
    if "--hide-special" in arguments:
        expected = expected[:, :, :, 1:-1] if "--query" in arguments else expected[:, :, 1:-1, 1:-1]
    np.testing.assert_allclose(weights, expected, rtol=1e-8)
    assert len(out.json["query_tokens"]) == shape[2]
    assert len(out.json["key_text"]) == shape[3]


def test_a_repeated_query_token_gives_all_its_rows() -> None:
    out = run("heads", "the cat saw the cat the", "--query", "the", "--layer", "0", "--format", "json").json
    assert out["query_text"] == ["the", "the", "the"]
    assert out["query_spans"] == [[0, 3], [12, 15], [20, 23]]


def test_hidden_tokens_mass_is_said_and_right() -> None:
    answer = run("heads", ORANGE, "--hide-special", "--layer", "0", "--format", "json")
    weights = attnviz.attend(ORANGE, layers=[0]).weights[0]
    mass = 1 - weights[:, 1:-1, 1:-1].sum(-1).mean(-1)
    note = f"{mass.mean():.0%} of the weight, {mass.min():.0%} to {mass.max():.0%} by head"
    assert note in answer.err
    assert note in answer.json["notes"][0]
    panel = run("heads", ORANGE, "--hide-special", "--width", "100").text
    assert f"head 0 · {mass[0]:.0%} hidden" in panel


def test_hiding_special_tokens_where_there_are_none_says_so() -> None:
    answer = run("heads", "a b", "--model", "scratch", "--hide-special")
    assert answer.code == 0
    assert "no special tokens" in answer.err


def test_unknown_words_are_named(tmp_path: Path) -> None:
    answer = run("heads", "the ☂𓂀 cat", "--layer", "0", "--format", "json")
    assert "[UNK]" in answer.json["query_tokens"]
    assert "[UNK]" in answer.err
    assert "☂𓂀" in answer.err


def test_one_sentence_a_line_from_standard_input() -> None:
    answer = run("heads", "-", "--model", "scratch", stdin="\ufeffa cat\n\n  \no cão já\r\n".encode())
    assert answer.code == 0
    assert answer.text.count("layer 0") == 2
    assert "a cat" in answer.text
    assert "o cão já" in answer.text


def test_one_line_from_standard_input_may_go_anywhere(tmp_path: Path) -> None:
    answer = run("heads", "-", "-o", str(tmp_path / "x.npz"), "-o", "-", "--format", "json", stdin=b"a cat\n")
    np.testing.assert_allclose(attnviz.load(tmp_path / "x.npz").weights, answer.json["weights"], rtol=1e-8)


@pytest.mark.parametrize(
    "text",
    [
        "Don't stop: state-of-the-art costs $3.14, ok?\nSecond line.",
        "It's 10:30 p.m. (or so) — they'd paid £1,000.50; e-mail me@example.com!",
        "l'été, qu'il dit... «oui»? #1 & 50%/2",
    ],
)
def test_a_file_is_one_text_of_which_nothing_is_lost(tmp_path: Path, text: str) -> None:
    file = tmp_path / "punct.txt"
    file.write_text(text + "\n", encoding="utf-8")
    for model in ("minilm", "scratch"):
        out = run("heads", "-f", str(file), "--model", model, "--format", "json").json
        shown = "".join(t for t, special in zip(out["query_text"], out["query_special"], strict=True) if not special)
        assert shown.replace("##", "") == re.sub(r"\s", "", text)


@pytest.mark.parametrize(("text", "seed", "other"), [("o cão já comeu", "0", "7"), ("a b c d e", "11", "12")])
def test_same_request_same_bytes_in_every_process(tmp_path: Path, text: str, seed: str, other: str) -> None:
    files = [tmp_path / f"x.{name}" for name in FORMATS]
    asked = ["heads", text, "--model", "scratch", *(f"-o{file}" for file in files), "--with-output", "--seed"]

    def made(seed: str, hash_seed: str) -> list[bytes]:
        assert process(*asked, seed, env={"PYTHONHASHSEED": hash_seed}).returncode == 0
        return [file.read_bytes() for file in files]

    first = made(seed, "1")
    assert made(seed, "2") == first
    assert run(*asked, other).code == 0
    assert all(file.read_bytes() != before for file, before in zip(files, first, strict=True))
    assert json.loads((tmp_path / "x.json").read_bytes())["provenance"]["seed"] == int(other)


def test_provenance_is_enough_to_make_it_again_and_holds_no_place() -> None:
    out = run(
        "heads", "the cat", "--model", "scratch", "--seed", "3", "--n-heads", "2", "--no-scale", "--format", "json"
    )
    said = out.json["provenance"]
    assert {
        "seed": 3,
        "n_heads": 2,
        "d_model": 32,
        "scale": False,
        "positions": True,
        "text": "the cat",
    }.items() <= said.items()
    assert said["attnviz"] == attnviz.__version__
    assert "seed 3" in run("heads", "the cat", "--model", "scratch", "--seed", "3").text


@pytest.mark.parametrize("text", ["cat", "."])
def test_one_token_attends_to_itself(text: str, tmp_path: Path) -> None:
    outs = [x for name in FORMATS for x in ("-o", str(tmp_path / f"x.{name}"))]
    answer = run("heads", text, "--model", "scratch", "--n-heads", "2", *outs)
    assert (answer.code, answer.err) == (0, "")
    assert attnviz.load(tmp_path / "x.json").weights.tolist() == [[[[1.0]], [[1.0]]]]


def test_truncate_keeps_the_special_tokens_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a " * 600, encoding="utf-8")
    answer = run("heads", "-f", str(tmp_path / "long.txt"), "--truncate", "--layer", "0", "-o", str(tmp_path / "x.npz"))
    assert answer.code == 0
    assert "602 tokens; only the first 512" in answer.err
    tokens = attnviz.load(tmp_path / "x.npz").maps[0].query
    assert (len(tokens), tokens.pieces[0], tokens.pieces[-1]) == (512, "[CLS]", "[SEP]")


def test_with_output_adds_the_attention_output() -> None:
    assert "output" not in run("heads", "a b", "--format", "json").json
    out = run("heads", "a b", "--with-output", "--format", "json").json
    assert np.array(out["output"]).shape == (6, 4, 384)


def test_much_json_is_told_that_there_is_a_leaner_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.cli.takers.MUCH_JSON", 1000)
    answer = run("heads", "a b", "--format", "json")
    assert "npz" in answer.err
    assert "--layer" in answer.err


def test_version_is_one_line() -> None:
    assert run("--version").text == f"attnviz {attnviz.__version__}\n"


def test_output_goes_through_a_link_and_replaces_the_file_whole(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    assert run("heads", "a b", "--model", "scratch", "-o", str(link)).code == 0
    assert link.is_symlink()
    assert json.loads(target.read_text(encoding="utf-8"))["schema"] == "attnviz/1"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["heads", ORANGE]])
def test_starting_brings_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import os, sys, runpy; sys.argv = ['attnviz', *sys.argv[1:]]\n"
        "os._exit = sys.exit  # so that something is left to ask\n"
        "try: runpy.run_module('attnviz', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('\\nLOADED', *sorted(m for m in sys.modules if '.' not in m))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    heavy = {"torch", "transformers", "matplotlib", "PIL", "scipy"}
    if arguments[0] != "heads":
        heavy |= {"numpy", "tokenizers", "safetensors"}
    assert "typer" in loaded
    assert not loaded & heavy


def test_npz_on_standard_output_is_whole() -> None:
    out = run("heads", "a b", "--format", "npz").out
    with np.load(io.BytesIO(out), allow_pickle=False) as archive:
        assert archive["weights"].shape == (6, 12, 4, 4)
