"""`--from` and `--to`: part of a text, exactly as it is in the whole, at the positions that it has there."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz import RequestError, load
from attnviz.blocks import Block, Piece
from attnviz.maps import ComputedWeights
from attnviz.stretch import Stretch
from attnviz.tokens import Tokens
from tests.cli import error, run

TEXT = "the cat sat on the mat and the dog lay under the table"
"""Thirteen words; `on` begins at character 12."""
SCRATCH = ["--model", "scratch"]


def weights(*arguments: str) -> npt.NDArray[Any]:
    answer = run(*arguments, "--format", "json")
    assert answer.code == 0, answer.err
    return np.array(answer.json["weights"])


def spread() -> Tokens:
    """`[CLS] ab cd [SEP]`, with the characters of `ab  cd`."""
    pieces = ("[CLS]", "ab", "cd", "[SEP]")
    return Tokens(pieces, pieces, ((0, 0), (0, 2), (4, 6), (0, 0)), (True, False, False, True))


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, range(4)), ("1", None, range(1, 4)), (None, "3", range(3)), ("-2", None, range(2, 4)),
        ("1", "-1", range(1, 3)), ("0", "4", range(4)), ("c0", None, range(1, 4)), ("c1", "c2", range(1, 2)),
        ("c2", None, range(2, 4)), ("c3", "c6", range(2, 3)), (None, "c4", range(2)), ("c4", "4", range(2, 4)),
        ("1", "c5", range(1, 3)),
    ],
)  # fmt: skip
def test_ends_are_positions_or_characters(start: str | None, stop: str | None, expected: range) -> None:
    assert Stretch(start, stop).of(spread()) == expected


@given(st.integers(1, 30), st.data())
def test_positions_mean_what_they_do_in_python(n: int, data: st.DataObject) -> None:
    start, stop = sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True)))
    tokens = Tokens.of(map(str, range(n)))
    assert list(Stretch(str(start), str(stop)).of(tokens)) == list(range(n))[start:stop]
    part = tokens.pick(range(start, stop))
    assert [part.position(i) for i in range(len(part))] == list(range(start, stop))
    assert Stretch(str(start), str(stop)).of(part) == range(stop - start)
    assert part.find(str(stop - 1)) == (stop - start - 1,)


@pytest.mark.parametrize(
    ("start", "stop", "words"),
    [
        ("4", None, "--from 4: the tokens are 0 to 3, so it is 0 to 3"),
        ("-5", None, "--from -5: the tokens are 0 to 3"),
        (None, "5", "--to 5: the tokens are 0 to 3, so it is 1 to 4"),
        (None, "0", "it is 1 to 4"),
        ("2", "2", "--from 2 --to 2 holds no token"),
        ("3", "1", "--from 3 --to 1 holds no token"),
        ("c6", None, "--from c6: the tokens end with character 5, so it is c0 to c5"),
        (None, "c0", "it is c1 to c6"),
        (None, "c7", "it is c1 to c6"),
        ("c2", "c4", "holds no token"),
        ("b", None, "--from 'b': type a position, such as 5000"),
        ("1.5", None, "type a position"),
        (None, "c-1", "type a position"),
        (None, "", "type a position"),
    ],
)
def test_what_is_no_end_is_refused(start: str | None, stop: str | None, words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)):
        Stretch(start, stop).of(spread())


def test_tokens_without_characters_have_positions_only() -> None:
    with pytest.raises(RequestError, match="these tokens do not say which characters they are"):
        Stretch("c1", None).of(Tokens.of("abc"))
    with pytest.raises(RequestError, match="there are no tokens"):
        Stretch("1", None).of(Tokens.of(""))


# from the command line


@pytest.mark.parametrize("ends", [["--from", "3", "--to", "7"], ["--from", "c12", "--to", "c26"]])
@pytest.mark.parametrize("more", [[], ["--causal"], ["--head", "1,3"], ["--reduce", "mean"], ["--reduce", "rollout"]])
def test_it_is_cut_out_of_the_whole(ends: list[str], more: list[str]) -> None:
    asked = ["heads", TEXT, *SCRATCH, *more]
    np.testing.assert_allclose(weights(*asked, *ends), weights(*asked)[:, :, 3:7, 3:7], atol=1e-7)
    found = run(*asked, *ends, "--format", "json").json
    assert found["query_text"] == found["key_text"] == ["on", "the", "mat", "and"]
    assert found["query_positions"] == found["key_positions"] == [3, 4, 5, 6]
    assert (found["provenance"]["from"], found["provenance"]["to"]) == (3, 7)
    assert found["keys_left_out"] is True


def test_what_the_keys_take_is_noted() -> None:
    shown = weights("heads", TEXT, *SCRATCH)[:, :, 3:7, 3:7].sum(axis=-1).mean(axis=-1)[0]
    text = run("heads", TEXT, *SCRATCH, "--from", "3", "--to", "7").err
    numbers = [float(one) for one in re.findall(r"([\d.e-]+)%", text)]
    assert "only the keys from 3 to 6 are shown: they take" in text
    np.testing.assert_allclose(numbers, [100 * one for one in (shown.mean(), shown.min(), shown.max())], rtol=0.06)


def test_positions_in_text_are_those_of_the_whole() -> None:
    long = " ".join(f"w{i}" for i in range(400))
    text = run("heads", long, *SCRATCH, "--from", "300", "--to", "330", "--head", "0", "--width", "70").text
    assert "400 tokens · tokens 300 to 329" in " ".join(text.split())
    assert re.search(r"^ +300", text, re.M)
    assert "329 w329" in text
    pooled = run("heads", long, *SCRATCH, "--from", "300", "--head", "0", "--tiles", "10", "--width", "70").text
    assert "300–309" in pooled
    assert "390–399" in pooled


def test_it_goes_with_the_other_options() -> None:
    asked = ["heads", "Orange is my favorite fruit"]
    every = weights(*asked)
    np.testing.assert_allclose(weights(*asked, "--from", "4", "--hide-special"), every[:, :, 4:6, 4:6], atol=1e-7)
    np.testing.assert_allclose(weights(*asked, "--to", "5", "--query", "is"), every[:, :, 2:3, :5], atol=1e-7)
    words = weights("heads", "unwantable cats", "--words")
    np.testing.assert_allclose(weights("heads", "unwantable cats", "--words", "--from", "1", "--to", "3"),
                               words[:, :, 1:3, 1:3], atol=1e-7)  # fmt: skip
    assert "no query is in the stretch --from 4" in error(*asked, "--from", "4", "--query", "is", code=2)


def test_in_cross_attention_only_the_target_is_cut() -> None:
    asked = ["cross", "the cat sat down", "o gato sentou"]
    np.testing.assert_allclose(weights(*asked, "--from", "1"), weights(*asked)[:, :, 1:], atol=1e-7)
    answer = run(*asked, "--from", "1")
    assert (answer.code, answer.err) == (0, "")
    assert "--from 3: the tokens are 0 to 2" in error(*asked, "--from", "3", code=2)


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors", "csv"])
def test_what_is_saved_keeps_its_positions(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"part.{suffix}"
    assert run("heads", TEXT, *SCRATCH, "--from", "3", "--to", "9", "-o", str(file)).code == 0
    record = load(file)
    assert record.maps[0].key.positions == record.maps[0].query.positions == (3, 4, 5, 6, 7, 8)
    np.testing.assert_allclose(record.weights, weights("heads", TEXT, *SCRATCH)[:, :, 3:9, 3:9], atol=1e-7)
    again = weights("heads", "--attention", str(file), "--from", "5", "--query", "7")
    np.testing.assert_allclose(again, record.weights[:, :, 4:5, 2:], rtol=1e-7)
    assert "positions go from 3 to 8" in error("heads", "--attention", str(file), "--query", "2", code=2)


def test_a_row_or_a_stretch_makes_no_other_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scratch model gives its output unasked, for which every row is needed: not where some were chosen."""
    made = []
    block = ComputedWeights.block

    def counted(self: ComputedWeights, piece: Piece, *, logits: bool = False) -> Block:
        made.append((piece.start, piece.stop))
        return block(self, piece, logits=logits)

    monkeypatch.setattr(ComputedWeights, "block", counted)
    monkeypatch.setattr("attnviz.sources.projected.STORED_BYTES", 0)
    text = " ".join(f"w{i}" for i in range(500))
    for ends, rows in ((["--query", "400"], [400]), (["--from", "480", "--to", "490"], [*range(480, 490)])):
        made.clear()
        assert run("heads", text, *SCRATCH, *ends, "-o", str(tmp_path / "a.npz")).code == 0
        assert {row for start, stop in made for row in range(start, stop)} == set(rows)
        assert "output" not in np.load(tmp_path / "a.npz")
    found = run("heads", text, *SCRATCH, "--query", "400", "--with-output", "--format", "json").json
    assert np.array(found["output"]).shape == (1, 1, 32)
