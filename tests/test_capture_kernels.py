"""torch's own attention: its kernels, its modules and flex attention, against torch's eager weights and NumPy."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from attnviz.maps import AttentionRecord, ComputedWeights
from attnviz.sources.pytorch import capture
from tests.attending import Tensor, softmax_of

sdpa = nn.functional.scaled_dot_product_attention


class Calls(nn.Module):
    """A module that is one call of a function of its inputs."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Tensor) -> Tensor:
        return self.function(*given)


def heads(n_q: int, n_kv: int, n: int, m: int, batch: int = 2, d: int = 4, d_value: int = 6) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(n_q + n)
    shapes = (batch, n_q, n, d), (batch, n_kv, m, d), (batch, n_kv, m, d_value)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def captured(function: Callable[..., Tensor], given: tuple[Tensor, ...], batch: int = 1) -> AttentionRecord:
    model = Calls(function)
    with torch.no_grad(), capture(model) as seen:
        out = model(*given)
    assert torch.equal(out, function(*given))
    return seen.record(batch=batch)


def double(x: Tensor) -> npt.NDArray[np.float64]:
    return x.double().numpy()


def test_a_kernel_leaves_queries_and_keys_and_no_matrix() -> None:
    q, k, v = heads(3, 3, 5, 7)
    record = captured(sdpa, (q, k, v))
    assert isinstance(record.maps[0].weights, ComputedWeights)
    np.testing.assert_allclose(record.weights[0], softmax_of(double(q[1]), double(k[1])), atol=1e-6)
    assert record.maps[0].rows(2, 4).shape == (3, 2, 7)


@pytest.mark.parametrize(("n", "m"), [(5, 7), (7, 5), (6, 6)])
def test_causal_is_counted_from_the_first_query_and_key(n: int, m: int) -> None:
    q, k, v = heads(3, 3, n, m)
    record = captured(lambda q, k, v: sdpa(q, k, v, is_causal=True), (q, k, v))
    np.testing.assert_allclose(
        record.weights[0], softmax_of(double(q[1]), double(k[1]), np.tri(n, m, dtype=np.bool_)), atol=1e-6
    )


def test_grouped_heads_serve_neighbours() -> None:
    q, k, v = heads(6, 2, 5, 7)
    record = captured(lambda q, k, v: sdpa(q, k, v, enable_gqa=True), (q, k, v))
    expected = softmax_of(double(q[1]), double(k[1].repeat_interleave(3, dim=0)))
    np.testing.assert_allclose(record.weights[0], expected, atol=1e-6)
    assert record.maps[0].heads == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    "shape", [(5, 7), (1, 7), (2, 1, 5, 7), (2, 3, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (1, 1, 5, 7), (3, 5, 7), (5, 1)]
)
@pytest.mark.parametrize("kind", ["bool", "bias"])
def test_masks_of_every_shape(kind: str, shape: tuple[int, ...]) -> None:
    q, k, v = heads(3, 3, 5, 7)
    rng = np.random.default_rng(len(shape))
    some = rng.random(shape) < 0.7
    some[..., :1] = True
    bias = rng.normal(size=shape)
    mask = torch.from_numpy(some) if kind == "bool" else torch.from_numpy(np.where(some, bias, -np.inf)).float()
    record = captured(sdpa, (q, k, v, mask))  # the mask is one of the inputs
    whole = np.broadcast_to(double(mask) if kind == "bias" else np.where(some, 0.0, -np.inf), (2, 3, 5, 7))[1]
    scores = double(q[1]) @ double(k[1]).swapaxes(-1, -2) / 2 + whole
    exponents = np.exp(scores - scores.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(record.weights[0], exponents / exponents.sum(axis=-1, keepdims=True), atol=1e-6)


def test_scale_and_dropout() -> None:
    q, k, v = heads(3, 3, 5, 7)
    record = captured(lambda q, k, v: sdpa(q, k, v, scale=0.1), (q, k, v))
    np.testing.assert_allclose(record.weights[0], softmax_of(double(q[1]) * 0.2, double(k[1])), atol=1e-6)
    assert record.notes == ()
    model = Calls(lambda q, k, v: sdpa(q, k, v, dropout_p=0.25))
    with torch.no_grad(), capture(model) as seen:
        model(q, k, v)
    record = seen.record()
    assert record.notes == ("Calls: dropout 0.25 was on: the weights are those before it",)
    np.testing.assert_allclose(record.weights[0], softmax_of(double(q[0]), double(k[0])), atol=1e-6)


def test_one_item_of_queries_for_a_batch_of_keys() -> None:
    q, k, v = heads(3, 3, 5, 7)
    record = captured(sdpa, (q[0], k, v))
    np.testing.assert_allclose(record.weights[0], softmax_of(double(q[0]), double(k[1])), atol=1e-6)
    record = captured(sdpa, (q, k[:1], v[:1]))
    np.testing.assert_allclose(record.weights[0], softmax_of(double(q[1]), double(k[0])), atol=1e-6)
    record = captured(sdpa, (q, k[:, :1], v[:, :1]))
    np.testing.assert_allclose(record.weights[0], softmax_of(double(q[1]), double(k[1, :1])), atol=1e-6)


def test_what_is_captured_stays_when_the_model_overwrites_it() -> None:
    """A cache of keys that is written in place after it was used."""
    q, k, v = heads(3, 3, 5, 7)
    expected = softmax_of(double(q[0]), double(k[0]))

    def overwriting(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = sdpa(q, k, v)
        k.zero_()
        v.zero_()
        q.zero_()
        return out

    model = Calls(overwriting)
    with torch.no_grad(), capture(model) as seen:
        model(q, k, v)
    np.testing.assert_allclose(seen.record().weights[0], expected, atol=1e-6)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("more", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 9, "vdim": 8}])
