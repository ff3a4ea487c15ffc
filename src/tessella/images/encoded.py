"""A split whose images are still encoded (JPEG, PNG, WebP, ...): what it holds, and what is read of it when."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64


@runtime_checkable
class EncodedSplit(Protocol):
    """Labels and class names are known at once; an image is read when it is asked for."""

    name: str
    split: str
    classes: tuple[str, ...]
    labels: Int64[np.ndarray, " n"]

    def __len__(self) -> int: ...

    def item(self, index: int) -> bytes | Path:
        """An encoded image, or the file that holds it."""
        ...

    def where(self, index: int) -> str:
        """Which image this is, for a message."""
        ...


def check_labels(split: EncodedSplit) -> None:
    """Names the first image whose label is no class."""
    wrong = np.flatnonzero((split.labels < 0) | (split.labels >= len(split.classes)))
    if len(wrong):
        place = int(wrong[0])
        raise ValueError(
            f"data: {split.where(place)} has label {split.labels[place]}, expected 0 to {len(split.classes) - 1}"
        )
