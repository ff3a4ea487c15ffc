"""The page on equivariance: two paths that are one, and a third that is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.images.grid_shuffle import GridShuffle
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section

ROUNDING = 1e-16
"""Gaps of 0 are drawn here, as a logarithmic axis has no place for them."""


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    cases: list[dict[str, Any]] = evidence["cases"]
    images = _images(evidence["example"], verdict.config.cells, verdict.config.shape.image)
    gaps = _gaps(cases)
    rows = [
        (
            case["attention"],
            case["optimiser"],
            f"{case['cell']} x {case['cell']}",
            max(case["loss_gap"]),
            max(case["weights_gap"]),
            max(case["loss_gap_encodings_left"]),
        )
        for case in cases
    ]
    header = (
        "attention",
        "optimiser",
        "cells, pixels",
        "gap of the losses",
        "gap of the weights",
        "gap of the losses, encodings left in place",
    )
    sections = [
        Section(
            "What is shuffled",
            figure(
                images,
                "One digit, and the same digit with its cells moved by one permutation, which is the same for every "
                "image. To us the shuffled ones are unreadable. Cells are whole patches, so that the ViT gets the same "
                "patches in another order.",
                "A handwritten digit, and the same digit cut into cells that were moved",
            ),
        ),
        Section(
            "Two paths that are one",
            figure(
                gaps,
                "How far apart the losses are at each step, on a logarithmic axis. Look for the two bands: where the "
                "encodings were shuffled like the patches (below), nothing but rounding of float64 tells the runs "
                "apart; where they were left in place (above), training takes another path from the first step on. "
                "One line for each attention and size of cells; a gap of 0 is drawn at 1e-16.",
                "Gaps of about 1e-15 with shuffled encodings, and of about 1e-2 without",
            ),
        ),
        Section(
            "Why it matters",
            prose(
                "Encodings are drawn at random, so shuffled ones are as likely as any. Averaged over seeds a ViT "
                "therefore does exactly as well on shuffled images as on the images themselves, whatever it learns: "
                "Figure 5's flat line needs no experiment. What does need one is whether the encodings find out which "
                "patches belong together; that is what Figure 5c and `tessella verify fig5` ask."
            ),
        ),
        Section("Every case of the first seed", table(header, rows)),
    ]
    return Content("A ViT cannot tell that the patches were shuffled", sections, {"equivariance": gaps})


def _images(example: np.ndarray, cells: tuple[int, ...], side: int) -> Figure:
    drawn, axes = figures.panels(1 + len(cells), width=1.9, height=2.1)
    shown = [("as it is", example)]
    for cell in cells:
        moved = GridShuffle.random(side, cell, 0).shuffle(torch.from_numpy(example)).numpy()
        shown.append((f"cells of {cell} x {cell}", moved))
    for place, (title, image) in zip(axes, shown, strict=True):
        place.imshow(image, cmap="gray_r")
        place.set(xticks=[], yticks=[], title=title)
        for spine in place.spines.values():
            spine.set_visible(True)
    return drawn


def _gaps(cases: list[dict[str, Any]]) -> Figure:
    optimisers = list(dict.fromkeys(case["optimiser"] for case in cases))
    drawn, axes = figures.panels(len(optimisers), width=3.4, height=2.9)
    names = {"sgd": "gradient descent with momentum", "adamw": "AdamW"}
    for place, optimiser in zip(axes, optimisers, strict=True):
        for case in (each for each in cases if each["optimiser"] == optimiser):
            steps = np.arange(1, len(case["loss_gap"]) + 1)
            for name, colour, style in (("loss_gap_encodings_left", 1, "--"), ("loss_gap", 0, "-")):
                values = np.maximum(case[name], ROUNDING)
                place.plot(steps, values, color=figures.COLOURS[colour], linestyle=style, linewidth=0.9, alpha=0.8)
        place.axhline(1e-12, color="#555555", linewidth=0.8, linestyle=":")
        place.text(len(steps), 1.5e-12, "the bar", ha="right", va="bottom", fontsize=8, color="#555555")
        place.set(
            yscale="log", ylim=(ROUNDING / 2, 2.0), xlabel="step", ylabel="gap of the losses", title=names[optimiser]
        )
        place.text(1, 2e-6, "encodings left in place", fontsize=8, color=figures.COLOURS[1])
        place.text(1, 3e-14, "encodings shuffled like the patches", fontsize=8, color=figures.COLOURS[0])
    return drawn
