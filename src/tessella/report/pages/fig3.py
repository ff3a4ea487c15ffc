"""The page of Figure 3."""

from __future__ import annotations

import numpy as np

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    example = evidence["example"]
    features, label = example["features"], example["label"]
    drawn, (axes,) = figures.panels(1, width=4.2, height=4.2)
    figures.data_point(
        axes, evidence["partition"], features, example["signal_set"], f"y = {'+1' if label > 0 else '−1'}"
    )
    plus, minus = int(np.sum(features == 1)), int(np.sum(features == -1))
    sections = [
        Section(
            "The figure",
            figure(
                drawn,
                "One data point. Lines separate the sets; the number is the multiple of the feature w* in "
                f"the patch. There are {plus} patches with +1 and {minus} with −1, and the label is "
                f"{'+1' if label > 0 else '−1'}: that of the signal set, outlined in red, in which all features agree.",
                f"A grid of patches with {plus} features +1 and {minus} features -1, the signal set outlined",
            ),
        ),
        Section(
            "Why it is hard without the sets",
            prose(
                "A rule that adds up features over the whole image goes wrong on a data point like this one. To read "
                "the label one has to know which patches belong together: only in the signal set do all features "
                "have one sign."
            ),
        ),
    ]
    return Content("One data point, and where its label is", sections, {"fig3": drawn})
