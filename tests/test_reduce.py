from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz.maps
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, AttentionRecord
from attnviz.reduce import Way, over_heads, over_layers, rollout
from attnviz.sources.saved import load
from tests.saved import weights_of
from tests.test_measures import A, B, a_map

ROLLED = [[1, 0, 0, 0], [0.5875, 0.4125, 0, 0], [0.4675, 0.12, 0.4125, 0], [0.395, 0.08625, 0.175, 0.34375]]
"""Of A, then B, one head each, worked out by hand."""
METRICS = [
    [np.eye(4), np.full((4, 4), 0.25)],
    [np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None], np.eye(4, k=-1) + np.diag([1.0, 0, 0, 0])],
]
"""Two layers of two heads: identity, uniform, causal uniform, previous token."""


def layers(weights: Any) -> list[AttentionMap]:
    return [a_map(np.array(one), layer=i) for i, one in enumerate(weights)]


def all_rows(one: AttentionMap) -> Any:
    return np.concatenate([block for _, block in one.blocks()], axis=1)


# heads and layers


@pytest.mark.parametrize("way", get_args(Way))
def test_heads_become_one_of_that_name(way: Way) -> None:
    weights = weights_of(3, 5, 7)
    one = over_heads(a_map(weights, layer=4), way)
    expected = weights.mean(axis=0) if way == "mean" else weights.max(axis=0)
    assert (one.heads, one.layer) == ((way,), 4)
    assert one.rows(1, 4)[0] == pytest.approx(expected[1:4])


def test_the_single_head_takes_no_part_unless_it_is_alone() -> None:
    weights = weights_of(3, 4, 4)
    one = over_heads(a_map(weights, heads=("single", 0, 1)), "mean")
    assert one.rows(0, 4)[0] == pytest.approx(weights[1:].mean(axis=0))
    alone = over_heads(a_map(weights[:1], heads=("single",)), "mean")
    assert alone.rows(0, 4)[0] == pytest.approx(weights[0])


@pytest.mark.parametrize("way", get_args(Way))
@pytest.mark.parametrize("block_rows", [1, 3, 256])
def test_layers_become_one_that_says_which(way: Way, block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.maps, "BLOCK_ROWS", block_rows)
    weights = weights_of(3, 2, 5, 7)
    one = over_layers(layers(weights), way)
    expected = weights.mean(axis=0) if way == "mean" else weights.max(axis=0)
    assert all_rows(one) == pytest.approx(expected)
    assert (one.heads, one.layer, one.name) == ((0, 1), 2, f"{way} of layers 0, 1, 2")


def test_the_dtype_stays() -> None:
    weights = weights_of(2, 3, 4, 4).astype(np.float32)
    assert over_layers(layers(weights), "mean").rows(0, 4).dtype == np.float32
    assert next(rollout(layers(weights))).rows(0, 4).dtype == np.float32


def test_what_is_no_number_in_one_is_none_in_the_mean_and_the_largest() -> None:
    weights = weights_of(2, 2, 4, 4)
    weights[1, 1, 2, 3] = np.nan
    for way in get_args(Way):
        assert np.argwhere(np.isnan(over_layers(layers(weights), way).rows(0, 4))).tolist() == [[1, 2, 3]]
        assert np.argwhere(np.isnan(over_heads(layers(weights)[1], way).rows(0, 4))).tolist() == [[0, 2, 3]]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (a_map(weights_of(3, 4, 4), layer=1), "layer 0 and layer 1 hold different heads"),
        (a_map(weights_of(2, 4, 4), ("a", "b", "c", "d"), layer=1), "layer 0 and layer 1 hold different tokens"),
        (a_map(weights_of(2, 4, 4), layer=1, stack="decoder"), "are of different stacks"),
    ],
)
def test_layers_that_do_not_go_together_are_refused(second: AttentionMap, message: str) -> None:
    maps = [a_map(weights_of(2, 4, 4)), second]
    with pytest.raises(RequestError, match=message):
        over_layers(maps, "mean")
    with pytest.raises(RequestError, match=message):
        list(rollout(maps))


