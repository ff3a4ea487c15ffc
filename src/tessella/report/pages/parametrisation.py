"""The page on parametrisations: what each way to make and train A reaches, how local it becomes, what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.claims.parametrisation import Case
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section
from tessella.report.pages.image_views import grid_of_grids, mark_chance, recipe_words, runs_table, similarity_map

MARKS = {"projections": ("s", 1), "gram": ("^", 2), "matrix": ("o", 0)}
NAMES = {"projections": "W_Q and W_K", "gram": "P P^T", "matrix": "A itself"}


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    records: list[dict[str, Any]] = evidence["runs"]
    tried: list[Case] = evidence["cases"]
    scatter = _scatter(records, tried, evidence["chance"])
    rows = [
        (
            NAMES[case.parametrisation],
            "none" if case.parametrisation == "projections" else f"{case.diagonal:g}",
            f"{case.score_rate:g}",
            case.prediction,
            verdict.intervals[f"accuracy_{case.name}"].mean,
            verdict.intervals[f"locality_{case.name}"].mean,
        )
        for case in tried
    ]
    header = ("A", "diagonal", "rate of the scores", "the theory's prediction", "accuracy, %", "locality")
    sections = [
        Section(
            "What is tried",
            prose(
                "Positional attention can be made from encodings by two projections (Definition 3.2), from encodings "
                "alone, A = P P^T, or be a matrix that is trained itself (Simplification 3.1). The theory has two "
                "conditions for it to find out which patches belong together: a diagonal sigma_A > 0 at the start, "
                "and beyond a few patches a rate for A that is far above the rate for the values.",
                recipe_words(records[0]),
            ),
        ),
        Section(
            "Does locality go with accuracy?",
            figure(
                scatter,
                "One mark a run. Across: the share of patches whose most attended other patch is adjacent, in the mean "
                "over layers. Up: held-out accuracy. Filled marks are the cases that meet both conditions. If the "
                "theory reads real images rightly, filled marks lie above and to the right of hollow ones.",
                "Accuracy against locality for every parametrisation and rate",
            ),
        ),
        Section(
            "Prediction and outcome", table(header, rows, f"Chance level of the locality: {evidence['chance']:.3f}.")
        ),
    ]
    pictures = {"parametrisation": scatter}
    if evidence["attention"]:
        maps = _maps(evidence["attention"], tried, evidence["grid"])
        pictures["parametrisation-attention"] = maps
        sections.append(
            Section(
                "What was learnt",
                figure(
                    maps,
                    "Attention of the first layer in the mean over its heads, after training with the first seed. Each "
                    "small grid is one patch's: where it looks, itself left out, brightest where most. A local pattern "
                    "shows as a bright spot that moves with the patch.",
                    "Grids of attention for some parametrisations",
                ),
            )
        )
    sections.append(Section("Every run", runs_table(records, ("case",), ("locality",))))
    return Content("What positional attention needs in order to learn", sections, pictures)


def _scatter(records: Sequence[dict[str, Any]], tried: Sequence[Case], chance: float) -> Figure:
    drawn, (axes,) = figures.panels(1, width=5.6, height=3.8)
    for case in tried:
        runs = [each for each in records if each["case"] == case.name]
        mark, colour = MARKS[case.parametrisation]
        x, y = [each["locality"] for each in runs], [each["accuracy"] for each in runs]
        shade = figures.COLOURS[colour]
        axes.plot(
            x,
            y,
            mark,
            color=shade,
            linestyle="none",
            markersize=7,
            markerfacecolor=shade if case.predicted else "white",
        )
        if x:
            axes.annotate(
                _short(case), (float(np.mean(x)), float(np.mean(y))), xytext=(6, 3), textcoords="offset points",
                fontsize=7.5,
            )  # fmt: skip
    for name, (mark, colour) in MARKS.items():
        if any(case.parametrisation == name for case in tried):
            axes.plot([], [], mark, color=figures.COLOURS[colour], linestyle="none", label=NAMES[name])
    vanilla = [each["accuracy"] for each in records if each["case"] == "vanilla"]
    if vanilla:
        mark_chance(axes, float(np.mean(vanilla)), "vanilla attention")
    axes.axvline(chance, color="#555555", linewidth=0.9, linestyle=":")
    axes.annotate(
        "chance", (chance, 0.02), xycoords=("data", "axes fraction"), xytext=(3, 0), textcoords="offset points",
        fontsize=8, color="#555555",
    )  # fmt: skip
    axes.set(xlabel="locality of attention", ylabel="accuracy, %")
    axes.margins(x=0.12, y=0.12)
    axes.grid(alpha=0.25)
    axes.legend(loc="best")
    return drawn


def _short(case: Case) -> str:
    start = "" if case.parametrisation == "projections" else f"σ {case.diagonal:g}, "
    return f"{start}×{case.score_rate:g}"


def _maps(attention: dict[str, np.ndarray], tried: Sequence[Case], grid: tuple[int, int]) -> Figure:
    shown = [case for case in tried if case.name in attention]
    # At most eight: the slowest and the fastest rate of each start.
    ends = {case.score_rate for case in shown}
    chosen = [case for case in shown if case.score_rate in (min(ends), max(ends))][:8]
    columns = min(4, len(chosen))
    drawn, axes = figures.panels(columns, width=2.2, height=2.4, rows=-(-len(chosen) // columns))
    for place, case in zip(axes, chosen, strict=False):
        first = attention[case.name][0].copy()
        np.fill_diagonal(first, np.nan)
        similarity_map(place, grid_of_grids(first, grid), f"{NAMES[case.parametrisation]}: {_short(case)}", bar=False)
    for place in axes[len(chosen) :]:
        place.set_visible(False)
    return drawn
