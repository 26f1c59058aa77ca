"""The numbers that lessons must give, worked out independently."""

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from attnviz.attention import Projections, multi_head_attention
from attnviz.backend import NUMPY, Placing, placing
from attnviz.lessons.counted import Tally, attention, joined, recurrence
from attnviz.lessons.lesson import Lesson, Setting
from attnviz.lessons.measured import between_heads, entropy, jacobian_size
from attnviz.lessons.registry import run_lesson
from attnviz.measures.divergence import js_divergence
from attnviz.sources.scratch import Scratch, ScratchOptions

Array = npt.NDArray[np.float64]

DOG = "o cachorro mordeu o homem"
BACKENDS = {"numpy": NUMPY, "torch": placing("torch")}
both = pytest.mark.parametrize("where", BACKENDS.values(), ids=BACKENDS)
E4 = np.array([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])


@cache
def run(name: str, **setting: Any) -> Lesson:
    return run_lesson(name, Setting(**setting))


def values(lesson: Lesson) -> dict[str, Array]:
    return {matrix.name: np.asarray(matrix.values) for matrix in lesson.matrices}


def softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def toy_heads(n_heads: int, shared: bool = False) -> tuple[list[Array], Array]:
    """The source's loop over slices: weights of each head, and the outputs side by side."""
    rng = np.random.default_rng(0)
    q, k, v = (E4 @ rng.normal(0, 1, (4, 4)) for _ in range(3))
    width = 4 // n_heads
    weights, outputs = [], []
    for head in range(n_heads):
        columns = slice(0, width) if shared else slice(head * width, (head + 1) * width)
        weights.append(softmax(q[:, columns] @ k[:, columns].T / np.sqrt(width)))
        outputs.append(weights[-1] @ v[:, columns])
    return weights, np.concatenate(outputs, axis=1)


# look-up


@both
def test_a_hard_look_up_gives_one_value_and_a_soft_one_a_mixture(where: Placing) -> None:
    got = values(run("lookup", placing=where))
    assert got["hard_weights"].tolist() == [[1, 0, 0]]
    assert np.allclose(got["scores"], [[1.0, 0.8, 0.0]], rtol=0, atol=1e-15)
    total = math.e + math.exp(0.8) + 1
    wanted = [math.e / total, math.exp(0.8) / total, 1 / total]
    assert np.abs(got["weights"] - wanted).max() < 1e-15
    assert got["weights"].min() > 0
    assert abs(got["output"].item() - (10 * wanted[0] + 20 * wanted[1] + 30 * wanted[2])) < 1e-12
    for row, beta in zip(got["sharper_weights"], [1, 4, 16, 64], strict=True):
        assert np.abs(row - softmax(beta * np.array([1.0, 0.8, 0.0]))).max() < 1e-15
    assert got["sharper_weights"][-1, 0] > 0.99999


def test_equal_keys_share_the_weight_and_the_first_is_what_a_dictionary_finds() -> None:
    lesson = run("lookup", text=DOG, query="3")
    got = values(lesson)
    assert got["hard_weights"].tolist() == [[1, 0, 0, 0, 0]]
    assert abs(got["sharper_weights"][-1, 0] - 0.5) < 1e-6
    assert "2 keys are equal" in lesson.steps[-1].notice
    assert np.allclose(np.linalg.norm(got["keys"], axis=-1), 1, rtol=0, atol=1e-12)


# scaled dot-product attention


@both
def test_the_worked_example_by_hand(where: Placing) -> None:
    lesson = run("scaled-dot-product", placing=where)
    got = values(lesson)
    assert got["scores"].tolist() == [[1, 0, 1]]
    high = math.exp(1 / math.sqrt(2))
    wanted = np.array([high, 1, high]) / (2 * high + 1)
    assert np.abs(got["weights"] - wanted).max() < 1e-15
    assert [f"{weight:.3f}" for weight in got["weights"][0]] == ["0.401", "0.198", "0.401"]
    assert np.abs(got["output"] - [2 * wanted[0], wanted[1] + wanted[2]]).max() < 1e-15
    assert [f"{value:.3f}" for value in got["output"][0]] == ["0.802", "0.599"]
    assert "(0.802, 0.599)" in lesson.steps[-1].notice


@both
def test_a_sentence_goes_through_the_same_steps(where: Placing) -> None:
    got = values(run("scaled-dot-product", text=DOG, placing=where))
    model = Scratch(ScratchOptions(n_heads=1, d_model=4))
    x, p = model.embeddings(model.prepare(DOG).tokens).astype(np.float64), model.projections()
    q, k, v = (x @ w.astype(np.float64) for w in (p.w_q, p.w_k, p.w_v))
    assert np.abs(got["scores"] - q @ k.T).max() < 1e-12
    assert np.abs(got["scaled_scores"] - q @ k.T / 2).max() < 1e-12
    assert np.abs(got["weights"] - softmax(q @ k.T / 2)).max() < 1e-12
    assert np.abs(got["output"] - softmax(q @ k.T / 2) @ v).max() < 1e-12


# scaling


@both
def test_scores_deviate_by_the_root_of_the_width(where: Placing) -> None:
    got = values(run("scaling", placing=where))
    measured, root = got["deviation"].T
    assert root.tolist() == [2, 4, 8, 16, 32]
    assert np.abs(measured / root - 1).max() < 0.02
    assert abs(measured[2] - 8) < 0.1


@both
def test_without_the_division_the_softmax_saturates_and_its_gradient_vanishes(where: Placing) -> None:
    got = values(run("scaling", placing=where))
    undivided, divided = got["entropy"].T
    assert (np.diff(undivided) < 0).all()
    assert undivided[-1] < 0.15
    assert divided.min() > 2.9
    assert divided.max() < math.log(32)
    undivided, divided = got["largest"].T
    assert (np.diff(undivided) > 0).all()
    assert divided.max() < 0.2
    assert undivided[-1] > 0.9
    undivided, divided = got["gradient"].T
    assert undivided[-1] < undivided[0] / 3
    assert np.abs(divided / divided[0] - 1).max() < 0.1


def test_entropy_and_largest_weight_are_those_of_the_draws() -> None:
    rng = np.random.default_rng([0, 16])
    q, k = rng.standard_normal((256, 1, 16)), rng.standard_normal((256, 32, 16))
    scores = (q * k).sum(-1)
    got = values(run("scaling"))
    assert abs(got["deviation"][1, 0] - scores.std()) < 1e-12
    for column, weights in enumerate((softmax(scores), softmax(scores / 4))):
        assert abs(got["largest"][1, column] - weights.max(-1).mean()) < 1e-12
        assert abs(got["entropy"][1, column] + (weights * np.log(weights)).sum(-1).mean()) < 1e-12


def test_the_size_of_the_gradient_is_that_of_torchs_jacobian() -> None:
    scores = torch.tensor([[0.3, -1.2, 2.0, 0.0, 4.0], [9.0, -9.0, 1.0, 0.5, 0.2]], dtype=torch.float64)
    for row in scores.requires_grad_():
        weights = row.softmax(-1)
        jacobian = torch.stack([torch.autograd.grad(one, row, retain_graph=True)[0] for one in weights])
        assert abs(jacobian_size(weights) - float(jacobian.norm())) < 1e-12


def test_with_one_key_nothing_can_be_chosen() -> None:
    lesson = run("scaling", text="oi")
    got = values(lesson)
    assert np.array_equal(got["largest"], np.ones((5, 2)))
    assert np.array_equal(got["entropy"], np.zeros((5, 2)))
    assert np.array_equal(got["gradient"], np.zeros((5, 2)))
    assert "no gradient" in lesson.steps[2].notice


# self- and cross-attention


@both
def test_cross_attention_takes_keys_and_values_from_the_source(where: Placing) -> None:
    got = values(run("self-and-cross", text="a b c", source="d e f g", placing=where))
    model = Scratch(ScratchOptions(n_heads=1, d_model=8))
    x, y = (model.embeddings(model.prepare(text).tokens).astype(np.float64) for text in ("a b c", "d e f g"))
    w_q, w_k, w_v = (
        w.astype(np.float64) for w in (model.projections().w_q, model.projections().w_k, model.projections().w_v)
    )
    for name, context in (("self", x), ("cross", y)):
        weights = softmax(x @ w_q @ (context @ w_k).T / math.sqrt(8))
        assert np.abs(got[f"{name}_weights"] - weights).max() < 1e-12
        assert np.abs(got[f"{name}_output"] - weights @ (context @ w_v)).max() < 1e-12
    assert got["cross_weights"].shape == (3, 4)
    assert np.abs(got["again_weights"] - got["self_weights"]).max() < 1e-15


