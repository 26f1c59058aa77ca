import sys
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz import AttnvizError, RequestError, Rule, attend, placing
from attnviz.sources.encoder import open_bundled
from attnviz.sources.registry import SHAPES
from attnviz.sources.scratch import ScratchOptions
from tests.models import make_bert

TEXT = "Orange is my favorite fruit"


def test_the_public_names_are_there() -> None:
    for name in attnviz.__all__:
        assert getattr(attnviz, name) is not None
    with pytest.raises(AttributeError, match="module 'attnviz' has no attribute 'nothing'"):
        _ = attnviz.nothing


def test_what_needs_torch_says_so_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("attnviz.sources.capture_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "attnviz.sources.pytorch", raising=False)
    with pytest.raises(AttnvizError, match=r"attnviz.capture needs torch: pip install 'attnviz\[torch\]'"):
        _ = attnviz.capture


def test_the_record_holds_every_layer_and_head_of_the_text() -> None:
    record = attend(TEXT)
    assert record.weights.shape == (6, 12, 7, 7)
    assert record.weights.dtype == np.float32
    assert np.abs(record.weights.sum(-1) - 1).max() < 1e-5
    assert [one.layer for one in record.maps] == list(range(6))
    assert record.maps[0].query.pieces == ("[CLS]", "orange", "is", "my", "favorite", "fruit", "[SEP]")
    assert record.maps[0].query.text == ("[CLS]", "Orange", "is", "my", "favorite", "fruit", "[SEP]")
    assert record.provenance["text"] == TEXT
    assert record.provenance["model"] == "minilm"
    assert record.notes == ()


def test_layers_and_heads_are_chosen_by_number() -> None:
    every, some = attend(TEXT, single=True), attend(TEXT, layers=[-1, 2], heads=[11, 0])
    assert [one.layer for one in some.maps] == [2, 5]
    assert some.maps[0].heads == (0, 11)
    assert np.abs(some.weights - every.weights[[2, 5]][:, [1, 12]]).max() < 1e-6
    assert every.maps[0].heads == ("single", *range(12))


def test_special_tokens_are_hidden_with_their_rows_and_columns() -> None:
    every, hidden = attend(TEXT), attend(TEXT, hide_special=True)
    assert hidden.maps[0].query.text == tuple(TEXT.split())
    assert np.array_equal(hidden.weights, every.weights[:, :, 1:-1, 1:-1])
    assert hidden.weights.sum(-1).mean() < 0.9
    assert all(one.cut for one in hidden.maps)


def test_the_output_is_there_where_it_is_asked_for() -> None:
    assert attend(TEXT, layers=[0]).maps[0].output is None
    with_output = attend(TEXT, layers=[0], with_output=True).maps[0].output
    assert with_output is not None
    assert with_output.shape == (7, 384)
    of_scratch = attend(TEXT, model="scratch", d_model=12).maps[0].output
    assert of_scratch is not None
    assert of_scratch.shape == (5, 12)


def test_scratch_takes_its_options() -> None:
    record = attend("the cat", model="scratch", n_heads=3, d_model=9, seed=4, positions=False, scale=False)
    assert record.weights.shape == (1, 3, 2, 2)
    assert record.provenance["seed"] == 4
    with pytest.raises(RequestError, match="shape the scratch model"):
        attend("the cat", seed=4)


def test_what_shapes_the_scratch_model_is_what_it_takes() -> None:
    assert set(SHAPES) == {field.name for field in fields(ScratchOptions)}
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        attend("the cat", model="scratch", colour="red")


@pytest.mark.parametrize("wrong", [{"layers": 5}, {"heads": [1.5]}, {"layers": ["0"]}, {"heads": "01"}])
def test_what_is_no_list_of_numbers_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="give a list of whole numbers"):
        attend("the cat", **wrong)


def test_a_rule_holds_in_every_layer_and_is_in_the_provenance() -> None:
    mask = np.array([[True, True, False, True]] * 4)
    record = attend("a b", rule=Rule(causal=True, window=3, mask=mask))
    allowed = np.tril(np.ones((4, 4), bool)) & ~np.tril(np.ones((4, 4), bool), -3) & mask
    assert np.array_equal(record.weights > 0, np.broadcast_to(allowed, (6, 12, 4, 4)))
    assert {key: record.provenance[key] for key in ("causal", "window")} == {"causal": True, "window": 3}
    assert record.provenance["mask_sha256"] == sha256(mask.astype(np.float32).tobytes()).hexdigest()


def test_rows_that_attend_to_nothing_are_noted() -> None:
    record = attend("a b", layers=[0], rule=Rule(mask=np.zeros((4, 4), bool)))
    assert not record.weights.any()
    assert record.notes == (
        "layer 0 head 0 row 0 is 0 throughout: it attends to nothing (48 of 48 rows, this is the first)",
    )


def test_the_place_is_where_it_runs() -> None:
    record = attend("a b", layers=[0], placing=placing("torch", "cpu", "float64"))
    assert record.weights.dtype == np.float64
    assert record.provenance["backend"] == "torch"
    assert np.abs(record.weights - attend("a b", layers=[0]).weights).max() < 1e-5


def test_a_folder_is_run_by_its_path(tmp_path: Path) -> None:
    record = attend("the zebra sat", model=str(make_bert(tmp_path / "own")))
    assert record.weights.shape == (3, 5, 5, 5)
    assert record.provenance["model"] == "own"
    assert record.notes == ("not in the model's vocabulary, so [UNK] to it: zebra (token 2)",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text": " "}, "the text is empty"),
        ({"text": "a\0"}, "NUL"),
        ({"model": "nothing"}, "model 'nothing' is not found"),
        ({"layers": [6]}, "no layer 6: layers are counted from 0, here 0 to 5"),
        ({"heads": [12]}, "no head 12: heads are counted from 0, here 0 to 11"),
        ({"layers": []}, "is no list of layers"),
        ({"model": "scratch", "n_heads": 5}, "cannot be split into 5 heads"),
    ],
)
def test_a_request_that_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words) as error:
        attend(**{"text": TEXT, **options})
    assert error.value.exit_code == 2
    assert isinstance(error.value, AttnvizError)


def test_a_text_that_is_too_long_is_refused_or_cut() -> None:
    with pytest.raises(RequestError, match="602 tokens, special ones included, and the model takes at most 512"):
        attend("the " * 600, layers=[0])
    record = attend("the " * 600, layers=[0], heads=[0], truncate=True)
    assert record.weights.shape == (1, 1, 512, 512)
    assert record.notes == ("the text has 602 tokens; only the first 512 are used",)


def test_the_same_request_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        attend("The cat, naïvely", single=True).save(tmp_path / f"{name}.json")
        attend("The cat, naïvely", single=True).save(tmp_path / f"{name}.npz")
    for suffix in ("json", "npz"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    content = (tmp_path / "a.json").read_text("utf-8")
    assert str(Path(attnviz.__file__).parent) not in content
    assert str(open_bundled().provenance["model_sha256"]) in content
