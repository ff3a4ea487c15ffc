"""The page of the claim that the own feature's correlation dominates."""

from __future__ import annotations

import numpy as np

from tessella.claims.claim import Verdict
from tessella.claims.masked_settings import Trained
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section
from tessella.report.pages.masked_views import introduction, largest_gap, training_player


def content(verdict: Verdict) -> Content:
    runs: list[Trained] = verdict.findings.evidence["runs"]
    chosen = largest_gap(runs)
    drawn, (axes,) = figures.panels(1, width=5.5, height=3.0)
    local = chosen.own[~chosen.own_is_global]
    parts = {"own, local": local, "own, global": chosen.own[chosen.own_is_global], "every other": chosen.other}
    low, high = min(float(part.min()) for part in parts.values()), max(float(part.max()) for part in parts.values())
    for name, part in parts.items():
        axes.hist(part, bins=np.linspace(low, high, 60).tolist(), density=True, alpha=0.6, label=name)
    axes.set(xlabel="Phi at the end", ylabel="density")
    axes.legend()
    shared = [(run.label, count, pairs, mean) for run in runs for count, pairs, mean in run.by_shared_areas]
    sections = [
        Section("What happens here, for someone who has not read the paper", introduction()),
        Section("Watch the correlations part", training_player(chosen)),
        Section(
            "Feature-position correlations at the end",
            figure(
                drawn,
                f"Setting {chosen.label}, the first seed: all positions and clusters.",
                "Histograms: correlations with the own feature lie far to the right of zero, all others left of it",
            ),
        ),
        Section(
            "Why the largest position-wise correlations are not small",
            prose(
                "A position-wise correlation is the same in every cluster, so it adds up what each of them wants. Two "
                "positions that lie in one local area in several clusters are drawn together by all of them, and "
                "nothing pulls back. There are few such pairs, so the mean over all pairs stays small: the claim is "
                "true of the mean, and not of the maximum."
            )
            + table(
                ("setting", "clusters in which they share a local area", "pairs", "mean Ups"),
                shared,
                "Pairs of different positions, in the first seed.",
            ),
        ),
    ]
    return Content("Features, not positions, carry what was learnt", sections, {"mim-features": drawn})
