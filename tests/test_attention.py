import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.nn.functional import scaled_dot_product_attention

from attnviz.arrays import Floats, to_numpy
from attnviz.attention import (
    EVERYTHING,
    Projections,
    Rule,
    additive,
    attend,
    attention_weights,
    grouped,
    heads_message,
    joined_output,
    merge_heads,
    multi_head_attention,
    project_heads,
    projected,
    scaled_scores,
    softmax,
    split_heads,
)
from attnviz.errors import RequestError

Expected = Callable[[str], dict[str, Any]]
Bools = npt.NDArray[np.bool_]

BATCH, HEADS, QUERIES, KEYS, D_HEAD, D_VALUE = 2, 3, 5, 7, 4, 11  # all different: swapped axes cannot agree
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
precise = pytest.mark.parametrize("dtype", TOLERANCE)


def normal(*shape: int, seed: int = 0, dtype: str = "float64") -> Floats:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def qkv(dtype: str = "float64", n_kv: int = HEADS) -> tuple[Floats, Floats, Floats]:
    return (
        normal(BATCH, HEADS, QUERIES, D_HEAD, seed=1, dtype=dtype),
        normal(BATCH, n_kv, KEYS, D_HEAD, seed=2, dtype=dtype),
        normal(BATCH, n_kv, KEYS, D_VALUE, seed=3, dtype=dtype),
    )


def close(actual: Any, wanted: Any, tolerance: float) -> None:
    np.testing.assert_allclose(to_numpy(actual), np.asarray(wanted), rtol=0, atol=tolerance)


# softmax

EXTREME = [[1e4, 9999, -1e4], [-1e4, -10001, -10002], [1e4] * 3, [88.5, 89, 90], [0, -104, -200], [3e38, -3e38, 0]]
EXTREME_WEIGHTS = [
    [0.731058578630005, 0.268941421369995, 0],
    [0.665240955774822, 0.244728471054798, 0.09003057317038],
    [1 / 3, 1 / 3, 1 / 3],
    [0.140244383166088, 0.231223897622149, 0.628531719211762],
    [1, 0, 0],
    [1, 0, 0],
]


@precise
def test_softmax_survives_extreme_scores_without_a_warning(xp: Any, dtype: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = softmax(xp.asarray(EXTREME, dtype=getattr(xp, dtype)))
    close(weights, EXTREME_WEIGHTS, 1e-6)


@pytest.mark.parametrize("large", [3.4e38, -3.4e38, 1e30, 700.0, -88.7])
def test_softmax_of_equal_scores_is_uniform_at_any_size(xp: Any, large: float) -> None:
    close(softmax(xp.full((2, 5), large, dtype=xp.float32)), np.full((2, 5), 0.2), 1e-7)


def test_softmax_gives_a_score_of_minus_infinity_nothing(xp: Any) -> None:
    assert to_numpy(softmax(xp.asarray([0.0, -xp.inf, 0.0]))).tolist() == [0.5, 0, 0.5]


scores_of_any_size = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(-1e5, 1e5))


@given(scores_of_any_size)
def test_softmax_sums_to_one_and_stays_within_0_and_1(scores: Floats) -> None:
    weights = softmax(scores)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=0, atol=1e-12)
    assert weights.min() >= 0
    assert weights.max() <= 1


@given(scores_of_any_size, st.floats(-1e3, 1e3))
def test_softmax_is_the_same_after_a_shift(scores: Floats, shift: float) -> None:
    np.testing.assert_allclose(softmax(scores + shift), softmax(scores), rtol=0, atol=1e-9)


@given(scores_of_any_size)
def test_softmax_keeps_the_order_of_the_scores(scores: Floats) -> None:
    order = np.argsort(scores, axis=-1)
    assert np.diff(np.take_along_axis(softmax(scores), order, axis=-1)).min(initial=0) >= 0


@given(st.data())
def test_softmax_over_the_allowed_is_the_softmax_of_those_alone(data: st.DataObject) -> None:
    scores = data.draw(arrays(np.float64, (6,), elements=st.floats(-50, 50)))
    allowed = data.draw(arrays(np.bool_, (6,)))
    weights = softmax(scores, allowed)
    assert (weights[~allowed] == 0).all()
    if allowed.any():
        np.testing.assert_allclose(weights[allowed], softmax(scores[allowed]), rtol=0, atol=1e-14)


def test_softmax_gives_a_row_that_may_attend_to_nothing_zeros(xp: Any) -> None:
    scores = xp.asarray([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [-3e38, 3e38, xp.nan]], dtype=xp.float32)
    allowed = xp.asarray([[True, False, True], [False] * 3, [False] * 3])
    close(softmax(scores, allowed), [[0.1192029, 0, 0.8807971], [0, 0, 0], [0, 0, 0]], 1e-7)


def test_softmax_keeps_a_nan_to_its_row(xp: Any) -> None:
    weights = to_numpy(softmax(xp.asarray([[0.0, xp.nan], [0.0, 0.0]])))
    assert np.isnan(weights[0]).all()
    assert weights[1].tolist() == [0.5, 0.5]


# hand-worked and published numbers


