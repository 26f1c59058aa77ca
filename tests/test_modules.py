"""State dicts of multi-head modules, and our maths against torch's on the same weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import save_file

from attnviz.arrays import to_numpy
from attnviz.attention import Rule, multi_head_attention
from attnviz.backend import NUMPY, Placing, placing
from attnviz.errors import AttnvizError, RequestError
from attnviz.lessons.export import to_fields
from attnviz.lessons.lesson import Setting
from attnviz.lessons.registry import run_lesson
from attnviz.sources.embeddings import open_embeddings
from attnviz.sources.modules import Module, open_module
from tests.saved import read_json

Array = npt.NDArray[Any]
Expected = Callable[[str], dict[str, Any]]

SUFFIXES = [".npz", ".safetensors", ".pt", ".pth"]
BACKENDS = {"numpy": NUMPY, "torch": placing("torch")}
both = pytest.mark.parametrize("where", BACKENDS.values(), ids=BACKENDS)
any_file = pytest.mark.parametrize("suffix", SUFFIXES)


class Taught(torch.nn.Module):
    """A module as it is taught: projections without bias, output projection with one."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        names = ("query_linear", "key_linear", "value_linear", "output_linear")
        for name in names:
            layer = torch.nn.Linear(d_model, d_model, bias=name == "output_linear", dtype=torch.float64)
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        n, d_model = x.shape
        parts = [layer(x) for layer in self.children()][:3]
        q, k, v = (part.reshape(n, self.n_heads, d_model // self.n_heads).permute(1, 0, 2) for part in parts)
        scores = q @ k.mT / (d_model // self.n_heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = scores.softmax(-1)
        joined = (weights @ v).permute(1, 0, 2).reshape(n, d_model)
        return weights, list(self.children())[3](joined)


def write(path: Path, state: dict[str, Array]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **state)  # type: ignore[arg-type]
    elif path.suffix == ".safetensors":
        save_file({name: np.ascontiguousarray(array) for name, array in state.items()}, path)
    else:
        torch.save({name: torch.tensor(array) for name, array in state.items()}, path)
    return path


def state_of(module: torch.nn.Module) -> dict[str, Array]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def run(module: Module, x: Array, where: Placing = NUMPY, rule: Rule | None = None) -> tuple[Array, Array]:
    result = multi_head_attention(where(x), module.projections, module.n_heads, rule=rule or Rule())
    return to_numpy(result.weights), to_numpy(result.output)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


@both
@any_file
@pytest.mark.parametrize("prefix", ["", "decoder.0.attn."])
@pytest.mark.parametrize("causal", [False, True])
def test_a_taught_module_gives_what_it_gives_in_torch(
    tmp_path: Path, where: Placing, suffix: str, prefix: str, causal: bool
) -> None:
    torch.manual_seed(1)
    taught = Taught(12, 3).eval()
    state = {f"{prefix}{name}": array for name, array in state_of(taught).items()}
    module = open_module(write(tmp_path / f"m{suffix}", state), n_heads=3, placing=where)
    assert (module.d_model, module.d_context, module.n_heads) == (12, 12, 3)
    x = normal(5, 12)
    with torch.no_grad():
        weights, output = taught(torch.tensor(x), torch.ones(5, 5).tril() if causal else None)
    ours = run(module, x, where, Rule(causal=causal))
    assert np.abs(ours[0] - weights.numpy()).max() < 1e-12
    assert np.abs(ours[1] - output.numpy()).max() < 1e-12


@both
@any_file
@pytest.mark.parametrize("bias", [False, True])
def test_a_module_of_torch_gives_what_it_gives_there(tmp_path: Path, where: Placing, suffix: str, bias: bool) -> None:
    torch.manual_seed(2)
    theirs = torch.nn.MultiheadAttention(12, 4, bias=bias, dtype=torch.float64).eval()
    module = open_module(write(tmp_path / f"m{suffix}", state_of(theirs)), placing=where)  # 4 heads unasked
    x = normal(5, 12)
    with torch.no_grad():
        output, weights = theirs(*[torch.tensor(x)] * 3, average_attn_weights=False)
    ours = run(module, x, where)
    assert np.abs(ours[0] - weights.numpy()).max() < 1e-12
    assert np.abs(ours[1] - output.numpy()).max() < 1e-12


def test_a_module_for_cross_attention_has_keys_of_another_width(tmp_path: Path) -> None:
    torch.manual_seed(3)
    theirs = torch.nn.MultiheadAttention(12, 2, kdim=7, vdim=7, dtype=torch.float64).eval()
    path = write(tmp_path / "m.safetensors", state_of(theirs))
    module = open_module(path, n_heads=2)
    assert (module.d_model, module.d_context) == (12, 7)
    x, context = normal(5, 12), normal(4, 7, seed=1)
    with torch.no_grad():
        output, weights = theirs(torch.tensor(x), *[torch.tensor(context)] * 2, average_attn_weights=False)
    ours = multi_head_attention(x, module.projections, 2, context=context)
    assert np.abs(ours.weights - weights.numpy()).max() < 1e-12
    assert np.abs(ours.output - output.numpy()).max() < 1e-12
    with pytest.raises(RequestError, match=r"m\.safetensors makes queries of 12 columns and keys of 7"):
        run_lesson("module", Setting(module=path))


@both
def test_the_published_state_dict_gives_two_matrices_and_not_their_mean(
    tmp_path: Path, expected: Expected, where: Placing
) -> None:
    data = {name: np.array(value) for name, value in expected("torch_mha.json").items()}
    state = {name: array for name, array in data.items() if "proj" in name}
    module = open_module(write(tmp_path / "m.npz", state), n_heads=2, placing=where)
    weights, output = run(module, data["x"][0], where)
    assert weights.shape == (2, 4, 4)
    assert np.abs(weights - data["weights"]).max() < 1e-5
    assert np.abs(output - data["output"]).max() < 1e-5
    assert np.abs(weights - data["averaged"]).max() > 0.01


# one matrix for each head


def per_head(form: str) -> dict[str, Array]:
    names = {"W_q": 0, "W_k": 1, "W_v": 2}
    pairs = [(name, i, h) for name, i in names.items() for h in range(3)]
    return {form.format(name=name, head=h): normal(6, 2, seed=10 * i + h) for name, i, h in pairs}


def by_hand(x: Array, w_o: Array | None = None) -> tuple[Array, Array]:
    """The source's loop over heads."""
    weights, outputs = [], []
    for h in range(3):
        q, k, v = (x @ normal(6, 2, seed=10 * i + h) for i in range(3))
        raised = np.exp(q @ k.T / 2**0.5)
        weights.append(raised / raised.sum(-1, keepdims=True))
        outputs.append(weights[-1] @ v)
    joined = np.concatenate(outputs, axis=-1)
    return np.stack(weights), joined if w_o is None else joined @ w_o


@any_file
@pytest.mark.parametrize("form", ["{name}.{head}", "{name}[{head}]", "block.attn.{name}.{head}"])
def test_a_list_of_a_matrix_for_each_head(tmp_path: Path, suffix: str, form: str) -> None:
    w_o = normal(6, 6, seed=99)
    state = {**per_head(form), form.partition("{")[0] + "W_o": w_o}
    module = open_module(write(tmp_path / f"m{suffix}", state))
    assert module.n_heads == 3
    x = normal(4, 6, seed=50)
    for ours, wanted in zip(run(module, x), by_hand(x, w_o), strict=True):
        assert np.abs(ours - wanted).max() < 1e-12


def test_a_list_of_linear_layers_holds_transposes_and_biases(tmp_path: Path) -> None:
    layers = {f"{name}.weight": array.T for name, array in per_head("{name}.{head}").items()}
    biases = {f"W_q.{h}.bias": normal(2, seed=70 + h) for h in range(3)}
    module = open_module(write(tmp_path / "m.pt", {**layers, **biases}))
    x = normal(4, 6, seed=50)
    q = np.concatenate([x @ normal(6, 2, seed=h) + biases[f"W_q.{h}.bias"] for h in range(3)], axis=-1)
    assert module.projections.b_q is not None
    assert np.abs(x @ module.projections.w_q + module.projections.b_q - q).max() < 1e-12
    assert (
        np.abs(x @ module.projections.w_k - np.concatenate([x @ normal(6, 2, seed=10 + h) for h in range(3)], -1)).max()
        < 1e-12
    )


def test_more_than_ten_heads_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    state = {f"W{which}.{h}": np.full((2, 1), float(h)) for which in "qkv" for h in range(12)}
    module = open_module(write(tmp_path / "m.npz", state))
    assert module.projections.w_q[0].tolist() == list(range(12))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_an_embeddings_file_may_hold_such_a_list_too(tmp_path: Path, suffix: str) -> None:
    x = normal(4, 6, seed=50)
    one = open_embeddings(write(tmp_path / f"e{suffix}", {"embeddings": x, **per_head("{name}.{head}")}))
    (attended,) = one.maps([0])
    assert np.abs(attended.rows(0, 4) - by_hand(x)[0]).max() < 1e-12


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"W_q.1": None}, "W_q for heads 0, 2: that for head 1 is missing"),
        ({"W_q.1": np.ones((6, 3))}, "the matrices of W_q are 6 × 2, 6 × 3, 6 × 2"),
        ({"W_q": np.ones((6, 6))}, r"W_q and W_q\.0, which mean the same"),
        ({"W_q[1]": np.ones((6, 2))}, r"W_q\.1 and W_q\[1\], which mean the same"),
        ({"W_v.0": None, "W_v.1": None, "W_v.2": None}, "no Wv"),
        ({"W_q.1": np.array([["a", "b"]] * 6)}, "W_q is "),
        ({"W_k.2": None}, "Wk|W_k"),
        ({"W_k.0": None, "W_k.1": None, "W_k.2": None, "W_k": np.ones((2, 6, 3))}, "of several numbers of heads"),
    ],
)
def test_a_list_that_is_not_right_is_refused(tmp_path: Path, change: dict[str, Array | None], said: str) -> None:
    state = {name: array for name, array in {**per_head("{name}.{head}"), **change}.items() if array is not None}
    with pytest.raises(RequestError, match=said):
        open_module(write(tmp_path / "m.npz", state))


