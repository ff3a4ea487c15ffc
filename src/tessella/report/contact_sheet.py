"""A contact sheet of a data set: images of each class under its name, and how many images each class has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tessella.images.examples import Examples
from tessella.report.figures import COLOURS, style

_FEW = 20
"""Up to so many classes, each has a row of images; more stand in a grid, a few images each."""

LAYOUT = {"rows": 10, "grid": 2}
"""Images of a class."""

MOST_CLASSES = 100


def each_of(classes: int) -> int:
    """How many images of a class the sheet has room for."""
    return LAYOUT["rows"] if classes <= _FEW else LAYOUT["grid"]


def contact_sheet(examples: Examples, others: Sequence[Examples] = ()) -> Figure:
    """The examples' images, and the class balance of them and of other splits of the same data set."""
    classes = len(examples.shown)
    few = classes <= _FEW
    columns = 1 if few else 10
    rows = -(-classes // columns)
    width = 9.0
    height = rows * (0.62 if few else width / columns / 2 + 0.22)
    with style():
        drawn = Figure(figsize=(width, height + 2.9), layout="constrained")
        sheet, balance = drawn.subplots(2, 1, height_ratios=[height, 2.2])
        _draw_images(sheet, examples, columns)
        omitted = len(examples.classes) - classes
        more = f"; {classes} of {len(examples.classes):,} classes shown" if omitted else ""
        sheet.set_title(f"{examples.name}, {examples.split}: {examples.counts.sum():,} images{more}", loc="left")
        _draw_balance(balance, [examples, *others])
    return drawn


def _draw_images(axes: Axes, examples: Examples, columns: int) -> None:
    """One picture for all images, in units of an image's side, with the names between them."""
    classes, each = examples.images.shape[:2]
    few = columns == 1
    across, down = (each, 1.0) if few else (each + 0.12, 1.0 + 0.42)
    for place in range(classes):
        row, column = divmod(place, columns)
        left, top = column * across, row * down
        for number in range(each):
            axes.imshow(
                _coloured(examples.images[place, number]),
                extent=(left + number, left + number + 0.96, top + 0.96, top),
                interpolation="nearest",
                aspect="equal",
            )
        name = examples.classes[examples.shown[place]]
        if few:
            axes.text(-0.15, top + 0.5, _short(name, 24), ha="right", va="center", fontsize=9)
        else:
            axes.text(left, top + 1.02, _short(name, 15), ha="left", va="top", fontsize=6.5)
    rows = -(-classes // columns)
    axes.set(xlim=(-(1.5 if few else 0), columns * across), ylim=(rows * down, 0), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _coloured(image: np.ndarray) -> np.ndarray:
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


def _draw_balance(axes: Axes, splits: Sequence[Examples]) -> None:
    """How many images each class has: a line for each split, told apart by colour, dash and its name beside it."""
    for number, split in enumerate(splits):
        places = np.arange(len(split.counts))
        axes.step(
            np.append(places, len(places)) - 0.5,
            np.append(split.counts, split.counts[-1]),
            where="post",
            color=COLOURS[number],
            linestyle=("-", "--")[number % 2],
            linewidth=1.6,
            label=described(split),
        )
    classes = splits[0].classes
    axes.set(ylim=(0, None), xlim=(-0.5, len(classes) - 0.5), ylabel="images of a class")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if len(classes) <= _FEW:
        axes.set_xticks(range(len(classes)), [_short(name, 14) for name in classes], rotation=30, ha="right")
    else:
        axes.set_xlabel("class, by its number")
    axes.grid(axis="y", alpha=0.25)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(splits), borderaxespad=0.2)


def described(split: Examples) -> str:
    """In words what the line shows, with the extremes by name."""
    least, most = int(split.counts.argmin()), int(split.counts.argmax())
    if split.counts[least] == split.counts[most]:
        images = "1 image" if split.counts[least] == 1 else f"{split.counts[least]:,} images"
        return f"{split.split}: {images} of every class"
    return (
        f"{split.split}: from {split.counts[least]:,} ({_short(split.classes[least], 24)}) "
        f"to {split.counts[most]:,} ({_short(split.classes[most], 24)})"
    )


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
