import runpy
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps

from attnviz.errors import RequestError
from attnviz.render.colors import DEFAULT_COLORMAP, NAMES, colormap

TOOL = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "make_colormaps.py"))


@pytest.mark.parametrize("name", NAMES)
def test_each_table_is_matplotlib_s(name: str) -> None:
    wanted = colormaps[TOOL["NAMES"][name]](np.arange(256), bytes=True)[:, :3]
    assert colormap(name).dtype == np.uint8
    np.testing.assert_array_equal(colormap(name), wanted)


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