def test_no_layers_have_no_mean() -> None:
    with pytest.raises(RequestError, match="there is no layer to take the max of"):
        over_layers([], "max")
    assert list(rollout([])) == []


# rollout


def test_rollout_of_two_layers_worked_out_by_hand() -> None:
    first, last = rollout(layers([[A], [B]]))
    assert last.rows(0, 4)[0] == pytest.approx(np.array(ROLLED), abs=1e-12)
    assert first.rows(0, 4)[0] == pytest.approx(np.array(A) / 2 + np.eye(4) / 2)
    assert (last.heads, last.layer) == (("rollout",), 1)


def test_rollout_of_several_heads_has_the_later_layer_on_the_left() -> None:
    *_, last = rollout(layers(METRICS))
    expected = [
        [0.8125, 0.0625, 0.0625, 0.0625],
        [0.34375, 0.53125, 0.0625, 0.0625],
        [0.125, 0.3125, 0.5, 0.0625],
        [0.109375, 0.109375, 0.296875, 0.484375],
    ]
    assert last.rows(0, 4)[0] == pytest.approx(np.array(expected), abs=1e-12)


@given(seed=st.integers(0, 99), n_layers=st.integers(1, 4), n=st.integers(1, 12), kept=st.sampled_from([1.0, 0.6]))
def test_rollout_is_a_product_of_matrices_whose_rows_sum_to_1(seed: int, n_layers: int, n: int, kept: float) -> None:
    weights = weights_of(n_layers, 3, n, n, seed=seed) * kept
    rolled = np.eye(n)
    for i, one in enumerate(rollout(layers(weights))):
        mixed = weights[i].mean(axis=0) + np.eye(n)
        rolled = np.diag(1 / mixed.sum(axis=1)) @ mixed @ rolled
        assert one.rows(0, n)[0] == pytest.approx(rolled)
        assert one.rows(0, n).sum(axis=-1) == pytest.approx(1)


def test_rollout_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = weights_of(3, 2, 11, 11)
    *_, whole = rollout(layers(weights))
    monkeypatch.setattr(attnviz.maps, "BLOCK_ROWS", 4)
    *_, blocks = rollout(layers(weights))
    assert blocks.rows(0, 11) == pytest.approx(whole.rows(0, 11))


def test_the_weights_themselves_stay_as_they_are() -> None:
    weights = weights_of(2, 1, 4, 4)
    before = weights.copy()
    list(rollout([a_map(one, layer=i) for i, one in enumerate(weights)]))
    over_layers([a_map(one, layer=i) for i, one in enumerate(weights)], "max")
    assert (weights == before).all()


def test_a_row_that_attends_to_nothing_keeps_its_token() -> None:
    weights = weights_of(1, 2, 4, 4)
    weights[0, :, 2] = 0
    (one,) = rollout(layers(weights))
    assert one.rows(2, 3)[0, 0].tolist() == [0, 0, 1, 0]


def test_rollout_of_other_than_self_attention_is_refused() -> None:
    for one in (a_map(weights_of(2, 4, 4), kind="cross"), a_map(weights_of(2, 5, 5)).pick(queries=[0, 1])):
        with pytest.raises(RequestError, match="rollout is of self-attention"):
            list(rollout([one]))


def test_reduced_heads_are_saved_and_read_back(tmp_path: Any) -> None:
    provenance = {"attnviz": "1", "model": "m", "backend": "numpy", "device": "cpu", "dtype": "float64", "text": "t"}
    *_, last = rollout(layers([[A], [B]]))
    for suffix in ("json", "npz", "csv", "safetensors"):
        AttentionRecord((last,), provenance).save(tmp_path / f"a.{suffix}")
        back = load(tmp_path / f"a.{suffix}")
        assert back.maps[0].heads == ("rollout",)
        assert back.weights[0, 0] == pytest.approx(np.array(ROLLED))
