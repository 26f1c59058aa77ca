from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from attnviz.arrays import Floats
from attnviz.errors import RequestError
from attnviz.render.ranges import Range
from attnviz.render.scale import SCALES, range_of, shade, ticks, value_at

WEIGHTS = st.floats(0, 1, width=32, allow_subnormal=False)
PANELS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=WEIGHTS)
SHADES: dict[str, list[float]] = {  # of 0, 0.001, 0.01, 0.25, 0.5, 1, of which 0.5 is the top, and of 0.25 alone
    "linear": [0, 0.002, 0.02, 0.5, 1, 1, 0.5],
    "sqrt": [0, 0.04472, 0.14142, 0.70711, 1, 1, 0.70711],
    "log": [0, 0.10034, 0.43368, 0.89966, 1, 1, 0.89966],
    "row": [0, 0.001, 0.01, 0.25, 0.5, 1, 1],
    "rank": [0, 1 / 6, 2 / 6, 4 / 6, 5 / 6, 1, 4 / 6],
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shades_are_those_of_the_formulas(scale: str, dtype: Any) -> None:
    values = np.array([[0, 0.001, 0.01, 0.25, 0.5, 1], [0.25, 0, 0, 0, 0, 0]], dtype)
    shades = shade(values, Range(0.0, 0.5), scale)
    assert shades.dtype == dtype
    np.testing.assert_allclose([*shades[0].tolist(), shades[1, 0]], SHADES[scale], atol=1e-5)


SIGNED: dict[str, list[float]] = {  # of -1, -0.25, -0.001, 0, 0.001, 0.5, of which 0.5 is the top, and of -0.25 alone
    "linear": [0, 0.25, 0.499, 0.5, 0.501, 1, 0.25],
    "sqrt": [0, 0.14645, 0.47764, 0.5, 0.52236, 1, 0.14645],
    "log": [0, 0.05017, 0.44983, 0.5, 0.55017, 1, 0.05017],
    "row": [0, 0.375, 0.4995, 0.5, 0.5005, 0.75, 0],
    "rank": [0, 0.5 - 2 / 6, 0.5 - 1 / 6, 0.5, 0.5 + 2 / 12, 0.5 + 5 / 12, 0.5 - 2 / 6],
}
"""On rank, of the six magnitudes above 0 two are 0.001, two are 0.25."""


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signed_shades_are_those_of_the_formulas(scale: str, dtype: Any) -> None:
    values = np.array([[-1, -0.25, -0.001, 0, 0.001, 0.5], [-0.25, 0, 0, 0, 0, 0]], dtype)
    shades = shade(values, Range(-0.5, 0.5), scale)
    assert shades.dtype == dtype
    np.testing.assert_allclose([*shades[0].tolist(), shades[1, 0]], SIGNED[scale], atol=1e-5)
    assert (shades[1, 1:] == 0.5).all()


@pytest.mark.parametrize("scale", SCALES)
@given(
    arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.floats(-3, 3, width=32)),
    st.sampled_from([0.5, 2.0]),
)
def test_the_other_sign_is_as_far_from_the_middle(scale: str, values: Floats, top: float) -> None:
    shades = shade(values, Range(-top, top), scale)
    np.testing.assert_allclose(shade(-values, Range(-top, top), scale), 1 - shades, atol=1e-6)
    assert (shades[values == 0] == 0.5).all()
    assert (shades[values > 0] >= 0.5).all()
    assert (shades[values < 0] <= 0.5).all()
    np.testing.assert_allclose(
        2 * shades[values > 0] - 1, shade(np.abs(values), Range(0.0, top), scale)[values > 0], atol=1e-6
    )


@pytest.mark.parametrize("scale", SCALES)
def test_what_is_not_a_number_stays_among_signed_values(scale: str) -> None:
    shades = shade(np.array([[np.nan, -1.0], [np.inf, -np.inf]]), Range(-1.0, 1.0), scale)
    assert np.isnan(shades).tolist() == [[True, False], [False, False]]
    assert shades[1].tolist() == [1, 0]


@pytest.mark.parametrize("scale", SCALES)
def test_a_range_that_begins_elsewhere_is_like_one_from_0_of_the_same_length(scale: str) -> None:
    values = np.array([[0.0, 0.5, 1.0], [2.0, 0.25, 0.0]])
    np.testing.assert_array_equal(shade(values + 4, Range(4.0, 6.0), scale), shade(values, Range(0.0, 2.0), scale))
    np.testing.assert_array_equal(shade(values - 2, Range(-2.0, 0.0), scale), shade(values, Range(0.0, 2.0), scale))


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
@given(st.floats(0, 1), st.sampled_from([Range(-0.5, 0.5), Range(-30.0, 30.0), Range(2.0, 3.0), Range(-7.0, -3.0)]))
def test_values_of_any_range_are_found_again_by_their_shades(scale: str, share: float, span: Range) -> None:
    found = shade(np.array([[value_at(share, span, scale)]]), span, scale)[0, 0]
    assert found == pytest.approx(share, abs=1e-3 if scale == "log" else 1e-6)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("top", [0.25, 20.0])
