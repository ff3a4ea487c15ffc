"""Image files in one folder for each class, as ImageNet and many other data sets come: train/CLASS/*.JPEG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Int64

from tessella.images.encoded import check_labels
from tessella.images.found import MissingSplitError, found, listed

SPLIT_FOLDERS = {"train": ("train",), "test": ("test", "val", "validation", "valid")}
SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".gif"})

_ANNOTATIONS = "val_annotations.txt"
"""Tiny-ImageNet's validation images lie in one folder, with a table of names and classes beside it."""


class FolderSplit:
    """Files and labels; classes are the sorted names of the training folders."""

    def __init__(
        self, files: list[Path], labels: Int64[np.ndarray, " n"], classes: tuple[str, ...], name: str, split: str
    ):
        self.files = files
        self.labels = labels
        self.classes = classes
        self.name = name
        self.split = split

    def __len__(self) -> int:
        return len(self.files)

    def item(self, index: int) -> Path:
        """The file, which whoever decodes it reads."""
        return self.files[index]

    def where(self, index: int) -> str:
        """The file's path."""
        return str(self.files[index])


def read(path: Path, data: str, split: str) -> FolderSplit | None:
    """One split, or None where the path holds no train/CLASS/ or test/CLASS/ folders."""
    if not path.is_dir():
        return None
    train = _named(path, SPLIT_FOLDERS["train"])
    classes = _class_folders(train) if train else []
    if train is None or not classes:
        return None
    if split == "train":
        return _split(train, classes, data, split)
    folder = _named(path, SPLIT_FOLDERS["test"])
    if folder is None:
        looked = " or ".join(f"{name}/" for name in SPLIT_FOLDERS["test"])
        raise MissingSplitError(f"data: looked for {looked} in {path}, found {found(path)}")
    if (folder / _ANNOTATIONS).is_file():
        return _annotated(folder, classes, data, split)
    names = _class_folders(folder)
    if not names:
        raise ValueError(
            f"data: looked for a folder for each class in {folder}, found {found(folder)}; "
            "sort its images into the folders of their classes first"
        )
    strange = sorted(set(names) - set(classes))
    if strange:
        raise ValueError(f"data: found the class {strange[0]!r} in {folder}, expected classes of {train} alone")
    return _split(folder, classes, data, split)


def _named(path: Path, names: tuple[str, ...]) -> Path | None:
    return next((path / name for name in names if (path / name).is_dir()), None)


def _class_folders(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    """Also in folders within, such as Tiny-ImageNet's CLASS/images/."""
    return sorted(each for each in folder.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file())


def _split(folder: Path, classes: list[str], data: str, split: str) -> FolderSplit:
    files: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(classes):
        there = _images(folder / name) if (folder / name).is_dir() else []
        if not there and split == "train":
            endings = listed(sorted(SUFFIXES))
            raise ValueError(f"data: looked for images ({endings}) in {folder / name}, found {found(folder / name)}")
        files += there
        labels += [number] * len(there)
    if not files:
        raise ValueError(f"data: looked for images in the folders of {folder}, found none")
    return FolderSplit(files, np.array(labels, dtype=np.int64), tuple(classes), data, split)


def _annotated(folder: Path, classes: list[str], data: str, split: str) -> FolderSplit:
    numbers = {name: number for number, name in enumerate(classes)}
    files, labels = [], []
    for place, line in enumerate((folder / _ANNOTATIONS).read_text().splitlines()):
        columns = line.split()
        if len(columns) < 2:
            raise ValueError(
                f"data: {folder / _ANNOTATIONS}: line {place + 1} has {len(columns)} words, expected 2 or more"
            )
        file = folder / "images" / columns[0]
        if not file.is_file():
            raise ValueError(f"data: looked for {file}, which {_ANNOTATIONS} names, found nothing")
        files.append(file)
        labels.append(numbers.get(columns[1], -1))
    made = FolderSplit(files, np.array(labels, dtype=np.int64), tuple(classes), data, split)
    check_labels(made)
    return made
