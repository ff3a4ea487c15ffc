"""The pages with a slider over the idealized process, driven in headless Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessella.claims import thm4_1
from tessella.claims.claim import Context, Verdict
from tessella.report.page import write_pages
from tessella.runs.environment import environment

pytestmark = pytest.mark.browser


def test_the_slider_moves_the_data_point_and_the_scalars(browser: Any, tmp_path: Path) -> None:
    setup = thm4_1.Setup(worlds=((10_000, 9, 1e-8),))
    verdict = Verdict(thm4_1.CLAIM, setup, 1, thm4_1.measure(setup, Context(seeds=1)), 1.0, environment())
    write_pages([verdict], tmp_path, "tessella verify thm4.1 --page pages")
    view = browser.new_page()
    wrong: list[str] = []
    view.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    view.on("pageerror", lambda error: wrong.append(str(error)))
    view.goto((tmp_path / "thm4.1.html").as_uri())
    picture = "() => document.querySelector('#events-10000 canvas').toDataURL()"
    slider = view.locator("#events-10000 input[type=range]")
    end, numbers = view.evaluate(picture), view.inner_text("#events-10000 .readouts")
    slider.fill("0")
    assert view.evaluate(picture) != end
    assert view.inner_text("#events-10000 .readouts") != numbers
    view.close()
    assert wrong == []
