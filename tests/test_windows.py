"""`--stride`: a text too long for a model, cut into windows that overlap, each run by itself."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz import RequestError
from attnviz.sources.encoder import open_folder
from attnviz.sources.huggingface import open_huggingface
from attnviz.sources.windows import windows_of
from tests.cli import error, run
from tests.hub import save_family
from tests.models import CONFIG, Eager, make_bert, wordpiece

LIMIT = 9
"""Seven tokens of the text beside [CLS] and [SEP]."""
TEXT = "the cat sat on the mat, the unwanted dog sat on the cat"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return make_bert(tmp_path / "bert", config={**CONFIG, "max_position_embeddings": LIMIT})


@given(st.data())
def test_windows_cover_the_text_and_overlap_as_asked(data: st.DataObject) -> None:
    before, length, after = (data.draw(st.integers(least, most)) for least, most in ((0, 2), (1, 60), (0, 2)))
    room = data.draw(st.integers(1, 20))
    stride = data.draw(st.integers(1, room))
    special = [True] * before + [False] * length + [True] * after
    windows = windows_of(special, room + before + after, stride)
    n, head, tail = len(special), list(range(before)), list(range(before + length, len(special)))
    for i, one in enumerate(windows):
        assert (one.number, one.n_windows, one.first) == (i + 1, len(windows), i * stride)
        own = list(range(before + one.first, before + one.last + 1))
        assert list(one.tokens) == [*head, *own, *tail]
        assert len(own) == room or (one is windows[-1] and 0 < len(own) <= room)
    assert {i for one in windows for i in one.tokens} == set(range(n))
    assert windows[-1].last == length - 1
    assert len(windows) == 1 or windows[-2].last < length - 1  # and none that is not needed


@pytest.mark.parametrize("stride", [0, 8, -1])
def test_a_stride_that_leaves_tokens_out_is_refused(stride: int) -> None:
    with pytest.raises(RequestError, match=f"--stride {stride}: a window holds 7 tokens of the text, so it is 1 to 7"):
        windows_of([True, *[False] * 20, True], LIMIT, stride)
    with pytest.raises(RequestError, match="leaves no room"):
        windows_of([True, False, True], 2, 1)


def test_each_window_is_run_by_itself(bert: Path) -> None:
    """The weights of a BERT of transformers on the ids of each window."""
    ids = wordpiece().encode(TEXT).ids
    model, eager = open_folder(bert), Eager(bert)
    windows = model.prepare_windows(TEXT, 4)
    assert len(windows) == 4
    for i, run_of in enumerate(windows):
        expected = (ids[0], *ids[1 + 4 * i : 1 + 4 * i + 7][: len(ids) - 2 - 4 * i], ids[-1])
        assert run_of.encoded.ids == expected
        assert f"window {i + 1} of 4: tokens {4 * i} to {4 * i + len(expected) - 3} of the text" == run_of.notes[0]
        assert run_of.provenance == {"stride": 4, "window": i + 1, "n_windows": 4}
        weights = np.stack([one.rows(0, len(one.query)) for one in run_of.maps(range(model.n_layers))])
        np.testing.assert_allclose(weights, eager.run(expected)[0], atol=1e-5)
        shown = [TEXT[slice(*span)] for span in run_of.tokens.spans if span != (0, 0)]
        assert [text.lower() for text in shown] == [piece.removeprefix("##") for piece in run_of.tokens.pieces[1:-1]]
    assert windows[0].encoded.ids == model.prepare(TEXT, truncate=True).encoded.ids


def test_a_text_that_fits_stays_whole(bert: Path) -> None:
    model = open_folder(bert)
    (one,) = model.prepare_windows("the cat", 3)
    assert (one.encoded, one.provenance) == (model.prepare("the cat").encoded, {})


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "GPT-2", "Llama"])
def test_models_of_transformers_have_windows_too(tmp_path: Path, name: str) -> None:
    folder = save_family(tmp_path / name, name)
    model = open_huggingface(folder)
    text = "the cat sat on the mat " * 9
    whole = model._texts._read_text(text, most=None, is_whole=False)[0]
    windows = model.prepare_windows(text, 16)
    limit = model._limit
    assert limit is not None
    assert len(windows) > 1
    for one in windows:
        assert len(one.tokens) <= limit
        assert next(iter(one.maps([0]))).weights.shape[1:] == (len(one.tokens),) * 2
    assert windows[0].read.ids == model.prepare(text, truncate=True).read.ids
    before = whole.tokens.special.index(False)
    assert windows[1].read.ids[before] == whole.ids[before + 16]


# from the command line


def test_windows_are_several_texts(bert: Path, tmp_path: Path) -> None:
    asked = ["heads", TEXT, "--model", str(bert), "--stride", "4"]
    answer = run(*asked, "-o", str(tmp_path / "all.jsonl"), "-o", str(tmp_path / "{n}.npz"))
    assert answer.code == 0
    assert answer.err.count("note: window") == 4
    assert "window 2 of 4: tokens 4 to 10 of the text" in answer.err
    records = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text("utf-8").splitlines()]
    assert [one["provenance"]["window"] for one in records] == [1, 2, 3, 4]
    assert [one["notes"][0][:13] for one in records] == [f"window {i} of 4" for i in (1, 2, 3, 4)]
    assert {one["provenance"]["text"] for one in records} == {TEXT}
    assert np.load(tmp_path / "2.npz")["query_tokens"].tolist() == records[1]["query_tokens"]
    assert "window 2 of 4" in run(*asked).text


def test_measures_are_over_all_windows(bert: Path) -> None:
    answer = run("metrics", TEXT, "--model", str(bert), "--stride", "4", "--format", "json", "--by", "entropy")
    assert answer.code == 0
    assert {"stride": 4, "n_windows": 4, "text": TEXT}.items() <= answer.json["provenance"].items()
    assert "window" not in answer.json["provenance"]
    assert len([note for note in answer.json["notes"] if note.startswith("window")]) == 4
    total, rows = 0.0, 0
    for one in open_folder(bert).prepare_windows(TEXT, 4):
        weights = next(iter(one.maps([0]))).rows(0, len(one.tokens))[0].astype(np.float64)
        total -= float((weights * np.log(weights)).sum())
        rows += len(weights)
    assert answer.json["entropy"][0][0] == pytest.approx(total / rows, rel=1e-5)
    assert "4 windows" in run("metrics", TEXT, "--model", str(bert), "--stride", "4").text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "keep the first 9 with --truncate, or cut it into windows with --stride 4"),
        (["--stride", "8"], "--stride 8: a window holds 7 tokens of the text, so it is 1 to 7"),
        (["--stride", "0"], "greater than or equal to 1"),
        (["--stride", "4", "--truncate"], "--stride and --truncate do not go together"),
        (["--stride", "4", "--pair", "a cat"], "--stride and --pair do not go together"),
        (["--stride", "4", "--format", "json"], "4 windows cannot go into one json: use jsonl"),
    ],
)
def test_what_windows_cannot_do_is_refused(bert: Path, arguments: list[str], words: str) -> None:
    assert words in error("heads", TEXT, "--model", str(bert), *arguments, code=2)


def test_what_has_no_limit_has_no_windows(bert: Path, tmp_path: Path) -> None:
    assert "scratch takes texts of any length: leave out --stride" in error(
        "heads", TEXT, "--model", "scratch", "--stride", "4", code=2
    )
    np.save(tmp_path / "saved.npy", np.full((2, 3, 3), 1 / 3))
    saved = ["heads", "--attention", str(tmp_path / "saved.npy"), "--stride", "4"]
    assert "--stride has no use with --attention" in error(*saved, code=2)
    two = ["compare", TEXT, TEXT, "--model", str(bert), "--stride", "4"]
    assert "the text is 4 windows: compare takes one" in error(*two, code=2)