def test_multi_head_attention(batch_first: bool, need_weights: bool, more: dict[str, Any]) -> None:
    torch.manual_seed(2)
    model = nn.MultiheadAttention(12, 3, batch_first=batch_first, **more).train()
    x = torch.randn(2, 5, 12)
    key, value = torch.randn(2, 7, more.get("kdim", 12)), torch.randn(2, 7, more.get("vdim", 12))
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    mask = torch.ones(5, 7, dtype=torch.bool).triu(4)
    given = (x, key, value) if batch_first else tuple(one.transpose(0, 1) for one in (x, key, value))
    with torch.no_grad():
        expected = model(*given, key_padding_mask=padding, attn_mask=mask, average_attn_weights=False)[1]
        out = model(*given, key_padding_mask=padding, attn_mask=mask, need_weights=need_weights)
        with capture(model) as seen:
            again = model(*given, key_padding_mask=padding, attn_mask=mask, need_weights=need_weights)
    assert torch.equal(out[0], again[0])
    assert (again[1] is not None) == need_weights
    if need_weights:
        assert torch.equal(out[1], again[1])
    for item in range(2):
        record = seen.record(batch=item)
        np.testing.assert_allclose(record.weights[0], expected[item].numpy(), atol=1e-6)
        assert (record.maps[0].kind, record.maps[0].name) == ("cross", "MultiheadAttention")


@pytest.mark.parametrize("n_heads", [1, 3])
def test_multi_head_attention_without_a_batch(n_heads: int) -> None:
    torch.manual_seed(2)
    model, x = nn.MultiheadAttention(12, n_heads).eval(), torch.randn(5, 12)
    with torch.no_grad():
        _, expected = model(x, x, x, average_attn_weights=False)
        with capture(model) as seen:
            model(x, x, x, need_weights=False)
    record = seen.record()
    assert record.maps[0].kind == "self"
    np.testing.assert_allclose(record.weights[0], expected.numpy(), atol=1e-6)


def encoder(**more: Any) -> nn.TransformerEncoder:
    torch.manual_seed(4)
    layer = nn.TransformerEncoderLayer(
        12,
        4,
        20,  # torch's fast path wants an even number of heads
        batch_first=True,
        **more,
    )
    return nn.TransformerEncoder(layer, 2).eval()


