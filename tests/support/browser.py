"""A headless browser that opens pages on disk and blocks the network.

Tests that use it are skipped if playwright or a browser is missing.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NARROW, WIDE = 400, 1_400
"""Window widths at which pages must be readable, in pixels."""
_HEIGHT = 900
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    # No host name is resolved.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_SECONDS = 20.0
"""Longest wait for an element of a page."""


@dataclass
class Visit:
    """An open page, with its errors and its forbidden requests."""

    page: Any
    """Playwright's page."""
    errors: list[str] = field(default_factory=list)
    """Errors and warnings of its console, and exceptions of its scripts."""
    requests: list[str] = field(default_factory=list)
    """Requested addresses that are not on disk, and were blocked."""

    def assert_clean(self) -> None:
        """Fail if the page has reported an error or requested an address of the network."""
        assert not self.errors, self.errors
        assert not self.requests, self.requests

    def assert_fits(self) -> None:
        """Fail if the page is wider than the window, so that a reader has to scroll sideways."""
        wide, window = self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        if wide > window:
            pytest.fail(f"the page is {wide} pixels wide in a window of {window}, by {self.page.evaluate(_WIDEST)}")


_WIDEST = """() => Array.from(document.querySelectorAll("body *"))
    .filter((element) => element.getBoundingClientRect().right > window.innerWidth + 1)
    .slice(0, 8).map((element) => element.tagName + "." + element.className + "#" + element.id).join(", ")"""
"""Script that lists the elements that extend beyond the window."""


@contextmanager
def headless_browser() -> Iterator[Any]:
    """Start a browser for any number of visits; skip the test if there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = next(filter(None, map(shutil.which, _BROWSERS)), None)
    with sync_api.sync_playwright() as playwright:
        if executable is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip(f"there is no browser: none of {', '.join(_BROWSERS)}, nor playwright's")
        browser = playwright.chromium.launch(executable_path=executable, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(browser: Any, page: Path, width: int = WIDE, *, dark: bool = False) -> Iterator[Visit]:
    """Open a file in a new window.

    Args:
        browser: the browser of `headless_browser`.
        page: the file.
        width: width of the window, in pixels.
        dark: whether the reader prefers dark pages.
    """
    context = browser.new_context(
        viewport={"width": width, "height": _HEIGHT}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    try:
        context.set_default_timeout(1_000 * _SECONDS)
        opened = Visit(context.new_page())
        opened.page.on("console", lambda message: _note(opened, message))
        opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
        context.route(lambda address: not address.startswith("file:"), lambda route: _refuse(opened, route))
        opened.page.goto(page.resolve().as_uri())
        yield opened
    finally:
        context.close()


def _note(opened: Visit, message: Any) -> None:
    if message.type in ("error", "warning"):
        opened.errors.append(message.text)


def _refuse(opened: Visit, route: Any) -> None:
    address = route.request.url
    if address.startswith(("data:", "blob:")):
        route.continue_()
        return
    opened.requests.append(address)
    route.abort()