def test_ticks_of_signed_ranges_mirror_each_other_around_0(scale: str, top: float) -> None:
    places, texts = zip(*ticks(scale, Range(-top, top)), strict=True)
    assert (places[0], places[len(places) // 2], places[-1]) == (0, 0.5, 1)
    assert texts[len(texts) // 2] == "0"
    assert [text.removeprefix("−") for text in texts] == [text.removeprefix("−") for text in reversed(texts)]
    assert texts[0] == "−" + texts[-1]
    if scale in ("linear", "sqrt", "log"):
        assert float(texts[-1]) == top


@pytest.mark.parametrize("scale", SCALES)
@given(PANELS, st.sampled_from([0.01, 0.2, 1.0]))
def test_shades_lie_in_0_to_1_and_nothing_is_0(scale: str, values: Floats, top: float) -> None:
    before = values.copy()
    shades = shade(values, Range(0.0, top), scale)
    assert shades.shape == values.shape
    assert ((shades >= 0) & (shades <= 1)).all()
    assert (shades[values == 0] == 0).all()
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log", "rank"])
@given(PANELS)
def test_a_larger_value_is_never_darker(scale: str, values: Floats) -> None:
    order = np.argsort(values, axis=None)
    assert (np.diff(shade(values, Range(0.0, 1.0), scale).reshape(-1)[order]) >= 0).all()


@given(PANELS)
def test_a_larger_value_of_a_row_is_never_darker(values: Floats) -> None:
    order = np.argsort(values, axis=1)
    assert (np.diff(np.take_along_axis(shade(values, Range(0.0, 1.0), "row"), order, 1), axis=1) >= 0).all()


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
@pytest.mark.parametrize("top", [0.001, 0.2, 1.0, 1.2])
def test_the_top_and_what_exceeds_it_is_1(scale: str, top: float) -> None:
    assert shade(np.array([[top, 2 * top, np.inf]]), Range(0.0, top), scale).tolist() == [[1, 1, 1]]


@given(PANELS)
def test_the_largest_of_a_panel_has_rank_1_and_equal_values_one_rank(values: Floats) -> None:
    shades = shade(values, Range(0.0, 1.0), "rank")
    if (values > 0).any():
        assert shades.max() == 1
    assert all(len(set(shades[values == value].tolist())) == 1 for value in np.unique(values))


@given(PANELS)
def test_the_largest_of_each_row_is_1_on_the_row_scale(values: Floats) -> None:
    np.testing.assert_array_equal(
        shade(values, Range(0.0, 0.3), "row").max(axis=1), (values.max(axis=1) > 0).astype(float)
    )


@given(PANELS)
def test_ranks_stay_where_values_are_moved_but_not_past_each_other(values: Floats) -> None:
    wide = values.astype(np.float64)
    np.testing.assert_array_equal(
        shade(wide, Range(0.0, 1.0), "rank"), shade(7 * np.sqrt(wide), Range(0.0, 0.2), "rank")
    )


@pytest.mark.parametrize("scale", SCALES)
def test_what_is_not_a_number_stays_and_leaves_the_others_alone(scale: str) -> None:
    values = np.array([[0.1, np.nan, 0.4], [np.nan] * 3, [0.0, -np.inf, np.inf]], np.float32)
    shades = shade(values, Range(0.0, 1.0), scale)
    np.testing.assert_array_equal(np.isnan(shades), np.isnan(values))
    assert shades[2].tolist() == [0, 0, 1]
    alone = np.array([[0.1, 0.4], [0.0, np.inf]], np.float32)
    np.testing.assert_array_equal(shades[0, [0, 2]], shade(alone, Range(0.0, 1.0), scale)[0])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_no_values_and_no_range_are_no_errors(scale: str, shape: tuple[int, int]) -> None:
    assert shade(np.zeros(shape, np.float32), Range(0.0, 0.0), scale).tolist() == np.zeros(shape).tolist()


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
@given(st.floats(0.01, 1), st.sampled_from([0.001, 0.5, 1.0]))
def test_a_value_is_found_again_by_its_shade(scale: str, share: float, top: float) -> None:
    assert shade(np.array([[value_at(share, Range(0.0, top), scale)]]), Range(0.0, top), scale)[0, 0] == pytest.approx(
        share
    )


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
@pytest.mark.parametrize("top", [0.01, 1.0])
def test_ticks_stand_at_the_shades_of_their_values(scale: str, top: float) -> None:
    places, texts = zip(*ticks(scale, Range(0.0, top)), strict=True)
    assert (places[0], places[-1], float(texts[-1])) == (0, 1, top)
    np.testing.assert_allclose(shade(np.array([list(map(float, texts))]), Range(0.0, top), scale)[0], places, atol=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_the_scale_is_named_with_its_range(scale: str) -> None:
    said = range_of(scale, Range(0.0, 0.2))
    assert said.startswith(f"{scale} scale")
    assert said.endswith("to 0.2") == (scale in ("linear", "sqrt", "log"))


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(RequestError, match=r"'square': choose one of linear, sqrt, log, row, rank"):
        shade(np.ones((1, 1)), Range(0.0, 1.0), "square")
    with pytest.raises(RequestError, match="did you mean sqrt"):
        shade(np.ones((1, 1)), Range(0.0, 1.0), "sqr")
