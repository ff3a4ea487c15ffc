"""The pages, opened and driven in headless Chromium as a person would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tessella.claims import thm4_2
from tessella.claims.claim import Context, Verdict
from tessella.dynamics.descent import Descent
from tessella.dynamics.realistic import Realistic
from tessella.report.page import write_pages
from tessella.runs.environment import environment

pytestmark = pytest.mark.browser

PICTURE = "() => document.querySelector('#training canvas').toDataURL()"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a small run of Theorem 4.2."""
    problem = Realistic(
        grid=(4, 4), dim=8, spurious=0.4, points=3000, test_points=500, descent=Descent(100, 1.5, 0.02, snapshots=6)
    )
    setup = thm4_2.Setup((thm4_2.Case(problem, 0.5, 0.1),))
    verdict = Verdict(thm4_2.CLAIM, setup, 1, thm4_2.measure(setup, Context(seeds=1)), 1.0, environment())
    folder = tmp_path_factory.mktemp("pages")
    write_pages([verdict], folder, "tessella verify thm4.2 --page pages")
    return folder


@pytest.fixture
def opened(browser: Any, pages: Path) -> Iterator[Any]:
    """The claim's page, failing the test where it logs an error or asks for anything but itself."""
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    view.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    view.on("pageerror", lambda error: wrong.append(str(error)))
    view.on(
        "request", lambda request: wrong.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    view.goto((pages / "thm4.2.html").as_uri())
    yield view
    view.close()
    assert wrong == []


def test_the_slider_moves_the_picture_and_the_numbers(opened: Any) -> None:
    slider = opened.locator("#training input[type=range]")
    end = opened.evaluate(PICTURE)
    assert "step 100" in opened.inner_text("#training output")
    slider.fill("0")
    assert "step 0" in opened.inner_text("#training output")
    start = opened.evaluate(PICTURE)
    assert start != end
    readouts = opened.inner_text("#training .readouts")
    slider.focus()
    opened.keyboard.press("ArrowRight")
    assert "step 20" in opened.inner_text("#training output")
    assert opened.inner_text("#training .readouts") != readouts
    assert opened.evaluate(PICTURE) not in (start, end)


def test_play_runs_to_the_end_and_stops(opened: Any) -> None:
    button = opened.locator("#training button")
    button.click()
    assert button.inner_text() == "Pause"
    opened.wait_for_function("() => document.querySelector('#training button').textContent === 'Play'", timeout=15_000)
    assert "step 100" in opened.inner_text("#training output")


def test_hovering_reads_an_entry(opened: Any) -> None:
    opened.locator("#training canvas").hover(position={"x": 3, "y": 3})
    assert "row 1, column 1" in opened.inner_text("#training .hover")


def test_every_picture_has_words(opened: Any) -> None:
    nameless = (
        "() => [...document.querySelectorAll('canvas, [role=img], svg[role=img]')].filter(e => !e.ariaLabel).length"
    )
    assert opened.evaluate(nameless) == 0


def test_the_page_fits_a_telephone(opened: Any) -> None:
    opened.set_viewport_size({"width": 390, "height": 800})
    assert opened.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_the_index_leads_to_the_claim_and_back(browser: Any, pages: Path) -> None:
    view = browser.new_page()
    view.goto((pages / "index.html").as_uri())
    view.click("text=thm4.2")
    assert "discovers which patches belong together" in view.inner_text("h1")
    view.click("text=All claims")
    assert view.url.endswith("index.html")
    view.close()


def test_figures_for_papers_lie_beside_the_pages(pages: Path) -> None:
    assert {path.suffix for path in (pages / "figures").iterdir()} == {".pdf", ".svg"}