# heads


@both
@pytest.mark.parametrize("n_heads", [2, 4])
def test_the_heads_of_the_worked_example(where: Placing, n_heads: int) -> None:
    got = values(run("heads", placing=where))
    weights, output = toy_heads(n_heads)
    for head in range(n_heads):
        assert np.abs(got[f"weights_{head}_of_{n_heads}"] - weights[head]).max() < 1e-12
    assert np.abs(got[f"output_of_{n_heads}"] - output).max() < 1e-12
    assert got[f"output_of_{n_heads}"].shape == (4, 4)


def test_the_digits_of_the_first_head() -> None:
    got = values(run("heads"))
    assert [f"{weight:.4f}" for weight in got["weights_0_of_2"][0]] == ["0.2475", "0.2445", "0.2709", "0.2372"]
    assert [f"{value:.4f}" for value in got["output_of_2"][0]] == ["-0.3687", "0.5853", "0.6328", "0.7278"]


@both
def test_with_shared_projections_all_heads_are_the_first(where: Placing) -> None:
    got = values(run("heads", shared_projections=True, placing=where))
    weights, output = toy_heads(2, shared=True)
    for head in range(2):
        assert np.abs(got[f"weights_{head}_of_2"] - weights[0]).max() < 1e-12
    assert np.abs(got["output_of_2"] - output).max() < 1e-12
    assert np.array_equal(got["queries"][:, :2], got["queries"][:, 2:])  # what is shown is what is used


# divergence


def test_divergence_and_entropy_of_rows_known_by_number() -> None:
    a = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.15, 0.5, 0.25]])
    b = np.array([[1, 0, 0, 0], [0.9, 0.1, 0, 0], [0.8, 0.1, 0.1, 0], [0.7, 0.1, 0.1, 0.1]])
    assert np.abs(js_divergence(a, b) - [0, 0.101749, 0.195311, 0.218447]).max() < 1e-6
    assert np.abs(entropy(a) - [0, 0.693147, 1.029653, 1.207974]).max() < 1e-6
    assert np.abs(js_divergence(a, b) - js_divergence(b, a)).max() < 1e-15
    assert abs(js_divergence(np.array([1.0, 0]), np.array([0, 1.0])) - math.log(2)) < 1e-15


@both
@pytest.mark.parametrize("text", [None, DOG])
def test_heads_of_one_projection_are_no_distance_apart_and_others_are(where: Placing, text: str | None) -> None:
    got = values(run("diversity", text=text, placing=where))
    assert np.abs(got["shared_divergence"]).max() < 1e-15
    n_heads = len(got["divergence"])
    assert got["divergence"][~np.eye(n_heads, dtype=bool)].min() > 0.01
    assert np.abs(np.diag(got["divergence"])).max() < 1e-15


@both
def test_the_divergence_of_the_worked_example(where: Placing) -> None:
    (a, b), _ = toy_heads(2)
    middle = (a + b) / 2
    wanted = ((a * np.log(a / middle)).sum(-1) + (b * np.log(b / middle)).sum(-1)).mean() / 2
    got = values(run("diversity", placing=where))
    assert np.abs(got["divergence"] - [[0, wanted], [wanted, 0]]).max() < 1e-12
    assert f"{wanted:.4f}" in run("diversity", placing=where).steps[1].notice


# one against many


@both
def test_one_full_width_head_beside_the_heads_of_the_same_embeddings(where: Placing) -> None:
    lesson = run("single-against-many", placing=where)
    got = values(lesson)
    (single,), _ = toy_heads(1)
    weights, _ = toy_heads(2)
    for name, wanted in {"single": single, "0": weights[0], "1": weights[1]}.items():
        assert np.abs(got[f"random_{name}"] - wanted).max() < 1e-12
    divergence = between_heads(np.stack([single, *weights]))
    assert np.abs(got["random_divergence"] - divergence).max() < 1e-12
    assert (
        np.abs(got["random_entropy"][:, 0] - np.array([entropy(one).mean() for one in (single, *weights)])).max()
        < 1e-12
    )
    paragraph = lesson.steps[1].sentence
    assert f"(divergence {divergence[0, 1:].min():.3f})" in paragraph
    assert f"({divergence[0, 1:].max():.3f})" in paragraph


