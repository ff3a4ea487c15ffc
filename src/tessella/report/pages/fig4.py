"""The page of Figure 4."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report.elements import figure
from tessella.report.page import Content, Section
from tessella.report.pages.descent_views import figure4, training_player


def content(verdict: Verdict) -> Content:
    run = verdict.findings.evidence["runs"][0]
    drawn = figure4(run["partition"], run["trajectory"])
    sections = [
        Section(
            "The figure",
            figure(
                drawn,
                "Pairs of patches in one set (dark), the learnt A, the test error, and cos(v, w*) over training. The "
                "bright entries of A are exactly the dark ones of the first panel.",
                "Four panels: true sets, learnt attention matrix with the same pattern, falling test error, rising "
                "cosine",
            ),
        ),
        Section(
            "The same, moving",
            training_player(
                "training", run["partition"], run["trajectory"], "A with its patches sorted by set, through training."
            ),
        ),
    ]
    return Content("The learnt attention matrix beside the true sets", sections, {"fig4": drawn})