def test_three_keys_by_hand(xp: Any) -> None:
    k = xp.asarray([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    weights = attention_weights(xp.asarray([[[1.0, 0.0]]]), k)
    output = attend(weights, xp.asarray([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]))
    close(weights, [[[0.4011, 0.1978, 0.4011]]], 5e-5)
    close(output, [[[0.8022, 0.5989]]], 5e-5)


@pytest.mark.parametrize(
    ("q", "k", "scale", "weights"),
    [
        # scores 2 · 3 / 1 = 6 and 0: weights 1 / (1 + e⁻⁶)
        ([[2.0]], [[3.0], [0.0]], None, [0.99752738, 0.00247262]),
        # scores (1·1 + 1·1 + 1·1 + 1·1) / √4 = 2, 0 and −2
        ([[1.0] * 4], [[1.0] * 4, [1.0, -1.0, 1.0, -1.0], [-1.0] * 4], None, [0.86681333, 0.11731043, 0.01587624]),
        # the same without a scale: 4, 0 and −4
        ([[1.0] * 4], [[1.0] * 4, [1.0, -1.0, 1.0, -1.0], [-1.0] * 4], 1.0, [0.98168805, 0.01798028, 0.00032932]),
    ],
)
def test_scale_by_hand(xp: Any, q: Any, k: Any, scale: float | None, weights: Any) -> None:
    close(attention_weights(xp.asarray([q]), xp.asarray([k]), scale=scale), [[weights]], 3e-6)


def toy(xp: Any, expected: Expected) -> tuple[Any, Projections]:
    data = expected("toy4.json")
    x, *matrices = (xp.asarray(data[name], dtype=xp.float64) for name in ("embeddings", "w_q", "w_k", "w_v"))
    return x, Projections(*matrices)


@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_the_lesson_with_1_2_and_4_heads(xp: Any, expected: Expected, n_heads: int) -> None:
    x, projections = toy(xp, expected)
    wanted = expected("toy4.json")[f"heads{n_heads}"]
    q, k, _ = project_heads(x, x, projections, n_heads)
    result = multi_head_attention(x, projections, n_heads)
    close(scaled_scores(q, k), wanted["scores"], 1e-11)
    close(result.weights, wanted["weights"], 1e-11)
    close(result.head_outputs, wanted["head_outputs"], 1e-11)
    close(result.output, wanted["output"], 1e-11)


TOY_RULES = {
    "causal": Rule(causal=True),
    "keypad_last": Rule(keys=np.array([True, True, True, False])),
    "causal_keypad_last": Rule(causal=True, keys=np.array([True, True, True, False])),
    "leftpad_causal": Rule(causal=True, keys=np.array([False, True, True, True])),
    "row1_fully_masked": Rule(mask=np.array([[True] * 4, [False] * 4, [True] * 4, [True] * 4])),
}


def rule_in(xp: Any, rule: Rule) -> Rule:
    keys, mask = (None if part is None else xp.asarray(part) for part in (rule.keys, rule.mask))
    return Rule(rule.causal, rule.window, keys, mask)


@pytest.mark.parametrize("name", TOY_RULES)
def test_the_lesson_under_masks_whose_true_means_may_attend(xp: Any, expected: Expected, name: str) -> None:
    x, projections = toy(xp, expected)
    wanted = expected("toy4.json")[name]
    result = multi_head_attention(x, projections, 2, rule=rule_in(xp, TOY_RULES[name]))
    weights = to_numpy(result.weights)
    close(weights, wanted["weights"], 1e-11)
    close(result.output, wanted["output"], 1e-11)
    hidden = ~np.array(wanted["allow"], bool)
    assert (weights[:, hidden] == 0).all()
    assert np.flatnonzero((weights == 0).all(-1).all(0)).tolist() == wanted["fully_masked_rows"]


def test_grouped_queries_serve_runs_of_neighbouring_heads(xp: Any, expected: Expected) -> None:
    data = expected("grouped_8q_2kv.json")
    q, k, v = (xp.asarray(data[name], dtype=xp.float64) for name in "qkv")
    weights = attention_weights(q, k)
    close(weights, data["weights"], 1e-11)
    close(attend(weights, v), data["head_outputs"], 1e-11)
    assert np.abs(to_numpy(weights) - np.array(data["wrong_if_tiled"])).max() > 0.1


def test_a_window_of_3_counts_the_token_itself(xp: Any, expected: Expected) -> None:
    data = expected("window3.json")
    scores = xp.asarray(data["scores"], dtype=xp.float64)
    allowed, _ = Rule(causal=True, window=3).block(0, 6, 6, scores)
    assert np.asarray(allowed).astype(int).tolist() == data["allow"]
    weights = to_numpy(softmax(scores, allowed))
    close(weights, data["weights"], 1e-11)
    assert np.count_nonzero(weights, axis=-1).tolist() == [data["allowed_per_row"]] * 2
    assert data["allowed_per_row"] == [1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("causal", "window", "per_row"),
    [
        (False, 1, [1, 1, 1, 1, 1, 1]),
        (False, 2, [2, 3, 3, 3, 3, 2]),
        (False, 3, [3, 4, 5, 5, 4, 3]),
        (True, 1, [1, 1, 1, 1, 1, 1]),
        (True, 2, [1, 2, 2, 2, 2, 2]),
        (True, 5, [1, 2, 3, 4, 5, 5]),
        (True, 99, [1, 2, 3, 4, 5, 6]),
        (False, 6, [6, 6, 6, 6, 6, 6]),
    ],
)
def test_any_window_with_and_without_causal(xp: Any, causal: bool, window: int, per_row: list[int]) -> None:
    q = xp.asarray(normal(HEADS, 6, D_HEAD))
    weights = to_numpy(attention_weights(q, q, Rule(causal=causal, window=window)))
    assert np.count_nonzero(weights, axis=-1).tolist() == [per_row] * HEADS


# against torch


@precise
@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_weights_and_output_are_those_of_torch(xp: Any, dtype: str, scale: float | None) -> None:
    q, k, v = qkv(dtype)
    weights = attention_weights(xp.asarray(q), xp.asarray(k), scale=scale)
    output = attend(weights, xp.asarray(v))
    tq, tk, tv = map(torch.asarray, (q, k, v))
    close(output, scaled_dot_product_attention(tq, tk, tv, scale=scale), TOLERANCE[dtype])
    eye = torch.eye(KEYS, dtype=tq.dtype).expand(BATCH, HEADS, KEYS, KEYS)
    close(weights, scaled_dot_product_attention(tq, tk, eye, scale=scale), TOLERANCE[dtype])
    assert weights.shape == (BATCH, HEADS, QUERIES, KEYS)
    assert output.dtype == getattr(xp, dtype)


def some_allowed(*shape: int) -> Bools:
    allowed = np.random.default_rng([4, *shape]).random(shape) < 0.5
    allowed[..., 0] = True  # torch gives a row without any key NaN
    return allowed


BIAS = normal(HEADS, QUERIES, KEYS, seed=5)
RULES = {
    "everything": EVERYTHING,
    "causal": Rule(causal=True),
    "window": Rule(window=2),
    "causal window": Rule(causal=True, window=2),
    "padding": Rule(keys=some_allowed(KEYS)),
    "boolean": Rule(mask=some_allowed(QUERIES, KEYS)),
    "boolean per head": Rule(mask=some_allowed(HEADS, QUERIES, KEYS)),
    "boolean per batch and head": Rule(mask=some_allowed(BATCH, HEADS, QUERIES, KEYS)),
    "added": Rule(mask=BIAS[0]),
    "added per head": Rule(mask=BIAS),
    "one row for all queries": Rule(mask=some_allowed(HEADS, 1, KEYS)),
    "one row added for all queries": Rule(mask=BIAS[:, :1]),
    "all at once": Rule(True, 4, some_allowed(KEYS), np.where(some_allowed(HEADS, QUERIES, KEYS), BIAS, -np.inf)),
}


def torch_mask(rule: Rule) -> torch.Tensor:
    """The rule as the one additive mask that torch takes, made without the code under test."""
    bias = np.zeros((1, 1, QUERIES, KEYS))
    for query in range(QUERIES):
        for key in range(KEYS):
            outside = rule.window is not None and not query - rule.window < key < query + rule.window
            if (rule.causal and key > query) or outside or (rule.keys is not None and not rule.keys[key]):
                bias[..., query, key] = -np.inf
    if rule.mask is not None:
        bias = bias + (np.where(rule.mask, 0, -np.inf) if rule.mask.dtype == bool else rule.mask)
    return torch.asarray(bias)


@precise
@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_the_mask_of_torch(xp: Any, name: str, dtype: str) -> None:
    rule = RULES[name]
    q, k, v = qkv(dtype)
    if rule.mask is not None and rule.mask.dtype != bool:
        rule = Rule(rule.causal, rule.window, rule.keys, rule.mask.astype(dtype))
    weights = attention_weights(xp.asarray(q), xp.asarray(k), rule_in(xp, rule))
    tq, tk, tv = map(torch.asarray, (q, k, v))
    wanted = scaled_dot_product_attention(tq, tk, tv, attn_mask=torch_mask(rule).to(tq.dtype))
    close(attend(weights, xp.asarray(v)), wanted, 2 * TOLERANCE[dtype])
    allowed = np.isfinite(np.broadcast_to(torch_mask(rule).numpy(), weights.shape))
    assert (to_numpy(weights)[~allowed] == 0).all()
    np.testing.assert_allclose(to_numpy(weights).sum(-1), 1, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (1, 4), (4, 5), (0, 5), (2, 2)])
def test_a_block_of_rows_is_those_rows_of_all(xp: Any, name: str, start: int, stop: int) -> None:
    q, k, _ = (xp.asarray(x) for x in qkv())
    rule = rule_in(xp, RULES[name])
    block = attention_weights(q, k, rule, start=start, stop=stop)
    assert block.shape == (BATCH, HEADS, stop - start, KEYS)
    close(block, to_numpy(attention_weights(q, k, rule))[..., start:stop, :], 1e-15)


CAPS_AND_SINKS = {"cap": (0.8, False), "sinks": (None, True), "both": (0.8, True)}


@precise
@pytest.mark.parametrize("more", CAPS_AND_SINKS)
@pytest.mark.parametrize("name", RULES)
def test_caps_come_before_the_mask_and_sinks_are_one_more_score(xp: Any, name: str, more: str, dtype: str) -> None:
    """In float64, written out: a row for each query, with the sink as a last column that is dropped."""
    softcap, has_sink = CAPS_AND_SINKS[more]
    rule, (q, k, _) = RULES[name], qkv(dtype)
    sink = np.array([-1.0, 0.5, 2.0])
    scores = q.astype(float) @ k.astype(float).swapaxes(-1, -2) * 0.7
    scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
    scores = scores + torch_mask(rule).numpy()
    column = np.broadcast_to(sink[:, None, None] if has_sink else -np.inf, (BATCH, HEADS, QUERIES, 1))
    powers = np.exp(np.concatenate([scores, column], axis=-1))
    wanted = (powers / powers.sum(axis=-1, keepdims=True))[..., :-1]
    if rule.mask is not None and rule.mask.dtype != bool:
        rule = Rule(rule.causal, rule.window, rule.keys, rule.mask.astype(dtype))
    told: dict[str, Any] = {"scale": 0.7, "softcap": softcap, "sink": xp.asarray(sink) if has_sink else None}
    weights = attention_weights(xp.asarray(q), xp.asarray(k), rule_in(xp, rule), **told)
    close(weights, wanted, 2 * TOLERANCE[dtype])
    assert weights.dtype == getattr(xp, dtype)
    assert (to_numpy(weights).sum(-1) < 1 - 1e-5).all() == has_sink
    rows = attention_weights(xp.asarray(q), xp.asarray(k), rule_in(xp, rule), **told, start=1, stop=4)
    close(rows, wanted[..., 1:4, :], 2 * TOLERANCE[dtype])


@pytest.mark.parametrize("sink", [-1e30, -90.0, 0.0, 90.0, 1e30])
def test_sinks_of_any_size(xp: Any, sink: float) -> None:
    """One key of score 3: its weight is 1 / (1 + exp(sink − 3)); a row that may attend to nothing stays 0."""
    q, k = xp.asarray([[[3.0], [3.0]]]), xp.asarray([[[1.0]]])
    rule = Rule(mask=xp.asarray([[True], [False]]))
    weights = attention_weights(q, k, rule, scale=1.0, sink=xp.asarray([sink], dtype=xp.float64))
    one = 0.0 if sink > 800 else 1 / (1 + math.exp(max(sink, -700) - 3))
    close(weights, [[[one], [0.0]]], 1e-7)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"softcap": 0.0}, "scores are capped at a number above 0, got 0"),
        ({"softcap": -5.0}, "scores are capped at a number above 0, got -5"),
        ({"sink": np.zeros(2)}, "there is one sink for each of 3 heads, but they are given for 2"),
        ({"sink": np.zeros((3, 1))}, "there is one sink for each of 3 heads, but they are given for 3 × 1"),
    ],
)
def test_caps_and_sinks_that_do_not_fit_are_refused(told: dict[str, Any], message: str) -> None:
    q, k, _ = qkv()
    with pytest.raises(RequestError, match=message):
        attention_weights(q, k, **told)


