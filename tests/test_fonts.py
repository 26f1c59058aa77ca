from pathlib import Path

import pytest

from attnviz.render.fonts import bundled, installed
from tests.fonts import install


def test_the_font_of_matplotlib_comes_along() -> None:
    plain, bold = bundled(False), bundled(True)
    assert plain is not None
    assert bold is not None
    assert (plain.name, bold.name) == ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")


def test_fonts_with_many_characters_are_found_in_an_order_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (
        "z/NotoSansCJK-Regular.ttc", "a/unifont.otf", "a/NotoSansCJK-Bold.ttc", "Arial.ttf", "a/DroidSansFallback.ttf",
        "b/NotoSansThai-Regular.TTF", "a/NotoSansCJK-Regular.txt", "b/NotoSansAdlam-Regular.ttf", "FreeSansOblique.ttf",
    )  # fmt: skip
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    install(monkeypatch, tmp_path / "missing", tmp_path)
    assert [path.name for path in installed()] == [
        "NotoSansCJK-Regular.ttc",
        "DroidSansFallback.ttf",
        "NotoSansAdlam-Regular.ttf",
        "NotoSansThai-Regular.TTF",
        "unifont.otf",
    ]


def test_a_home_that_there_is_not_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonsense")
    install(monkeypatch, Path("~/fonts"), Path("~nobody/fonts"))
    assert installed() == ()
