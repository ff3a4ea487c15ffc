"""The page of the claim on the diversity of attention."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    maps = verdict.findings.evidence["maps"]
    drawn, panels = figures.panels(2, width=3.2, height=2.2, rows=2)
    for axes, (name, values) in zip(panels, maps.items(), strict=True):
        figures.matrix(axes, values, name.replace("_", " "))
        axes.set(xlabel="key, sorted by area", ylabel="masked query")
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "Diversity asks whether different patches look at different places. Here it is the mean, over pairs of "
                "hidden patches of an image, of how far their attention maps differ: in total variation (the share of "
                "attention that would have to move), and in cosine distance. Both definitions are this project's "
                "own; the "
                "paper has such a measure, but its formula was not found."
            ),
        ),
        Section(
            "One image, two trainings",
            figure(
                drawn,
                "Attention of the hidden patches of one held-out image of the first cluster, first seed. Blocks "
                "along the "
                "diagonal: each patch looks at its own area. Equal rows: all look at the same place.",
                "Matrices with blocks along the diagonal after masked training, and with equal rows after contrastive",
            ),
        ),
    ]
    return Content("Diverse after masked training, alike after contrastive", sections, {"mim-diversity": drawn})