def mha(dtype: torch.dtype, bias: bool, seed: int, d_model: int, n_heads: int) -> torch.nn.MultiheadAttention:
    torch.manual_seed(seed)
    module = torch.nn.MultiheadAttention(d_model, n_heads, bias=bias, batch_first=True, dtype=dtype).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.4)  # its own biases start at 0, which would hide that they are left out
    return module


def projections_of(module: torch.nn.MultiheadAttention, xp: Any) -> Projections:
    parts = [*(w.mT for w in module.in_proj_weight.chunk(3)), module.out_proj.weight.mT]
    if module.in_proj_bias is not None:
        parts += [*module.in_proj_bias.chunk(3), module.out_proj.bias]
    return Projections(*(xp.asarray(part.detach().numpy()) for part in parts))


@precise
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cross", [False, True])
def test_multi_head_attention_is_that_of_torch(xp: Any, dtype: str, bias: bool, cross: bool) -> None:
    module = mha(getattr(torch, dtype), bias, 6, d_model=12, n_heads=HEADS)
    x = normal(BATCH, QUERIES, 12, seed=7, dtype=dtype)
    context = normal(BATCH, KEYS, 12, seed=8, dtype=dtype) if cross else x
    tx, tc = torch.asarray(x), torch.asarray(context)
    with torch.no_grad():
        output, weights = module(tx, tc, tc, need_weights=True, average_attn_weights=False)
    result = multi_head_attention(
        xp.asarray(x), projections_of(module, xp), HEADS, context=xp.asarray(context) if cross else None
    )
    close(result.weights, weights, TOLERANCE[dtype])
    close(result.output, output, 5 * TOLERANCE[dtype])
    assert result.weights.shape == (BATCH, HEADS, QUERIES, KEYS if cross else QUERIES)
    assert result.head_outputs.shape == (BATCH, HEADS, QUERIES, 4)


