"""Models of transformers, captured with padding and a batch, against the weights that they give themselves."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attnviz import AttnvizError
from attnviz.maps import AttentionMap, AttentionRecord, ComputedWeights
from attnviz.sources import huggingface_attention
from attnviz.sources.pytorch import Seen, capture
from tests.families import (
    BLOCKED,
    CAPPED,
    FAMILIES,
    LONG,
    PICTURES,
    SEEN,
    VOCABULARY,
    Family,
    continued,
    continues,
    ids,
    read_and_written,
)
from tests.test_faults import notes_of

IMPLEMENTATIONS = [
    (name, implementation) for name, family in FAMILIES.items() for implementation in family.implementations
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


@pytest.mark.parametrize("implementation", FAMILIES["gpt-oss"].implementations)
def test_learned_sinks_leave_rows_below_one(implementation: str) -> None:
    family = FAMILIES["gpt-oss"]
    _, seen = run(family.make(implementation), **family.inputs())
    record = seen.record()
    sums = record.weights.sum(axis=-1)
    assert (sums < 0.999).any() and (sums > 0).all()
    assert all("with a learned sink" in "".join(notes_of(one)) for one in record.maps)


BLOCKS = [name for name, family in FAMILIES.items() if family.kernel == BLOCKED]


@pytest.mark.parametrize("n_bytes", [huggingface_attention._BYTES, 4 * 2 * 4 * 7 * 3, 1])  # blocks of all, 3 and 1 rows
@pytest.mark.parametrize("name", BLOCKS)
def test_in_blocks_a_model_gives_what_it_gives_by_its_own_code(
    monkeypatch: pytest.MonkeyPatch, name: str, n_bytes: int
) -> None:
    monkeypatch.setattr(huggingface_attention, "_BYTES", n_bytes)
    family = FAMILIES[name]
    own, blocks = family.make("eager"), family.make(BLOCKED)
    with torch.no_grad():
        wanted, given = (first_tensor(model(**family.inputs())) for model in (own, blocks))
    np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)  # that of padding too
    out, seen = run(blocks, **family.inputs())
    assert torch.equal(first_tensor(out), given)
    for one in seen.record(batch=1).maps:
        assert isinstance(one.weights, ComputedWeights)


class Squares(TorchDispatchMode):
    """Notes tensors of numbers with as many rows and columns as there are tokens, or more."""

    def __init__(self, n: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n, self.found, self.seen = n, set[tuple[int, ...]](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                self.seen += 1
                if sum(size >= self.n for size in x.shape) > 1:
                    self.found.add(tuple(x.shape))
        return out


def long_input(family: Family, n: int) -> dict[str, torch.Tensor]:
    given = {"input_ids": ids(n, 1)}
    return given | ({"decoder_input_ids": ids(n, 2)} if family.inputs is read_and_written else {})


@pytest.mark.parametrize("name", BLOCKS)
def test_nothing_of_n_times_n_numbers_is_made(name: str) -> None:
    n, family = 600, FAMILIES[name]
    with Squares(n) as squares:
        _, seen = run(family.make(BLOCKED), **long_input(family, n))
        for one in seen.record().maps:
            assert one.rows(300, 303).shape == (4, 3, n)
    assert squares.seen > 100
    assert not squares.found
    with Squares(n) as squares:  # as its own code does
        run(family.make("eager"), **long_input(family, n))
    assert {shape[-3:] for shape in squares.found} >= {(4, n, n)}


@pytest.mark.parametrize("name", BLOCKS)
def test_long_maps_are_those_of_its_own_code(name: str) -> None:
    """Beyond one block of rows, and where masks are read as rules."""
    n, family = 600, FAMILIES[name]
    (_, own), (_, blocks) = (run(family.make(kind), **long_input(family, n)) for kind in ("eager", BLOCKED))
    expected, found = own.record().maps, blocks.record().maps
    assert len(expected) == len(found) > 0
    for one, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.rows(0, n), theirs.rows(0, n), rtol=0, atol=1e-5)
        assert isinstance(one.weights, ComputedWeights)
        assert one.weights.rule.mask is None


@pytest.mark.parametrize("prefix", [0, 6])
def test_masks_that_the_module_does_not_know_of(prefix: int) -> None:
    """The decoder of PaliGemma 2 is causal behind a prefix, and its modules say that they are not causal."""
    from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration

    torch.manual_seed(0)
    settings: Any = PaliGemmaConfig
    text, pictures = CAPPED | {"model_type": "gemma2"}, SEEN | PICTURES | {"model_type": "siglip_vision_model"}
    config = settings(text_config=text, vision_config=pictures, image_token_index=VOCABULARY - 1, projection_dim=48)
    kind: Any = PaliGemmaForConditionalGeneration
    model = kind._from_config(config, attn_implementation="eager").eval()
    given = {"input_ids": ids(LONG, 1) - 1} | (
        {"token_type_ids": (torch.arange(LONG) >= prefix).long()[None].expand(2, -1)} if prefix else {}
    )
    with torch.no_grad():
        own = model(**given, output_attentions=True)
    huggingface_attention.run_in_blocks(model)
    assert model.config.get_text_config()._attn_implementation == BLOCKED
    out, seen = run(model, **given)
    np.testing.assert_allclose(out.logits, own.logits, rtol=0, atol=1e-5)
    maps = seen.record(batch=1).maps
    for one, theirs in zip(maps, own.attentions, strict=True):
        np.testing.assert_allclose(one.rows(0, LONG), theirs[1], rtol=0, atol=1e-5)
    assert np.triu(maps[1].rows(0, LONG), 1).any() == bool(prefix)


@pytest.mark.parametrize(("name", "blocked"), [(name, True) for name in BLOCKS] + [("Llama", False), ("Bloom", False)])
def test_models_run_in_blocks_where_they_have_caps_or_sinks(name: str, blocked: bool) -> None:
    model = FAMILIES[name].make("eager")
    huggingface_attention.run_in_blocks(model)
    assert model.config._attn_implementation == (BLOCKED if blocked else "eager")


def test_models_that_no_flash_attention_runs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have more in their attention than a kernel is told."""
    model = FAMILIES["gpt-oss"].make("eager")
    monkeypatch.setattr(type(model), "_supports_flash_attn", False)
    huggingface_attention.run_in_blocks(model)
    assert model.config._attn_implementation == "eager"


def test_sinks_that_scale_the_output_are_in_the_weights() -> None:
    """Granite scales what attention gives by sigmoid(logsumexp − sink), and tells weights without that."""
    family = continues("GraniteSWAModel", "GraniteSWAConfig", BLOCKED, sliding_window=4)
    with torch.no_grad():
        out = family.make("eager")(**family.inputs(), output_attentions=True)
    given, seen = run(family.make(BLOCKED), **family.inputs())
    np.testing.assert_allclose(first_tensor(given)[0], first_tensor(out)[0], rtol=0, atol=1e-5)
    for one, theirs in zip(seen.record().maps, out.attentions, strict=True):
        weights = one.rows(0, 11)
        sums = weights.sum(axis=-1, keepdims=True)
        assert (sums < 0.9999).all() and (sums < 0.9).any()
        np.testing.assert_allclose(weights / sums, theirs[0], rtol=0, atol=1e-5)


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
