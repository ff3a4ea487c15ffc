"""The page of the claim on contrastive training."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    drawn, (positive, negative) = figures.panels(2, width=3.6, height=2.8)
    for axes, gap, title in ((positive, "positive_gap", "Delta = .33"), (negative, "negative_gap", "Delta = −.20")):
        for name, (steps, values) in evidence["curves"].items():
            if name.endswith(gap):
                axes.plot(steps, values, label=name.removesuffix(f", {gap}").replace("_", ", temperature "))
        axes.set(xlabel="step", ylabel="attention on the global area", title=title, ylim=(0, 1))
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7)
    columns = len(evidence["maps"])
    maps, panels = figures.panels(columns // 2, width=2.4, height=2.4, rows=2)
    for axes, (name, values) in zip(panels, evidence["maps"].items(), strict=True):
        figures.matrix(axes, values, name.replace("_", " ").replace(", ", ",\n"))
        axes.images[0].set_clim(0, 1)
        axes.set(xlabel="attended area", ylabel="asking area")
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "The same model on the same images, but with another aim: from two masks of one image it must "
                "tell that "
                "they are one, among other images. The large, global area alone tells the clusters apart, and with an "
                "inner product more attention on it makes representations longer and the clusters easier to tell "
                "apart: "
                "all patches end up looking there.",
                "How similarity is measured decides it: with a cosine, or at a low temperature, attention stays "
                "far from "
                "the global area for as long as was trained here. That was measured; the reason was not looked "
                "into. The "
                "paper's own objective was not read: this one is inferred.",
            ),
        ),
        Section(
            "Attention on the global area",
            figure(
                drawn,
                "Masked queries' mean attention on the unmasked patches of the global area (first seed).",
                "Two panels: with an inner product at temperature .5 the curve rises to nearly one, the others "
                "stay low",
            ),
        ),
        Section(
            "Attention between areas at the end",
            figure(
                maps,
                "Rows: the area of the asking patch. A bright first column is the collapse: all look at the "
                "global area.",
                "Matrices between areas, with a bright first column for the inner product at temperature .5",
            ),
        ),
    ]
    return Content(
        "Contrastive training collapses to the global area, or does not",
        sections,
        {"mim-contrastive": drawn, "mim-contrastive-maps": maps},
    )
