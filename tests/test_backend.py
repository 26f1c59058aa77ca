import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from attnviz import maps, torch_place
from attnviz.attention import Rule, attend, attention_weights
from attnviz.backend import BACKENDS, NUMPY, Placing, placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import ComputedWeights
from attnviz.sources import encoder, projected
from attnviz.sources.checkpoint import Checkpoint
from attnviz.sources.embeddings import open_embeddings
from attnviz.sources.encoder import Encoder, open_folder
from attnviz.sources.model import Model, Prepared
from attnviz.sources.registry import open_model
from tests.models import CONFIG, make_bert, random_tensors

TEXT = "the cat sat on my favorite mat"
Array = npt.NDArray[Any]
Source = Callable[[Placing], Prepared]


# names


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_places_arrays_in_each_of_its_dtypes(backend: str) -> None:
    for dtype in BACKENDS[backend]:
        placed = placing(backend, "cpu", dtype)(np.array([0.5, -2.0]))
        assert str(placed.dtype).endswith(dtype)
        assert placed.tolist() == [0.5, -2.0]
        assert type(placed) is (np.ndarray if backend == "numpy" else torch.Tensor)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_a_dtype_each_array_keeps_its_own(backend: str, dtype: str) -> None:
    assert str(placing(backend)(np.ones(2, dtype)).dtype).endswith(dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("array", [np.array([True, False]), np.array([3, 4])], ids=["bool", "int"])
def test_what_holds_no_floats_keeps_its_type(backend: str, array: Array) -> None:
    placed = placing(backend, "cpu", "float64")(array)
    assert placed.tolist() == array.tolist()
    assert str(placed.dtype).endswith(array.dtype.name)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("jax",), "no backend 'jax': --backend is numpy or torch"),
        (("Torch",), "no backend 'Torch'"),
        (("torch", "tpu"), "no device 'tpu': --device is cpu, cuda, cuda:N or mps"),
        (("numpy", "auto"), "numpy runs on the cpu, not on auto: add --backend torch"),
        (("torch", "cuda:"), "no device 'cuda:'"),
        (("torch", "cuda:-1"), "no device 'cuda:-1'"),
        (("torch", "cuda:01"), "no device 'cuda:01'"),
        (("torch", "cpu\n"), "no device 'cpu"),
        (("numpy", "cuda"), "numpy runs on the cpu, not on cuda: add --backend torch"),
        (("numpy", "mps"), "numpy runs on the cpu, not on mps: add --backend torch"),
        (("numpy", "cpu", "bfloat16"), "numpy has no dtype 'bfloat16': it has float32, float64; bfloat16 needs"),
        (("numpy", "cpu", "float16"), "it has float32, float64; float16 needs --backend torch"),
        (("numpy", "cpu", "int8"), "numpy has no dtype 'int8': it has float32, float64$"),
        (("torch", "cpu", "float8"), "torch has no dtype 'float8': it has float32, float64, float16, bfloat16$"),
        (("torch", "mps", "float64"), "mps has no float64: choose --dtype float32, or --device cpu"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(RequestError, match=words) as error:
        placing(*names)
    assert error.value.exit_code == 2


def test_without_torch_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "attnviz.torch_place")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(AttnvizError, match=r"--backend torch needs torch: pip install 'attnviz\[torch\]'") as error:
        placing("torch")
    assert error.value.exit_code == 3


def with_cuda(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("count", "device", "there"),
    [
        (0, "cuda", "--device cpu"),
        (0, "cuda:1", "--device cpu"),
        (0, "mps", "--device cpu"),
        (2, "cuda:2", "--device cpu or cuda or cuda:0 or cuda:1"),
        (1, "mps", "--device cpu or cuda or cuda:0"),
    ],
)
def test_a_device_the_machine_has_not_is_told_with_those_it_has(
    monkeypatch: pytest.MonkeyPatch, count: int, device: str, there: str
) -> None:
    with_cuda(monkeypatch, count)
    with pytest.raises(AttnvizError, match=f"finds no {device} on this machine: choose {there}$") as error:
        placing("torch", device)
    assert error.value.exit_code == 3


