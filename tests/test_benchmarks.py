"""The benchmarks measure what they say: at small sizes, both sides of a row are run, and give the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz import attend
from tests.hub import save_family
from tests.models import make_bert
from tools.benchmarks import attention, decoder, floor, head, long, pictures, pooled_sketch, running
from tools.benchmarks.__main__ import every_row
from tools.benchmarks.children import Budget, Task, children
from tools.benchmarks.rows import compared, pair, timed, within
from tools.benchmarks.start import BUNDLED
from tools.benchmarks.texts import excerpt


def test_every_row_has_a_name_of_its_own(tmp_path: Path) -> None:
    rows = every_row(tmp_path, tmp_path)
    names = [(row.name, row.against) for row in rows]
    assert len(set(names)) == len(names) > 25
    assert list(tmp_path.iterdir()) == []  # nothing is made ready before it is measured


@pytest.mark.parametrize(("most", "kept"), [(1e6, "yes"), (1e-6, "NO")])
def test_a_row_says_whether_its_budget_is_kept(most: float, kept: str) -> None:
    turns: list[str] = []
    sides = (lambda: turns.append("ours")), (lambda: turns.append("theirs"))
    (line,) = pair("name", "other", lambda: sides, most=most).lines(3)
    assert turns == ["ours", "theirs"] * 4
    assert line.startswith("| name | ")
    assert line.endswith(f" × | ≤ {most:g} × | {kept} |")


def test_ratios_and_limits() -> None:
    assert compared("", "", 0.05, least=10).value == "20.0 × faster"
    assert [compared("", "", 0.05, least=least).kept for least in (10, 30)] == [True, False]
    assert [compared("", "", 1.5, most).kept for most in (1.4, 1.5)] == [False, True]
    (line,) = within("name", lambda: lambda: None, 1).lines(2)
    assert line.endswith("| ≤ 1 s | yes |")


def test_a_line_and_a_power_are_fitted() -> None:
    slope, r_squared, exponent = long.fit([10, 20, 40], [70, 130, 250])
    assert (slope, r_squared) == pytest.approx((6, 1))
    assert 0.9 < exponent < 1
    assert long.fit([10, 20, 40], [100, 400, 1600])[2] == pytest.approx(2)


def test_weights_of_many_heads_are_those_of_torch() -> None:
    q, k = attention.inputs(3, 23, 4)
    ours: Any = attention.ours(q, k)()
    torchs: Any = attention.by_torch(q, k, 5)()
    np.testing.assert_allclose(ours, torchs, rtol=0, atol=1e-6)
    scores: Any = attention.product(q, k)()
    np.testing.assert_allclose(torch.softmax(torch.from_numpy(scores), 2).numpy(), torchs, rtol=0, atol=1e-6)
    for sides in (attention.beside_torch(2, 9, 4), attention.beside_product(2, 9, 4)):
        assert all(timed(side) > 0 for side in sides)


def test_one_head_is_pooled_and_attended_to() -> None:
    q, k = (torch.from_numpy(one)[None, None] for one in head.inputs(70, 4))
    weights = torch.softmax(q @ k.mT / 2, -1)
    assert head.pooled(70, 4, n_tiles=35)() == pytest.approx(weights.view(35, 2, 35, 2).mean((1, 3)).max().item())
    assert head.fused(70, 4)() == pytest.approx((weights @ k).sum().item(), abs=1e-3)


def test_work_is_done_in_a_process_of_its_own() -> None:
    task = Task("tools.benchmarks.head:pooled", {"n_tokens": 40, "d_head": 4})
    lines = list(children("name", "other", (task, task), Budget(100, peak=2, extra_bytes=1e9), 1).lines(9))
    assert [line.rstrip("| ")[-3:] for line in lines] == ["yes"] * 3
    cost = task.cost()
    assert 0 <= cost.extra < cost.peak < 1e9
    assert cost.result == head.pooled(40, 4)()


@pytest.mark.parametrize("n_tokens", [8, 128])
def test_a_text_has_the_tokens_asked_for(n_tokens: int) -> None:
    assert len(attend(excerpt(BUNDLED, n_tokens), layers=[0], heads=[0]).maps[0].query) == n_tokens


def test_the_floor_draws_the_same_weights(tmp_path: Path) -> None:
    source = make_bert(tmp_path / "bert")
    pictures.widened(source, tmp_path / "wide")
    weights = floor.weights_of(tmp_path / "wide", "the cat sat on the mat")
    np.testing.assert_allclose(weights, attend("the cat sat on the mat", str(source)).weights, rtol=0, atol=1e-5)
    picture = floor.picture(weights, scale=2)
    n = weights.shape[2]
    assert picture.getpixel((floor.GAP, floor.GAP + floor.TITLE)) == int(weights[0, 0, 0, 0] * floor.COLORS)
    assert picture.size == (5 * (2 * n + floor.GAP) + floor.GAP, 3 * (2 * n + floor.GAP + floor.TITLE) + floor.GAP)


@pytest.mark.parametrize(("n", "n_tiles"), [(150, 256), (150, 10), (192, 3), (131, 64)])
def test_the_sketch_pools_causal_weights(n: int, n_tiles: int) -> None:
    q, k = torch.randn(6, n, 4, generator=torch.Generator().manual_seed(0)), torch.randn(2, n, 4)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    scores = (q @ k.repeat_interleave(3, 0).mT * 0.5).masked_fill(future, float("-inf"))
    expected = decoder.pooled(torch.softmax(scores, -1).numpy(), n_tiles)
    np.testing.assert_allclose(pooled_sketch.pooled(q, k, 0.5, n_tiles), expected, rtol=0, atol=1e-6)


def test_a_decoder_is_looked_at_and_run(tmp_path: Path) -> None:
    folder = save_family(tmp_path / "llama", "Llama")
    decoder.looked_at(str(folder), 15, n_tiles=4)()
    decoder.plain(str(folder), 15)()
    found: Any = decoder.differences(str(folder), 15, 1, n_tiles=4)()
    assert found.keys() == {"tiles", *decoder.SIX}
    assert max(found.values()) < 1e-5
    assert pooled_sketch.maps_of(folder, excerpt(folder, 15), 4).shape == (3, 4, 4, 4)


def test_both_sides_of_what_is_added_to_a_run() -> None:
    for sides in (running.measured_text(9), running.captured_pass(8)):
        assert all(timed(side) > 0 for side in sides)


def test_both_sides_of_pictures() -> None:
    for make in (pictures.drawn, pictures.by_image):
        assert bytes(make(1, 2, 3)())[:4] == b"\x89PNG"  # type: ignore[call-overload]
    pictures.by_axes(1, 2, 3)()
