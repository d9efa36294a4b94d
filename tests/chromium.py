"""A real browser for tests: headless Chromium of the system, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOUND = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
"""The browser, or None where there is none."""
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
)
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
"""Arguments for a webcam of the browser's own, which it may use."""


class Tab(NamedTuple):
    """A page of the browser, and what happened in it."""

    page: Any
    asked: list[str]
    """Every address that it asked for."""
    complaints: list[str]
    """What was thrown, and the errors of the console."""


@contextmanager
def opened(
    address: str,
    *,
    width: int = 1000,
    height: int = 900,
    touch: bool = False,
    more: tuple[str, ...] = (),
) -> Iterator[Tab]:
    """The page at an address, in a browser that ends with the block; `more` are its arguments."""
    if FOUND is None:
        pytest.skip("no Chromium on the path; Debian has it as the package chromium")
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND, args=[*QUIET, *more])
        page = browser.new_page(viewport={"width": width, "height": height}, has_touch=touch)
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda said: complaints.append(said.text) if said.type == "error" else None
        )
        page.goto(address)
        yield Tab(page, asked, complaints)
        browser.close()
