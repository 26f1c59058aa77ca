import runpy
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps

from attnviz.errors import RequestError
from attnviz.render.colors import DEFAULT_COLORMAP, DIVERGING, NAMES, colormap

TOOL = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "make_colormaps.py"))


@pytest.mark.parametrize(("name", "diverging"), [*((n, False) for n in NAMES), *((n, True) for n in DIVERGING)])
def test_each_table_is_matplotlib_s(name: str, diverging: bool) -> None:
    wanted = colormaps[TOOL["DIVERGING" if diverging else "NAMES"][name]](np.arange(256), bytes=True)[:, :3]
    assert colormap(name, diverging=diverging).dtype == np.uint8
    np.testing.assert_array_equal(colormap(name, diverging=diverging), wanted)


@pytest.mark.parametrize("name", DIVERGING)
def test_a_diverging_map_is_grey_in_the_middle_cold_below_and_warm_above(name: str) -> None:
    colors = colormap(name, diverging=True).astype(int)
    assert np.ptp(colors[127:129], axis=1).max() <= 2
    assert (colors[:100, 2] > colors[:100, 0]).all()
    assert (colors[156:, 0] > colors[156:, 2]).all()


@pytest.mark.parametrize("name", DIVERGING)
def test_the_two_sides_of_a_diverging_map_differ_to_readers_without_red_or_green(name: str) -> None:
    """As deuteranopes and protanopes see colours, by the matrices of Viénot, Brettel and Mollon (1999), linear RGB."""
    deutan = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    protan = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
    linear = (colormap(name, diverging=True) / 255) ** 2.2
    for matrix in (deutan, protan):
        seen = np.clip(linear @ matrix.T, 0, 1) ** (1 / 2.2) * 255
        assert np.linalg.norm(seen[:88] - seen[:167:-1], axis=1).min() > 40


@pytest.mark.parametrize(("name", "diverging"), [("rdbu", False), ("viridis", True)])
def test_a_map_of_the_other_kind_is_refused(name: str, diverging: bool) -> None:
    kind = "diverging colour map" if diverging else "colour map"
    with pytest.raises(RequestError, match=f"no {kind} '{name}': choose one of"):
        colormap(name, diverging=diverging)


def test_the_tables_are_what_the_tool_writes() -> None:
    assert TOOL["TARGET"].read_text(encoding="utf-8") == TOOL["source"]()


def test_the_default_gets_lighter_step_by_step() -> None:
    lightness = colormap(DEFAULT_COLORMAP) @ np.array([0.2126, 0.7152, 0.0722])
    assert (np.diff(lightness) >= -0.5).all()
    assert lightness[-1] - lightness[0] > 180


def test_case_does_not_matter() -> None:
    np.testing.assert_array_equal(colormap("Viridis"), colormap("viridis"))


def test_a_table_cannot_be_changed_by_accident() -> None:
    with pytest.raises(ValueError, match="read-only"):
        colormap("viridis")[0] = 0


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(RequestError) as caught:
        colormap("virids")
    assert str(caught.value).endswith("did you mean viridis?")
    assert "'virids'" in str(caught.value)
    assert "cividis" in str(caught.value)


def test_a_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(RequestError, match=r"choose one of viridis, .*blues$"):
        colormap("xyzzy")
