"""The page of Figure 7: both kinds of attention, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section
from tessella.report.pages.image_views import accuracy_curves, dots_by_group, recipe_words, runs_table
from tessella.report.wording import number

SIDES = ("vanilla", "positional")


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    records: list[dict[str, Any]] = evidence["runs"]
    drawn = _figure(records)
    sections = [
        Section(
            "The figure",
            figure(
                drawn,
                "Left: held-out accuracy of each run, a grey line joining the two runs of one seed, which share the "
                "order of the data; the short bar is the mean. Look for whether the lines slope one way. Middle: the "
                "course of the first seed. Right: how long a run took, evaluation included, compiling not.",
                _description(verdict),
            ),
        ),
        Section(
            "What differs, and what does not",
            prose(
                "Data, augmentation, optimiser, schedule, seeds and sizes are the same on both sides: "
                + recipe_words(records[0]),
                _differences(records),
                "The difference is taken seed by seed. An interval that includes 0 says that these seeds do not tell "
                "the two apart, and how far apart they might still be.",
            ),
        ),
        Section("Every run", runs_table(records, ("attention",))),
    ]
    return Content("Positional attention against vanilla attention", sections, {"fig7": drawn})


def _figure(records: Sequence[dict[str, Any]]) -> Figure:
    drawn, (left, middle, right) = figures.panels(3, width=2.9, height=2.8)
    by_side = {side: [each for each in records if each["attention"] == side] for side in SIDES}
    by_side = {side: found for side, found in by_side.items() if found}
    dots_by_group(
        left, {side: [each["accuracy"] for each in found] for side, found in by_side.items()}, "accuracy, %",
        "each seed", connected=len(by_side) == 2,
    )  # fmt: skip
    accuracy_curves(middle, {side: found[0] for side, found in by_side.items()}, "over training")
    dots_by_group(
        right, {side: [each["seconds"] for each in found] for side, found in by_side.items()}, "seconds a run", "time"
    )
    right.set_ylim(bottom=0)
    return drawn


def _description(verdict: Verdict) -> str:
    told = [f"{side} {number(verdict.intervals[side].mean)} %" for side in SIDES if side in verdict.findings.measured]
    return "Accuracy: " + ", ".join(told)


def _differences(records: Sequence[dict[str, Any]]) -> str:
    counts = {each["attention"]: each["parameters"] for each in records}
    positional = next((each["recipe"] for each in records if each["attention"] == "positional"), None)
    parts = []
    if set(SIDES) <= set(counts):
        parts.append(
            f"Vanilla attention has {counts['vanilla']:,} parameters in all, positional {counts['positional']:,}."
        )
    if positional is not None:
        parts.append(
            f"Positional attention is parametrised as {positional['attention']}, with a diagonal of "
            f"{positional['diagonal']:g} at the start, and its scores learn at {positional['score_rate']:g} times the "
            "rate of the rest, without weight decay."
        )
    return " ".join(parts)