@precise
def test_multi_head_attention_under_masks_is_that_of_torch(xp: Any, dtype: str) -> None:
    module = mha(getattr(torch, dtype), True, 9, d_model=12, n_heads=HEADS)
    x = normal(QUERIES, 12, seed=10, dtype=dtype)
    keys = np.array([True, True, False, True, True])
    with torch.no_grad():
        output, weights = module(
            *[torch.asarray(x)] * 3,
            key_padding_mask=~torch.asarray(keys),
            attn_mask=torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1),
            average_attn_weights=False,
        )
    rule = Rule(causal=True, keys=xp.asarray(keys))
    result = multi_head_attention(xp.asarray(x), projections_of(module, xp), HEADS, rule=rule)
    close(result.weights, weights, TOLERANCE[dtype])
    close(result.output, output, 5 * TOLERANCE[dtype])


def test_a_published_module_gives_one_matrix_a_head_and_not_their_mean(xp: Any, expected: Expected) -> None:
    data = {name: np.array(value) for name, value in expected("torch_mha.json").items()}
    w_q, w_k, w_v = np.split(data["in_proj_weight"], 3)
    b_q, b_k, b_v = np.split(data["in_proj_bias"], 3)
    parts = (w_q.T, w_k.T, w_v.T, data["out_proj.weight"].T, b_q, b_k, b_v, data["out_proj.bias"])
    result = multi_head_attention(xp.asarray(data["x"]), Projections(*map(xp.asarray, parts)), 2)
    close(result.weights[0, ...], data["weights"], 1e-9)
    close(result.output[0, ...], data["output"], 1e-9)
    assert np.abs(to_numpy(result.weights)[0] - data["averaged"]).max() > 0.01


