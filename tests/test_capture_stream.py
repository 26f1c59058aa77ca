"""Maps that a model hands over while it runs: what they are, when they come, and what is left when they stop."""

import gc
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # so that there is a switch to set
from torch import nn, overrides

from attnviz import AttnvizError, RequestError
from attnviz.maps import AttentionMap, ComputedWeights
from attnviz.sources import capture_calls, capture_maps
from attnviz.sources.capture_stream import streamed
from attnviz.sources.pytorch import capture
from attnviz.tokens import Tokens
from tests.attending import STYLES, Attention, Tensor, inputs
from tests.families import FAMILIES
from tests.test_capture_limits import Block, Stacked

MANY = range(99)


def stream(
    model: nn.Module,
    run: Callable[[], object],
    layers: Collection[int] = MANY,
    modules: Sequence[str] | None = None,
    tokens: str = "abcde",
    notes: list[str] | None = None,
) -> Iterator[AttentionMap]:
    def quietly() -> None:
        with torch.no_grad():
            run()

    said = [] if notes is None else notes
    return streamed(model, quietly, Tokens.of(tokens), None, layers=layers, modules=modules, notes=said)


def told(one: AttentionMap) -> tuple[object, ...]:
    return one.name, one.layer, one.stack, one.kind, one.heads, len(one.query), len(one.key)


def check_same(maps: Sequence[AttentionMap], others: Sequence[AttentionMap]) -> None:
    assert [told(one) for one in maps] == [told(one) for one in others]
    for one, other in zip(maps, others, strict=True):
        np.testing.assert_allclose(one.rows(0, len(one.query)), other.rows(0, len(other.query)), atol=1e-6)


IMPLEMENTATIONS = [(name, kind) for name, one in FAMILIES.items() for kind in one.implementations]


@pytest.mark.parametrize(("name", "implementation"), IMPLEMENTATIONS)
def test_they_are_those_of_the_record(name: str, implementation: str) -> None:
    family = FAMILIES[name]
    model, given = family.make(implementation), family.inputs()
    with torch.no_grad(), capture(model) as seen:
        model(**given)
    notes: list[str] = []
    tokens = Tokens.of(map(str, range(7 if "decoder_input_ids" in given else 11)))
    keys = Tokens.of(map(str, range(11))) if "decoder_input_ids" in given else None
    if "input_ids" not in given and keys is None:
        tokens = Tokens.of(map(str, range(10)))  # patches and what stands for the whole picture

    def run() -> None:
        with torch.no_grad():
            model(**given)

    maps = list(streamed(model, run, tokens, keys, layers=MANY, modules=None, notes=notes))
    check_same(maps, seen.record().maps)
    assert not [note for note in notes if "left out" in note]


class Shared(nn.Module):
    """One module that is called again and again, after another one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(8, 2, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        for attention in (self.first, *[self.attention] * 3):
            x = x + attention(x, x, x, need_weights=False)[0]
        return x


def blocks() -> nn.Module:
    return nn.Sequential(*(Block() for _ in range(3)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "heads in a list": blocks,
    "layers of one head in a list": lambda: Stacked("list"),
    "layers of one head in a loop": lambda: Stacked("loop"),
    "a module called again": Shared,
    "torch's encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3),
}


@pytest.mark.parametrize("kind", MODELS)
def test_heads_are_put_together_and_layers_numbered_as_in_the_record(kind: str) -> None:
    torch.manual_seed(0)
    model, x = MODELS[kind]().eval(), torch.randn(2, 5, 8)
    with torch.no_grad(), capture(model) as seen:
        model(x)
    check_same(list(stream(model, lambda: model(x))), seen.record(tokens="abcde").maps)


@pytest.mark.parametrize("style", STYLES)
def test_each_spelling(style: str) -> None:
    model, given = Attention(STYLES[style]), inputs()
    (one,) = stream(model, lambda: model(*given))
    np.testing.assert_allclose(one.rows(0, 5), model.expected(*given)[0], atol=2e-6)


class Layer(nn.Module):
    """Attention on a fused kernel, and a mark when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(8, 8) for _ in range(3))
        self.used: tuple[int, int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (to(x).view(2, 5, 2, 4).transpose(1, 2) for to in (self.to_q, self.to_k, self.to_v))
        self.used = q.data_ptr(), k.data_ptr()
        out: Tensor = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + out.transpose(1, 2).reshape(x.shape)


class Deep(nn.Module):
    """Layers that are seen to run."""

    def __init__(self, fails_after: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Layer() for _ in range(4)])
        self.fails_after, self.ran = fails_after, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            self.ran.append(i)
            x = layer(x)
            if i == self.fails_after:
                raise ArithmeticError("the model's own")
        return x


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


def test_each_map_comes_while_its_layer_runs() -> None:
    model = Deep()
    ran = [(one.layer, list(model.ran)) for one in stream(model, lambda: model(X))]
    assert ran == [(i, list(range(i + 1))) for i in range(4)]


def test_queries_and_keys_are_the_models_own_and_gone_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Deep()
    seen: list[weakref.ref[Tensor]] = []
    real = capture_maps.item_of

    def watched(one: capture_calls.Attended, *more: Any) -> capture_maps.Item:
        assert isinstance(one.recipe, capture_calls.Computed)
        seen.extend(weakref.ref(x) for x in (one.recipe.q, one.recipe.k, one.values, one.out))
        return real(one, *more)

    monkeypatch.setattr("attnviz.sources.capture_stream.item_of", watched)
    maps, alive = stream(model, lambda: model(X)), []
    while (one := next(maps, None)) is not None:
        assert isinstance(one.weights, ComputedWeights)
        layer: Any = model.layers[one.layer]
        assert (one.weights.q.ctypes.data, one.weights.k.ctypes.data) == layer.used  # no copies
        alive.append([ref() is not None for ref in seen[:-4]])
        del one
    assert alive == [[False] * 4 * i for i in range(4)]


