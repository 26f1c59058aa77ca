"""Which modules are watched: every one that attention may be named after, and few others."""

from types import MethodType

import pytest
import torch
from torch import nn

from attnviz.sources.capture_places import watched_modules
from attnviz.sources.pytorch import capture
from tests.families import FAMILIES, Family

Tensor = torch.Tensor


class FeedForward(nn.Module):
    """Passes on what its parts make."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.act, self.eps = nn.Linear(8, 9), nn.Linear(9, 8), nn.functional.gelu, 1e-5

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.act(self.up(x)) + self.eps)
        return out


class Product(nn.Module):
    """Attends with no name but one of a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT).softmax(-1) @ x


class Given(nn.Module):
    """Attends by a function that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.functional.scaled_dot_product_attention

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x)


class Inside(nn.Module):
    """Attends in a function of its own."""

    def forward(self, x: Tensor) -> Tensor:
        def attend() -> Tensor:
            return (x @ x.mT).softmax(-1) @ x

        return attend()


class Around(nn.Module):
    """Passes on what one module makes."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.part(x)
        return out


def paths(model: nn.Module) -> list[str]:
    return list(watched_modules(dict(model.named_modules())))


def test_what_only_passes_on_is_not_watched() -> None:
    model = nn.Sequential(FeedForward(), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), Around(FeedForward()))
    assert paths(model) == [""]
    assert paths(FeedForward()) == [""]  # the model itself always is


@pytest.mark.parametrize("kind", [Product, Given, Inside])
def test_what_may_attend_is_and_what_is_around_it(kind: type[nn.Module]) -> None:
    model = nn.Sequential(Around(kind()))
    assert paths(model) == ["", "0", "0.part"]
    with torch.no_grad(), capture(model) as seen:
        model(torch.ones(2, 5, 8))
    assert [one.name for one in seen.record().maps] == ["0.part"]


def test_a_forward_that_was_put_in_place_of_the_class_is_not_trusted() -> None:
    model = nn.Sequential(FeedForward())
    model[0].forward = MethodType(Product.forward, model[0])
    assert paths(model) == ["", "0"]
    with torch.no_grad(), capture(model) as seen:
        model(torch.ones(2, 5, 8))
    assert [one.name for one in seen.record().maps] == ["0"]


@pytest.mark.parametrize("family", [FAMILIES[name] for name in ("BERT", "Llama")], ids=lambda one: one.model)
def test_of_models_of_transformers_less_than_half_is_watched(family: Family) -> None:
    model = family.make("sdpa")
    assert 2 * len(paths(model)) < len(list(model.modules()))