# what is refused


@pytest.mark.parametrize("name", ["m.npz", "m.pt"])
def test_a_file_without_a_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match=r"holds layer\.weight: a module has query_linear.weight and so on"):
        open_module(write(tmp_path / name, {"layer.weight": np.ones((2, 2))}))


def test_heads_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.npz", {f"W{which}": np.ones((6, 6)) for which in "qkv"})
    assert open_module(path).n_heads == 1
    with pytest.raises(RequestError, match="cannot be split into 4 heads"):
        open_module(path, n_heads=4)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"module file .*no\.pt does not exist"):
        open_module(tmp_path / "no.pt")
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(RequestError, match=r"has the suffix '\.json': \.npz, \.safetensors, \.pt, \.pth can be read"):
        open_module(tmp_path / "m.json")
    (tmp_path / "m.npz").write_bytes(b"PK\3\4")
    with pytest.raises(AttnvizError, match="damaged"):
        open_module(tmp_path / "m.npz")
    with pytest.raises(RequestError, match="is a folder"):
        open_module(tmp_path)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    torch.save({"query_linear.weight": print}, tmp_path / "m.pt")
    with pytest.raises(AttnvizError, match="nothing in a file is executed"):
        open_module(tmp_path / "m.pt")


def test_values_wider_than_keys_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.npz", {"Wq": np.ones((4, 4)), "Wk": np.ones((5, 4)), "Wv": np.ones((6, 4))})
    with pytest.raises(RequestError, match="makes keys of 5 columns and values of 6"):
        open_module(path)


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    state = {f"W{which}": torch.arange(16.0).reshape(4, 4).to(torch.bfloat16) for which in "qkv"}
    torch.save(state, tmp_path / "m.pt")
    w_q = open_module(tmp_path / "m.pt").projections.w_q
    assert w_q.dtype == np.float32
    assert w_q.tolist() == np.arange(16.0).reshape(4, 4).tolist()