def test_the_bundled_models_heads_are_those_of_its_record() -> None:
    import attnviz

    got = values(run("single-against-many", text=DOG))
    record = attnviz.attend(DOG, layers=[0], single=True)
    for i, head in enumerate(record.maps[0].heads):
        assert np.abs(got[f"trained_{head}"] - record.weights[0, i]).max() < 1e-5
    assert got["trained_divergence"].shape == (13, 13)


# one query's row


@both
def test_the_row_of_a_query_is_that_of_the_bundled_model(where: Placing) -> None:
    import attnviz

    got = values(run("query-row", placing=where))
    rows = attnviz.attend("Orange is my favorite fruit", layers=[0]).weights[0, :, 1]
    assert np.abs(got["head_weights"] - rows).max() < 1e-5
    assert np.abs(got["mean_weights"] - rows.mean(0)).max() < 1e-5
    assert np.abs(got["word_weights"] - rows.mean(0)[1:-1]).max() < 1e-5
    lesson = run("query-row")
    assert lesson.matrices[1].columns.labels == ("Orange", "is", "my", "favorite", "fruit")
    assert f"{rows.mean(0)[1:-1].sum():.2f}" in lesson.steps[1].notice


# positions


@both
def test_the_first_two_positions_by_hand(where: Placing) -> None:
    got = values(run("positions", placing=where))
    wanted = np.array([[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]])
    assert np.abs(got["encodings"] - wanted).max() < 1e-15
    assert [f"{value:.3f}" for value in got["encodings"][1]] == ["0.841", "0.540", "0.010", "1.000"]
    notice = run("positions", placing=where).steps[0].notice
    assert "(0.000, 1.000, 0.000, 1.000)" in notice
    assert "(0.841, 0.540, 0.010, 1.000)" in notice


@both
@pytest.mark.parametrize("text", [None, DOG])
def test_a_position_further_on_is_the_same_vector_turned(where: Placing, text: str | None) -> None:
    got = values(run("positions", text=text, placing=where))
    r = got["rotation"]
    assert np.abs(r @ r.T - np.eye(4)).max() < 1e-15
    assert np.abs(got["encodings"] @ r.T - got["later"]).max() < 1e-14
    assert np.abs(got["turned"] - got["later"]).max() < 1e-14
    n = len(got["later"])
    assert np.abs(got["later"][:, 0] - np.sin(np.arange(3, 3 + n))).max() < 1e-14


def test_early_columns_change_fast_and_late_ones_slowly() -> None:
    change = values(run("positions"))["change"][0]
    assert (np.diff(change[0::2]) < 0).all()
    assert change[0] > 500 * change[-2]


# order


@both
def test_without_positions_moving_words_only_moves_rows(where: Placing) -> None:
    got = values(run("order", placing=where))
    order = [0, 4, 2, 3, 1]
    moved = got["plain_first"][order][:, order]
    assert (np.abs(moved - got["plain_second"]) / moved).max() < 1e-12
    assert np.abs(got["output_first"][order] - got["output_second"]).max() < 1e-12 * np.abs(got["output_first"]).max()
    gap = np.abs(got["placed_first"][order][:, order] - got["placed_second"]).max()
    assert gap > 0.1
    lesson = run("order", placing=where)
    assert f"{gap:.3f}" in lesson.steps[2].notice
    assert lesson.matrices[0].title == "o cachorro mordeu o homem"
    assert lesson.matrices[1].title == "o homem mordeu o cachorro"


@pytest.mark.parametrize("text", ["oi", "a b a"])
def test_a_sentence_that_is_the_same_backwards_is_not_told_apart(text: str) -> None:
    assert "the same sentence" in run("order", text=text).steps[2].notice


# parallel


def test_a_recurrence_waits_n_times_and_attention_a_constant_number() -> None:
    got = values(run("parallel", text="a b c d e f g"))
    assert got["steps_in_a_row"].tolist() == [[7, 4], [10, 4], [100, 4], [1000, 4]]


def test_work_grows_with_n_and_with_n_squared() -> None:
    d, got = 16, values(run("parallel"))
    assert got["flops"].tolist() == [[4 * n * d * d, 4 * n * n * d] for n in (10, 100, 1000)]


