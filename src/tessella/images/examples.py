"""A few images of each class, for people to look at: read of a split without decoding the rest of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt8

from tessella.images.decoding import decode, decode_square
from tessella.images.encoded import EncodedSplit
from tessella.images.image_set import ImageSet

_MOST_PIXELS = 96
"""The side of an example; larger images are made smaller."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Of some classes the first images, as squares of one size, and of all classes how many images they have."""

    name: str
    split: str
    classes: tuple[str, ...]
    counts: Int[np.ndarray, " classes"]
    shown: tuple[int, ...]
    """The numbers of the classes that there are images of, in their order."""
    images: UInt8[np.ndarray, "shown each side side channels"]
    """Blank where a class has too few."""


def examples(split: ImageSet | EncodedSplit, each: int, classes: int) -> Examples:
    """The first `each` images of at most so many classes, which are spread evenly over all where there are more."""
    counts = np.bincount(split.labels, minlength=len(split.classes))
    number = min(classes, len(split.classes))
    shown = tuple(int(place) for place in np.linspace(0, len(split.classes) - 1, number).round())
    side = min(_MOST_PIXELS, *_size(split))
    first = _square(split, 0, side)
    images = np.full((number, each, *first.shape), 255, dtype=np.uint8)
    for row, label in enumerate(shown):
        for column, index in enumerate(np.flatnonzero(split.labels == label)[:each]):
            images[row, column] = _square(split, int(index), side)
    return Examples(split.name, split.split, split.classes, counts, shown, images)


def _size(split: ImageSet | EncodedSplit) -> tuple[int, ...]:
    return split.size if isinstance(split, ImageSet) else decode(split.item(0), split.where(0)).shape[:2]


def _square(split: ImageSet | EncodedSplit, index: int, side: int) -> np.ndarray:
    if not isinstance(split, ImageSet):
        return decode_square(split.item(index), split.where(index), side)
    image = split.images[index]
    # A prepared image that is too large is thinned out: an example need not be smooth.
    step = max(1, min(image.shape[:2]) // side)
    top, left = (image.shape[0] - side * step) // 2, (image.shape[1] - side * step) // 2
    return image[top : top + side * step : step, left : left + side * step : step]