# heads


@precise
@pytest.mark.parametrize(("n_heads", "n_kv"), [(6, 2), (6, 3), (6, 1), (6, 6)])
def test_grouped_queries_are_those_of_torch(xp: Any, dtype: str, n_heads: int, n_kv: int) -> None:
    q = normal(BATCH, n_heads, QUERIES, D_HEAD, dtype=dtype)
    _, k, v = qkv(dtype, n_kv)
    result = attend(attention_weights(xp.asarray(q), xp.asarray(k)), xp.asarray(v))
    tq, tk, tv = map(torch.asarray, (q, k, v))
    wanted = scaled_dot_product_attention(tq, tk, tv, enable_gqa=True)
    close(result, wanted, TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("n_heads", "n_kv", "owners"),
    [(8, 2, [0, 0, 0, 0, 1, 1, 1, 1]), (6, 3, [0, 0, 1, 1, 2, 2]), (4, 1, [0] * 4), (3, 3, [0, 1, 2])],
)
def test_each_query_head_has_the_key_head_of_its_run(xp: Any, n_heads: int, n_kv: int, owners: list[int]) -> None:
    x = xp.asarray(normal(BATCH, n_kv, KEYS, D_HEAD))
    close(grouped(x, n_heads), to_numpy(x)[:, owners], 0)


@pytest.mark.parametrize(("n_heads", "n_kv"), [(8, 3), (2, 4), (5, 2)])
def test_heads_that_cannot_be_grouped_are_refused_by_their_numbers(xp: Any, n_heads: int, n_kv: int) -> None:
    with pytest.raises(RequestError, match=f"{n_heads} query heads cannot share {n_kv} key heads"):
        grouped(xp.zeros((n_kv, 2, 2)), n_heads)


def test_no_key_head_is_refused(xp: Any) -> None:
    with pytest.raises(RequestError, match="2 query heads cannot share 0 key heads"):
        grouped(xp.zeros((0, 2, 2)), 2)


@given(st.data())
def test_split_and_merge_undo_each_other_and_a_head_owns_neighbouring_columns(data: st.DataObject) -> None:
    n_heads, d_head, tokens = (data.draw(st.integers(1, 5)) for _ in range(3))
    before = data.draw(st.sampled_from([(), (2,), (3, 2)]))
    x = np.arange(np.prod([*before, tokens, n_heads * d_head])).reshape(*before, tokens, n_heads * d_head)
    heads = split_heads(x, n_heads)
    assert heads.shape == (*before, n_heads, tokens, d_head)
    np.testing.assert_array_equal(merge_heads(heads), x)
    for h in range(n_heads):
        np.testing.assert_array_equal(heads[..., h, :, :], x[..., h * d_head : (h + 1) * d_head])


def test_split_and_merge_in_every_library(xp: Any) -> None:
    x = normal(BATCH, QUERIES, HEADS * D_HEAD)
    heads = split_heads(xp.asarray(x), HEADS)
    assert heads.shape == (BATCH, HEADS, QUERIES, D_HEAD)
    close(heads, x.reshape(BATCH, QUERIES, HEADS, D_HEAD).swapaxes(1, 2), 0)
    close(merge_heads(heads), x, 0)


