from pathlib import Path

import pytest

from attnviz.errors import AttnvizError, RequestError
from attnviz.lazy import function
from attnviz.sources.registry import DEFAULT_MODEL, FOLDER, NAMED, open_model
from tests.models import make_bert


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


@pytest.mark.parametrize("target", [*NAMED.values(), FOLDER])
def test_what_is_named_is_there(target: str) -> None:
    assert callable(function(target))
