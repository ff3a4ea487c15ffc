"""The page of Theorem 5.2: what not knowing the sets costs."""

from __future__ import annotations

import statistics

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    runs, target = evidence["runs"], evidence["target"]
    drawn, axes = figures.panels(len(runs), width=2.7, height=2.6)
    for place, run in zip(axes, runs, strict=True):
        for name in ("fixed", "scratch"):
            medians = run[name].medians
            place.plot(
                list(medians), list(medians.values()), "o-", label={"fixed": "A kept", "scratch": "from scratch"}[name]
            )
        place.plot([evidence["uniform_samples"]], [statistics.median(run["uniform"])], "s", label="uniform attention")
        place.axhline(target, color="0.4", linestyle="--")
        place.set(xlabel="samples", ylabel="median error", xscale="log", yscale="log", title=f"D = {run['patches']}")
    axes[0].legend()
    rows = [
        (
            run["patches"],
            run["fixed"].need,
            run["scratch"].need,
            run["scratch"].need / run["fixed"].need,
            statistics.median(run["uniform"]),
        )
        for run in runs
    ]
    header = (
        "D",
        "samples, A kept",
        "samples, from scratch",
        "ratio",
        f"error of uniform attention, {evidence['uniform_samples']} samples",
    )
    return Content(
        "What not knowing the sets costs",
        [
            Section(
                "What the theorem says",
                prose(
                    "An algorithm that does not know the sets has to find them in the downstream sample, which takes "
                    "ever more of it as there are more patches. One that cannot find them, because it attends to all "
                    "patches alike, is a linear rule in disguise and never gets there."
                ),
            ),
            Section(
                "Side by side",
                figure(drawn, "The dashed line is the target.", "Error over sample size, three ways, at three sizes"),
            ),
            Section("Samples to reach the target", table(header, rows)),
        ],
        {"thm5.2": drawn},
    )
