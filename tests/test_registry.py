import os
import sys
from pathlib import Path

import pytest

from attnviz.errors import AttnvizError, RequestError
from attnviz.lazy import function
from attnviz.sources.registry import DEFAULT_MODEL, NAMED, OPENERS, open_model
from tests.models import make_bert, random_tensors


def test_the_bundled_model_is_the_default() -> None:
    model = open_model(DEFAULT_MODEL, {})
    assert (model.name, model.n_layers, model.n_heads) == ("minilm", 6, 12)


def test_scratch_takes_its_options() -> None:
    model = open_model("scratch", {"n_heads": 3, "d_model": 9, "positions": False})
    assert (model.name, model.n_layers, model.n_heads) == ("scratch", 1, 3)
    assert model.provenance["positions"] is False
    assert open_model("scratch", {}).n_heads == 4


def test_any_other_name_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bert(tmp_path / "own")
    model = open_model(str(tmp_path / "own"), {})
    assert (model.name, model.n_layers, model.n_heads) == ("own", 3, 5)
    monkeypatch.chdir(tmp_path)
    assert open_model("own", {}).name == open_model("./own/", {}).name == "own"


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    make_bert(tmp_path / "own")
    (tmp_path / "link").symlink_to("own")
    assert open_model(str(tmp_path / "link"), {}).n_heads == 5


@pytest.mark.parametrize(
    "name", ["./no/such/dir", "no-such-model", "bert-base-uncased", "org/name", "x" * 300, "a\0b", "minilm/"]
)
def test_a_name_that_is_neither_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        RequestError, match="is not found: it is neither minilm nor scratch nor a folder that exists"
    ) as error:
        open_model(name, {})
    assert repr(name) in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(("name", "folder"), [("owner/tiny", "models--owner--tiny"), ("tiny", "models--tiny")])
def test_a_name_in_the_cache_is_its_newest_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshots = tmp_path / folder / "snapshots"
    for commit, time, seed in (("a1", 100, 1), ("b2", 300, 2), ("c3", 200, 3)):
        make_bert(snapshots / commit, random_tensors(seed=seed))
        os.utime(snapshots / commit, (time, time))
    hashes = {c: open_model(str(snapshots / c), {}).provenance["model_sha256"] for c in ("a1", "b2", "c3")}
    model = open_model(name, {})
    assert (model.name, model.provenance["model_sha256"]) == (name, hashes["b2"])
    (tmp_path / folder / "refs").mkdir()
    (tmp_path / folder / "refs" / "main").write_text("c3", encoding="utf-8")
    assert open_model(name, {}).provenance["model_sha256"] == hashes["c3"]


def test_a_name_that_is_not_in_the_cache_is_refused_with_how_to_fetch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--owner--empty").mkdir()
    for name in ("owner/tiny", "owner/empty"):
        with pytest.raises(RequestError, match="nor in the local cache; to fetch it, add --allow-download"):
            open_model(name, {})
    for path in ("./owner/tiny", "a/b/c", "/owner"):
        with pytest.raises(RequestError, match=r"nor a folder that exists$"):
            open_model(path, {})


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_what_other_models_need_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(AttnvizError, match=rf"\({missing} missing\): pip install 'attnviz\[hf\]'") as error:
        open_model(str(tmp_path), {})
    assert error.value.exit_code == 3
    with pytest.raises(AttnvizError, match="minilm is run by torch and transformers"):
        open_model("minilm", {}, runner="pytorch")


def test_what_cannot_run_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(RequestError, match="a gguf file, which --source own does not read"):
        open_model(str(tmp_path / "model.gguf"), {}, runner="own")
    with pytest.raises(RequestError, match="--source pytorch runs trained models, and scratch is none"):
        open_model("scratch", {}, runner="pytorch")


@pytest.mark.parametrize(("typed", "meant"), [("minilmm", "minilm"), ("MiniLM", "minilm"), ("scrath", "scratch")])
def test_a_name_mistyped_is_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, meant: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=f"did you mean {meant}\\?"):
        open_model(typed, {})


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RequestError, match="is a file, not a checkpoint folder"):
        open_model(str(tmp_path / "file"), {})


def test_a_loop_of_links_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(AttnvizError, match="cannot be looked at"):
        open_model(str(tmp_path / "loop"), {})


@pytest.mark.parametrize("name", ["minilm", "no-such-model"])
def test_options_of_the_scratch_model_are_refused_for_another(name: str) -> None:
    with pytest.raises(RequestError, match=f"shape the scratch model, not {name}: say --model scratch"):
        open_model(name, {"seed": 0})


@pytest.mark.parametrize("target", [*NAMED.values(), *OPENERS.values()])
def test_what_is_named_is_there(target: str) -> None:
    assert callable(function(target))
