"""The page of the claim on rates."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    curves = verdict.findings.evidence["curves"]
    drawn, (left, right) = figures.panels(2, width=3.8, height=3.2)
    for name, (steps, attention, excess) in curves.items():
        left.plot(steps, attention, label=name)
        right.plot(steps, excess, label=name)
    left.axhline(0.95, color="#404040", linewidth=0.8)
    left.set(xscale="log", xlabel="step", ylabel="attention on the own area")
    right.set(xscale="log", yscale="log", xlabel="step", ylabel="loss above its floor")
    left.legend(fontsize=6)
    for axes in (left, right):
        axes.grid(alpha=0.25)
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "Training goes in two stretches. First attention has to find the area, from almost nothing: that takes "
                "longer the more patches there are and the smaller the area is. Then attention climbs towards one, and "
                "the loss above its floor falls as one over the number of steps.",
                "The second stretch takes most of the time to .95 and goes at the same pace whatever the sizes: the "
                "pull on a correlation is as A (1 - A)^2, with A the attention on the own area, so that the climb from "
                "one half to .95 costs 244 units of time and finding an area only about P / ((1 - gamma) Cs) of them, "
                "8 to 32 at the smaller sizes here. That is why the time to .95 depends on sizes far less than the "
                "time to one half; with areas of 8 in P = 512 and 2,048 patches finding them begins to count. A wide "
                "spread of the magnitudes z slows the climb: small z need larger correlations.",
            ),
        ),
        Section(
            "Attention and excess loss",
            figure(
                drawn,
                "Local patches of the first cluster, first seed; names are P, global size, local size, and the spread "
                "U/L of the magnitudes where it is not 1. The line is .95.",
                "Left, curves of attention rising to one; right, excess losses falling along straight lines in log-log",
            ),
        ),
    ]
    return Content("How fast, by sizes and magnitudes", sections, {"mim-rate": drawn})
