"""What capture must not see, what it must leave as it was, and what it says when something is wrong."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, overrides

import attnviz
from attnviz import AttnvizError, RequestError
from attnviz.sources import capture_calls, capture_kernels
from attnviz.sources.pytorch import capture
from tests.attending import STYLES, Attention, Tensor, inputs, scale


class Features(nn.Module):
    """x [2, 5, 8] through a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Linear(8, 8)

    def x(self) -> Tensor:
        out: Tensor = self.body(torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3)))
        return out


class Classifier(Features):
    """Classes, then the mean of their embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.classes = nn.Linear(8, 6), nn.Embedding(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x)).softmax(-1) @ self.classes.weight
        return out


class TiedClassifier(Features):
    """Logits by the embeddings themselves, soft tokens by the same."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Embedding(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.classes.weight * 0.5
        return torch.softmax(self.body(x) @ scaled.T, -1) @ scaled


class Experts(Features):
    """A router that weighs experts; as many experts as there are tokens, so that sizes tell nothing."""

    def __init__(self, spelled: str) -> None:
        super().__init__()
        self.spelled, self.gate = spelled, nn.Linear(8, 5)
        self.experts = nn.ModuleList([nn.Linear(8, 4) for _ in range(5)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        made = torch.stack([expert(x) for expert in self.experts], dim=2)
        if self.spelled == "module":
            return torch.einsum("bne,bnec->bnc", self.gate(x).softmax(-1), made)
        if self.spelled == "matrix":
            return ((x @ self.gate.weight.T).softmax(-1)[:, :, None] @ made)[:, :, 0]
        if self.spelled == "turned":
            weights = (x @ self.gate.weight.T).transpose(1, 2).softmax(1).transpose(1, 2)
            return (weights[:, :, None] @ made)[:, :, 0]
        keys = nn.functional.normalize(self.gate.weight, dim=-1)
        weights = torch.einsum("bnd,ed->bne", x, keys).softmax(-1)
        return (weights.unsqueeze(-1) * made).sum(2)


class Gated(Features):
    """GLU, a softmax over channels, and a gate of two."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.glu(self.both(self.body(x)), dim=-1)
        return x * x.softmax(-1) + x * torch.sigmoid(x)


class Bahdanau(Features):
    """Additive scores."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.score(torch.tanh(self.body(x))).squeeze(-1).softmax(-1)
        return torch.bmm(weights.unsqueeze(1), x)


class Linear(Features):
    """Attention without a softmax."""

    def forward(self, x: Tensor) -> Tensor:
        q: Tensor = self.body(x)
        return (q @ x.mT) @ x


class Smoothed(Features):
    """A loss with label smoothing, and one of contrast between two views."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.body(x).flatten(0, 1)
        smooth = nn.functional.cross_entropy(logits, torch.arange(10) % 8, label_smoothing=0.1)
        contrast = nn.functional.cross_entropy(logits @ x.flatten(0, 1).T, torch.arange(10))
        soft = -(torch.full((10, 8), 0.125) * logits.log_softmax(-1)).sum(-1).mean()
        return smooth + contrast + soft


class Averaging(Features):
    """A causal mean: a softmax of a mask alone."""

    def forward(self, x: Tensor) -> Tensor:
        zeros = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        x = self.body(x)
        return zeros.softmax(-1) @ x


NOT_ATTENTION = {
    "classifier": (Classifier(), "no softmax of Classifier is over scores"),
    "tied classifier": (TiedClassifier(), "no softmax of TiedClassifier is over scores"),
    "experts": (Experts("module"), "in Experts, a softmax weighs values, but not by scores"),
    "experts by a matrix": (Experts("matrix"), "in Experts, a softmax weighs values, but not by scores"),
    "experts by a matrix, turned": (Experts("turned"), "in Experts, a softmax weighs values, but not by scores"),
    "experts by keys": (Experts("keys"), "no softmax of Experts is over scores"),
    "gates": (Gated(), "no softmax of Gated is over scores"),
    "additive scores": (Bahdanau(), "in Bahdanau, a softmax weighs values, but not by scores"),
    "no softmax": (Linear(), "Linear has no softmax over keys"),
    "losses": (Smoothed(), "no softmax of Smoothed is over scores"),
    "a mean": (Averaging(), "no softmax of Averaging is over scores"),
    "recurrent": (nn.LSTM(8, 4), "LSTM has no softmax over keys"),
}


@pytest.mark.parametrize("kind", NOT_ATTENTION)
def test_what_is_no_attention_is_not_taken_for_it(kind: str) -> None:
    model, message = NOT_ATTENTION[kind]
    with torch.no_grad(), capture(model) as seen:
        model(Features().x())
    with pytest.raises(AttnvizError, match=message) as caught:
        seen.record()
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kind", NOT_ATTENTION)
def test_attention_is_found_beside_what_is_none(kind: str) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.other = NOT_ATTENTION[kind][0]

        def forward(self, x: Tensor) -> Any:
            y, _ = self.attention(x, x, x)
            return self.other(x + y)

    model, x = Both().eval(), Features().x().detach()
    with torch.no_grad(), capture(model) as seen:
        model(x)
        expected = model.attention(x, x, x, average_attn_weights=False)[1]
    record = seen.record(batch=1)
    assert [one.name for one in record.maps] == ["attention", "attention#1"]  # the second is that of this test
    np.testing.assert_allclose(record.maps[0].rows(0, 5), expected[1].numpy(), atol=1e-6)


class Fails(Attention):
    """Attends, then raises."""

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        super().forward(x, context)
        raise ArithmeticError("the model's own")


def switches(model: nn.Module) -> tuple[Any, ...]:
    hooks = [(len(one._forward_hooks), len(one._forward_pre_hooks)) for one in model.modules()]
    stance: Any = torch._dynamo.eval_frame._stance
    modes: Any = overrides._get_current_function_mode_stack
    return hooks, modes(), torch.backends.mha.get_fastpath_enabled(), stance, model.training


@pytest.mark.parametrize("kind", [Attention, Fails])
def test_everything_is_as_it_was(kind: type[Attention]) -> None:
    import torch._dynamo  # so that there is a switch to set

    model, given = kind(STYLES["functional_softmax"]), inputs()
    before, state = switches(model), {name: x.clone() for name, x in model.state_dict().items()}
    try:
        with torch.no_grad(), capture(model) as seen:
            assert switches(model) != before
            model(*given)
    except ArithmeticError as error:
        assert kind is Fails and str(error) == "the model's own"
    else:
        assert kind is Attention
    assert switches(model) == before
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    assert len(seen.record().maps) == 1  # what ran before the failure is there


def test_tensors_carry_nothing_away(tmp_path: Path) -> None:
    model = Attention(STYLES["functional_softmax"])
    with torch.no_grad(), capture(model) as seen:
        out = model(*inputs())
    assert vars(out) == {}
    torch.save(out, tmp_path / "out.pt")
    assert torch.equal(torch.load(tmp_path / "out.pt", weights_only=True), out)
    assert seen.record().maps


def test_the_scripted_are_switched_back_too() -> None:
    class Scripted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.matmul(torch.softmax(torch.matmul(x, x.transpose(1, 2)), dim=-1), x)

    with pytest.warns(DeprecationWarning, match="torch.jit"):
        model = torch.jit.script(Scripted())
    assert torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad(), capture(model):
        assert not torch.backends.mha.get_fastpath_enabled()
        model(torch.ones(1, 2, 3))
    assert torch.backends.mha.get_fastpath_enabled()


def test_one_capture_at_a_time() -> None:
    model = Attention(STYLES["sdpa"])
    with torch.no_grad(), capture(model) as seen:
        with pytest.raises(RequestError, match="in this thread already"), capture(model):
            pass
        model(*inputs())
        with pytest.raises(RequestError, match="after the with block"):
            seen.record()
    assert len(seen.record().maps) == 1
    with torch.no_grad(), capture(model) as again:
        model(*inputs())
    assert len(again.record().maps) == 1


def test_other_threads_are_not_seen() -> None:
    model, given = Attention(STYLES["functional_softmax"]), inputs()
    outs: list[Tensor] = []

    def elsewhere() -> None:
        with torch.no_grad():
            outs.append(model(*given))

    with torch.no_grad(), capture(model) as seen:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        out = model(*given)
    assert [one.name for one in seen.record().maps] == ["Attention"]
    assert torch.equal(outs[0], out)


def test_a_thread_inside_the_model_does_not_change_names() -> None:
    inside, done = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inside.set()
            assert done.wait(30)
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.waits, self.attention = Waits(), Attention(STYLES["functional_softmax"])

        def forward(self, x: Tensor, context: Tensor) -> Tensor:
            out: Tensor = self.attention(x, context)
            return out + out @ out.mT @ out

    model, (x, context) = Model(), inputs()
    thread = threading.Thread(target=model.waits, args=(x,))
    with torch.no_grad(), capture(model) as seen:
        thread.start()
        assert inside.wait(30)
        model.attention.style(*model.attention.heads(x, context), torch.ones(5, 7, dtype=torch.bool))
        done.set()
        thread.join()
    assert [one.name for one in seen.record().maps] == ["Model"]  # and not the module in which the other thread is


def test_two_threads_capture_at_once() -> None:
    import torch._dynamo

    meet, records = threading.Barrier(2, timeout=30), {}
    before: Any = torch._dynamo.eval_frame._stance

    def run(style: str) -> None:
        model = Attention(STYLES[style])
        with torch.no_grad(), capture(model) as seen:
            meet.wait()
            model(*inputs())
            meet.wait()
        records[style] = seen.record()

    threads = [threading.Thread(target=run, args=(style,)) for style in ("sdpa", "bmm")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {style: len(record.maps) for style, record in records.items()} == {"sdpa": 1, "bmm": 1}
    stance: Any = torch._dynamo.eval_frame._stance
    assert stance == before


def test_nothing_ran() -> None:
    with capture(Attention(STYLES["sdpa"])) as seen:
        pass
    with pytest.raises(AttnvizError, match="Attention was not called inside the with block"):
        seen.record()


def test_only_the_modules_asked_for() -> None:
    model = nn.Transformer(8, 2, 1, 2, 16, batch_first=True).eval()
    x, y = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    with torch.no_grad(), capture(model, modules=["decoder.layers.1", "encoder"]) as seen:
        model(x, y)
    assert [one.name for one in seen.record().maps] == [
        "encoder.layers.0.self_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    ]
    assert [one.layer for one in seen.record().maps] == [0, 1, 1]
    with torch.no_grad(), capture(model, modules=["encoder.norm"]) as seen:
        model(x, y)
    with pytest.raises(AttnvizError, match="no attention ran in the modules asked for, but in encoder"):
        seen.record()
    with (
        pytest.raises(RequestError, match=r"no module 'encoder\.layer'; did you mean 'encoder\.layers'"),
        capture(model, modules=["encoder.layer"]),
    ):
        pass
    with pytest.raises(RequestError, match=r"write \['encoder'\]"), capture(model, modules="encoder"):
        pass
    not_a_module: Any = "bert"
    with pytest.raises(RequestError, match=r"takes a torch\.nn\.Module, got str"), capture(not_a_module):
        pass


def test_the_meta_device_holds_no_numbers() -> None:
    model = Attention(STYLES["functional_softmax"]).to("meta")
    with capture(model) as seen:
        model(*(x.to("meta") for x in inputs()))
    with pytest.raises(AttnvizError, match="the model: it ran on the meta device"):
        seen.record()


def test_inside_vmap_there_are_no_numbers() -> None:
    model, (x, context) = Attention(STYLES["by_hand"]), inputs()
    with torch.no_grad(), capture(model) as seen:
        out = torch.vmap(model)(x[:, None], context[:, None])
    torch.testing.assert_close(out[:, 0], model(x, context))
    with pytest.raises(AttnvizError, match="no attention ran"):
        seen.record()
    model = Attention(STYLES["sdpa"])
    with torch.no_grad(), capture(model) as seen:
        torch.vmap(model)(x[:, None], context[:, None])
    with pytest.raises(AttnvizError, match="inside vmap"):
        seen.record()


def test_numbers_that_are_none_are_refused() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x.mT * float("nan")).softmax(-1) @ x

    model = Broken()
    with torch.no_grad(), capture(model) as seen:
        model(torch.ones(2, 3, 4))
    with pytest.raises(AttnvizError, match="Broken: left out: they are negative or no numbers"):
        seen.record()


@pytest.mark.parametrize(("n", "m", "batch"), [(0, 3, 2), (3, 0, 2), (3, 4, 0)])
@pytest.mark.parametrize("fused", [True, False])
def test_no_tokens(fused: bool, n: int, m: int, batch: int) -> None:
    class Small(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, k) if fused else (q @ k.mT).softmax(-1) @ k

    model = Small()
    with torch.no_grad(), capture(model) as seen:
        out = model(torch.ones(batch, n, 8), torch.ones(batch, m, 8))
    assert out.shape == (batch, n, 8)
    with pytest.raises(AttnvizError, match="it ran on no tokens"):
        seen.record()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_refused() -> None:
    x = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)], layout=torch.jagged)

    class Ragged(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x.unflatten(-1, (2, 4)).transpose(1, 2)  # type: ignore[no-untyped-call]
            return nn.functional.scaled_dot_product_attention(x, x, x)

    model = Ragged()
    with torch.no_grad(), capture(model) as seen:
        model(x)
    with pytest.raises(AttnvizError, match="with nested tensors"):
        seen.record()


def test_a_map_that_does_not_explain_the_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = capture_calls.Computed

    def wrong(*args: Any, **told: Any) -> Any:
        return real(*args, **{**told, "mask": None})

    model = Attention(STYLES["sdpa"])
    monkeypatch.setattr(capture_kernels, "Computed", wrong)
    with torch.no_grad(), capture(model) as seen:
        model(*inputs())
    with pytest.raises(AttnvizError, match="Attention: left out: times the values, they miss what the kernel gave by"):
        seen.record()


def test_weights_that_are_no_distribution_over_keys_are_refused() -> None:
    """A softmax over the queries: what weighs the values sums to more than 1."""

    class Turned(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return (q @ k.mT).softmax(-2) @ k

    model = Turned()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), capture(model) as seen:
        model(torch.randn(2, 5, 8, generator=generator), torch.randn(2, 9, 8, generator=generator))
    with pytest.raises(AttnvizError, match="Turned: left out: their rows sum to as much as"):
        seen.record()


def test_one_refused_map_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_calls, "TOLERANCE", {torch.float64: -1.0, torch.float32: 1e-4})
    model = nn.ModuleList([Attention(STYLES["sdpa"]).double(), Attention(STYLES["bmm"])])
    x, context = inputs()

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor, context: Tensor) -> None:
            self.parts[0](x.double(), context.double())
            self.parts[1](x, context)

    two = Two()
    with torch.no_grad(), capture(two) as seen:
        two(x, context)
    record = seen.record()
    assert [one.name for one in record.maps] == ["parts.1"]
    assert record.notes[0].startswith("parts.0: left out: times the values")


class Head(nn.Module):
    """One head, as lectures write it."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(8, 4, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        k, q = self.key(x), self.query(x)
        weights = (q @ k.transpose(-2, -1) * scale(q)).softmax(-1)
        out: Tensor = weights @ self.value(x)
        return out


class Block(nn.Module):
    """Several such heads, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([Head() for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.cat([head(x) for head in self.heads], dim=-1)


def test_heads_that_are_modules_of_a_list_are_one_layer() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Block() for _ in range(3))), torch.randn(2, 5, 8)
    with torch.no_grad(), capture(model) as seen:
        model(x)
    record = seen.record(tokens="abcde", batch=1)
    assert [(one.name, one.layer, one.heads, one.kind) for one in record.maps] == [
        (f"{i}.heads", i, (0, 1), "self") for i in range(3)
    ]
    for h in range(2):
        head: Any = model[0].heads[h]  # type: ignore[index]
        q, k = head.query(x[1]).double(), head.key(x[1]).double()
        expected = (q @ k.mT / 2).softmax(-1).detach().numpy()
        np.testing.assert_allclose(record.weights[0, h], expected, atol=1e-6)


class Stacked(nn.Module):
    """Layers of one head in one list, or in one loop, that build on each other."""

    def __init__(self, spelled: str) -> None:
        super().__init__()
        self.spelled = spelled
        self.layers = nn.ModuleList([Head() for _ in range(3)])
        self.widen = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + (self.widen(layer(x)) if self.spelled == "list" else (x @ x.mT).softmax(-1) @ x)
        return x


@pytest.mark.parametrize("spelled", ["list", "loop"])
def test_heads_that_build_on_each_other_are_layers(spelled: str) -> None:
    torch.manual_seed(0)
    model = Stacked(spelled)
    with torch.no_grad(), capture(model) as seen:
        model(torch.randn(2, 5, 8))
    record = seen.record()
    assert [(one.layer, one.heads) for one in record.maps] == [(0, (0,)), (1, (0,)), (2, (0,))]


def test_two_lines_of_code_are_two_layers() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            first = (x @ x.mT).softmax(-1) @ x
            second = (x @ x.mT * 0.5).softmax(-1) @ x
            return first, second

    model = Two()
    with torch.no_grad(), capture(model) as seen:
        model(torch.randn(2, 5, 8))
    assert [one.name for one in seen.record().maps] == ["Two", "Two#1"]


def test_layers_of_one_head_stay_apart() -> None:
    torch.manual_seed(0)

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(Head(), nn.Linear(4, 8)) for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    model = Deep()
    with torch.no_grad(), capture(model) as seen:
        model(torch.randn(2, 5, 8))
    assert [one.heads for one in seen.record().maps] == [(0,), (0,), (0,)]


def test_a_module_that_is_called_again_is_numbered() -> None:
    torch.manual_seed(0)

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = x + self.attention(x, x, x, need_weights=False)[0]
            return x

    model = Shared().eval()
    with torch.no_grad(), capture(model) as seen:
        model(torch.randn(2, 5, 8))
    record = seen.record()
    assert [one.name for one in record.maps] == ["attention", "attention#1", "attention#2"]
    assert [one.layer for one in record.maps] == [0, 1, 2]  # it is the layers that share their weights
    assert not np.array_equal(record.weights[0], record.weights[1])


def test_self_and_cross_in_one_function() -> None:
    """A block that attends to itself and then to a memory of the same size, by the same lines of code."""

    def attend(q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT * scale(q)).softmax(-1) @ k

    class Both(nn.Module):
        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            for _ in range(2):
                x = x + attend(x, x)
                x = x + attend(x, memory)
            return x

    model = Both()
    generator = torch.Generator().manual_seed(0)
    x, memory = torch.randn(2, 5, 8, generator=generator), torch.randn(2, 5, 8, generator=generator)
    with torch.no_grad(), capture(model) as seen:
        model(x, memory)
    record = seen.record(tokens="abcde", key_tokens="vwxyz")
    assert [one.kind for one in record.maps] == ["self", "cross", "self", "cross"]
    assert [one.layer for one in record.maps] == [0, 0, 1, 1]
    assert record.maps[1].key.text == tuple("vwxyz")


def test_keys_of_earlier_runs() -> None:
    """A cache: the new query's keys are those of all tokens so far."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.past: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.past = x if self.past is None else torch.cat([self.past, x], dim=1)
            return (x @ self.past.mT).softmax(-1) @ self.past

    model, x = Cached(), torch.randn(1, 4, 8)
    with torch.no_grad(), capture(model) as seen:
        model(x[:, :3])
        model(x[:, 3:])
    first, second = seen.record(tokens="abcd").maps
    assert (first.kind, second.kind) == ("self", "self")
    assert (len(first.query), second.query.text, second.key.text) == (3, ("d",), tuple("abcd"))


def test_tokens_and_batches_that_do_not_fit() -> None:
    model = Attention(STYLES["sdpa"])
    with torch.no_grad(), capture(model) as seen:
        model(*inputs())
    with pytest.raises(RequestError, match="4 tokens are given, but attention has other sizes: Attention 5 queries"):
        seen.record(tokens="abcd")
    with pytest.raises(RequestError, match="4 key tokens are given"):
        seen.record(key_tokens="abcd")
    with pytest.raises(RequestError, match="no item 2 in the batch of Attention: items 0 to 1 are there"):
        seen.record(batch=2)
    with pytest.raises(RequestError, match="there are 3 heads in weights of 2 × 3, not 6"):
        seen.record(n_heads=6)
    shown = seen.record().maps[0]
    assert (shown.query.text, shown.key.text[-1]) == (tuple("01234"), "6")


def test_a_record_is_saved_and_read_back(tmp_path: Path) -> None:
    model = Attention(STYLES["sdpa"])
    with torch.no_grad(), attnviz.capture(model) as seen:
        model(*inputs())
    tokens, key_tokens = ["one", "two", "one", "##s", ""], list("abcdefg")
    seen.save(tmp_path / "run.safetensors", tokens=tokens, key_tokens=key_tokens, batch=1)
    record = attnviz.load(tmp_path / "run.safetensors")
    assert np.array_equal(record.weights, seen.record(batch=1).weights)
    assert record.maps[0].query.text == tuple(tokens) and record.maps[0].key.text == tuple(key_tokens)
    assert record.provenance["model"] == "Attention" and record.provenance["device"] == "cpu"
