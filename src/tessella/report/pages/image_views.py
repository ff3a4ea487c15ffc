"""What the pages of claims on images share: runs as a table, accuracies over training, grids of grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from tessella.report import figures
from tessella.report.elements import Html, table

Record = Mapping[str, Any]


def runs_table(records: Sequence[Record], labels: Sequence[str], more: Sequence[str] = ()) -> Html:
    """Every run, with the numbers that the JSON keeps of it."""
    header = (*labels, "seed", "accuracy, %", *more, "seconds", "compiling, s", "images/s", "parameters")
    rows = [
        (
            *(record[label] for label in labels),
            str(record["seed"]),
            record["accuracy"],
            *(record.get(name, "") for name in more),
            record["seconds"],
            record["compile_seconds"],
            record["images_per_second"],
            f"{record['parameters']:,}",
        )
        for record in records
    ]
    return table(header, rows, "Seconds include evaluation, and not compiling, which is told apart.")


def recipe_words(record: Record) -> str:
    """The recipe in one line, from the record itself."""
    recipe = record["recipe"]
    shape = recipe["shape"]
    size = f"{shape['depth']} layers, {shape['heads']} heads, width {shape['dim']}, patches of {shape['patch']}"
    augmented = [
        f"{name} {value:g}" if value is not True else name
        for name, value in recipe["augmentation"].items()
        if value and name not in ("magnitude", "mixed", "repeats")
    ]
    changed = ", ".join(augmented) or "no augmentation"
    return f"{recipe['data']}: {size}; {recipe['epochs']} epochs, batch {recipe['batch']}; {changed}."


def accuracy_curves(axes: Axes, records: Mapping[str, Record], title: str) -> None:
    """Held-out accuracy over the epochs at which it was evaluated, one line a run."""
    for name, record in records.items():
        curve = record.get("curve", [])
        axes.plot([each[0] for each in curve], [each[1] for each in curve], label=name, marker=".", markersize=4)
    axes.set(xlabel="epoch", ylabel="accuracy, %", title=title)
    axes.grid(alpha=0.25)
    if len(records) > 1:
        axes.legend(loc="lower right")


def grid_of_grids(
    similarities: Float[np.ndarray, "patches patches"], grid: tuple[int, int]
) -> Float[np.ndarray, "height width"]:
    """Row i of the similarities as a small grid at the place of patch i, with a line of NaN between grids.

    >>> grid_of_grids(np.eye(4), (2, 2)).shape
    (5, 5)
    """
    rows, columns = grid
    tiles = similarities.reshape(rows, columns, rows, columns)
    drawn = np.full((rows * (rows + 1) - 1, columns * (columns + 1) - 1), np.nan)
    for row in range(rows):
        for column in range(columns):
            down, right = row * (rows + 1), column * (columns + 1)
            drawn[down : down + rows, right : right + columns] = tiles[row, column]
    return drawn


def similarity_map(
    axes: Axes,
    values: Float[np.ndarray, "height width"],
    title: str,
    colours: str = "viridis",
    low: float | None = None,
    high: float | None = None,
    bar: bool = True,
) -> None:
    """A map without ticks; NaN stays the ground's colour."""
    image = axes.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.set(xticks=[], yticks=[], title=title)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if bar and axes.figure is not None:
        axes.figure.colorbar(image, ax=axes, shrink=0.75)


def mark_chance(axes: Axes, level: float, text: str = "chance") -> None:
    """A line across at the level of chance, with its name on it."""
    axes.axhline(level, color="#555555", linewidth=0.9, linestyle=":")
    axes.annotate(
        text, (0.01, level), xycoords=("axes fraction", "data"), xytext=(0, 2), textcoords="offset points",
        fontsize=8, color="#555555",
    )  # fmt: skip


def dots_by_group(
    axes: Axes, groups: Mapping[str, Sequence[float]], y_label: str, title: str, connected: bool = False
) -> None:
    """One dot a run over each group's name; `connected` joins the runs of one seed."""
    places = range(len(groups))
    for place, (values, colour) in enumerate(zip(groups.values(), figures.COLOURS * len(groups), strict=False)):
        axes.plot([place] * len(values), values, "o", color=colour, markersize=6, zorder=3, linestyle="none")
        if values:
            mean = sum(values) / len(values)
            axes.plot([place - 0.22, place + 0.22], [mean, mean], color=colour, linewidth=1.6, linestyle="-")
    if connected:
        for run in zip(*groups.values(), strict=False):
            axes.plot(places, run, color="#999999", linewidth=0.8, linestyle="-", zorder=1)
    axes.set(xticks=list(places), xlim=(-0.6, len(groups) - 0.4), ylabel=y_label, title=title)
    axes.set_xticklabels(list(groups))
    axes.grid(alpha=0.25, axis="y")