@pytest.mark.parametrize(
    ("width", "n_heads", "fit"),
    [(6, 4, "1, 2, 3 or 6"), (512, 7, "1, 2, 4, 8, 16, 32, 64, 128, 256 or 512"), (5, 0, "1 or 5"), (1, 2, "1")],
)
def test_a_width_that_no_heads_can_share_names_both_numbers_and_divisors(
    xp: Any, width: int, n_heads: int, fit: str
) -> None:
    message = f"d_model {width} cannot be split into {n_heads} heads: the number of heads must divide it ({fit})"
    assert heads_message(width, n_heads) == message
    with pytest.raises(RequestError) as error:
        split_heads(xp.zeros((2, width)), n_heads)
    assert str(error.value) == message
    assert error.value.exit_code == 2


def test_no_columns_cannot_be_split(xp: Any) -> None:
    with pytest.raises(RequestError, match="d_model 0 cannot be split into 2 heads"):
        split_heads(xp.zeros((3, 0)), 2)


@precise
def test_full_projections_are_the_heads_projections_side_by_side(xp: Any, dtype: str) -> None:
    x = xp.asarray(normal(BATCH, QUERIES, 13, dtype=dtype))
    w_q, w_k, w_v = (
        [xp.asarray(normal(13, width, seed=10 * part + h, dtype=dtype)) for h in range(HEADS)]
        for part, width in enumerate((D_HEAD, D_HEAD, D_VALUE))
    )
    result = multi_head_attention(x, Projections.per_head(w_q, w_k, w_v), HEADS)
    for h in range(HEADS):
        q, k, v = (projected(x, w[h])[:, None, ...] for w in (w_q, w_k, w_v))
        weights = attention_weights(q, k)
        close(result.weights[:, h, ...], to_numpy(weights)[:, 0], TOLERANCE[dtype])
        close(result.head_outputs[:, h, ...], to_numpy(attend(weights, v))[:, 0], 10 * TOLERANCE[dtype])
    assert result.output.shape == (BATCH, QUERIES, HEADS * D_VALUE)


def test_the_output_projection_with_and_without_bias_and_none(xp: Any) -> None:
    head_outputs, w_o, b_o = normal(BATCH, HEADS, QUERIES, D_VALUE), normal(HEADS * D_VALUE, 13), normal(13)
    heads = xp.asarray(head_outputs)
    empty = xp.zeros((1, 1))
    joined = np.concatenate([head_outputs[:, h] for h in range(HEADS)], axis=-1)

    def joined_by(w: Floats | None, b: Floats | None) -> Any:
        parts = {name: xp.asarray(part) for name, part in (("w_o", w), ("b_o", b)) if part is not None}
        return joined_output(heads, Projections(empty, empty, empty, **parts))

    close(joined_by(None, None), joined, 0)
    close(joined_by(w_o, None), joined @ w_o, 1e-12)
    close(joined_by(w_o, b_o), joined @ w_o + b_o, 1e-12)


def test_a_single_token_keeps_all_its_axes(xp: Any) -> None:
    for n_heads in (1, 2, 4):
        w = xp.asarray(normal(4, 4))
        result = multi_head_attention(xp.asarray(normal(1, 4)), Projections(w, w, w), n_heads)
        assert to_numpy(result.weights).tolist() == [[[1.0]]] * n_heads
        assert result.output.shape == (1, 4)


def test_queries_and_keys_of_different_width_are_refused_by_their_widths(xp: Any) -> None:
    with pytest.raises(RequestError, match="queries have 4 columns and keys 3"):
        scaled_scores(xp.zeros((1, 2, 4)), xp.zeros((1, 2, 3)))


# masks


def minimum(dtype: str) -> float:
    return float(torch.finfo(getattr(torch, dtype)).min)


MASKED = [("float32", -np.inf), ("float32", minimum("float32")), ("float32", -1e9), ("float32", -1e10)]
MASKED += [("float64", -np.inf), ("float64", minimum("float64")), ("float64", minimum("float32")), ("float64", -1e9)]
MASKED += [("float64", -1e300)]


@pytest.mark.parametrize(("dtype", "lowest"), MASKED)
def test_an_additive_mask_hides_by_its_lowest_values(xp: Any, dtype: str, lowest: float) -> None:
    bias = xp.asarray([[0.0, -2.0, lowest], [lowest] * 3], dtype=getattr(xp, dtype))
    allowed, rest = additive(bias)
    assert np.asarray(allowed).tolist() == [[True, True, False], [False] * 3]
    assert to_numpy(rest).tolist() == [[0, -2, 0], [0, 0, 0]]


HALVES: list[tuple[str, str, float]] = [
    ("numpy", "float16", -65504.0),
    ("numpy", "float16", -np.inf),
    ("torch", "float16", -65504.0),
    ("torch", "bfloat16", minimum("bfloat16")),
    ("torch", "bfloat16", -1e9),
]