def test_a_driver_that_torch_warns_of_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def old_driver() -> bool:
        warnings.warn("the driver is too old", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", old_driver)
    assert torch_place.devices()[0] == "cpu"


def test_a_full_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("tried to allocate")

    place = placing("torch")
    monkeypatch.setattr(torch, "asarray", full)
    with pytest.raises(AttnvizError, match="cpu has no room for an array of 8 MB: tried to allocate"):
        place(np.zeros((1000, 1000)))


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [np.array([[1, 2], [3, 4]], ">f4"), read_only(np.ones(3)), np.arange(6.0)[::-2], np.arange(6.0).reshape(2, 3).T],
    ids=["big-endian", "read-only", "backwards", "column order"],
)
def test_torch_takes_arrays_however_they_lie_in_memory(array: Array) -> None:
    assert placing("torch")(array).tolist() == array.tolist()


def test_what_is_too_large_for_the_dtype_becomes_infinite_in_silence() -> None:
    for backend in BACKENDS:
        assert placing(backend, "cpu", "float32")(np.array([1e300])).tolist() == [np.inf]


def test_provenance_says_where_and_in_which_dtype() -> None:
    wanted = {"backend": "torch", "device": "cpu", "dtype": "bfloat16"}
    assert placing("torch", "cpu", "bfloat16").provenance("float64") == wanted
    assert NUMPY.provenance("float64")["dtype"] == "float64"
    assert placing("torch").provenance()["dtype"] == "float32"
    assert Placing("torch", "mps", None, np.asarray).provenance("float64")["dtype"] == "float32"


def test_numpy_is_placed_without_torch() -> None:
    program = "import sys; from attnviz.backend import placing; placing(dtype='float64'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# the same numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "own")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven tokens of width 10, in float64, with biases, an output projection, and values of another width."""
    rng, path = np.random.default_rng(5), tmp_path_factory.mktemp("vectors") / "own.npz"
    shapes = {"embeddings": (7, 10), "Wq": (10, 12), "Wk": (10, 12), "Wv": (10, 6), "Wo": (6, 9),
              "bq": (12,), "bk": (12,), "bv": (6,), "bo": (9,)}  # fmt: skip
    np.savez(path, **{name: rng.standard_normal(shape) for name, shape in shapes.items()})  # type: ignore[arg-type]
    return path


@pytest.fixture(params=["scratch", "folder", "bundled", "embeddings"])
def source(request: pytest.FixtureRequest, folder: Path, vectors: Path) -> Source:
    def prepared(model: str, where: Placing) -> Prepared:
        options = {"n_heads": 3, "d_model": 15} if model == "scratch" else {}
        return open_model(model, options, where).prepare(TEXT)

    sources: dict[str, Source] = {
        "scratch": lambda where: prepared("scratch", where),
        "folder": lambda where: prepared(str(folder), where),
        "bundled": lambda where: prepared("minilm", where),
        "embeddings": lambda where: open_embeddings(vectors, n_heads=3, placing=where),
    }
    return sources[request.param]


def run(prepared: Prepared, **options: Any) -> tuple[Array, Array]:
    every = list(prepared.maps(range(3), **{"output": True, **options}))
    outputs = [one.output for one in every if one.output is not None]
    return np.stack([one.rows(0, len(one.query)) for one in every]), np.stack(outputs)


def rules(n: int) -> dict[str, Rule]:
    rng = np.random.default_rng(n)
    allowed = rng.random((n, n)) < 0.7
    allowed[1] = False
    added = np.where(allowed, rng.standard_normal((n, n)), -np.inf)
    return {
        "none": Rule(),
        "causal": Rule(causal=True),
        "window": Rule(window=2),
        "padding": Rule(keys=np.arange(n) > 1),
        "mask": Rule(mask=allowed),
        "added": Rule(mask=added),
        "added in float32": Rule(mask=added.astype(np.float32)),
        "one row": Rule(mask=added[:1]),
        "all": Rule(causal=True, window=4, keys=np.arange(n) != 2, mask=added),
    }


@pytest.mark.parametrize("rule", rules(3))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_torch_gives_what_numpy_gives(source: Source, dtype: str, tolerance: float, rule: str) -> None:
    ours, theirs = (source(placing(backend, "cpu", dtype)) for backend in ("numpy", "torch"))
    assert ours.tokens == theirs.tokens
    chosen = rules(len(ours.tokens))[rule]
    single = chosen.mask is None or chosen.mask.ndim == 2
    (weights, output), (other_weights, other_output) = (run(one, rule=chosen, single=single) for one in (ours, theirs))
    assert weights.dtype == other_weights.dtype == output.dtype == other_output.dtype == dtype
    assert np.abs(weights - other_weights).max() < tolerance
    assert np.abs(output - other_output).max() < tolerance * max(1.0, float(np.abs(output).max()))
    if rule == "causal":
        assert not np.triu(weights, 1).any()


