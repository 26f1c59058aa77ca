"""`heads` between words, and with heads or layers put together."""

import numpy as np
import pytest

from attnviz import attend
from tests.cli import error, run

TEXT = "An unbelievable kiwifruit"
PIECES = [[0], [1], [2], [3, 4, 5, 6], [7]]
"""Which pieces are which word."""


def weights_of(*arguments: str) -> np.ndarray:
    answer = run("heads", TEXT, "--format", "json", *arguments)
    return np.array(answer.json["weights"])


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    """[layer, head, query, key], in float64."""
    return attend(TEXT).weights.astype(np.float64)


@pytest.mark.parametrize("way", ["mean", "max"])
@pytest.mark.parametrize(("over", "axes"), [("heads", 1), ("layers", 0), ("all", (0, 1))])
def test_heads_and_layers_are_put_together(whole: np.ndarray, way: str, over: str, axes: tuple[int, ...]) -> None:
    wanted = getattr(whole, way)(axis=axes, keepdims=True)
    found = weights_of("--reduce", way, "--over", over)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-6


def test_chosen_heads_and_layers_alone_are_put_together(whole: np.ndarray) -> None:
    found = weights_of("--reduce", "mean", "--over", "all", "--layer", "1,4", "--head", "2,5,7")
    assert np.abs(found[0, 0] - whole[[1, 4]][:, [2, 5, 7]].mean((0, 1))).max() < 1e-6


def test_rollout_goes_through_all_layers_up_to_the_one_shown(whole: np.ndarray) -> None:
    rolled = np.eye(8)
    steps = []
    for layer in whole:
        rolled = (layer.mean(0) + np.eye(8)) / 2 @ rolled
        steps.append(rolled / rolled.sum(-1, keepdims=True))
    assert np.abs(weights_of("--reduce", "rollout")[:, 0] - steps).max() < 1e-5
    assert np.abs(weights_of("--reduce", "rollout", "--layer", "3")[0, 0] - steps[3]).max() < 1e-5
    assert "layer 5\nrollout\n" in run("heads", TEXT, "--reduce", "rollout").text


def test_words_sum_over_keys_and_average_over_queries(whole: np.ndarray) -> None:
    keys = np.stack([whole[..., some].sum(-1) for some in PIECES], -1)
    words = np.stack([keys[..., some, :].mean(-2) for some in PIECES], -2)
    answer = run("heads", TEXT, "--words", "--format", "json").json
    assert np.abs(np.array(answer["weights"]) - words).max() < 1e-6
    assert answer["query_text"] == ["[CLS]", "An", "unbelievable", "kiwifruit", "[SEP]"]
    assert answer["provenance"]["words"] is True
    one = run("heads", TEXT, "--words", "--query", "kiwifruit", "--hide-special", "--format", "json").json
    assert np.abs(np.array(one["weights"])[:, :, 0] - words[:, :, 3, 1:4]).max() < 1e-6


def test_all_of_it_goes_together(whole: np.ndarray) -> None:
    answer = run("heads", TEXT, "--words", "--reduce", "max", "--over", "layers", "--head", "0", "--hide-special")
    assert "max of layers 0, 1, 2, 3, 4, 5" in answer.text
    assert "kiwifruit" in answer.text
    assert "sums to more than 1" not in answer.err


def test_what_was_put_together_is_in_the_provenance() -> None:
    said = run("heads", TEXT, "--reduce", "max", "--over", "layers", "--format", "json").json["provenance"]
    assert (said["reduce"], said["over"]) == ("max", "layers")
    assert "over" not in run("heads", TEXT, "--reduce", "rollout", "--format", "json").json["provenance"]


@pytest.mark.parametrize("arguments", [["--over", "all"], ["--over", "layers", "--reduce", "rollout"]])
def test_over_has_no_use_alone(arguments: list[str]) -> None:
    assert "is for --reduce mean or max" in error("heads", TEXT, *arguments, code=2)


def test_the_probe_is_a_text(whole: np.ndarray) -> None:
    answer = run("heads", "--probe", "repeat", "--probe-words", "3", "--seed", "5", "--format", "json").json
    words = answer["provenance"]["text"].split()
    assert len(words) == 6
    assert words[:3] == words[3:]
    other = run("heads", "--probe", "repeat", "--probe-words", "3", "--seed", "6", "--format", "json").json
    assert other["provenance"]["text"] != answer["provenance"]["text"]
    scratch = run("heads", "--probe", "repeat", "--model", "scratch", "--seed", "5", "--format", "json").json
    assert scratch["provenance"]["seed"] == 5
    assert len(scratch["query_text"]) == 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a b", "--probe", "repeat"], "makes a text of its own"),
        (["a b", "--probe-words", "3"], "no use without --probe repeat"),
        (["--probe", "repeat", "--probe-words", "400"], "tokens"),
        (["--attention", "x.npy", "--probe", "repeat"], "--probe has no use with --attention"),
        (["a b", "--seed", "3"], "shape the scratch model"),
    ],
)
def test_a_probe_that_cannot_be(arguments: list[str], words: str) -> None:
    assert words in error("heads", *arguments, code=2)
