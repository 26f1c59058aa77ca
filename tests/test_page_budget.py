"""What the largest page that is promised weighs, and how soon it is there: 512 tokens and 144 heads."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.browser import Tab, needs_browser, started
from tests.pages import a_map, named, page_of, record_of
from tests.saved import weights_of

N = 512
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Random weights, which pack worse than those of any model; every layer has the same ones."""
    tokens = named([f"token{i}" for i in range(N)])
    weights = weights_of(12, N, N, dtype=np.float32)
    record = record_of(*(a_map(weights, tokens, tokens, i) for i in range(12)))
    file = tmp_path_factory.mktemp("budget") / "page.html"
    file.write_text(page_of(record), encoding="utf-8")
    yield file
    file.unlink()


def test_many_heads_of_many_tokens_are_a_file_that_can_be_sent(page: Path) -> None:
    assert page.stat().st_size <= 50 * MEGABYTE


@needs_browser
def test_the_largest_page_is_painted_within_two_seconds(page: Path, tmp_path: Path) -> None:
    with started() as browser:
        tab = Tab(browser, tmp_path)
        tab.page.goto(page.as_uri())
        tab.ready()
        paints = "() => performance.getEntriesByType('paint').map((one) => [one.name, one.startTime])"
        times = dict(tab.page.evaluate(paints))
        assert times["first-contentful-paint"] <= 2000
        tab.press("2", "j")
        assert tab.title == "layer 0 · head 1"
        tab.close()