@pytest.mark.parametrize(("library", "dtype", "lowest"), HALVES)
def test_an_additive_mask_in_half_precision_hides_by_its_own_minimum(library: str, dtype: str, lowest: float) -> None:
    xp: Any = np if library == "numpy" else torch
    kind = getattr(xp, dtype)
    q, k = xp.ones((1, 2, 4), dtype=kind), xp.ones((1, 3, 4), dtype=kind)
    mask = xp.asarray([[0.0, lowest, 0.0], [lowest] * 3], dtype=kind)
    weights = attention_weights(q, k, Rule(mask=mask))
    assert weights.dtype == kind
    assert to_numpy(weights).tolist() == [[[0.5, 0, 0.5], [0, 0, 0]]]


@precise
@pytest.mark.parametrize("lowest", [minimum("float32"), -1e9, -np.inf])
def test_a_row_masked_by_adding_is_zeros_and_a_partly_masked_one_as_without(xp: Any, lowest: float, dtype: str) -> None:
    q = xp.asarray([[[1.0], [1.0], [1.0]]], dtype=getattr(xp, dtype))
    k = xp.asarray([[[1.0], [2.0], [3.0]]], dtype=getattr(xp, dtype))
    mask = xp.asarray([[lowest] * 3, [0.0, 0.0, lowest], [0.0] * 3], dtype=getattr(xp, dtype))
    wanted = [[0, 0, 0], [0.268941421, 0.731058579, 0], [0.090030573, 0.244728471, 0.665240956]]
    weights = attention_weights(q, k, Rule(mask=mask))
    close(weights, [wanted], 1e-7)
    assert (to_numpy(weights)[0, 0] == 0).all()
    assert to_numpy(weights)[0, 1, 2] == 0


def test_a_moderate_bias_is_added_and_hides_nothing(xp: Any) -> None:
    q = xp.ones((1, 1, 4))
    weights = to_numpy(attention_weights(q, xp.ones((1, 3, 4)), Rule(mask=xp.asarray([[0.0, -50.0, -1e4]]))))
    close(weights[0, 0, :2], [1, np.exp(-50.0)], 1e-12)
    assert weights[0, 0, 1] > 0


@pytest.mark.parametrize("mask_dtype", ["float32", "float64"])
def test_a_mask_of_another_dtype_changes_neither_dtype_nor_meaning(xp: Any, mask_dtype: str) -> None:
    q, k, _ = (xp.asarray(x) for x in qkv("float32"))
    lowest = float(np.finfo(mask_dtype).min)
    mask = np.where(some_allowed(QUERIES, KEYS), 0.0, lowest).astype(mask_dtype)
    weights = attention_weights(q, k, Rule(mask=xp.asarray(mask)))
    assert weights.dtype == xp.float32
    close(weights, attention_weights(q, k, Rule(mask=xp.asarray(mask == 0))), 1e-7)


@pytest.mark.parametrize("lowest", [-1e8, -65504.0, -70000.0, -1e9])
def test_a_wider_mask_on_half_precision_scores_gives_zeros_and_not_nan(lowest: float) -> None:
    q, k = torch.ones(1, 2, 4, dtype=torch.float16), torch.ones(1, 3, 4, dtype=torch.float16)
    mask = torch.tensor([[lowest] * 3, [0.0, lowest, 0.0]])
    assert to_numpy(attention_weights(q, k, Rule(mask=mask))).tolist() == [[[0, 0, 0], [0.5, 0, 0.5]]]


@pytest.mark.parametrize(
    "rule",
    [
        Rule(mask=np.zeros((QUERIES, KEYS), bool)),
        Rule(mask=np.full((HEADS, QUERIES, KEYS), -np.inf)),
        Rule(keys=np.zeros(KEYS, bool)),
        Rule(causal=True, keys=np.zeros(KEYS, bool)),
    ],
)
def test_where_nothing_is_allowed_weights_and_output_are_exactly_zero(xp: Any, rule: Rule) -> None:
    q, k, v = (xp.asarray(x) for x in qkv())
    weights = attention_weights(q, k, rule_in(xp, rule))
    assert weights.shape == (BATCH, HEADS, QUERIES, KEYS)
    assert (to_numpy(weights) == 0).all()
    assert (to_numpy(attend(weights, v)) == 0).all()


def test_gradients_stay_finite_where_a_row_is_masked() -> None:
    q, k, v = (torch.asarray(x).requires_grad_() for x in qkv())
    mask = torch.asarray(some_allowed(QUERIES, KEYS))
    mask[1] = False
    attend(attention_weights(q, k, Rule(mask=mask)), v).square().sum().backward()
    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert x.grad.abs().max() > 0
    assert q.grad is not None
    assert (q.grad[:, :, 1] == 0).all()


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_without_the_token_itself_is_refused(window: int) -> None:
    with pytest.raises(RequestError, match=f"1 or more, got {window}"):
        Rule(window=window)


@pytest.mark.parametrize(
    ("rule", "sizes"),
    [
        (Rule(mask=np.ones((4, 6), bool)), "4 × 6.*5 queries and 7 keys"),
        (Rule(mask=np.zeros((HEADS, QUERIES, 1))), "5 × 1.*5 queries and 7 keys"),
        (Rule(mask=np.ones((8, KEYS), bool)), "8 × 7.*5 queries and 7 keys"),
        (Rule(keys=np.ones(6, bool)), "6.*7 keys"),
        (Rule(keys=np.ones(1, bool)), "1.*7 keys"),
    ],
)
def test_a_mask_of_another_size_is_refused_by_its_sizes(xp: Any, rule: Rule, sizes: str) -> None:
    q, k, _ = (xp.asarray(x) for x in qkv())
    with pytest.raises(RequestError, match=sizes):
        attention_weights(q, k, rule_in(xp, rule))


