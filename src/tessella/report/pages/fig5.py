"""The page of Figure 5: accuracies over s, shuffled images, and similarities before and after patches are put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.claims.fig5 import Setup
from tessella.images.grid_shuffle import GridShuffle
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section
from tessella.report.pages.image_views import mark_chance, recipe_words, runs_table, similarity_map

NAMES = {
    "vit": "ViT",
    "positional": "ViT, positional",
    "resnet18": "ResNet-18",
    "vgg19": "VGG-19",
    "small_resnet": "small ResNet",
    "small_vgg": "small VGG",
}


def content(verdict: Verdict) -> Content:
    setup: Setup = verdict.config
    evidence = verdict.findings.evidence
    records = evidence["runs"]
    accuracies = _accuracies(verdict, setup)
    images = _images(evidence["example"], setup.cells, evidence["seed"])
    drawn = {"fig5a": accuracies, "fig5b": images}
    sections = [
        Section(
            "(a) Accuracy over the size of the cells",
            figure(
                accuracies,
                "Left: each network's held-out accuracy over s, the side of the cells that are moved, in pixels; the "
                "largest s leaves images as they are. Look for the lines that bend down to the left: those networks "
                "rely on neighbours being neighbours. Right: how local the ViT's encodings are, where they stand and "
                "with patches put back. Bars are 95 % intervals over seeds, where there are several.",
                "Accuracies of a ViT and convolutional networks on shuffled images",
            )
            + prose(recipe_words(records[0])),
        ),
        Section(
            "(b) What the networks see",
            figure(
                images,
                "One held-out image, and the same image with its cells moved by the first seed's permutation.",
                "An image, shuffled by cells of different sizes",
            ),
        ),
    ]
    for network, maps in _smallest(evidence["maps"]).items():
        made = _similarities(maps, evidence["grid"])
        drawn[f"fig5c-{network}"] = made
        sections.append(
            Section(
                f"(c) What the encodings have found: {NAMES.get(network, network)}, s = {min(setup.cells)}",
                figure(
                    made,
                    "Four patches, one a column, in white: the cosine of the patch's encoding with every patch's. "
                    "Above, where patches stand in the shuffled image: bright spots lie anywhere. Below, the very same "
                    "numbers with patches put back where they were cut from: if the network has found out which "
                    "patches belong together, bright spots gather around the white one.",
                    "Similarities of encodings, shuffled and put back",
                ),
            )
        )
    sections.append(
        Section("Every run", runs_table(records, ("network", "cell"), ("locality_shuffled", "locality_restored")))
    )
    return Content("Shuffled images: what a ViT minds, and what a convolution does", sections, drawn)


def _accuracies(verdict: Verdict, setup: Setup) -> Figure:
    drawn, (left, right) = figures.panels(2, width=3.9, height=3.1)
    cells = sorted(setup.cells)
    intervals = verdict.intervals
    for number, network in enumerate(setup.networks):
        found = [intervals[f"accuracy_{network}_{cell}"] for cell in cells]
        spread = [[each.mean - each.low for each in found], [each.high - each.mean for each in found]]
        style = ("-", "--", ":", "-.")[number % 4]
        left.errorbar(
            cells, [each.mean for each in found], spread, label=NAMES.get(network, network), marker="o", markersize=4,
            capsize=2, linestyle=style, color=figures.COLOURS[number % len(figures.COLOURS)],
        )  # fmt: skip
    left.set(xscale="log", xlabel="s, pixels", ylabel="accuracy, %", title="accuracy")
    for network in setup.networks:
        for name, mark in (("restored", "o"), ("shuffled", "x")):
            shares = {
                cell: intervals[key].mean for cell in cells if (key := f"locality_{name}_{network}_{cell}") in intervals
            }
            if shares:
                word = "patches put back" if name == "restored" else "as shuffled"
                right.plot(list(shares), list(shares.values()), marker=mark, label=f"{NAMES[network]}, {word}")
    mark_chance(right, intervals["chance"].mean)
    right.set(xscale="log", xlabel="s, pixels", ylabel="adjacent nearest neighbours", title="locality of encodings")
    right.set_ylim(0.0, 1.03)
    for axes in (left, right):
        axes.set_xticks(cells, [str(cell) for cell in cells])
        axes.minorticks_off()
        axes.grid(alpha=0.25)
        axes.legend(loc="best", fontsize=8)
    return drawn


def _images(example: np.ndarray, cells: Sequence[int], seed: int) -> Figure:
    shown = [("as it is", example)]
    planes = torch.from_numpy(np.ascontiguousarray(example.transpose(2, 0, 1)))
    for cell in sorted(cells, reverse=True):
        if cell < len(example):
            moved = GridShuffle.random(len(example), cell, seed).shuffle(planes)
            shown.append((f"s = {cell}", moved.numpy().transpose(1, 2, 0)))
    drawn, axes = figures.panels(len(shown), width=1.7, height=2.0)
    for place, (title, image) in zip(axes, shown, strict=True):
        place.imshow(image if image.shape[-1] == 3 else image[..., 0], cmap="gray_r", interpolation="nearest")
        place.set(xticks=[], yticks=[], title=title)
        for spine in place.spines.values():
            spine.set_visible(True)
    return drawn


def _smallest(maps: Mapping[tuple[str, int], Any]) -> dict[str, Any]:
    """Of each network the maps at its smallest s."""
    found: dict[str, Any] = {}
    for network, cell in sorted(maps, key=lambda key: -key[1]):
        found[network] = maps[network, cell]
    return found


def _similarities(maps: Mapping[str, np.ndarray], grid: tuple[int, int]) -> Figure:
    rows, columns = grid
    chosen = [row * columns + column for row in _quarters(rows) for column in _quarters(columns)]
    drawn, axes = figures.panels(len(chosen), width=1.8, height=1.95, rows=2)
    others = ~np.eye(rows * columns, dtype=bool)
    low, high = float(maps["restored"][others].min()), float(maps["restored"][others].max())
    for number, patch in enumerate(chosen):
        stands = int(np.flatnonzero(maps["order"] == patch)[0])
        for line, (name, place_of) in enumerate((("shuffled", stands), ("restored", patch))):
            values = maps[name][place_of].copy()
            values[place_of] = np.nan
            axes_here = axes[line * len(chosen) + number]
            similarity_map(axes_here, values.reshape(grid), "", low=low, high=high, bar=number == len(chosen) - 1)
            if number == 0:
                axes_here.set_ylabel("as shuffled" if line == 0 else "put back")
    return drawn


def _quarters(count: int) -> tuple[int, int]:
    """A place a quarter of the way in, and its mirror image."""
    return count // 4, count - 1 - count // 4
