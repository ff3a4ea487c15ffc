"""The page on layers: the heads of every layer while a deep ViT trains, with a slider."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.claims.layers import Course
from tessella.report import figures
from tessella.report.elements import Chart, Html, Images, Player, figure, player, prose
from tessella.report.page import Content, Section
from tessella.report.pages.image_views import grid_of_grids, mark_chance, recipe_words, runs_table


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    records = evidence["runs"]
    courses: Mapping[str, Course] = evidence["courses"]
    sections = [
        Section(
            "What is asked",
            prose(
                "The theorems are about one layer. Here a ViT of several is trained on real images, and at some steps "
                "each head is asked where it looks in the mean over held-out images: the share of patches whose most "
                f"attended other patch is adjacent. At random that share is {evidence['chance']:.3f}.",
                "The recipe: " + recipe_words(records[0]),
            ),
        )
    ]
    drawn: dict[str, Figure] = {}
    if courses:
        drawn["layers"] = _figure(courses, evidence["chance"])
        sections.append(
            Section(
                "Layer by layer",
                figure(
                    drawn["layers"],
                    "Thick lines: each layer's attention in the mean over its heads, from the first layer (dark) to "
                    "the last (light). Dots: single heads at the end of training. Dashed: the encodings. Look for "
                    "which layers rise first, and whether any stays at chance.",
                    "Locality of every layer over training, for vanilla and positional attention",
                ),
            )
        )
    for side, found in courses.items():
        sections.append(Section(f"{side.capitalize()} attention, step by step", _player(side, found, evidence["grid"])))
    sections.append(Section("Every run", runs_table(records, ("attention",))))
    return Content("Association in every layer of a deep ViT", sections, drawn)


def _figure(courses: Mapping[str, Course], chance: float) -> Figure:
    drawn, axes = figures.panels(len(courses), width=4.0, height=3.0)
    for place, (side, found) in zip(axes, courses.items(), strict=True):
        layers = len(found.by_layer[0])
        shades = [mpl.colormaps["viridis"](0.85 * layer / max(1, layers - 1)) for layer in range(layers)]
        for layer, shade in enumerate(shades):
            values = [each[layer] for each in found.by_layer]
            place.plot(found.steps, values, color=shade, linestyle="-", linewidth=1.8, label=f"layer {layer + 1}")
            heads = found.by_head[-1][layer]
            nudge = found.steps[-1] * (1.02 + 0.02 * layer)
            place.plot([nudge] * len(heads), heads, ".", color=shade, markersize=4, linestyle="none")
        place.plot(found.steps, found.encodings, color="#222222", linestyle="--", linewidth=1.2, label="encodings")
        mark_chance(place, chance)
        place.set(ylim=(-0.03, 1.03), xlabel="step", ylabel="adjacent", title=f"{side} attention")
        place.grid(alpha=0.25)
        place.legend(fontsize=7, ncols=2, loc="best")
    return drawn


def _player(side: str, found: Course, grid: tuple[int, int]) -> Html:
    images = []
    for layer in range(len(found.by_layer[0])):
        frames = np.stack([_tiles(attention[layer], grid) for attention in found.attention])
        text = f"Attention of layer {layer + 1}: at each patch's place a small grid of where it looks"
        images.append(Images(f"layer {layer + 1}", frames, low=0.0, description=text))
    series = {f"layer {layer + 1}": [each[layer] for each in found.by_layer] for layer in range(len(images))}
    return player(
        Player(
            name=f"layers-{side}",
            places=found.steps,
            images=images,
            charts=[Chart("Locality", "adjacent", {**series, "encodings": found.encodings}, found.steps)],
            readouts={**series, "encodings": found.encodings},
            caption=(
                "Move the slider through training. Each small grid is one patch's attention in the mean over heads and "
                "images, the patch itself left out. A head that looks next door shows as a bright spot that moves "
                "with the patch."
            ),
        )
    )


def _tiles(attention: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The grid of grids without the patch itself, and with dark lines between grids."""
    others = attention.copy()
    np.fill_diagonal(others, 0.0)
    return np.nan_to_num(grid_of_grids(others, grid))
