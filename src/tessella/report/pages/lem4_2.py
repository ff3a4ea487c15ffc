"""The page of Lemma 4.2: v stays on its line."""

from __future__ import annotations

import numpy as np

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import Chart, Player, figure, player, prose
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    run = verdict.findings.evidence["runs"][0]
    paths = run["paths"]
    steps = list(range(len(run["mirrored"].alpha)))
    shares = {f"{points:,} samples a step": path.across / np.abs(path.alpha) for points, path in paths.items()}
    drawn, (axes,) = figures.panels(1, width=4.4, height=3.0)
    figures.curves(
        axes,
        steps[1:],
        {name: share[1:].tolist() for name, share in shares.items()},
        "step",
        "share of v off span(w*)",
        log_y=True,
    )
    largest = list(paths.values())[-1]
    spec = Player(
        name="line",
        places=steps,
        charts=[
            Chart("Off the line", "share of v", {name: share.tolist() for name, share in shares.items()}, steps),
            Chart(
                "Along it",
                "alpha",
                {
                    "largest sample": largest.alpha.tolist(),
                    "population": verdict.findings.evidence["scalars"].alpha.tolist(),
                },
                steps,
            ),
        ],
        readouts={
            "alpha": largest.alpha.tolist(),
            "off the line": largest.across.tolist(),
            "off the line, mirrored samples": run["mirrored"].across.tolist(),
        },
        caption="More samples a step, closer to the line. With mirrored samples nothing leaves it but rounding.",
    )
    return Content(
        "The value vector stays on its line",
        [
            Section(
                "What the lemma says",
                prose(
                    "The noise in the patches has no direction of its own: it is as likely to point one way as the "
                    "other. Averaged over the whole distribution it pushes v nowhere, so that v, once on the line of "
                    "the true feature, stays there. A finite sample pushes a little, and less the larger it is."
                ),
            ),
            Section("Step by step", player(spec)),
            Section(
                "On paper",
                figure(drawn, "The part of v off span(w*), relative to alpha.", "Falling curves, one a sample size"),
            ),
        ],
        {"lem4.2": drawn},
    )
