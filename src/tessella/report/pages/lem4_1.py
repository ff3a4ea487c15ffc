"""The page of Lemma 4.1: D^2 entries, three values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import Chart, Html, Player, figure, player, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    runs, unequal = evidence["runs"], evidence["unequal"]
    drawn, axes = figures.panels(2, width=3.0, height=2.6)
    for place, run, title in zip(
        axes, (runs[-1], unequal), ("sets of one size", "sets of different sizes"), strict=True
    ):
        order = run["partition"].order
        figures.matrix(place, run["whole"].final.numpy()[np.ix_(order, order)], title)
    rows = [
        (
            run["partition"].patches,
            run["partition"].size,
            run["spurious"],
            float(run["whole"].spread.max()),
            float(run["whole"].gamma[-1]),
            float(run["whole"].rho[-1]),
        )
        for run in runs
    ]
    return Content(
        "D squared entries, three values",
        [
            Section(
                "What the lemma says",
                prose(
                    "Nothing in the algorithm ties the entries of A together: each follows its own derivative. But "
                    "the world does not change when sets are swapped, or patches within a set, and so neither does "
                    "the course of A. Here the population is written out, every assignment of features with its "
                    "probability, and all D^2 entries are trained on it."
                ),
            ),
            Section("The whole of A beside three scalars", _player(runs[0])),
            Section(
                "A at the end",
                figure(
                    drawn,
                    "Patches sorted by set. Left: one value within sets, one between them, to rounding. Right: with "
                    "sets of different sizes the symmetry is gone, and A takes more than three values.",
                    "Two matrices: one with three values, one with more",
                ),
            ),
            Section("Every world", table(("D", "C", "q", "spread within a kind", "gamma", "rho"), rows)),
        ],
        {"lem4.1": drawn},
    )


def _player(run: dict[str, Any]) -> Html:
    whole, scalars = run["whole"], run["scalars"]
    every = max(len(whole.alpha) // 300, 1)
    steps = list(range(0, len(whole.alpha), every))
    spec = Player(
        name="entries",
        places=steps,
        charts=[
            Chart(
                "Attention",
                "entry of A",
                {
                    "gamma, mean of the entries": whole.gamma[steps].tolist(),
                    "gamma, three scalars": scalars.gamma[steps].tolist(),
                    "rho, mean of the entries": whole.rho[steps].tolist(),
                    "rho, three scalars": scalars.rho[steps].tolist(),
                },
                steps,
            ),
            Chart("The feature", "alpha", {"alpha": whole.alpha[steps].tolist()}, steps),
            Chart("The loss", "loss", {"loss": scalars.loss[steps].tolist()}, steps, log_y=True),
        ],
        readouts={
            "gamma": whole.gamma[steps].tolist(),
            "rho": whole.rho[steps].tolist(),
            "spread": whole.spread[steps].tolist(),
        },
        caption=f"D = {run['partition'].patches}: the two ways of computing lie on top of each other.",
    )
    return player(spec)