@pytest.mark.parametrize("stored_bytes", [100, 1 << 24])
def test_torch_gives_it_whether_rows_are_kept_or_made_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, source: Source, stored_bytes: int
) -> None:
    wanted = run(source(NUMPY), single=True)
    monkeypatch.setattr(projected, "STORED_BYTES", stored_bytes)
    for ours, theirs in zip(wanted, run(source(placing("torch")), single=True), strict=True):
        assert np.abs(ours - theirs).max() < 1e-5 * max(1.0, float(np.abs(ours).max()))


def test_float64_is_nearer_to_itself_than_float32_is(source: Source) -> None:
    fine, coarse = (run(source(placing("numpy", "cpu", dtype)))[0] for dtype in ("float64", "float32"))
    assert 1e-9 < np.abs(fine - coarse).max() < 1e-4
    assert np.abs(fine.sum(-1) - 1).max() < 1e-14


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.02), ("bfloat16", 0.15)])
def test_half_precision_is_near(source: Source, dtype: str, tolerance: float) -> None:
    wanted, _ = run(source(NUMPY))
    weights, _ = run(source(placing("torch", "cpu", dtype)))
    assert weights.dtype == np.float32
    assert np.isfinite(weights).all()
    assert 0 < np.abs(weights - wanted).max() < tolerance


def test_half_precision_that_overflows_is_refused(tmp_path: Path) -> None:
    tensors = random_tensors()
    tensors["encoder.layer.0.attention.self.query.weight"] *= 1e4
    model = open_folder(make_bert(tmp_path, tensors), placing("torch", "cpu", "float16"))
    with pytest.raises(AttnvizError, match=r"overflow float16 in encoder.layer.0.attention.self; choose a wider"):
        run(model.prepare(TEXT))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_of_large_numbers_do_not_overflow_in_half_precision(folder: Path, dtype: str) -> None:
    where = placing("torch", "cpu", dtype)
    x = 1000 * np.random.default_rng(0).standard_normal((4, 35))
    weight, bias = (random_tensors()[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias"))
    wanted = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) * weight + bias
    normed = open_folder(folder, where).norm(where(x), "embeddings.LayerNorm")
    assert normed.dtype == getattr(torch, dtype)
    assert np.abs(normed.double().numpy() - wanted).max() < 0.05


@pytest.mark.parametrize("stored", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("given", [np.float32, np.float64])
def test_a_checkpoint_gives_every_tensor_in_the_dtype_asked_for(
    tmp_path: Path, stored: type[Any], given: type[Any]
) -> None:
    tensors = {name: tensor.astype(stored) for name, tensor in random_tensors().items()}
    checkpoint, name = Checkpoint(make_bert(tmp_path, tensors), given), "encoder.layer.0.output.dense.weight"
    for tensor in (checkpoint.tensor(name), checkpoint.lent(name), checkpoint.rows(name, list(range(35)))):
        assert tensor.dtype == given
        assert np.array_equal(tensor, tensors[name].astype(given))


@pytest.mark.parametrize("backend", BACKENDS)
def test_grouped_queries_are_the_same(expected: Callable[[str], dict[str, Any]], backend: str) -> None:
    data = expected("grouped_8q_2kv.json")
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-10)):
        q, k, v = (placing(backend, "cpu", dtype)(np.array(data[name])) for name in "qkv")
        weights = attention_weights(q, k)
        assert np.abs(np.asarray(weights) - data["weights"]).max() < tolerance
        assert np.abs(np.asarray(attend(weights, v)) - data["head_outputs"]).max() < tolerance


