"""A real browser for tests: headless Chromium of the system, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import npm

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOUND = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
"""The browser, or None where there is none."""
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
)
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
"""Arguments for a webcam of the browser's own, which it may use."""


@contextmanager
def opened(
    address: str,
    *,
    width: int = 1000,
    height: int = 900,
    touch: bool = False,
    more: tuple[str, ...] = (),
    complaint: str | None = None,
) -> Iterator[Any]:
    """The page at an address, in a browser that ends with the block; `more` are its arguments.

    The page must have asked nothing of any other address, and nothing may have been thrown or
    written to the console as an error but what contains `complaint`.
    """
    if FOUND is None:
        pytest.skip("no Chromium on the path; Debian has it as the package chromium")
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND, args=[*QUIET, *more])
        page = browser.new_page(viewport={"width": width, "height": height}, has_touch=touch)
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
        page.goto(address)
        yield page
        browser.close()
    assert [text for text in said if complaint is None or complaint not in text] == []
    here = (address.rpartition("/")[0], "blob:", "data:")
    assert [one for one in asked if not one.startswith(here)] == []


def check_accessible(page: Any) -> None:
    """Let axe look for parts of the page that some people cannot use."""
    page.evaluate((npm.package("axe-core") / "axe.min.js").read_text())
    found = page.evaluate("axe.run({preload: false})")["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == []
