"""The sample scripts, run as they are written."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attnviz import Rule, attend
from tests.cli import run

SAMPLES = Path(__file__).parent.parent / "sample_inputs"
Script = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the sample scripts are for bash")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs a sample script with an `attnviz` on its path."""
    shim = tmp_path / "bin" / "attnviz"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m attnviz "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    env = {"PATH": f"{shim.parent}:/usr/bin:/bin", "PYTHONPATH": str(SAMPLES.parent), "HOME": str(tmp_path)}

    def go(name: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        command = ["bash", SAMPLES / name, *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)

    return go


def test_every_script_is_tested_and_can_be_run() -> None:
    own = Path(__file__).read_text("utf-8")
    for path in SAMPLES.glob("*.sh"):
        assert f'script("{path.name}"' in own
        assert os.access(path, os.X_OK)


def test_pictures(script: Script, tmp_path: Path) -> None:
    done = script("pictures.sh", SAMPLES / "sentences.pt.txt", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1.png", "2.png", "3.png", "4.png"]
    assert "4 pictures" in done.stdout


def test_compare_heads(script: Script) -> None:
    one, two = "The cat, it sat", "The dog, it sat"
    done = script("compare-heads.sh", one, two)
    assert done.returncode == 0, done.stderr
    gaps = np.abs(attend(one).weights.astype(float) - attend(two).weights).mean((2, 3))
    listed = [re.fullmatch(r"(\d+)\.(\d+) (0\.\d{4})", line) for line in done.stdout.splitlines()]
    assert len(listed) == gaps.size
    found = {(int(match[1]), int(match[2])): float(match[3]) for match in listed if match}
    assert found == pytest.approx(dict(np.ndenumerate(gaps)), abs=6e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_compare_heads_of_sentences_that_cannot_be_compared(script: Script) -> None:
    done = script("compare-heads.sh", "one two", "one two three", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the sentences have different numbers of tokens\n"


def test_strongest(script: Script) -> None:
    done = script("strongest.sh", "Orange is my favorite fruit", "5")
    assert done.returncode == 0, done.stderr
    weights = attend("Orange is my favorite fruit", hide_special=True).weights
    others = weights * (1 - np.eye(5, dtype=np.float32))
    lines = done.stdout.splitlines()
    assert [float(line.split()[0]) for line in lines] == pytest.approx(np.sort(others.ravel())[:-6:-1], abs=6e-5)
    assert lines[0] == "1.0000 0.2 is -> Orange"


def test_strongest_with_commas(script: Script) -> None:
    done = script("strongest.sh", "a , , b", "100")
    assert done.returncode == 0, done.stderr
    linked = {line.split(" ", 2)[2] for line in done.stdout.splitlines()}
    assert linked == {f"{one} -> {two}" for one in ("a", "b", "comma") for two in ("a", "b", "comma")} - {
        "a -> a",
        "b -> b",
    }


@pytest.mark.parametrize("suffix", ["npz", "csv", "safetensors"])
def test_no_leak(script: Script, tmp_path: Path, suffix: str) -> None:
    attend("The cat sat", model="scratch", rule=Rule(causal=True)).save(tmp_path / f"good.{suffix}")
    attend("The cat sat", model="scratch").save(tmp_path / f"bad.{suffix}")
    good, bad = (script("no-leak.sh", tmp_path / f"{name}.{suffix}") for name in ("good", "bad"))
    assert (good.returncode, good.stdout) == (0, "no leak\n"), good.stderr
    assert bad.returncode == 1, bad.stderr
    weights = attend("The cat sat", model="scratch").weights
    worst = np.triu(weights, 1).max()
    match = re.fullmatch(r"leak: head 0\.(\d) from (\d) to (\d) has weight (0\.\d+)\n", bad.stdout)
    assert match
    head, query, key = map(int, match.groups()[:3])
    assert weights[0, head, query, key] == worst == pytest.approx(float(match[4]), abs=1e-6)


def test_rank_heads(script: Script) -> None:
    done = script("rank-heads.sh", SAMPLES / "sentences.en.txt", "previous", "3")
    assert done.returncode == 0, done.stderr
    sentences = [line for line in (SAMPLES / "sentences.en.txt").read_text("utf-8").splitlines() if line]
    rows = [np.diagonal(attend(one).weights, -1, 2, 3) for one in sentences]
    means = np.concatenate(rows, -1).mean(-1)
    best = np.argsort(-means.ravel(), kind="stable")[:3]
    assert [line.split()[0] for line in done.stdout.splitlines()] == [f"{i // 12}.{i % 12}" for i in best.tolist()]
    values = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert values == pytest.approx(means.ravel()[best], abs=6e-5)


def test_attention_moved(script: Script, tmp_path: Path) -> None:
    first = script("attention-moved.sh", tmp_path / "base.npz", "The cat sat")
    assert (first.returncode, first.stdout) == (0, f"baseline written to {tmp_path / 'base.npz'}\n"), first.stderr
    again = script("attention-moved.sh", tmp_path / "base.npz", "The cat sat")
    assert again.returncode == 0, again.stderr
    assert "none of 72 heads changed by more than 0.001" in again.stdout
    moved = script("attention-moved.sh", tmp_path / "base.npz", "The cat sat", "--causal")
    assert moved.returncode == 1, moved.stderr
    assert re.search(r"7\d of 72 heads changed by more than 0.001", moved.stdout)  # one looks back by itself


def test_a_script_fails_with_the_program(script: Script, tmp_path: Path) -> None:
    done = script("no-leak.sh", tmp_path / "missing.npz")
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert run("heads", "--attention", str(tmp_path / "missing.npz")).code == 2
