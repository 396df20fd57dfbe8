"""A report is opened from the disk in a browser, and all its controls are used."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytorchrl.report import write_report
from tests.support.browser import NARROW, WIDE, Visit, headless_browser, visit
from tests.support.reported_runs import runs_of_all_kinds

pytest.importorskip("plotly")
pytestmark = pytest.mark.long

PARTS = (
    *("curves", "overview", "statistics", "compositions", "evaluations", "storages", "surprising", "videos"),
    *("provenance", "errors"),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with headless_browser() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_report([runs_of_all_kinds(folder / "runs")], folder / "report.html")


def show(opened: Visit, part: str) -> None:
    opened.page.click(f"#tab-part-{part}")
    assert opened.page.locator("main > section:visible").count() == 1
    assert opened.page.locator(f"#part-{part}").is_visible()


def drawn(opened: Visit) -> list[dict[str, Any]]:
    """The lines that Plotly has drawn."""
    lines: list[dict[str, Any]] = opened.page.evaluate(
        "document.getElementById('curve-plot').data.map(({x, y, name, fill}) => ({x, y, name, fill}))"
    )
    return lines


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_every_tab_and_every_choice_of_every_menu_works_and_fits(
    width: int, dark: bool, browser: Any, report: Path
) -> None:
    with visit(browser, report, width, dark=dark) as opened:
        assert [tab.get_attribute("aria-controls")[5:] for tab in opened.page.query_selector_all("[role=tab]")] == list(
            PARTS
        )
        for part in PARTS:
            show(opened, part)
            opened.assert_fits()
            for menu in opened.page.locator(f"#part-{part} select:visible").all():
                for choice in menu.locator("option").all():
                    menu.select_option(choice.get_attribute("value"))
                    opened.assert_fits()
                menu.select_option(index=0)
            for box in opened.page.locator(f"#part-{part} input:visible").all():
                box.click()
                box.click()
            # First no composition is shown, then all.
            for button in reversed(opened.page.locator(f"#part-{part} .controls button:visible").all()):
                button.click()
            for summary in opened.page.locator(f"#part-{part} summary:visible").all():
                summary.click()
            opened.assert_fits()
        assert opened.page.evaluate("window.ran") is None, "a text of a run folder was run as a script"
        assert opened.page.locator("main b").count() == 0
        opened.assert_clean()


def test_seeds_are_averaged_in_one_line_with_a_band_and_training_in_another(browser: Any, report: Path) -> None:
    with visit(browser, report) as opened:
        show(opened, "curves")
        opened.page.select_option("#environment", "CartPole-v1")
        opened.page.select_option("#smoothing", "0")
        names = [line["name"] for line in drawn(opened) if line["fill"] is None]
        assert any(name.endswith(", 2 runs") for name in names)
        assert any(name.endswith(", training, 2 runs") for name in names)
        opened.page.select_option("#seeds", "apart")
        apart = {line["name"]: line for line in drawn(opened)}
        assert {"prioritised/seed-1", "prioritised/seed-1, training"} < set(apart)
        opened.page.select_option("#seeds", "together")
        lines = drawn(opened)
        (number,) = (n for n, line in enumerate(lines) if (line["name"] or "").endswith("PERBuffer, 2 runs"))
        band, together = lines[number - 1 : number + 1]
        seeds = [apart[f"prioritised/seed-{seed}"]["y"] for seed in (1, 2)]
        np.testing.assert_allclose(together["y"], np.mean(seeds, axis=0))
        # The interval of two seeds ranges from the one to the other.
        np.testing.assert_allclose(band["y"], [*np.max(seeds, axis=0), *np.min(seeds, axis=0)[::-1]])
        assert band["fill"] == "toself"


def test_the_page_opens_with_the_answer_and_the_curves(browser: Any, report: Path) -> None:
    with visit(browser, report) as opened:
        assert opened.page.locator("#part-curves").is_visible()
        assert "DQN + " in opened.page.locator(".answers").inner_text()
        assert drawn(opened)


def test_a_table_that_is_wider_than_the_window_says_so_until_it_is_moved_to_its_end(browser: Any, report: Path) -> None:
    with visit(browser, report, NARROW) as opened:
        show(opened, "overview")
        more = opened.page.locator("#part-overview .more")
        assert more.is_visible()
        opened.page.locator("#part-overview .scroll").evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
        more.wait_for(state="hidden")
        opened.page.set_viewport_size({"width": 2 * WIDE, "height": 900})
        assert not more.is_visible()


def test_a_report_of_damaged_runs_alone_has_their_errors_alone(browser: Any, report: Path, tmp_path: Path) -> None:
    damaged = write_report([report.parent / "runs" / "damaged"], tmp_path / "report.html")
    with visit(browser, damaged) as opened:
        assert [tab.get_attribute("aria-controls") for tab in opened.page.query_selector_all("[role=tab]")] == [
            "part-errors"
        ]
        opened.assert_clean()


def test_curves_are_drawn_over_steps_seconds_or_episodes(browser: Any, report: Path) -> None:
    with visit(browser, report) as opened:
        show(opened, "curves")
        opened.page.select_option("#environment", "CartPole-v1")
        opened.page.select_option("#seeds", "apart")
        ends = {}
        for over in ("steps", "seconds", "episodes"):
            opened.page.select_option("#over", over)
            ends[over] = next(line["x"][-1] for line in drawn(opened) if line["name"] == "prioritised/seed-1")
        assert ends["steps"] == 400
        assert len(set(ends.values())) == 3


def test_a_composition_is_hidden_and_shown_by_its_checkbox(browser: Any, report: Path) -> None:
    with visit(browser, report) as opened:
        show(opened, "curves")
        opened.page.select_option("#environment", "CartPole-v1")
        lines = len(drawn(opened))
        opened.page.locator("#legend input").first.click()
        assert len(drawn(opened)) < lines
        opened.page.click("#show-none")
        assert opened.page.is_visible("#curve-none")
        opened.page.click("#show-all")
        assert len(drawn(opened)) == lines


def test_tabs_are_selected_by_keys_and_by_url(browser: Any, report: Path) -> None:
    with visit(browser, report) as opened:
        opened.page.keyboard.press("Tab")
        opened.page.keyboard.press("ArrowRight")
        assert opened.page.locator("#part-overview").is_visible()
        opened.page.keyboard.press("End")
        assert opened.page.locator("#part-errors").is_visible()
        assert opened.page.url.endswith("#errors")
        opened.page.goto(report.resolve().as_uri() + "#videos")
        assert opened.page.locator("#part-videos").is_visible()
        assert opened.page.locator("#part-videos img").first.evaluate("(image) => image.naturalWidth") == 1


def test_no_button_sends_data_elsewhere(browser: Any, report: Path) -> None:
    with visit(browser, report) as opened:
        show(opened, "curves")
        buttons = [button.get_attribute("data-title") for button in opened.page.query_selector_all(".modebar-btn")]
        assert buttons == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes", "Download plot"]


def test_storages_are_drawn_when_their_tab_is_opened(browser: Any, report: Path) -> None:
    with visit(browser, report) as opened:
        show(opened, "storages")
        assert opened.page.locator("#part-storages .histograms:visible .main-svg").count() > 0