def test_a_checkpoint_in_float64_is_not_narrowed(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    tensors = {name: t + 1e-9 * rng.standard_normal(t.shape) for name, t in random_tensors().items()}
    model = open_folder(make_bert(tmp_path, tensors), placing("numpy", "cpu", "float64"))
    prepared = model.prepare(TEXT)
    weights, _ = run(prepared)

    ids = list(prepared.encoded.ids)
    x = tensors["embeddings.word_embeddings.weight"][ids]
    x = x + tensors["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + tensors["embeddings.token_type_embeddings.weight"][0]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    x = x * tensors["embeddings.LayerNorm.weight"] + tensors["embeddings.LayerNorm.bias"]
    part = "encoder.layer.0.attention.self"
    q, k = (x @ tensors[f"{part}.{which}.weight"].T + tensors[f"{part}.{which}.bias"] for which in ("query", "key"))
    scores = q[:, 7:14] @ k[:, 7:14].T / 7**0.5
    wanted = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert np.abs(weights[0, 1] - wanted).max() < 1e-13


def test_models_say_where_they_ran(folder: Path, vectors: Path) -> None:
    where = placing("torch", "cpu", "float64")
    models: list[Model] = [open_model(name, {}, where) for name in ("scratch", "minilm", str(folder))]
    for provenance in [*(model.provenance for model in models), open_embeddings(vectors, placing=where).provenance]:
        assert (provenance["backend"], provenance["device"], provenance["dtype"]) == ("torch", "cpu", "float64")
    assert open_embeddings(vectors).provenance["dtype"] == "float64"
    assert open_embeddings(vectors, placing=placing(dtype="float32")).provenance["dtype"] == "float32"


def test_torch_keeps_nothing_for_gradients(monkeypatch: pytest.MonkeyPatch, source: Source) -> None:
    monkeypatch.setattr(projected, "STORED_BYTES", 1)
    for one in source(placing("torch")).maps([0]):
        assert isinstance(one.weights, ComputedWeights)
        assert one.weights.q.is_inference()
        assert not one.weights.made(0, 2).requires_grad


# rules in the sources


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rule_holds_in_every_layer_and_comes_on_top_of_the_models_own(tmp_path: Path, backend: str) -> None:
    causal = open_folder(make_bert(tmp_path, config={**CONFIG, "is_decoder": True}), placing(backend))
    weights, _ = run(causal.prepare(TEXT), rule=Rule(window=2))
    assert weights.shape == (3, 5, 9, 9)
    i, j = np.indices((9, 9))
    allowed = (j <= i) & (i - j < 2)
    assert (weights[:, :, ~allowed] == 0).all()
    assert (weights[:, :, allowed] > 0).all()
    own, _ = run(causal.prepare(TEXT), rule=Rule(causal=True))
    assert np.array_equal(own, run(causal.prepare(TEXT))[0])


def test_a_rule_in_an_early_layer_changes_what_the_later_ones_see(folder: Path) -> None:
    prepared = open_folder(folder).prepare(TEXT)
    free, _ = run(prepared)
    masked, _ = run(prepared, rule=Rule(keys=np.array([True] * 8 + [False])))
    assert np.abs(masked[2, :, :, :8] / masked[2, :, :, :8].sum(-1, keepdims=True)
                  - free[2, :, :, :8] / free[2, :, :, :8].sum(-1, keepdims=True)).max() > 1e-3  # fmt: skip


@pytest.mark.parametrize("stored_bytes", [1, 1 << 24])
def test_a_rule_of_another_size_is_refused_before_a_row_is_made(
    monkeypatch: pytest.MonkeyPatch, source: Source, stored_bytes: int
) -> None:
    monkeypatch.setattr(projected, "STORED_BYTES", stored_bytes)
    prepared, n = source(NUMPY), len(source(NUMPY).tokens)
    for rule, words in [
        (Rule(keys=np.ones(n + 1, bool)), f"the padding is given for {n + 1} keys, but there are {n}"),
        (Rule(mask=np.ones((n, n - 1), bool)), f"the mask is {n} × {n - 1}, but there are {n} queries and {n} keys"),
        (Rule(mask=np.ones((2, n, n), bool)), "the mask is given for 2 heads, but there are"),
    ]:
        with pytest.raises(RequestError, match=words):
            next(iter(prepared.maps([0], rule=rule)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_for_each_head_is_that_heads(vectors: Path, backend: str) -> None:
    prepared = open_embeddings(vectors, n_heads=3, placing=placing(backend))
    mask = np.random.default_rng(0).random((3, 7, 7)) < 0.6
    mask[:, :, 0] = True
    (one,) = prepared.maps([0], rule=Rule(mask=mask))
    assert ((one.rows(0, 7) > 0) == mask).all()
    assert np.array_equal(one.pick(heads=[2]).rows(0, 7)[0], one.rows(0, 7)[2])
    with pytest.raises(RequestError, match="the single head has none: leave out --single"):
        next(iter(prepared.maps([0], rule=Rule(mask=mask), single=True)))


# on a GPU


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")


@CUDA
@pytest.mark.parametrize("rule", rules(3))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_cuda_gives_what_numpy_gives(source: Source, dtype: str, tolerance: float, rule: str) -> None:
    ours, theirs = (source(placing(*where, dtype)) for where in (("numpy", "cpu"), ("torch", "cuda")))
    chosen = rules(len(ours.tokens))[rule]
    for a, b in zip(run(ours, rule=chosen), run(theirs, rule=chosen), strict=True):
        assert np.abs(a - b).max() < tolerance * max(1.0, float(np.abs(a).max()))


def indexed(x: Any, key: Any) -> Any:
    """x[key], one axis at a time: a torch without CUDA cannot index even a tensor that is not really there."""
    parts = key if isinstance(key, tuple) else (key,)
    if Ellipsis in parts:
        i, named = parts.index(Ellipsis), sum(part is not None and part is not Ellipsis for part in parts)
        parts = (*parts[:i], *[slice(None)] * (x.ndim - named), *parts[i + 1 :])
    axis = 0
    for part in parts:
        if part is None:
            x = torch.unsqueeze(x, axis)
        elif isinstance(part, slice):
            x = torch.ops.aten.slice(x, axis, part.start, part.stop, part.step or 1)
        else:
            x = torch.select(x, axis, part)
        axis += not isinstance(part, int)
    return x


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Placing]:
    """Tensors that have a device and a shape but no numbers: whatever is left on the CPU does not go with them."""

    def place(array: Array) -> Any:
        dtype = torch.float32 if array.dtype.kind == "f" else torch.from_numpy(array[:0].copy()).dtype
        return torch.empty(array.shape, dtype=dtype, device="cuda")

    def zeros(x: Any) -> Array:
        assert isinstance(x, FakeTensor)
        assert x.device.type == "cuda"
        return np.zeros(tuple(x.shape), np.float32)

    for module in (maps, projected, encoder):
        monkeypatch.setattr(module, "to_numpy", zeros)
    monkeypatch.setattr(Encoder, "_checked", lambda _self, x, _part: x)  # these two look at numbers
    monkeypatch.setattr(projected.Projected, "overflows", lambda _self: False)
    monkeypatch.setattr(FakeTensor, "__getitem__", indexed, raising=False)
    with FakeTensorMode():
        yield Placing("torch", "cuda", "float32", place)


@pytest.mark.parametrize("stored_bytes", [1, 1 << 24])
@pytest.mark.parametrize("rule", rules(3))
def test_nothing_is_left_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, source: Source, fake_cuda: Placing, rule: str, stored_bytes: int
) -> None:
    monkeypatch.setattr(projected, "STORED_BYTES", stored_bytes)
    prepared = source(fake_cuda)
    n = len(prepared.tokens)
    for one in prepared.maps(range(2), rule=rules(n)[rule], single=True, output=True):
        assert one.rows(0, n).shape == (len(one.heads), n, n)
        assert one.output is not None
        assert one.output.shape[0] == n


def test_the_fake_device_finds_what_is_left_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, source: Source, fake_cuda: Placing
) -> None:
    monkeypatch.setattr(Rule, "placed", lambda self, _place: replace(self, keys=torch.ones(len(self.keys)) > 0))
    prepared = source(fake_cuda)
    with pytest.raises(Exception, match="found at least two devices"):
        for one in prepared.maps([0], rule=rules(len(prepared.tokens))["padding"]):
            one.rows(0, 1)


def test_the_torch_place_puts_arrays_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cuda(monkeypatch, 2)
    place = placing("torch", "cuda:1", "bfloat16").place
    with FakeTensorMode():
        for array in (np.ones((2, 3)), np.ones(2, bool), np.ones(2, np.float32)):
            placed = place(array)
            assert str(placed.device) == "cuda:1"
            assert placed.dtype == (torch.bool if array.dtype == bool else torch.bfloat16)
