"""SVHN, house numbers: train_32x32.mat and test_32x32.mat, as MATLAB wrote them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tessella.images.found import MissingSplitError, found
from tessella.images.image_set import ImageSet

_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


def read(path: Path, data: str, split: str) -> ImageSet | None:
    """One split, or None where the path holds no such files. The label 10 of the files is the digit 0."""
    if not any((path / name).is_file() for name in _FILES.values()):
        return None
    file = path / _FILES[split]
    if not file.is_file():
        raise MissingSplitError(f"data: looked for {file}, found {found(path)}")
    images, labels = _content(file)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise ValueError(
            f"data: {file}: got X as {images.dtype} of shape {images.shape}, expected bytes of shape (32, 32, 3, n)"
        )
    if labels.shape != images.shape[3:]:
        raise ValueError(
            f"data: {file}: got {labels.size} labels in y, expected one for each of {images.shape[3]} images"
        )
    wrong = np.flatnonzero((labels < 1) | (labels > 10))
    if len(wrong):
        raise ValueError(f"data: {file}: image {wrong[0]} has label {labels[wrong[0]]}, expected 1 to 10")
    whole = np.ascontiguousarray(images.transpose(3, 0, 1, 2))
    return ImageSet(whole, labels.astype(np.int64) % 10, tuple("0123456789"), data, split)


def _content(file: Path) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat

    try:
        held = loadmat(str(file), variable_names=["X", "y"])
    except Exception as error:  # scipy has no error of its own for a damaged file
        raise ValueError(f"data: {file}: truncated, damaged or no MATLAB file ({error})") from error
    missing = [name for name in ("X", "y") if name not in held]
    if missing:
        raise ValueError(f"data: {file}: looked for the variables X and y, found no {' and no '.join(missing)}")
    return held["X"], held["y"].ravel()