# dtypes


@pytest.mark.parametrize(
    ("library", "dtype", "tolerance"),
    [
        ("numpy", "float16", 1e-3),
        ("numpy", "float32", 1e-6),
        ("numpy", "float64", 1e-12),
        ("torch", "float16", 2e-3),
        ("torch", "bfloat16", 2e-2),
        ("torch", "float32", 1e-6),
        ("torch", "float64", 1e-12),
    ],
)
def test_dtype_is_kept_through_all_of_multi_head_attention(library: str, dtype: str, tolerance: float) -> None:
    xp: Any = np if library == "numpy" else torch
    x = normal(QUERIES, 12) / 4
    exact = [normal(*shape) / 4 for shape in ((12, 6), (12, 6), (12, 9), (9, 13), (6,), (6,), (9,), (13,))]
    rough = [xp.asarray(part, dtype=getattr(xp, dtype)) for part in (x, *exact)]
    result = multi_head_attention(rough[0], Projections(*rough[1:]), HEADS, rule=Rule(causal=True, window=3))
    wanted = multi_head_attention(x, Projections(*exact), HEADS, rule=Rule(causal=True, window=3))
    assert all(part.dtype == rough[0].dtype for part in (result.weights, result.head_outputs, result.output))
    assert str(result.output.dtype).endswith(dtype)
    close(result.weights, wanted.weights, tolerance)
    close(result.output, wanted.output, 4 * tolerance)


# rules together


def allowed_and_added(xp: Any, rule: Rule, n: int, dtype: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    allowed, bias = rule.block(0, n, n, xp.zeros((1, n, n), dtype=getattr(xp, dtype)))
    full = np.ones((n, n), bool) if allowed is None else np.broadcast_to(np.asarray(allowed), (n, n))
    return full, np.zeros((n, n)) if bias is None else np.where(full, np.asarray(bias), 0)


PAIRS = {
    "causal": Rule(causal=True),
    "window": Rule(window=3),
    "narrow": Rule(window=2),
    "padding": Rule(keys=np.array([True, True, False, True, True])),
    "more padding": Rule(keys=np.array([True, True, True, True, False])),
    "mask": Rule(mask=np.arange(25).reshape(5, 5) % 3 > 0),
    "other mask": Rule(mask=np.arange(25).reshape(5, 5) % 4 > 0),
    "one row": Rule(mask=np.array([[True, True, True, False, True]])),
    "added": Rule(mask=np.where(np.arange(25).reshape(5, 5) % 7, np.arange(25.0).reshape(5, 5), -1e9)),
    "also added": Rule(mask=np.where(np.arange(25).reshape(5, 5) % 5, -0.5, -np.inf)),
}


@precise
@pytest.mark.parametrize("one", PAIRS)
@pytest.mark.parametrize("other", PAIRS)
def test_two_rules_allow_what_both_allow_and_add_what_both_add(xp: Any, dtype: str, one: str, other: str) -> None:
    a, b = (rule_in(xp, PAIRS[name]) for name in (one, other))
    (allowed, added), *parts = (allowed_and_added(xp, rule, 5, dtype) for rule in (a.also(b), a, b))
    assert (allowed == (parts[0][0] & parts[1][0])).all()
    assert np.abs(added - np.where(allowed, parts[0][1] + parts[1][1], 0)).max() < 1e-6


def test_a_rule_with_everything_is_the_rule_itself() -> None:
    for rule in PAIRS.values():
        for both in (rule.also(Rule()), Rule().also(rule)):
            assert (both.causal, both.window) == (rule.causal, rule.window)
            assert both.keys is rule.keys
            assert both.mask is rule.mask


def test_masks_that_do_not_go_together_are_refused_by_their_sizes() -> None:
    with pytest.raises(RequestError, match="masks of 3 × 4 × 4 and 2 × 4 × 4 do not go together"):
        Rule(mask=np.ones((3, 4, 4), bool)).also(Rule(mask=np.ones((2, 4, 4), bool)))
    with pytest.raises(RequestError, match="masks of 4 and 5 do not go together"):
        Rule(keys=np.ones(4, bool)).also(Rule(keys=np.ones(5, bool)))


@pytest.mark.parametrize("heads", [2, 4])
def test_a_mask_for_another_number_of_heads_is_refused(xp: Any, heads: int) -> None:
    q = xp.ones((3, 5, 2))
    with pytest.raises(RequestError, match=f"the mask is given for {heads} heads, but there are 3"):
        attention_weights(q, q, Rule(mask=xp.ones((heads, 5, 5), dtype=xp.bool)))
    assert attention_weights(q, q, Rule(mask=xp.ones((1, 5, 5), dtype=xp.bool))).shape == (3, 5, 5)
