"""The browser of the tests reports errors, network requests and overflow of a page on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import NARROW, WIDE, headless_browser, visit

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with headless_browser() as started:
        yield started


def written(folder: Path, body: str) -> Path:
    page = folder / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body>{body}')
    return page


def test_a_correct_page_passes_all_checks(browser: Any, tmp_path: Path) -> None:
    picture = '<img alt="" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">'
    with visit(browser, written(tmp_path, f"<p>Text.</p>{picture}"), NARROW) as opened:
        assert opened.page.inner_text("p") == "Text."
        opened.assert_clean()
        opened.assert_fits()


def test_a_network_request_of_a_page_is_reported(browser: Any, tmp_path: Path) -> None:
    page = written(tmp_path, '<script src="https://example.org/plot.js"></script>')
    with visit(browser, page) as opened:
        assert opened.requests == ["https://example.org/plot.js"]
        with pytest.raises(AssertionError):
            opened.assert_clean()


def test_console_warnings_and_script_errors_are_reported(browser: Any, tmp_path: Path) -> None:
    page = written(tmp_path, "<script>console.warn('careful'); missing()</script>")
    with visit(browser, page) as opened:
        assert opened.errors == ["careful", "missing is not defined"]


def test_a_page_wider_than_the_window_is_reported(browser: Any, tmp_path: Path) -> None:
    page = written(tmp_path, '<div class="broad" style="width: 700px">Text.</div>')
    with visit(browser, page, WIDE) as opened:
        opened.assert_fits()
    with visit(browser, page, NARROW) as opened, pytest.raises(pytest.fail.Exception, match=r"DIV\.broad"):
        opened.assert_fits()


def test_a_page_can_query_the_preferred_colour_scheme(browser: Any, tmp_path: Path) -> None:
    page = written(tmp_path, "")
    for dark in (False, True):
        with visit(browser, page, dark=dark) as opened:
            assert opened.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