def layer_by_layer(model: nn.TransformerEncoder, x: Tensor, padding: Tensor | None) -> list[Tensor]:
    weights = []
    for layer in model.layers:
        attention: Any = layer.self_attn
        inner = layer.norm1(x) if layer.norm_first else x
        weights.append(
            attention(inner, inner, inner, key_padding_mask=padding, need_weights=True, average_attn_weights=False)[1]
        )
        x = layer(x, src_key_padding_mask=padding)
    return weights


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_the_encoder_of_torch_in_its_fast_path(norm_first: bool, padded: bool) -> None:
    model, x = encoder(norm_first=norm_first), torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(6))
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    with torch.inference_mode():
        out = model(x, src_key_padding_mask=padding if padded else None)
        with capture(model) as seen:
            again = model(x, src_key_padding_mask=padding if padded else None)
        expected = layer_by_layer(model, x, padding if padded else None)
    if padded and not norm_first:
        assert not out[1, 3:].any()  # the fast path was taken: only it writes zeros there
    real = ~padding if padded else torch.ones(2, 5, dtype=torch.bool)
    torch.testing.assert_close(again[real], out[real], atol=2e-6, rtol=0)
    record = seen.record(batch=1)
    assert [one.name for one in record.maps] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert [one.layer for one in record.maps] == [0, 1]
    rows = real[1].numpy()
    for i in range(2):
        np.testing.assert_allclose(record.weights[i][:, rows], expected[i][1].numpy()[:, rows], atol=2e-6)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_an_encoder_and_a_decoder() -> None:
    torch.manual_seed(4)
    model = nn.Transformer(12, 3, 2, 2, 20, batch_first=True).eval()
    generator = torch.Generator().manual_seed(6)
    source, target = torch.randn(2, 7, 12, generator=generator), torch.randn(2, 5, 12, generator=generator)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad(), capture(model) as seen:
        out = model(source, target, tgt_mask=mask, tgt_is_causal=True)
    record = seen.record(tokens="abcde", key_tokens="tuvwxyz", batch=1)
    shown = [(one.name, one.layer, one.stack, one.kind, len(one.query), len(one.key)) for one in record.maps]
    assert shown == [
        ("encoder.layers.0.self_attn", 0, "encoder", "self", 7, 7),
        ("encoder.layers.1.self_attn", 1, "encoder", "self", 7, 7),
        ("decoder.layers.0.self_attn", 0, "decoder", "self", 5, 5),
        ("decoder.layers.0.multihead_attn", 0, "decoder", "cross", 5, 7),
        ("decoder.layers.1.self_attn", 1, "decoder", "self", 5, 5),
        ("decoder.layers.1.multihead_attn", 1, "decoder", "cross", 5, 7),
    ]
    assert record.maps[3].query.text == tuple("abcde") and record.maps[3].key.text == tuple("tuvwxyz")
    assert record.maps[0].query is record.maps[0].key and record.maps[0].key.text == tuple("tuvwxyz")
    with torch.no_grad():
        memory = model.encoder(source)
        layer: Any = model.decoder.layers[0]
        inner, weights = layer.self_attn(target, target, target, attn_mask=mask, average_attn_weights=False)
        x = layer.norm1(target + inner)
        crossed = layer.multihead_attn(x, memory, memory, average_attn_weights=False)[1]
        torch.testing.assert_close(out, model(source, target, tgt_mask=mask, tgt_is_causal=True), atol=2e-6, rtol=0)
    np.testing.assert_allclose(record.maps[2].rows(0, 5), weights[1].numpy(), atol=2e-6)
    np.testing.assert_allclose(record.maps[3].rows(0, 5), crossed[1].numpy(), atol=2e-6)
    assert not np.triu(record.maps[2].rows(0, 5), 1).any()


def causal_blocks(n: int, m: int) -> BlockMask:
    return create_block_mask(lambda b, h, query, key: query >= key, None, None, n, m, device="cpu")


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("score", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_flex_attention(score: bool, blocks: bool) -> None:
    q, k, v = heads(6, 2, 5, 7, d=16, d_value=16)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.1, 0.05, 0.01])
    mask = causal_blocks(5, 7) if blocks else None

    def modified(s: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return s + slopes[h] * (key - query) + b

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Any = flex_attention(
            q, k, v, score_mod=modified if score else None, block_mask=mask, enable_gqa=True, scale=0.3
        )
        return out  # type: ignore[no-any-return]

    record = captured(call, (q, k, v))
    distance = np.arange(7)[None, :] - np.arange(5)[:, None]
    scores = double(q[1]) @ double(k[1].repeat_interleave(3, dim=0)).swapaxes(-1, -2) * 0.3
    scores += (double(slopes)[:, None, None] * distance + 1) * score
    scores = np.where((distance <= 0) | (not blocks), scores, -np.inf)
    exponents = np.exp(scores - scores.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(record.weights[0], exponents / exponents.sum(axis=-1, keepdims=True), atol=1e-6)
    assert record.maps[0].pick([4]).rows(0, 5).shape == (1, 5, 7)


def test_long_sequences_need_no_matrix() -> None:
    """One head of 20 000 tokens has 1.6 GB of weights: neither capture nor record makes them."""
    n = 20_000
    q = torch.randn(1, 1, n, 8, generator=torch.Generator().manual_seed(1))
    model = Calls(lambda q: sdpa(q, q[:, :, :50], q[:, :, :50]))
    with torch.no_grad(), capture(model) as seen:
        model(q)
    record = seen.record()
    assert isinstance(record.maps[0].weights, ComputedWeights)
    expected = softmax_of(double(q[0, :, -2:]), double(q[0, :, :50]))
    np.testing.assert_allclose(record.maps[0].rows(n - 2, n), expected, atol=1e-6)
    assert math.prod(record.maps[0].weights.shape) == n * 50
