from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import features

from attnviz.errors import AttnvizError, RequestError
from attnviz.render import lettering
from attnviz.render.lettering import Run, lettered, measure, runs
from attnviz.render.panels import Look
from tests.fonts import NOBODY_ELSE_HAS, forget_fonts, install, make_font
from tests.pictures import KINDS, board_of, written


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(monkeypatch)
    yield
    forget_fonts()


def prepared(string: str, bold: bool = False) -> str:
    return "".join(run.string for run in runs(string, bold))


@pytest.mark.parametrize(
    ("string", "drawn"),
    [
        ("", ""),
        ("$x$ \\frac [/INST]", "$x$ \\frac [/INST]"),
        ("naïve … ⟨→⟩ Ġ▁", "naïve … ⟨→⟩ Ġ▁"),
        ("日本 ok", "⟨65E5 672C⟩ ok"),
        ("日" * 50, "⟨65E5 65E5 65E5 65E5 …⟩"),
        ("a\U0001f9ff\u200d", "a⟨1F9FF⟩"),
        ("␛[31m␡", "⟨001B⟩[31m⟨007F⟩"),
        ("e\u0301", "é"),
        ("שלום 日", "שלום ⟨65E5⟩"),
    ],
)
@pytest.mark.parametrize("bold", [False, True])
def test_characters_without_a_glyph_have_a_stand_in(string: str, drawn: str, bold: bool) -> None:
    assert prepared(string, bold) == drawn


def test_a_stand_in_is_drawn_as_it_reads() -> None:
    np.testing.assert_array_equal(lettered("日", 12)[0], lettered("⟨65E5⟩", 12)[0])


@pytest.mark.skipif(not features.check_feature("raqm"), reason="this Pillow has no Raqm")
def test_right_to_left_text_is_joined_and_begins_at_the_right() -> None:
    assert measure("مرحبا", 20) < sum(measure(letter, 20) for letter in "مرحبا")
    last_is_alef = lettered("אא" + "ל", 20)[0]
    first_is_lamed = lettered("ל" + "אא", 20)[0]
    assert last_is_alef[:, :13].sum() != first_is_lamed[:, :13].sum()


def test_right_to_left_text_is_one_run_in_the_order_in_which_it_is_read() -> None:
    (run,) = runs("ab אבג 1")
    assert run.string == "ab אבג 1"


def test_right_to_left_text_is_turned_round_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lettering, "_shaping", lambda: False)
    forget_fonts()
    (run,) = runs("ab אבג דה 1")
    assert lettering._drawn(run, 20)[0] == lettering.turned(run.string) == "ab הד גבא 1"


def test_without_matplotlib_s_font_pillow_s_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lettering, "bundled", lambda bold: None)
    forget_fonts()
    assert prepared("日") == "<65E5>"
    assert lettered("head 0", 12)[0].max() > 200


@pytest.mark.parametrize("bold", [False, True])
def test_a_font_that_is_asked_for_draws_what_it_has(tmp_path: Path, bold: bool) -> None:
    font = make_font(tmp_path / "own.ttf", NOBODY_ELSE_HAS + "a")
    plain = runs("b", bold)[0].font
    assert runs(f"ba{NOBODY_ELSE_HAS}", bold, font) == (Run("b", plain), Run(f"a{NOBODY_ELSE_HAS}", font))
    assert measure(f"a{NOBODY_ELSE_HAS}", 20, bold, font) == 40
    levels, x, y = lettered(NOBODY_ELSE_HAS, 20, bold, font)
    assert (levels[y - 20 : y, x : x + 20] == 255).all()
    assert levels.sum() == 255 * 400


def test_runs_of_several_fonts_stand_side_by_side_on_one_line(tmp_path: Path) -> None:
    font = make_font(tmp_path / "own.ttf", NOBODY_ELSE_HAS)
    levels, x, y = lettered(f"l{NOBODY_ELSE_HAS}l", 20, False, font)
    stem, width = lettered("l", 20)[0], round(measure("l", 20))
    assert (levels[y - 20 : y, x + width : x + width + 20] == 255).all()
    right = levels[:, x + width + 20 :]
    assert right.max(axis=0).tolist() == stem[:, 2 : 2 + right.shape[1]].max(axis=0).tolist()


def test_an_installed_font_draws_what_no_other_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "NotoSansCJK-Regular.ttc").write_bytes(b"damaged")
    font = make_font(tmp_path / "unifont.ttf", "a日")
    install(monkeypatch, tmp_path)
    assert [run.font for run in runs("a日本")][1] == font
    assert prepared("a日本") == "a日⟨672C⟩"
    assert runs("a日", False, make_font(tmp_path / "own.ttf", "日"))[1].font == tmp_path / "own.ttf"


def test_installed_fonts_are_looked_for_only_where_the_others_do_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lettering, "installed", lambda: pytest.fail("looked for"))
    assert prepared("naïve שלום Ġ") == "naïve שלום Ġ"


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_drawn_with_the_font_that_is_asked_for(tmp_path: Path, kind: str) -> None:
    board = board_of(np.eye(1), caption=NOBODY_ELSE_HAS)
    font = make_font(tmp_path / "own.ttf", NOBODY_ELSE_HAS)
    found = written(board, kind, Look(font=font))
    assert found != written(board, kind)
    assert found == written(board, kind, Look(font=font))
    names = {"svg": b"own", "pdf": b"own", "png": b"PNG"}
    assert names[kind] in found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["missing", "folder", "damaged"])
def test_a_font_that_cannot_be_used_is_refused_by_its_name(tmp_path: Path, kind: str, fault: str) -> None:
    font = tmp_path / "own.ttf"
    if fault == "folder":
        font.mkdir()
    if fault == "damaged":
        font.write_bytes(b"no font")
    with pytest.raises(AttnvizError, match=r"font .*own\.ttf.*\.otf") as refused:
        written(board_of(np.eye(1)), kind, Look(font=font))
    assert isinstance(refused.value, RequestError) == (fault != "damaged")