def test_time_is_a_ratio_over_the_shortest() -> None:
    readings = iter([0, 1, 3, 3, 4, 6, 6, 7, 9, *[10, 14, 24] * 3, *[30, 50, 130] * 3])
    lesson = run("parallel", timer=lambda: float(next(readings)))
    assert values(lesson)["time_ratio"].tolist() == [[1, 1], [4, 5], [20, 40]]
    assert "100 times as many tokens take the recurrence 20.0 times as long, attention 40.0" in lesson.steps[-1].notice


def test_what_is_counted_is_what_is_computed() -> None:
    rng = np.random.default_rng(1)
    x, matrices = rng.standard_normal((5, 6)), [rng.standard_normal((6, 6)) for _ in range(4)]
    tally = Tally()
    ours = attention(tally.given(x), matrices, 3)
    theirs = multi_head_attention(x, Projections(*matrices), 3)
    assert np.abs(ours.values - theirs.output).max() < 1e-12
    assert (tally.parameters, tally.exponentials) == (4 * 36, 3 * 25)
    assert tally.flops == 4 * 2 * 5 * 36 + 3 * 2 * (2 * 5 * 5 * 2)
    rnn = torch.nn.RNN(6, 6, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter, matrix in zip(rnn.parameters(), matrices, strict=False):
            parameter.copy_(torch.tensor(matrix.T))
        states = rnn(torch.tensor(x)[None])[0][0].numpy()
    counted = recurrence(Tally().given(x), matrices[0], matrices[1])
    assert np.abs(counted.values - states).max() < 1e-12
    assert counted.depth == 5


def test_a_product_waits_for_the_later_of_its_factors() -> None:
    start = Tally().given(np.eye(2))
    once = start @ start
    assert ((start @ once).depth, (once @ start).depth, (once @ once).depth) == (2, 2, 2)
    assert ((start + once).depth, (once + start).depth) == (1, 1)
    assert joined([start, once, start], axis=0).depth == 1


# cost


@pytest.mark.parametrize(("text", "n"), [(None, 5), ("a b c", 3), ("oi", 1)])
def test_many_heads_cost_what_one_costs_but_for_the_softmax(text: str | None, n: int) -> None:
    lesson = run("cost", text=text)
    got, d = values(lesson), 64
    assert got["parameters"].ravel().tolist() == [4 * d * d] * 4
    assert got["flops"].ravel().tolist() == [8 * n * d * d + 4 * n * n * d] * 4
    assert got["exponentials"].ravel().tolist() == [h * n * n for h in (1, 2, 4, 8)]
    assert "8 times as many" in lesson.steps[2].notice


def test_the_parameters_are_those_of_torchs_module() -> None:
    module = torch.nn.MultiheadAttention(64, 8, bias=False)
    assert sum(p.numel() for p in module.parameters()) == values(run("cost"))["parameters"][-1, 0]


# masks


@both
def test_masks_take_scores_out_before_the_softmax(where: Placing) -> None:
    got = values(run("masks", placing=where))
    rng = np.random.default_rng(0)
    q, k = ((E4 @ rng.normal(0, 1, (4, 4)))[:, :2] for _ in range(2))
    scores, i = q @ k.T / math.sqrt(2), np.arange(4)
    near = np.abs(i[:, None] - i) < 2
    for name, allowed in {
        "unmasked": np.ones((4, 4), bool),
        "causal": np.tri(4, dtype=bool),
        "window": near,
        "causal_window": near & np.tri(4, dtype=bool),
    }.items():
        assert np.abs(got[f"{name}_weights"] - softmax(np.where(allowed, scores, -np.inf))).max() < 1e-12
    padded = softmax(np.where([True] * 4 + [False], np.pad(scores, ((0, 1), (0, 1))), -np.inf))
    assert np.abs(got["padding_weights"] - padded).max() < 1e-12
    assert got["padding_seen_weights"][:, -1].min() > 0


@both
@pytest.mark.parametrize("text", [None, DOG, "oi"])
def test_a_row_that_may_attend_to_nothing_is_0(where: Placing, text: str | None) -> None:
    lesson = run("masks", text=text, placing=where)
    got = values(lesson)
    assert not got["nothing_weights"][0].any()
    assert not got["nothing_output"][0].any()
    assert np.abs(got["nothing_weights"][1:].sum(-1) - 1).max() < 1e-12
    assert "sums to 0" in lesson.steps[3].notice
