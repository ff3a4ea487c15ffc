"""The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels: real images that need no download."""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Int64

from tessella.images.image_set import SPLITS, ImageSet

_HELD_OUT = 450


def digits(split: str) -> ImageSet:
    """1,347 images to learn from or 450 held out. The split is fixed, and each digit has its share of both."""
    if split not in SPLITS:
        raise ValueError(f"split: got {split!r}, expected train or test")
    images, labels = _loaded()
    held_out = _held_out(labels)
    chosen = held_out if split == "test" else ~held_out
    return ImageSet(images[chosen], labels[chosen], tuple("0123456789"), "digits", split)


@functools.cache
def _loaded() -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ModuleNotFoundError("digits: sklearn is not installed; pip install 'tessella[digits]'") from error
    found = load_digits()
    # The file holds 0 to 16; as bytes, 16 is full.
    images = np.round(found.images * (255 / 16)).astype(np.uint8)
    return images[..., None], found.target.astype(np.int64)


def _held_out(labels: Int64[np.ndarray, " n"]) -> np.ndarray:
    """Which images are held out: of each digit its share of 450, the remainders going to the largest fractions."""
    counts = np.bincount(labels)
    exact = counts * (_HELD_OUT / len(labels))
    quota = np.floor(exact).astype(int)
    quota[np.argsort(quota - exact, kind="stable")[: _HELD_OUT - quota.sum()]] += 1
    chosen = np.zeros(len(labels), dtype=bool)
    random = np.random.default_rng(0)
    for digit, number in enumerate(quota):
        chosen[random.permutation(np.flatnonzero(labels == digit))[:number]] = True
    return chosen
