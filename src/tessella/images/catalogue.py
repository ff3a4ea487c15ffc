"""Data sets by name: whatever lies at a path, prepared or as it was downloaded, becomes an image set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tessella.images import cache, cifar, folders, parquet, svhn
from tessella.images.decoding import decode, same_size
from tessella.images.digits import digits
from tessella.images.encoded import EncodedSplit
from tessella.images.found import found
from tessella.images.image_set import SPLITS, ImageSet

Reader = Callable[[Path, str, str], ImageSet | EncodedSplit | None]
"""Path, name and split to the split, or to None where the path holds another format."""

_HUB = "parquet shards (train-*.parquet, ...)"
_TREE = "a folder for each class (train/CLASS/, ...)"
_ENCODED: tuple[Reader, ...] = (parquet.read, folders.read)

FORMATS: dict[str, tuple[str, tuple[Reader, ...]]] = {
    "cifar10": (f"cifar-10-batches-py/ or cifar-10-python.tar.gz, {_HUB}, {_TREE}", (cifar.read, *_ENCODED)),
    "cifar100": (f"cifar-100-python/ or cifar-100-python.tar.gz, {_HUB}, {_TREE}", (cifar.read, *_ENCODED)),
    "svhn": (f"train_32x32.mat and test_32x32.mat, {_HUB}, {_TREE}", (svhn.read, *_ENCODED)),
    "tiny-imagenet": (f"{_HUB}, {_TREE}", _ENCODED),
    "imagenet": (f"{_HUB}, {_TREE}", _ENCODED),
    "parquet": (_HUB, (parquet.read,)),
    "folder": (_TREE, (folders.read,)),
}
"""By name: what is looked for, besides a folder that `tessella data prepare` made, and who reads it.

`parquet` and `folder` are for any data set in these layouts.
"""

NAMES = ("digits", *FORMATS)

KNOWN = {"cifar10": (10, 32), "cifar100": (100, 32), "svhn": (10, 32)}
"""Classes, and pixels along a side, of data sets that have one form: another set in the same layout is not they."""

_MOST = 8 << 30
"""Bytes that decoded images may take in memory; what is larger is for `tessella data prepare`."""


def load(data: str, split: str, path: Path | None = None) -> ImageSet:
    """One split of a data set. What was prepared is mapped into memory; anything else is read, and decoded, at once.

    >>> len(load("digits", "test"))
    450
    """
    found_split = open_split(data, split, path)
    return found_split if isinstance(found_split, ImageSet) else decoded(found_split)


def open_split(data: str, split: str, path: Path | None) -> ImageSet | EncodedSplit:
    """The same, but left encoded where it is."""
    if split not in SPLITS:
        raise ValueError(f"split: got {split!r}, expected train or test")
    if data not in NAMES:
        raise ValueError(f"data: got {data!r}, expected one of {', '.join(NAMES)}")
    if data == "digits":
        if path is not None:
            raise ValueError(f"data: got {path} for digits, which come with scikit-learn; expected no path")
        return digits(split)
    looked, readers = FORMATS[data]
    if path is None:
        raise ValueError(f"data: got no path for {data} (--data PATH), expected one of a prepared folder, {looked}")
    if cache.is_cache(path):
        held = cache.load(path, split)
        if held.name != data:
            raise ValueError(f"data: looked for {data}, found {held.name}, prepared in {path}")
        return held
    if path.exists():
        for reader in readers:
            made = reader(path, data, split)
            if made is not None:
                _check_form(made, path)
                return made
    raise ValueError(f"data: looked for {data} as a prepared folder, {looked}; found {found(path)}")


def _check_form(split: ImageSet | EncodedSplit, path: Path) -> None:
    """Refuses what lies in the right layout and is another data set."""
    if split.name not in KNOWN:
        return
    classes, side = KNOWN[split.name]
    height, width = split.size if isinstance(split, ImageSet) else decode(split.item(0), split.where(0)).shape[:2]
    if (len(split.classes), height, width) != (classes, side, side):
        raise ValueError(
            f"data: looked for {split.name}, {classes} classes of {side} x {side} pixels; found "
            f"{len(split.classes)} classes of {width} x {height} pixels in {path}"
        )


def decoded(encoded: EncodedSplit) -> ImageSet:
    """All images, decoded into memory; they must be of one size."""
    first = decode(encoded.item(0), encoded.where(0))
    if first.nbytes * len(encoded) > _MOST:
        raise ValueError(
            f"data: {len(encoded):,} images of {first.shape[1]} x {first.shape[0]} pixels are too many to hold in "
            f"memory; run tessella data prepare {encoded.name} --size N, or stream them"
        )
    images = np.empty((len(encoded), *first.shape), dtype=np.uint8)
    # One after another: with images this small, threads wait for each other longer than they decode.
    for index in range(len(encoded)):
        where = encoded.where(index)
        images[index] = same_size(decode(encoded.item(index), where), first.shape, where)
    return ImageSet(images, encoded.labels, encoded.classes, encoded.name, encoded.split)
