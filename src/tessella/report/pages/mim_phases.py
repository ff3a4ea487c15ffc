"""The page of the claim on the phases of training."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import Chart, Html, Player, figure, player, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    drawn = _regimes(evidence)
    swept = len(evidence["gaps"]) - 1
    rows = list(
        zip(
            evidence["gaps"],
            evidence["ratios"],
            evidence["formula"],
            evidence["leads"],
            evidence["depths"],
            strict=True,
        )
    )
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "At the start a hidden patch attends to everything alike, and most of what it sees is the large, "
                "global "
                "area. For a patch of a small, local area two things have to happen: stop listening to the global "
                "feature, and start listening to its own. Which comes first depends on the sizes of the areas, through "
                "the information gap Delta.",
                "Where Delta is large the global feature is in the way, and the first thing to happen is that its "
                "correlation falls; only then does the own one grow. Where Delta is negative the own feature is heard "
                "at once, and its correlation grows from the start.",
            ),
        ),
        Section("A large gap: first let go", _player(evidence, swept - 1, "large-gap")),
        Section("A negative gap: grow at once", _player(evidence, swept, "negative-gap")),
        Section(
            "The regimes over a sweep of gaps",
            figure(
                drawn,
                "Left: the fall of the global correlation over the growth of the own one in the first step, "
                "measured and "
                "by the finite-size formula; above 1 decoupling starts faster. Right: how deep the global correlation "
                "is when the own one passes 1, against (Delta/2) log P, with the line through the positive gaps.",
                "Left, points on a rising curve that crosses one near a gap of .12; right, points along a rising line",
            ),
        ),
        Section(
            "Every gap",
            table(
                ("Delta", "ratio of rates", "formula", "lead of decoupling", "depth"),
                rows,
                "The first seed. The lead is the fall of the global over the growth of the own correlation when either "
                "has moved by .25. At negative Delta the depth is what has gathered by then, not a phase of its own.",
            ),
        ),
    ]
    return Content("What is learnt first depends on the information gap", sections, {"mim-phases": drawn})


def _player(evidence: Any, world: int, name: str) -> Html:
    steps = list(range(evidence["own"].shape[1]))
    own, other = evidence["own"][world].tolist(), evidence["global"][world].tolist()
    spec = Player(
        name=name,
        places=steps,
        charts=[
            Chart("Correlations of a local patch", "Phi", {"own feature": own, "global feature": other}, steps),
        ],
        readouts={"own feature": own, "global feature": other},
        caption=f"Delta = {evidence['gaps'][world]:.2f}: the mean over local patches of the first cluster.",
    )
    return player(spec)


def _regimes(evidence: Any) -> Figure:
    swept = len(evidence["gaps"]) - 1
    gaps, scale, depths = (np.array(evidence[name][:swept]) for name in ("gaps", "scale", "depths"))
    drawn, (left, right) = figures.panels(2, width=3.4, height=2.8)
    left.plot(gaps, evidence["ratios"][:swept], "o", label="measured")
    left.plot(gaps, evidence["formula"][:swept], "-", label="finite-size formula")
    left.axhline(1, color="#404040", linewidth=0.8)
    left.set(yscale="log", xlabel="Delta", ylabel="ratio of rates at Q = 0")
    left.legend()
    slope, offset = np.polyfit(scale[gaps > 0], depths[gaps > 0], 1)
    right.plot(scale, depths, "o", label="measured")
    right.plot(scale, slope * scale + offset, "-", label=f"slope {slope:.2f}")
    right.set(xlabel="(Delta/2) log P", ylabel="depth of decoupling")
    right.legend()
    return drawn
