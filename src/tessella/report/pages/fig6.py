"""The page of Figure 6: loss and accuracy of both sides, and images a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section
from tessella.report.pages.image_views import accuracy_curves, dots_by_group, recipe_words, runs_table


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    records: list[dict[str, Any]] = evidence["runs"]
    drawn: dict[str, Figure] = {}
    sections = []
    if records:
        drawn["fig6"] = _curves(records)
        small = " This is not ImageNet, and says nothing of it." if records[0]["recipe"]["data"] != "imagenet" else ""
        sections.append(
            Section(
                "(1) Training loss, (2) accuracy",
                figure(
                    drawn["fig6"],
                    "The first seed's training loss and held-out accuracy where it was evaluated. Look for the gap "
                    "between the lines at the end; in the paper, on ImageNet, it is 3.0 points.",
                    "Loss and accuracy over epochs, vanilla and positional",
                )
                + prose("The recipe: " + recipe_words(records[0]) + small),
            )
        )
    speeds: Mapping[str, Sequence[float]] = evidence["images_per_second"]
    if speeds:
        drawn["fig6-speed"] = _speeds(speeds, evidence["peer"])
        sections.append(
            Section(
                "Images a second",
                figure(
                    drawn["fig6-speed"],
                    "Training, one dot a turn; turns alternate. All models go through the same step, with the same "
                    "batch, on images of random bytes.",
                    "Images a second of each model",
                ),
            )
        )
    sections.append(Section("The whole of ImageNet", prose("On a machine with eight GPUs: " + evidence["launch"])))
    if records:
        sections.append(Section("Every run", runs_table(records, ("attention",))))
    return Content("ViT-Tiny, with and without content in its attention", sections, drawn)


def _curves(records: Sequence[dict[str, Any]]) -> Figure:
    drawn, (left, right) = figures.panels(2, width=3.6, height=2.9)
    firsts: dict[str, dict[str, Any]] = {}
    for record in records:
        firsts.setdefault(record["attention"], record)
    for name, record in firsts.items():
        left.plot([each[0] for each in record["curve"]], [each[2] for each in record["curve"]], label=name, marker=".")
    left.set(xlabel="epoch", ylabel="training loss", title="(1) training loss")
    left.grid(alpha=0.25)
    left.legend()
    accuracy_curves(right, firsts, "(2) held-out accuracy")
    return drawn


def _speeds(speeds: Mapping[str, Sequence[float]], peer: str) -> Figure:
    drawn, (axes,) = figures.panels(1, width=4.6, height=2.8)
    names = {"peer": f"timm's\n{peer}"}
    dots_by_group(axes, {names.get(name, name): values for name, values in speeds.items()}, "images/s", "")
    axes.set_ylim(bottom=0)
    return drawn