def test_weights_of_the_last_map_are_gone_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Attention(STYLES["functional_softmax"])
    given = inputs()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = model

        def forward(self, x: Tensor, context: Tensor) -> None:
            self.attention(x, context)
            alive.append(first() is not None)
            self.attention(x, context)

    twice, alive = Twice(), list[bool]()
    maps = stream(twice, lambda: twice(*given))
    one = next(maps)
    first = weakref.ref(one.weights)
    del one
    assert [one.name for one in maps] == ["attention#1"]
    assert alive == [False]


def test_nothing_runs_after_the_last_layer_that_is_wanted() -> None:
    model = Deep()
    notes: list[str] = []
    maps = stream(model, lambda: model(X), [0, 1], ["layers.0", "layers.1"], notes=notes)
    assert [one.layer for one in maps] == [0, 1]
    assert model.ran[:2] == [0, 1] and len(model.ran) <= 3
    assert notes == []
    check_same(list(stream(model, lambda: model(X), [1], ["layers.1"])), [_layer(model, 1)])


def _layer(model: nn.Module, layer: int) -> AttentionMap:
    with torch.no_grad(), capture(model) as seen:
        model(X)
    return seen.record(tokens="abcde").maps[layer]


def test_tokens_that_fit_nothing_are_told_though_the_model_was_stopped() -> None:
    model = Deep()
    with pytest.raises(RequestError, match=r"4 tokens are given, but attention has other sizes: layers\.0 5 queries"):
        list(stream(model, lambda: model(X), [0], ["layers.0"], tokens="abcd"))


def state(model: nn.Module) -> tuple[Any, ...]:
    hooks = [(len(one._forward_hooks), len(one._forward_pre_hooks)) for one in model.modules()]
    modes: Any = overrides._get_current_function_mode_stack
    stance: Any = torch._dynamo.eval_frame._stance
    threads = sum(one.name == "attnviz" for one in threading.enumerate())
    return hooks, modes(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), stance, threads


@pytest.mark.parametrize("fails_after", [0, 2])
@pytest.mark.parametrize("modules", [None, [f"layers.{i}" for i in range(4)], ["layers.0"]])
def test_what_the_model_raises_comes_out(fails_after: int, modules: list[str] | None) -> None:
    model = Deep(fails_after)
    before = state(model)
    maps = stream(model, lambda: model(X), modules=modules)
    if modules == ["layers.0"] and fails_after == 2:
        assert [one.layer for one in maps] == [0]  # it was stopped before
    else:
        with pytest.raises(ArithmeticError, match="the model's own"):
            list(maps)
    del maps
    assert state(model) == before


@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_who_looks_may_stop(error: type[BaseException]) -> None:
    model = Deep()
    before = state(model)

    def look() -> None:
        for _ in stream(model, lambda: model(X)):
            raise error

    with pytest.raises(error):
        look()
    gc.collect()
    assert state(model) == before
    assert model.ran == [0]
    first = next(stream(model, lambda: model(X)))  # and the rest is not wanted
    assert (first.layer, state(model)) == (0, before)
    assert [one.layer for one in stream(model, lambda: model(X))] == [0, 1, 2, 3]


def test_two_at_once_do_not_see_each_other() -> None:
    one, other = Deep(), Deep()
    pairs = zip(stream(one, lambda: one(X)), stream(other, lambda: other(-X)), strict=True)
    for i, (first, second) in enumerate(pairs):
        assert first.name == second.name == f"layers.{i}"
        assert not np.array_equal(first.rows(0, 5), second.rows(0, 5))
    model = Deep()  # the same model twice: each run has its own hooks
    for first, second in zip(stream(model, lambda: model(X)), stream(model, lambda: model(-X)), strict=True):
        assert first.name == second.name
        assert not np.array_equal(first.rows(0, 5), second.rows(0, 5))


def test_no_attention() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    with pytest.raises(AttnvizError, match="no attention ran: Sequential has no softmax over keys"):
        list(stream(model, lambda: model(X)))
    deep = Deep()
    with pytest.raises(AttnvizError, match=r"no attention ran in the modules asked for, but in layers\.0, layers\.1"):
        list(stream(deep, lambda: deep(X), [0], ["layers.0.to_q"]))


def test_a_map_that_does_not_hold_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_calls, "TOLERANCE", {torch.float64: -1.0, torch.float32: 1e-4})
    torch.manual_seed(0)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Layer().double(), Layer()])

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.parts[1](self.parts[0](x.double()).float())
            return out

    two, notes = Two(), list[str]()
    assert [one.name for one in stream(two, lambda: two(X), notes=notes)] == ["parts.1"]
    (note,) = notes
    assert note.startswith("parts.0: left out: times the values")
    monkeypatch.setattr(capture_calls, "TOLERANCE", {torch.float64: -1.0, torch.float32: -1.0})
    with pytest.raises(AttnvizError, match=r"parts\.0: left out: .*; parts\.1: left out"):
        list(stream(two, lambda: two(X)))
