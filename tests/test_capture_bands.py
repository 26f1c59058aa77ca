"""Masks that are a rule written out are read as that rule, and no others."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from attnviz.maps import ComputedWeights
from attnviz.sources import capture_bands
from attnviz.sources.capture_bands import band_of
from attnviz.sources.pytorch import capture


@pytest.fixture(autouse=True, scope="module")
def short() -> Iterator[None]:
    """Short masks are read too, in blocks of four rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_bands, "LONG", 1)
        patch.setattr(capture_bands, "_ROWS", 4)
        yield


def band(n: int, width: int, causal: bool) -> torch.Tensor:
    apart = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    return (apart.abs() < width) & ((apart >= 0) | (not causal))


@given(n=st.integers(1, 19), width=st.integers(1, 22), causal=st.booleans())
def test_bands_are_read(n: int, width: int, causal: bool) -> None:
    mask = band(n, width, causal)
    found = band_of(mask)
    assert found is not None
    allowed, bias = found.block(0, n, n, torch.ones(1))
    assert bias is None
    assert torch.equal(torch.ones_like(mask) if allowed is None else allowed, mask)
    assert found.window is None or found.window == width < n + 1


@given(n=st.integers(2, 19), width=st.integers(1, 22), causal=st.booleans(), data=st.data())
def test_one_entry_that_is_another_is_seen(n: int, width: int, causal: bool, data: st.DataObject) -> None:
    mask = band(n, width, causal)
    i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    mask[i, j] ^= True
    found = band_of(mask)
    if found is not None:  # two tokens have few masks that are no band
        allowed, _ = found.block(0, n, n, torch.ones(1))
        assert torch.equal(torch.ones_like(mask) if allowed is None else allowed, mask)


def test_what_is_no_square_of_booleans_is_left() -> None:
    assert band_of(torch.ones(3, 4, dtype=torch.bool)) is None
    assert band_of(torch.zeros(4, 4)) is None
    assert band_of(torch.zeros(4, 4, dtype=torch.bool)) is None


class Windowed(nn.Module):
    """Attention under a mask [1, 1, query, key], as models of transformers build it."""

    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask[None, None])


@pytest.mark.parametrize("causal", [True, False])
def test_the_weights_are_those_of_the_mask(causal: bool) -> None:
    x = torch.randn(1, 2, 13, 4, generator=torch.Generator().manual_seed(0))
    mask = band(13, 5, causal)
    model = Windowed(mask)
    with torch.no_grad(), capture(model) as seen:
        model(x)
    (one,) = seen.record().maps
    assert isinstance(one.weights, ComputedWeights)
    assert (one.weights.rule.causal, one.weights.rule.window, one.weights.rule.mask) == (causal, 5, None)
    expected = (x[0].double() @ x[0].double().mT / 2).masked_fill(~mask, -torch.inf).softmax(-1)
    assert (torch.from_numpy(one.rows(0, 13)) - expected).abs().max() < 1e-6
