"""The page of Theorem 3.1: how far a linear rule gets."""

from __future__ import annotations

import statistics

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    exact, trained, best, setup = (evidence[name] for name in ("exact", "trained", "best", "setup"))
    lambdas = sorted(exact)
    drawn, (axes,) = figures.panels(1, width=4.6, height=3.2)
    axes.fill_between(
        lambdas,
        [exact[x].strict for x in lambdas],
        [exact[x].with_ties for x in lambdas],
        alpha=0.3,
        label="adding up all features",
    )
    medians = {x: [statistics.median(pair[i] for pair in pairs) for i in (0, 1)] for x, pairs in trained.items()}
    axes.plot(list(medians), [pair[0] for pair in medians.values()], "o", label="logistic regression")
    axes.plot(list(medians), [pair[1] for pair in medians.values()], "x", label="trained on errors")
    axes.axhline(1 / 8, color="0.4", linestyle="--", label="1/8")
    axes.axvline(setup.size**2, color="0.7", linestyle=":", label="lambda = C²")
    axes.set(xlabel="lambda, expected spurious features", ylabel="error", xscale="log", title="linear rules")
    axes.legend()
    rows = [(x, exact[x].strict, exact[x].half, exact[x].with_ties, *medians.get(x, ("", ""))) for x in lambdas]
    small = [
        (
            each["sets"],
            each["size"],
            each["rate"],
            each["bound"],
            each["best"],
            each["uniform"].strict,
            each["uniform"].half,
        )
        for each in best
    ]
    return Content(
        "How far a linear rule gets",
        [
            Section(
                "What the theorem says",
                prose(
                    "A rule that weighs every patch by itself cannot know which patches belong together. It can only "
                    "add up features, and the spurious ones drown the signal. How often depends on how many there "
                    "are: with lambda well below C squared they rarely do, and the error is below 1/8; from C squared "
                    "on it is above."
                ),
            ),
            Section(
                "Both sides of 1/8",
                figure(
                    drawn,
                    "The band runs from ties counted as right to ties counted as wrong; it is exact.",
                    "Error of linear rules over lambda, crossing one eighth",
                ),
            ),
            Section(
                f"At D = {setup.patches}",
                table(("lambda", "P[T < 0]", "ties at random", "P[T <= 0]", "logistic", "trained on errors"), rows),
            ),
            Section(
                "The best rule of all, where the world can be written out",
                table(
                    (
                        "sets",
                        "patches each",
                        "q",
                        "no rule is below",
                        "best found",
                        "uniform, P[T < 0]",
                        "uniform, ties at random",
                    ),
                    small,
                    "A mixed-integer program over all weights: none beats adding up by more than how it breaks ties.",
                ),
            ),
        ],
        {"thm3.1": drawn},
    )
