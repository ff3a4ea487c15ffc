"""The second paper's pages, made from runs of seconds; one is opened in headless Chromium."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from test_masked_claims import TINY

from tessella.claims.claim import Context, Verdict
from tessella.report.page import content, page, write_pages
from tessella.runs.environment import environment


def verdict_of(module: Any) -> Verdict:
    config = TINY[module]
    return Verdict(module.CLAIM, config, 1, module.measure(config, Context(1)), 1.0, environment())


@pytest.mark.parametrize("module", TINY, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_every_claim_has_a_page_with_a_figure_and_plain_words(module: Any) -> None:
    verdict = verdict_of(module)
    shown = content(verdict)
    text = page(verdict, shown, "tessella verify 'mim.*' --page pages")
    assert shown.figures
    assert "for someone who has not read the paper" in text
    assert "<svg" in text
    assert "nan" not in text.lower().split("<svg")[0]
    assert importlib.import_module(f"tessella.report.pages.{module.__name__.rsplit('.', 1)[-1]}").__doc__


@pytest.mark.browser
def test_the_slider_shows_attention_finding_the_areas(browser: Any, tmp_path: Path) -> None:
    from tessella.claims import mim_area

    write_pages([verdict_of(mim_area)], tmp_path, "tessella verify mim.area --page pages")
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    view.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    view.on("pageerror", lambda error: wrong.append(str(error)))
    view.goto((tmp_path / "mim.area.html").as_uri())
    pictures = view.locator("#training canvas")
    before = [picture.evaluate("canvas => canvas.toDataURL()") for picture in pictures.all()]
    assert len(before) >= 2
    view.locator("#training input[type=range]").fill("0")
    after = [picture.evaluate("canvas => canvas.toDataURL()") for picture in pictures.all()]
    assert all(a != b for a, b in zip(before[:2], after[:2], strict=True))
    view.close()
    assert wrong == []
