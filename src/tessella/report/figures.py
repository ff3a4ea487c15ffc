"""Figures for pages and papers, drawn with matplotlib: partitions, data points, matrices, curves.

All are drawn on the object interface, without pyplot, so that nothing depends on a display or on global state.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tessella.runs.folder import write_bytes
from tessella.structure.partition import Partition

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a4508b", "#8a6d00", "#56b4e9")
"""Told apart with any colour vision, in this order; the pages use the same."""

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS, linestyle=["-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1))]),
    "axes.titlesize": 9.5,
    "legend.frameon": False,
    "svg.hashsalt": "tessella",
    "pdf.fonttype": 42,
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The look of every figure, for the time that it is drawn or saved."""
    with mpl.rc_context(STYLE):
        yield


def save(drawn: Figure, path: Path) -> None:
    """Writes a figure in the format that the file's ending names, .svg, .pdf or .png, without a date in it."""
    metadata: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    written = io.BytesIO()
    with style():
        drawn.savefig(written, format=path.suffix[1:], bbox_inches="tight", metadata=metadata, dpi=150)
    write_bytes(path, written.getvalue())


def panels(columns: int, width: float = 2.6, height: float = 2.6, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with a row (or rows) of axes, laid out so that labels do not collide."""
    drawn = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False)
    return drawn, list(axes.ravel())


def partition(axes: Axes, sets: Partition, title: str = "", numbered: bool = True) -> None:
    """The grid of patches; those of one set share a colour and a number, and lines run between sets."""
    if sets.grid is None:
        raise ValueError("sets: got a partition without a grid, expected patches on a grid")
    height, width = sets.grid
    for patch, number in enumerate(sets.labels):
        row, column = divmod(patch, width)
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=_tint(int(number)), edgecolor="white", linewidth=1))
        if numbered:
            axes.text(column + 0.5, row + 0.5, str(number + 1), ha="center", va="center", fontsize=8)
    for number in range(sets.sets):
        _outline(axes, sets, number, "#404040", 1.2)
    _grid_axes(axes, height, width, title)


def data_point(axes: Axes, sets: Partition, features: np.ndarray, signal_set: int, title: str = "") -> None:
    """Figure 3: each patch with the multiple of w* in it, the signal set outlined."""
    if sets.grid is None:
        raise ValueError("sets: got a partition without a grid, expected patches on a grid")
    height, width = sets.grid
    for patch, feature in enumerate(features):
        row, column = divmod(patch, width)
        colour = _tint(int(sets.labels[patch]))
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="white", linewidth=1))
        text = {0: "0", 1: "+1", -1: "−1"}[int(feature)]
        weight, tone = ("bold", "black") if feature else ("normal", "#707070")
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, fontweight=weight, color=tone)
    for number in range(sets.sets):
        _outline(axes, sets, number, "#404040", 1.0)
    _outline(axes, sets, signal_set, "#b00020", 3.5)
    _grid_axes(axes, height, width, title)


def matrix(axes: Axes, values: np.ndarray, title: str = "", colours: str = "viridis", bar: bool = True) -> None:
    """A matrix between patches, with its colour scale."""
    image = axes.imshow(values, cmap=colours, interpolation="nearest")
    axes.set(xticks=[], yticks=[], title=title, xlabel="patch j", ylabel="patch i")
    for spine in axes.spines.values():
        spine.set_visible(True)
    if bar and axes.figure is not None:
        axes.figure.colorbar(image, ax=axes, shrink=0.8)


def curves(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    x_label: str = "step",
    y_label: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """Named curves over one axis; the legend is left out where there is one."""
    for name, values in series.items():
        axes.plot(x, values, label=name)
    axes.set(xlabel=x_label, ylabel=y_label, title=title)
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    axes.grid(alpha=0.25)
    if len(series) > 1:
        axes.legend()


def _tint(number: int) -> tuple[float, float, float]:
    """A light colour for a set. Neighbouring numbers differ in hue and lightness; far ones may repeat."""
    anchors = ["#8ecae6", "#f7b267", "#95d5b2", "#d7a9d9", "#f4e285", "#b8c0cc", "#f4978e", "#a9def9"]
    return mpl.colors.to_rgb(anchors[number % len(anchors)])


def _grid_axes(axes: Axes, height: int, width: int, title: str) -> None:
    axes.set(xlim=(-0.05, width + 0.05), ylim=(height + 0.05, -0.05), aspect="equal", xticks=[], yticks=[], title=title)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _outline(axes: Axes, sets: Partition, number: int, colour: str, width: float) -> None:
    """The edges that bound a set on the grid."""
    assert sets.grid is not None
    inside = np.pad(sets.labels.reshape(sets.grid) == number, 1)
    # An edge runs wherever a patch of the set and one outside it meet, above, below, left or right.
    across = [[(column, row), (column + 1, row)] for row, column in np.argwhere(inside[1:, 1:-1] != inside[:-1, 1:-1])]
    along = [[(column, row), (column, row + 1)] for row, column in np.argwhere(inside[1:-1, 1:] != inside[1:-1, :-1])]
    axes.add_collection(LineCollection(across + along, colors=colour, linewidths=width, capstyle="projecting"))
