"""Attention in all the ways in which it is spelled, against NumPy in double precision."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import attnviz
from attnviz.sources.pytorch import Seen, capture
from tests.attending import BATCH, HEADS, KEYS, QUERIES, STYLES, Attention, Tensor, inputs, scale

OLD = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
CONTEXTS: dict[str, Any] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "with gradients": torch.enable_grad,
}


def run(model: nn.Module, *given: Tensor) -> tuple[Tensor, Seen]:
    with torch.no_grad(), capture(model) as seen:
        out = model(*given)
    return out, seen


@pytest.mark.parametrize("style", STYLES)
def test_each_spelling_gives_the_weights(style: str) -> None:
    model, given = Attention(STYLES[style]), inputs()
    out, seen = run(model, *given)
    for item in range(BATCH):
        record = seen.record(batch=item)
        assert [one.name for one in record.maps] == ["Attention"]
        assert [one.kind for one in record.maps] == ["cross"]
        assert record.notes == ()
        np.testing.assert_allclose(record.weights[0], model.expected(*given)[item], atol=2e-6)
    with torch.no_grad():
        assert torch.equal(out, model(*given))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("style", ["functional_softmax", "sdpa", "in_place"])
def test_gradients_on_or_off(style: str, context: str) -> None:
    model, given = Attention(STYLES[style]), inputs()
    with CONTEXTS[context](), capture(model) as seen:
        out = model(*given)
    np.testing.assert_allclose(seen.record().weights[0], model.expected(*given)[0], atol=2e-6)
    if context == "with gradients":
        out.sum().backward()
        assert model.to_q.weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "style", ["functional_softmax", "bmm", "einsum_with_heads_last", "sdpa", "by_hand_with_maximum"]
)
def test_other_dtypes(style: str, dtype: torch.dtype) -> None:
    model, given = Attention(STYLES[style]).to(dtype), [x.to(dtype) for x in inputs()]
    out, seen = run(model, *given)
    weights = seen.record(batch=1).weights[0]
    assert weights.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    atol = {torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    np.testing.assert_allclose(weights, model.expected(*given)[1], atol=atol)
    with torch.no_grad():
        assert torch.equal(out, model(*given))
    assert seen.record().provenance["dtype"] == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("style", ["functional_softmax", "sdpa", "bmm"])
def test_autocast(style: str) -> None:
    model, given = Attention(STYLES[style]), inputs()
    with torch.autocast("cpu", torch.bfloat16):
        out, seen = run(model, *given)
        with torch.no_grad():
            assert torch.equal(out, model(*given))
    np.testing.assert_allclose(seen.record().weights[0], model.expected(*given)[0], atol=2e-2)


@pytest.mark.parametrize("style", [name for name in STYLES if name not in ("by_hand", "by_hand_with_maximum")])
def test_rows_that_may_attend_to_nothing_are_zero(style: str) -> None:
    if style == "sink_column":
        return  # there the sink takes all
    allowed = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
    allowed[3] = False
    model, given = Attention(STYLES[style], allowed), inputs()
    _, seen = run(model, *given)
    record = seen.record()
    expected = model.expected(*given)[0]
    assert not expected[:, 3].any() and expected[:, 0, 0].all()
    np.testing.assert_allclose(record.weights[0], expected, atol=2e-6)


@OLD
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("style", ["functional_softmax", "sdpa", "bmm", "einsum", "loop_over_heads", "keys_first"])
def test_torchscript_by_tracing(style: str) -> None:
    model, given = Attention(STYLES[style]), inputs()
    trace: Any = torch.jit.trace
    traced = trace(model, given)
    _, seen = run(traced, *given)
    for item in range(BATCH):
        (one,) = seen.record(batch=item).maps
        assert one.name == "Attention"
        rows = np.concatenate([block for _, block in one.blocks()], axis=1)
        np.testing.assert_allclose(rows, model.expected(*given)[item], atol=2e-6)


class Scripted(nn.Module):
    """What TorchScript compiles."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * 0.5, dim=-1), v)


