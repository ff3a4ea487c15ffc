"""The page of Theorem 5.1: few samples, once the sets are known."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    runs, target = verdict.findings.evidence["runs"], verdict.findings.evidence["target"]
    drawn, (axes,) = figures.panels(1, width=4.6, height=3.0)
    for run in runs:
        medians = run["ladder"].medians
        axes.plot(list(medians), list(medians.values()), "o-", label=f"D = {run['patches']}, seed {run['seed']}")
    axes.axhline(target, color="0.4", linestyle="--")
    axes.set(xlabel="downstream samples", ylabel="median error", xscale="log", yscale="log", title="A kept, v trained")
    axes.legend()
    rows = [
        (run["patches"], run["seed"], size, median, min(run["ladder"].errors[size]), max(run["ladder"].errors[size]))
        for run in runs
        for size, median in run["ladder"].medians.items()
    ]
    return Content(
        "Knowing the sets, a handful of samples is enough",
        [
            Section(
                "What the theorem says",
                prose(
                    "Keep the attention matrix from pre-training and meet a new task with the same sets but another "
                    "feature. Only a vector has to be learnt, and attention has already cleaned the picture: a few "
                    "samples suffice."
                ),
            ),
            Section(
                "How many",
                figure(
                    drawn,
                    "Each curve stops at the first size with a median error at the dashed target.",
                    "Falling error curves",
                ),
            ),
            Section("Every size", table(("D", "seed", "samples", "median error", "best draw", "worst draw"), rows)),
        ],
        {"thm5.1": drawn},
    )
