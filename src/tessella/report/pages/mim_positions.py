"""The page of the claim on attention by positions alone."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    curves = verdict.findings.evidence["curves"]
    drawn, (left, right) = figures.panels(2, width=3.6, height=3.0)
    for axes, treatment, title in ((left, "visible", "masked keys visible"), (right, "dropped", "masked keys dropped")):
        for name, (steps, excess) in curves.items():
            if name == "full model" or name.startswith(treatment):
                axes.plot(steps[1:], excess[1:], label=name.removeprefix(f"{treatment}, "))
        axes.set(xscale="log", yscale="log", xlabel="step", ylabel="loss above its floor", title=title)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7)
    rows = [(name, excess[-1]) for name, (_, excess) in curves.items()]
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "Attention that looks at positions alone has one map for all images. With one cluster that map can be "
                "the partition itself. With several clusters, each with areas of its own, no single map fits all, and "
                "the more clusters there are the worse the best compromise is. The full model reads the features as "
                "well, and its loss goes on falling.",
                "If masked patches stay in the softmax they draw attention that position-only scores cannot take "
                "away, so that even one cluster is not solved. Dropping them makes the comparison clean.",
            ),
        ),
        Section(
            "Excess loss over training",
            figure(
                drawn,
                "Position-only attention for each number of clusters K, and the full model at K = 3 (first seed).",
                "Curves that level off, the higher the more clusters, while the full model's curve keeps falling",
            )
            + table(("model", "excess at the end"), rows),
        ),
    ]
    return Content("Positions alone cannot serve several clusters", sections, {"mim-positions": drawn})
