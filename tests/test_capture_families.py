"""Models of transformers, captured with padding and a batch, against the weights that they give themselves."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from attnviz import AttnvizError
from attnviz.maps import AttentionMap, AttentionRecord
from attnviz.sources.pytorch import Seen, capture
from tests.families import FAMILIES, Family, continued

IMPLEMENTATIONS = [
    (name, implementation)
    for name, family in FAMILIES.items()
    for implementation in ("eager", *(("sdpa",) if family.fused else ()))
]
Floats = npt.NDArray[np.float32]


def run(model: Any, **given: Any) -> tuple[Any, Seen]:
    with torch.no_grad(), capture(model) as seen:
        out = model(**given)
    return out, seen


def first_tensor(out: Any) -> torch.Tensor:
    return next(value for value in out.values() if isinstance(value, torch.Tensor))


def their_own(family: Family) -> dict[str, list[Floats]]:
    """Weights [batch, head, query, key] of each layer, by what transformers calls them."""
    model = family.make("eager")
    with torch.no_grad():
        out = model(**family.inputs(), output_attentions=True)
    parts = {"": out} if not hasattr(out, "text_model_output") else {
        "text_model": out.text_model_output, "vision_model": out.vision_model_output
    }  # fmt: skip
    found = {}
    for part, values in parts.items():
        for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
            layers = [one for one in values.get(name) or () if one is not None]
            if layers:
                found[f"{part}{name}"] = [one.numpy() for one in layers]
    return found


def kind_of(one: AttentionMap, known: dict[str, list[Floats]]) -> str:
    if one.kind == "cross":
        return "cross_attentions"
    tower = one.name.split(".")[0]
    names = [f"{tower}attentions", f"{one.stack}_attentions", "attentions"]
    return next(name for name in names if name in known)


@pytest.mark.parametrize(("name", "implementation"), IMPLEMENTATIONS)
def test_each_family_gives_its_own_weights(name: str, implementation: str) -> None:
    family = FAMILIES[name]
    expected, model = their_own(family), family.make(implementation)
    with torch.no_grad():
        before = first_tensor(model(**family.inputs()))
    out, seen = run(model, **family.inputs())
    assert torch.equal(first_tensor(out), before)
    for item in range(2):
        record = seen.record(batch=item)
        found: dict[str, list[AttentionMap]] = {}
        for one in record.maps:
            found.setdefault(kind_of(one, expected), []).append(one)
        assert {kind: len(maps) for kind, maps in found.items()} == {kind: len(maps) for kind, maps in expected.items()}
        for kind, maps in found.items():
            for one, theirs in zip(maps, expected[kind], strict=True):
                weights = one.rows(0, len(one.query))
                alive = weights.any(axis=-1)  # rows of padding: 0 here, and whatever comes out there
                np.testing.assert_allclose(weights[alive], theirs[item][alive], atol=1e-5)
                assert alive.all() or (item == 1 and "attention_mask" in family.inputs())
        check_layers(family, record)
        assert not [note for note in record.notes if "left out" in note or "softmax" in note]


def check_layers(family: Family, record: AttentionRecord) -> None:
    """Layers are numbered as the model does; in CLIP, of each tower."""
    layers: dict[tuple[str, str], list[int]] = {}
    for one in record.maps:
        tower = one.name.split(".")[0] if family.model == "CLIPModel" else one.stack
        layers.setdefault((tower, one.kind), []).append(one.layer)
    if ("decoder", "cross") in layers:
        assert layers == {("encoder", "self"): [0, 1], ("decoder", "self"): [0, 1, 2], ("decoder", "cross"): [0, 1, 2]}
    else:
        assert set(map(tuple, layers.values())) == {family.attending}
        assert {kind for _, kind in layers} == {"self"}


def test_padding_attends_to_nothing_and_nothing_attends_to_it() -> None:
    family = FAMILIES["Llama"]
    _, seen = run(family.make("sdpa"), **family.inputs())
    weights = seen.record(batch=1).weights
    assert not weights[:, :, :5].any() and not weights[..., :5].any()
    np.testing.assert_allclose(weights[:, :, 5:].sum(axis=-1), 1, atol=1e-6)


def test_learned_sinks_leave_rows_below_one() -> None:
    family = FAMILIES["gpt-oss"]
    _, seen = run(family.make("eager"), **family.inputs())
    sums = seen.record().weights.sum(axis=-1)
    assert (sums < 0.999).any() and (sums > 0).all()


@pytest.mark.parametrize("name", ["Mamba", "Rwkv"])
def test_models_without_attention_are_refused(name: str) -> None:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=97, hidden_size=48, num_hidden_layers=2)
    model = getattr(transformers, f"{name}Model")(config).eval()
    _, seen = run(model, input_ids=continued()["input_ids"])
    with pytest.raises(AttnvizError, match=f"no attention ran: {name}Model has no softmax over keys"):
        seen.record()


def test_steps_of_generation_are_self_attention() -> None:
    """Cached keys: the second call has one query and all keys so far."""
    family = FAMILIES["Llama"]
    model = family.make("sdpa")
    ids = family.inputs()["input_ids"][:1]
    with torch.no_grad(), capture(model) as seen:
        first = model(ids[:, :-1], use_cache=True)
        model(ids[:, -1:], past_key_values=first.past_key_values)
    maps = seen.record(tokens=[f"t{i}" for i in range(11)]).maps
    assert [(one.kind, len(one.query), len(one.key)) for one in maps] == [("self", 10, 10)] * 3 + [("self", 1, 11)] * 3
    _, whole = run(model, input_ids=ids)
    np.testing.assert_allclose(maps[5].rows(0, 1)[:, 0], whole.record().weights[2, :, -1], atol=1e-6)
    assert maps[5].query.text == ("t10",)
    assert [one.layer for one in maps] == [0, 1, 2, 0, 1, 2]