# the lesson


@both
def test_the_lesson_runs_a_module_from_a_file(tmp_path: Path, where: Placing) -> None:
    torch.manual_seed(4)
    taught = Taught(6, 2).eval()
    path = write(tmp_path / "m.safetensors", state_of(taught))
    lesson = run_lesson("module", Setting(text="a b c d e", module=path, n_heads=2, placing=where))
    got = {matrix.name: matrix.values for matrix in lesson.matrices}
    with torch.no_grad():
        weights, output = taught(torch.tensor(got["input"]), torch.ones(5, 5).tril())
    for head in range(2):
        assert np.abs(got[f"weights_{head}"] - weights[head].numpy()).max() < 1e-6
        assert np.abs(got[f"queries_{head}"] - got["queries"][:, 3 * head : 3 * head + 3]).max() < 1e-12
    assert np.abs(got["output"] - output.numpy()).max() < 1e-6


def test_with_torch_the_lesson_compares_with_torchs_own_module() -> None:
    lesson = run_lesson("module", Setting(placing=placing("torch")))
    got = {matrix.name: matrix.values for matrix in lesson.matrices}
    assert lesson.steps[-1].formula == "MultiheadAttention(X, X, X)"
    assert "less than 1e-12" in lesson.steps[-1].notice
    for head in range(2):
        assert np.abs(got[f"torch_weights_{head}"] - got[f"weights_{head}"]).max() < 1e-12
    assert np.abs(got["torch_output"] - got["output"]).max() < 1e-12


def test_vectors_and_a_module_of_other_widths_do_not_go_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", embeddings=normal(3, 5))
    path = write(tmp_path / "m.npz", {f"W{which}": np.ones((6, 6)) for which in "qkv"})
    with pytest.raises(RequestError, match=r"m\.npz takes 6 columns, and the embeddings have 5"):
        run_lesson("module", Setting(embeddings=tmp_path / "x.npz", module=path))


def test_the_lesson_exports_the_module_as_json(tmp_path: Path) -> None:
    plain = read_json(to_fields(run_lesson("module")))
    assert np.shape(plain["weights_1"]) == (5, 5)
