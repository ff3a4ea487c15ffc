"""The picture of a benchmark: our time, the fastest peer's, and the floor, case by case."""

from __future__ import annotations

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tessella.report.figures import COLOURS, style
from tessella.report.wording import number

_HEIGHT = 0.36
"""Of a bar, where cases lie one apart."""


def speed(result: dict[str, Any]) -> Figure:
    """A benchmark's result in the shared form; milliseconds on a logarithmic axis, cases that were not run left out."""
    cases = [case for case in result["cases"] if case["ours_ms"] is not None]
    with style():
        drawn = Figure(figsize=(9.0, 1.0 + 0.55 * len(cases)), layout="constrained")
        axes = drawn.subplots()
        _bars(axes, cases)
        axes.set_yticks(range(len(cases)), [textwrap.fill(case["case"], 44) for case in cases])
        axes.invert_yaxis()
        axes.set_xscale("log")
        # A logarithmic axis has no zero for bars to stand on: they begin below the shortest time there is.
        shown = [case[name] for case in cases for name in ("ours_ms", "peer_ms", "floor_ms") if name in case]
        axes.set_xlim(min(shown) / 3, max(shown) * 3)
        axes.set_xlabel("ms, each the median of one run; shorter is better")
        place = result["environment"]
        axes.set_title(f"{place['accelerator'] or place['processor']}, torch {place['torch']}", loc="left")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.9 / max(1, len(cases))), ncols=3)
    return drawn


def _bars(axes: Axes, cases: list[dict[str, Any]]) -> None:
    peers = [(row, case) for row, case in enumerate(cases) if "peer_ms" in case]
    floors = [(row, case) for row, case in enumerate(cases) if "floor_ms" in case]
    rows = [row - _HEIGHT / 2 for row in range(len(cases))]
    axes.barh(rows, [case["ours_ms"] for case in cases], _HEIGHT, color=COLOURS[0], label="ours")
    if peers:
        places = [row + _HEIGHT / 2 for row, _ in peers]
        axes.barh(places, [case["peer_ms"] for _, case in peers], _HEIGHT, color=COLOURS[1], label="the fastest peer")
    if floors:
        places = [row - _HEIGHT / 2 for row, _ in floors]
        axes.plot([case["floor_ms"] for _, case in floors], places, "|", color="black", markersize=9, label="the floor")
    for row, case in peers:
        axes.annotate(
            f"  {number(case['peer_ms'])}, {case['peer']}",
            (case["peer_ms"], row + _HEIGHT / 2),
            va="center",
            fontsize=7,
        )
    for row, case in enumerate(cases):
        ratio = f", {number(case['ratio'])} times as fast" if "ratio" in case else ""
        axes.annotate(
            f"  {number(case['ours_ms'])}{ratio}", (case["ours_ms"], row - _HEIGHT / 2), va="center", fontsize=7
        )
