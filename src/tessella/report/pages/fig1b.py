"""The page of Figure 1b."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    drawn, (left, right) = figures.panels(2)
    figures.partition(left, evidence["blocks"], "(1) spatially localized sets")
    figures.partition(right, evidence["random"], "(2) sets that lie apart")
    sections = [
        Section(
            "The figure",
            figure(
                drawn,
                "Each square is a patch; its number and colour name its set. On the left every set is one connected "
                "block, on the right the patches of a set lie apart. Both are partitions in the sense of Definition "
                "2.1.",
                "Two grids of patches: blocks of neighbouring patches, and sets scattered over the grid",
            ),
        ),
        Section(
            "Why both matter",
            prose(
                "A convolution can only group neighbours. If a transformer finds sets of the second kind as well as "
                "those of the first, it has learnt the structure from the data and not from the layout of the grid. "
                "Theorem 4.2 is run on both."
            ),
        ),
    ]
    return Content("Sets of patches, side by side or apart", sections, {"fig1b": drawn})
