"""The page of the claim that the loss reaches its floor."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.claims.masked_settings import Trained
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section
from tessella.report.pages.masked_views import introduction, largest_gap, training_player


def content(verdict: Verdict) -> Content:
    runs: list[Trained] = verdict.findings.evidence["runs"]
    drawn, (axes,) = figures.panels(1, width=5.5, height=3.2)
    for run in runs:
        axes.plot(run.steps[1:], [value / run.excess[0] for value in run.excess[1:]], label=run.label)
    axes.axhline(1e-3, color="#404040", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="(L − L*) / (L0 − L*)")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=7)
    rows = [(run.label, run.information_gap, run.floor, run.sampled_floor, run.remaining) for run in runs]
    sections = [
        Section("What happens here, for someone who has not read the paper", introduction()),
        Section(
            "The excess loss of the six settings",
            figure(
                drawn,
                "Loss above its floor, as a share of where it started, in the first seed. The line is the bar, 1/1000.",
                "Six falling curves on logarithmic axes, all ending below one thousandth",
            ),
        ),
        Section("Watch one of them", training_player(largest_gap(runs))),
        Section(
            "The floor",
            prose(
                "Where a mask hides a whole area nothing can be known of it, and the best that a model can do is to "
                "answer zero. That happens more often the smaller the area, and it makes the loss noisy. So the floor "
                "is taken off image by image; what remains is what training can still lower."
            )
            + table(
                ("setting", "information gap", "floor, computed", "floor, sampled", "share left"),
                rows,
                "The first seed. The floor is computed from the areas' sizes; the sampled one is from held-out masks.",
            ),
        ),
    ]
    return Content("Masked reconstruction reaches the least loss there is", sections, {"mim-floor": drawn})