@OLD
def test_torchscript_inside_a_module_has_the_name_of_what_is_around_it() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Identity())
            self.inner = torch.jit.script(Scripted())

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out: Tensor = self.inner(q, k, v)
            return out

    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(2, 3, n, 4, generator=generator) for n in (5, 7, 7))
    _, seen = run(Around(), q, k, v)
    (one,) = seen.record(batch=1).maps
    assert (one.name, one.kind) == ("Around", "cross")
    expected = torch.softmax(q[1].double() @ k[1].double().mT * 0.5, dim=-1)
    np.testing.assert_allclose(one.rows(0, 5), expected.numpy(), atol=1e-6)


def test_an_exported_program() -> None:
    model, given = Attention(STYLES["functional_softmax"]), inputs()
    program = torch.export.export(model, given).module()
    _, seen = run(program, *given)
    np.testing.assert_allclose(seen.record(batch=1).weights[0], model.expected(*given)[1], atol=2e-6)


def test_compiled_modules_run_as_written_and_are_compiled_again_afterwards() -> None:
    model, given = Attention(STYLES["functional_softmax"]), inputs()
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled: Any = torch.compile(nn.Sequential(Alone(model)), backend=backend)
    with torch.no_grad():
        before = compiled(given)
        n = len(graphs)
        assert n > 0
        with capture(compiled) as seen:
            out = compiled(given)
        compiled(given)
    assert len(graphs) == n
    assert torch.equal(before, out)
    record = seen.record()
    assert (record.maps[0].name, record.provenance["model"]) == ("0.model", "Sequential")
    np.testing.assert_allclose(record.weights[0], model.expected(*given)[0], atol=2e-6)


class Alone(nn.Module):
    """Takes the inputs as one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: tuple[Tensor, Tensor]) -> Tensor:
        out: Tensor = self.model(*given)
        return out


def test_grouped_heads_by_hand() -> None:
    """Key head g serves query heads 2g and 2g + 1."""

    class Grouped(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q = q.view(2, 3, 2, 5, 4)
            scores = torch.einsum("bghqd,bgkd->bghqk", q, k) * scale(q)
            return torch.einsum("bghqk,bgkd->bghqd", scores.softmax(-1), v).flatten(1, 2)

    generator = torch.Generator().manual_seed(4)
    q = torch.randn(2, 6, 5, 4, generator=generator)
    k, v = torch.randn(2, 3, 7, 4, generator=generator), torch.randn(2, 3, 7, 8, generator=generator)
    _, seen = run(Grouped(), q, k, v)
    scores = torch.einsum("hqd,hkd->hqk", q[1].double(), k[1].double().repeat_interleave(2, 0)) / 2
    np.testing.assert_allclose(seen.record(batch=1).weights[0], scores.softmax(-1).numpy(), atol=1e-6)


def test_the_number_of_heads_can_be_said() -> None:
    """Batch and heads joined in a way that no shape tells: [n, batch, width] viewed as [n, batch · heads, d]."""

    class Old(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            joined = x.view(x.shape[0], -1, 4).transpose(0, 1)
            out = torch.bmm((torch.bmm(joined, joined.mT) * 0.5).softmax(-1), joined)
            return out.transpose(0, 1).reshape(x.shape)

    x = torch.randn(4, 4, 12, generator=torch.Generator().manual_seed(5))  # as many tokens as items
    _, seen = run(Old(), x)
    heads = x[:, 1].double().view(4, 3, 4).transpose(0, 1)
    expected = (heads @ heads.mT * 0.5).softmax(-1).numpy()
    np.testing.assert_allclose(seen.record(batch=1, n_heads=3).weights[0], expected, atol=1e-6)
    with pytest.raises(attnviz.RequestError, match="5 heads do not fit weights of 12"):
        seen.record(n_heads=5)


@pytest.mark.parametrize("n_tokens", [5, 2])
def test_sequence_first_inputs(n_tokens: int) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(12, 3)
    x = torch.randn(n_tokens, 4, 12)
    with torch.no_grad(), capture(model) as seen:
        _, weights = model(x, x, x, average_attn_weights=False)
    np.testing.assert_allclose(seen.record(batch=3).weights[0], weights[3].numpy(), atol=1e-6)


def test_batches_that_are_put_together_are_not_heads() -> None:
    """Twice the batch in one, as guidance does; attention of one head on [batch, token, width]."""

    class Single(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(2))
    single = Single()
    with torch.no_grad(), capture(single) as seen:
        single(torch.cat([x, -x]))
    record = seen.record(batch=5)
    assert record.weights.shape == (1, 1, 5, 5)
    np.testing.assert_allclose(record.weights[0, 0], (x[2] @ x[2].mT / 2).softmax(-1).numpy(), atol=1e-6)


def test_heads_as_many_as_the_batch_of_another_input() -> None:
    """What torch's own module joins is known: no guess from the inputs takes its place."""

    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            windows = x.reshape(6, 2, 12)  # 3 texts of 4 tokens, as 6 windows of 2; 3 heads
            out: tuple[Tensor, Tensor] = self.attention(windows, windows, windows, average_attn_weights=False)
            return out

    model, x = Windows().eval(), torch.randn(3, 4, 12, generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), capture(model) as seen:
        _, expected = model(x)
    np.testing.assert_allclose(seen.record(batch=4).weights[0], expected[4].numpy(), atol=1e-6)


