"""The page of Figure 1a: what training made of random encodings, and of A."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.probe.locality import THRESHOLD
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section
from tessella.report.pages.image_views import grid_of_grids, recipe_words, runs_table, similarity_map

SHOWN = {
    ("vanilla", "encodings"): "Vanilla attention: similarities of encodings",
    ("positional", "encodings"): "Positional attention: similarities of encodings",
    ("positional", "scores"): "Positional attention: A itself",
}


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    pictures: Mapping[str, Mapping[str, Any]] = evidence["pictures"]
    records = evidence["runs"]
    grid = evidence["grid"]
    sections = [
        Section(
            "How to read the pictures",
            prose(
                f"An image is {grid[0]} x {grid[1]} patches, and so is every picture: at the place of each patch "
                "stands a small grid of its similarities with all patches. Values are normalised between -1 and 1, "
                f"and those above {THRESHOLD:g} are drawn alone beside them, as in the paper. Where encodings are "
                "random, the small grids show one dot, the patch itself. Where neighbours have similar encodings, the "
                "dot has grown, and moves with the patch.",
                f"The number beneath is the share of patches whose most similar other patch is adjacent; at random it "
                f"is {evidence['chance']:.3f}.",
                "Nobody told the model where patches lie. The recipe: " + recipe_words(records[0]),
            ),
        )
    ]
    drawn: dict[str, Figure] = {}
    for (side, what), title in SHOWN.items():
        if what not in pictures.get(side, {}).get("after", {}):
            continue
        made = _figure(pictures[side], what, grid, _shares(records, side, what))
        drawn[f"fig1a-{side}-{what}"] = made
        caption = (
            "Left pair: before training; right pair: after it (first seed). "
            + ("A starts with sigma_A on its diagonal and 0 elsewhere. " if what == "scores" else "")
            + "Look for bright spots that have spread to the patches around them."
        )
        sections.append(Section(title, figure(made, caption, f"{title}, before and after training")))
    more = ("locality_before", "locality_after", "locality_scores_after")
    sections.append(Section("Every run", runs_table(records, ("attention",), more)))
    return Content("What encodings know after training", sections, drawn)


def _shares(records: Any, side: str, what: str) -> dict[str, float]:
    name = "locality" if what == "encodings" else "locality_scores"
    first = next(each for each in records if each["attention"] == side)
    return {when: first[f"{name}_{when}"] for when in ("before", "after")}


def _figure(
    pictures: Mapping[str, Mapping[str, np.ndarray]], what: str, grid: tuple[int, int], shares: Mapping[str, float]
) -> Figure:
    drawn, axes = figures.panels(4, width=2.2, height=2.6)
    for number, when in enumerate(("before", "after")):
        values = pictures[when][what]
        tiles = grid_of_grids(values, grid)
        above = np.where(np.isnan(tiles), np.nan, (tiles > THRESHOLD).astype(float))
        similarity_map(axes[2 * number], tiles, f"{when} training", low=-1.0, high=1.0)
        similarity_map(axes[2 * number + 1], above, f"above {THRESHOLD:g}", low=0.0, high=1.0, bar=False)
        axes[2 * number].set_xlabel(f"adjacent: {shares[when]:.2f}")
    return drawn
