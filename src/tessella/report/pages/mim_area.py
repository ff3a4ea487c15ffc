"""The page of the claim that every masked patch attends to its own area."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.claims.masked_settings import Trained
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section
from tessella.report.pages.masked_views import SHOWN, introduction, largest_gap, smallest_gap, training_player


def content(verdict: Verdict) -> Content:
    runs: list[Trained] = verdict.findings.evidence["runs"]
    last = largest_gap(runs)
    shown = min(SHOWN, last.maps.shape[1])
    drawn, axes = figures.panels(shown)
    for k, each in enumerate(axes):
        figures.matrix(each, last.maps[-1, k], f"cluster {k + 1}", bar=k == shown - 1)
        each.set(xlabel="attended area", ylabel="area of the masked patch")
    sections = [
        Section("What happens here, for someone who has not read the paper", introduction()),
        Section("Watch attention find the areas", training_player(last)),
        Section("A negative gap: nothing to let go of first", training_player(smallest_gap(runs), "negative-gap")),
        Section(
            "The end",
            figure(
                drawn,
                f"Attention of masked patches between areas after training, setting {last.label}, the first seed.",
                "Matrices that are bright on the diagonal and dark elsewhere, one for each cluster",
            )
            + prose(
                "The same position is in a different area in each cluster. Its query is always the same, for a hidden "
                "patch is blank; it is the features that others show which tell the cluster and steer attention."
            )
            + table(
                ("setting", "least attention on the own area"),
                [(run.label, run.least_attention) for run in runs],
                "The least over all positions and clusters, in the first seed, given that a patch of the area is left.",
            ),
        ),
    ]
    return Content("Every masked patch attends to its own area", sections, {"mim-area": drawn})