def test_learned_queries_attend() -> None:
    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.queries = nn.Parameter(torch.randn(3, 8))
            self.to_k, self.to_v = nn.Linear(8, 8), nn.Linear(8, 6)

        def forward(self, x: Tensor) -> Tensor:
            scores = self.queries @ self.to_k(x).transpose(1, 2)
            out: Tensor = (scores * 0.3).softmax(-1) @ self.to_v(x)
            return out

    model, x = Pool(), torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))
    _, seen = run(model, x)
    (one,) = seen.record(batch=1).maps
    expected = (model.queries @ model.to_k(x[1]).mT * 0.3).softmax(-1).detach().numpy()
    assert (one.kind, one.weights.shape) == ("cross", (1, 3, 5))
    np.testing.assert_allclose(one.rows(0, 3)[0], expected, atol=1e-6)


def test_heads_that_are_mixed_after_the_softmax() -> None:
    """Talking heads: the weights that are shown are those that weigh the values."""

    class Talking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.mix = nn.Parameter(torch.rand(3, 3).softmax(0))

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            weights = torch.einsum("bhqk,hg->bgqk", (q @ k.mT).softmax(-1), self.mix)
            return weights @ v

    generator = torch.Generator().manual_seed(6)
    q, k, v = (torch.randn(2, 3, n, 4, generator=generator) for n in (5, 7, 7))
    model = Talking()
    _, seen = run(model, q, k, v)
    expected = torch.einsum("hqk,hg->gqk", (q[0] @ k[0].mT).softmax(-1), model.mix).detach().numpy()
    np.testing.assert_allclose(seen.record().weights[0], expected, atol=1e-6)


def test_one_head_without_a_batch() -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))

    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x.T / math.sqrt(8)).softmax(-1) @ x

    _, seen = run(One(), x)
    expected = (x.double() @ x.double().T / math.sqrt(8)).softmax(-1).numpy()
    np.testing.assert_allclose(seen.record().weights[0, 0], expected, atol=1e-6)
    assert HEADS != 1


def test_inputs_made_inside_the_block() -> None:
    model = Attention(STYLES["functional_softmax"])
    with torch.no_grad(), capture(model) as seen:
        x, context = inputs()
        model(x * 1.0, context)
    np.testing.assert_allclose(seen.record().weights[0], model.expected(x, context)[0], atol=2e-6)
    assert seen.record().maps[0].kind == "cross"


def test_dropout_is_said() -> None:
    class Dropping(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return nn.functional.dropout((q @ k.mT).softmax(-1), 0.5, self.training) @ v

    generator = torch.Generator().manual_seed(6)
    q, k, v = (torch.randn(2, 3, n, 4, generator=generator) for n in (5, 7, 7))
    model = Dropping()
    torch.manual_seed(0)
    _, seen = run(model, q, k, v)
    record = seen.record()
    assert "after dropout" in record.notes[0]
    zero = record.weights[0] == 0
    assert 0 < zero.sum() < zero.size
    _, seen = run(model.eval(), q, k, v)
    assert seen.record().notes == ()
