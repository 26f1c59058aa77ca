"""Every error of every command: exit code, one clear message, nothing written."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attnviz import load
from attnviz.render import FORMATS
from tests.cli import error, run

ORANGE = "Orange is my favorite fruit"


@pytest.mark.parametrize("text", ["", " ", "\t \n", "\u3000"])
@pytest.mark.parametrize("model", ["minilm", "scratch"])
def test_text_without_tokens_is_refused(text: str, model: str) -> None:
    assert "no tokens" in error("heads", text, "--model", model, code=2)


@pytest.mark.parametrize("text", ["-5 degrees outside", "-x marks", "--dashes first"])
def test_text_that_begins_with_a_dash_is_told_to_go_after_two_dashes(text: str) -> None:
    assert "goes after --" in error("heads", text, code=2)
    assert run("heads", "--model", "scratch", "--", text).code == 0


@pytest.mark.parametrize("option", ["--attention", "-o", "--layer"])
def test_an_option_without_its_value_is_not_taken_for_a_text(option: str) -> None:
    message = error("heads", "a b", option, code=2)
    assert option in message
    assert "goes after --" not in message


def test_no_text_is_an_error_and_does_not_wait() -> None:
    message = error("heads", code=2)
    assert "-f" in message
    assert "standard input" in message


@pytest.mark.parametrize("name", ["{laeyr}.png", "out/{layer}/{Head}.json", "{0}.npz"])
def test_a_place_that_stands_for_nothing_is_refused(name: str, tmp_path: Path) -> None:
    assert "stands for nothing; there is {n}, {layer}, {head}" in error(
        "heads", "a b", "-o", str(tmp_path / name), code=2
    )


def test_a_pipe_that_never_sends_is_not_waited_for() -> None:
    read, write = os.pipe()
    done = subprocess.run(
        [sys.executable, "-m", "attnviz", "heads"], check=False, stdin=read, capture_output=True, timeout=60
    )
    os.close(read)
    os.close(write)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"no text" in done.stderr


@pytest.mark.parametrize("content", ["", " \n\t\n", "\ufeff\r\n"])
def test_a_file_without_tokens_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text(content, encoding="utf-8")
    assert re.search("no tokens|empty", error("heads", "-f", str(tmp_path / "blank.txt"), code=2))


def test_text_given_twice(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b", encoding="utf-8")
    assert "twice" in error("heads", "a b", "-f", str(tmp_path / "t.txt"), code=2)


def test_empty_standard_input() -> None:
    assert "empty" in error("heads", "-", code=2, stdin=b"\n \n")


@pytest.mark.parametrize("content", [b"caf\xe9 noir", b"ok\nfa\xc3"])
def test_bytes_that_are_not_utf8_are_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes(content)
    assert "not UTF-8" in error("heads", "-f", str(file), code=2)
    assert "not UTF-8" in error("heads", "-", code=2, stdin=content)


@pytest.mark.parametrize("text", ["caf\udce9 noir", "\udcff"])
def test_an_argument_that_is_not_utf8(text: str) -> None:
    assert "not valid UTF-8" in error("heads", text, code=2)


@pytest.mark.parametrize("model", ["minilm", "scratch"])
def test_a_nul_character_is_named(model: str, tmp_path: Path) -> None:
    (tmp_path / "b.bin").write_bytes(b"ab\0cd")
    assert "NUL" in error("heads", "-f", str(tmp_path / "b.bin"), "--model", model, code=2)


def test_a_missing_text_file_and_a_folder(tmp_path: Path) -> None:
    assert "does not exist" in error("heads", "-f", str(tmp_path / "none.txt"), code=2)
    assert "folder" in error("heads", "-f", str(tmp_path), code=2)


@pytest.mark.parametrize("n_words", [511, 100_000])
def test_too_many_tokens_names_both_numbers_and_the_way_out(n_words: int, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a " * n_words, encoding="utf-8")
    message = error("heads", "-f", str(tmp_path / "long.txt"), code=2)
    assert f"{n_words + 2} tokens" in message
    assert "512" in message
    assert "--truncate" in message


def test_too_much_memory_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a " * 100_000, encoding="utf-8")
    message = error("heads", "-f", str(tmp_path / "long.txt"), "--model", "scratch", "--format", "json", code=2)
    assert "360.0 GB" in message  # the maps, and the array that they are put into
    assert "--head" in message


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--layer", "6", ["no layer 6", "0 to 5", "counted from 0"]),
        ("--layer", "-7", ["no layer -7", "0 to 5"]),
        ("--layer", "1-9", ["no layer 9"]),
        ("--layer", "one", ["'one'", "0,3-5"]),
        ("--layer", "4-2", ["backwards", "2-4"]),
        ("--head", "12", ["no head 12", "0 to 11"]),
        ("--head", "5.99", ["no head 99", "0 to 11"]),
        ("--head", "9.1", ["no layer 9", "0 to 5"]),
        ("--head", "", ["--head"]),
        ("--query", "apple", ["'apple'", "Orange", "favorite"]),
        ("--query", "7", ["no query 7", "0 to 6"]),
    ],
)
def test_a_layer_head_or_query_that_is_not_there(option: str, value: str, words: list[str]) -> None:
    message = error("heads", ORANGE, option, value, code=2)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("d_model", "n_heads", "divisors"),
    [("6", "4", "1, 2, 3 or 6"), ("512", "7", "256 or 512"), ("10", "3", "1, 2, 5 or 10"), ("1", "2", "(1)")],
)
def test_heads_that_do_not_divide_the_width_are_told_what_would(d_model: str, n_heads: str, divisors: str) -> None:
    message = error("heads", "a b", "--model", "scratch", "--d-model", d_model, "--n-heads", n_heads, code=2)
    assert d_model in message
    assert n_heads in message
    assert divisors in message


@pytest.mark.parametrize("option", ["--n-heads", "--d-model"])
@pytest.mark.parametrize("value", ["0", "-3", "2.5", "many"])
def test_sizes_must_be_positive_whole_numbers(option: str, value: str) -> None:
    message = error("heads", "a b", "--model", "scratch", option, value, code=2)
    assert option in message
    assert value in message


def test_scratch_options_belong_to_the_scratch_model() -> None:
    assert "--model scratch" in error("heads", "a b", "--n-heads", "2", code=2)
    assert "--model scratch" in error("heads", "a b", "--no-scale", code=2)


@pytest.mark.parametrize(
    ("model", "meant"), [("./no/such/dir", ""), ("minilmm", "did you mean minilm"), ("[/]", "[/]")]
)
def test_a_model_that_is_not_there(model: str, meant: str) -> None:
    message = error("heads", "a b", "--model", model, code=2)
    assert "not found" in message
    assert model in message
    assert meant in message


def test_a_model_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    assert "config.json" in error("heads", "a b", "--model", str(tmp_path), code=2)


def test_another_kind_of_model_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    message = error("heads", "a b", "--model", str(tmp_path), code=3)
    assert "run by torch and transformers (transformers missing)" in message
    assert "attnviz[hf]" in message


def test_control_characters_do_not_reach_the_terminal_in_errors() -> None:
    message = error("heads", "a b", "--model", "/no/\x1b[2Jsuch", code=2)
    assert "\x1b" not in message
    assert "\\x1b[2Jsuch" in message
    message = error("heads", "a b", "-o", "/no/\x1b[2Jsuch/x.png", code=2)
    assert "\x1b" not in message
    assert "␛[2Jsuch" in message


@pytest.mark.parametrize("name", ["x.unknown", "x", "x.pngg"])
def test_an_unknown_suffix_names_the_known_ones(name: str, tmp_path: Path) -> None:
    message = error("heads", "a b", "-o", str(tmp_path / name), code=2)
    assert ".png" in message
    assert ".json" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_that_is_missing_or_is_the_output(name: str, tmp_path: Path) -> None:
    assert str(tmp_path / "no") in error("heads", "a b", "-o", str(tmp_path / "no" / f"x.{name}"), code=2)
    (tmp_path / f"x.{name}").mkdir()
    assert "folder" in error("heads", "a b", "-o", str(tmp_path / f"x.{name}"), code=2)
    assert "folder" in error("heads", "a b", "-o", str(tmp_path), "--format", name, code=2)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_an_output_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert "permission" in error("heads", "a b", "-o", str(tmp_path / "x.png"), code=3)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk(name: str) -> None:
    message = error("heads", "a b", "-o", "/dev/full", "--format", name, code=3)
    assert "/dev/full" in message


def test_an_output_that_is_the_input(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("a b", encoding="utf-8")
    assert "also the input" in error("heads", "-f", str(file), "-o", str(file), code=2)
    assert file.read_text(encoding="utf-8") == "a b"


def test_the_same_output_twice(tmp_path: Path) -> None:
    assert "twice" in error("heads", "a b", "-o", str(tmp_path / "x.png"), "-o", str(tmp_path / "x.png"), code=2)


def test_a_format_without_use_and_an_unknown_one(tmp_path: Path) -> None:
    assert "no use" in error("heads", "a b", "-o", str(tmp_path / "x.png"), "--format", "json", code=2)
    assert "jsonn" in error("heads", "a b", "--format", "jsonn", code=2)
    assert "--format" in error("heads", "a b", "-o", str(tmp_path / "x"), "--format", "terminal", code=2)


@pytest.mark.parametrize("name", [one.name for one in FORMATS.values() if not one.several])
def test_several_sentences_do_not_fit_into_one_output(name: str, tmp_path: Path) -> None:
    message = error("heads", "-", "-o", str(tmp_path / f"x.{name}"), code=2, stdin=b"a b\nc d\n")
    assert "2 sentences" in message
    assert "jsonl" in message
    assert f"{{n}}.{name}" in message
    assert not list(tmp_path.iterdir())


def test_different_heads_by_layer_are_written_apart(tmp_path: Path) -> None:
    assert run("heads", ORANGE, "--head", "0.1,2.3", "-o", str(tmp_path / "x.npz")).code == 0
    assert [(one.layer, one.heads) for one in load(tmp_path / "x.npz").maps] == [(0, (1,)), (2, (3,))]


@pytest.mark.parametrize("arguments", [["--nope"], ["heads", "a b", "--nope"], ["headz", "a b"], ["heads", "a", "b"]])
def test_usage_errors_exit_with_2(arguments: list[str]) -> None:
    error(*arguments, code=2)


@pytest.mark.parametrize(
    ("typed", "meant"), [("--atention", "--attention"), ("--color-scal", "--color-scale"), ("--n-head", "--n-heads")]
)
def test_an_option_that_is_mistyped_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    message = error("heads", "a b", typed, "1", code=2)
    assert typed in message
    assert f"{meant}" in message.replace(typed, "", 1)


@pytest.mark.parametrize(
    ("option", "value"), [("--width", "5"), ("--precision", "0"), ("--precision", "99"), ("--cmap", "rainbow")]
)
def test_looks_that_are_not_possible(option: str, value: str) -> None:
    message = error("heads", "a b", option, value, code=2)
    assert option in message
    assert value in message


def test_a_checkpoint_with_nan_names_the_tensor(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from attnviz.sources.encoder import BUNDLED

    folder = tmp_path / "broken"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((BUNDLED / "minilm" / name).read_bytes())
    tensors = load_file(BUNDLED / "minilm" / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    tensors[name] = tensors[name].copy()
    tensors[name][3, 4] = np.nan
    save_file(tensors, folder / "model.safetensors")
    message = error("heads", ORANGE, "--model", str(folder), "-o", str(tmp_path / "x.png"), code=3)
    assert f"{name}[3, 4]" in message
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize("name", ["terminal", *FORMATS])
def test_a_closed_pipe_ends_quietly(name: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "attnviz", "heads", "a b", "--model", "scratch", "--format", name],
        check=False,
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_with_its_code_and_leaves_no_file(name: str, code: int, tmp_path: Path) -> None:
    fifo = tmp_path / "text"
    os.mkfifo(fifo)
    # a shell in the background ignores interrupts, and what it starts inherits that
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heeding}; from attnviz.__main__ import main; main()"
    outputs = [f"-o{tmp_path}/x.{kind}" for kind in FORMATS]
    command = [sys.executable, "-c", program, "heads", "-f", str(fifo), *outputs]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    with fifo.open("wb"):  # opens when the command has begun to read
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_written_files_have_the_usual_rights(tmp_path: Path) -> None:
    assert run("heads", "a b", "--model", "scratch", "-o", str(tmp_path / "x.json")).code == 0
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o666 & ~umask
