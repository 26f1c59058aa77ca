"""Pages in a real browser, and what can be read off them."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attnviz.maps import AttentionRecord
from tests.pages import saved_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
READY = "#stage[aria-busy=false]"
CELL = re.compile(r"^(?P<title>.*): (?P<query>.*) \((?P<i>\d+)\) → (?P<key>.*) \((?P<j>\d+)\): (?P<value>[^,]+)")


@contextmanager
def started() -> Iterator[Any]:
    """The browser, or None where there is none."""
    if CHROMIUM is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """One page, opened from disk; what it says on the console and what it asks of others are faults."""

    def __init__(self, browser: Any, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.faults: list[str] = []
        viewport = options.pop("viewport", {"width": 1200, "height": 850})
        self.context = browser.new_context(viewport=viewport, **options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("file://", "data:", "about:", "blob:")):
            self.faults.append(request.url)

    def open(self, record: AttentionRecord, address: str = "", **options: Any) -> "Tab":
        file = saved_page(record, self.folder / "page.html", **options)
        self.page.goto("about:blank")
        self.page.goto(file.as_uri() + address)
        return self.ready()

    def ready(self) -> "Tab":
        self.page.wait_for_selector(READY)
        return self

    def press(self, *keys: str) -> "Tab":
        for key in keys:
            self.page.keyboard.press(key)
        return self.ready()

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def texts(self, selector: str) -> list[str]:
        return [str(text) for text in self.page.locator(selector).all_inner_texts()]

    @property
    def title(self) -> str:
        return self.text("#stage-title")

    @property
    def address(self) -> str:
        return str(self.page.evaluate("() => location.hash"))

    def cell(self) -> tuple[int, int, float]:
        """Query, key and value of the cell that is looked at."""
        match = CELL.match(self.text("#readout"))
        assert match, self.text("#readout")
        value = match["value"].strip()
        return int(match["i"]), int(match["j"]), float("nan" if value == "not a number" else value)

    def table(self) -> tuple[list[str], list[str], list[list[float]]]:
        """The names of columns and rows, and the numbers, of the table below a matrix."""
        details = self.page.locator("#view details")
        if details.get_attribute("open") is None:
            details.locator("summary").click()
        self.page.wait_for_selector("#view details table")
        rows = [line.split("\t") for line in self.text("#view details tbody").splitlines()]
        numbers = [[float("nan" if x == "not a number" else x) for x in row[1:]] for row in rows]
        return self.texts("#view details thead th"), [row[0] for row in rows], numbers

    def close(self) -> None:
        self.context.close()
        assert self.faults == []
