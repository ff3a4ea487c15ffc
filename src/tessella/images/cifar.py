"""CIFAR-10 and CIFAR-100 as their python archive: a folder of pickled batches, or the tar.gz that holds it."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tessella.images import restricted_pickle
from tessella.images.found import listed
from tessella.images.image_set import ImageSet

_SIDE = 32
_BYTES = 3 * _SIDE * _SIDE


@dataclass(frozen=True)
class _Layout:
    """Names within the archive."""

    folder: str
    archive: str
    meta: str
    class_names: str
    labels: str
    train: tuple[str, ...]
    test: tuple[str, ...]


LAYOUTS = {
    "cifar10": _Layout(
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        "batches.meta",
        "label_names",
        "labels",
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        ("test_batch",),
    ),
    "cifar100": _Layout(
        "cifar-100-python", "cifar-100-python.tar.gz", "meta", "fine_label_names", "fine_labels", ("train",), ("test",)
    ),
}


def read(path: Path, data: str, split: str) -> ImageSet | None:
    """One split, or None where the path holds no such archive."""
    layout = LAYOUTS[data]
    for folder in (path / layout.folder, path):
        if any((folder / name).is_file() for name in (layout.meta, *layout.train)):
            return _assembled(layout, data, split, partial(_file, folder))
    archive = path / layout.archive if path.is_dir() else path
    if not archive.is_file() or not _is_gzip(archive):
        return None
    wanted = (layout.meta, *(layout.train if split == "train" else layout.test))
    members = _members(archive, [f"{layout.folder}/{name}" for name in wanted])
    return _assembled(
        layout, data, split, lambda name: (members[f"{layout.folder}/{name}"], f"{archive}: {layout.folder}/{name}")
    )


def _is_gzip(path: Path) -> bool:
    """By its name or, as it may have been renamed, by its first bytes."""
    with path.open("rb") as file:
        return path.name.endswith((".tar.gz", ".tgz")) or file.read(2) == b"\x1f\x8b"


def _file(folder: Path, name: str) -> tuple[bytes, str]:
    """The content, and what a message calls it."""
    path = folder / name
    if not path.is_file():
        there = listed(sorted(each.name for each in path.parent.iterdir()))
        raise ValueError(f"data: looked for {path}, found {there} beside it")
    return path.read_bytes(), str(path)


def _members(archive: Path, names: list[str]) -> dict[str, bytes]:
    """The named files of a tar.gz, read in one pass; nothing is unpacked to the disk."""
    found: dict[str, bytes] = {}
    seen: list[str] = []
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                seen.append(member.name)
                name = member.name.removeprefix("./")
                stream = tar.extractfile(member) if name in names and member.isfile() else None
                if stream is not None:
                    found[name] = stream.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"data: {archive}: truncated or damaged ({error}), expected a whole tar.gz") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"data: looked for {listed(missing)} in {archive}, found {listed(seen) or 'nothing'}")
    return found


def _assembled(layout: _Layout, data: str, split: str, content: Callable[[str], tuple[bytes, str]]) -> ImageSet:
    raw, source = content(layout.meta)
    classes = tuple(_text(name) for name in _field(_dictionary(raw, source), layout.class_names, source, list))
    images, labels = [], []
    for name in layout.train if split == "train" else layout.test:
        raw, source = content(name)
        batch = _dictionary(raw, source)
        pixels = _field(batch, "data", source, np.ndarray)
        numbers = np.asarray(_field(batch, layout.labels, source, list | np.ndarray))
        if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _BYTES:
            raise ValueError(
                f"data: {source}: got {pixels.dtype} of shape {pixels.shape}, expected bytes of shape (n, {_BYTES}), "
                f"images of {_SIDE} x {_SIDE} pixels"
            )
        if numbers.shape != (len(pixels),) or not np.issubdtype(numbers.dtype, np.integer):
            raise ValueError(
                f"data: {source}: got {numbers.shape} labels, expected one for each of {len(pixels)} images"
            )
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(classes)):
            place = int(np.flatnonzero((numbers < 0) | (numbers >= len(classes)))[0])
            raise ValueError(
                f"data: {source}: image {place} has label {numbers[place]}, expected 0 to {len(classes) - 1}"
            )
        images.append(pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1))
        labels.append(numbers.astype(np.int64))
    return ImageSet(np.concatenate(images), np.concatenate(labels), classes, data, split)


def _dictionary(raw: bytes, source: str) -> dict[str, Any]:
    held = restricted_pickle.loads(raw, f"data: {source}")
    if not isinstance(held, dict):
        raise ValueError(f"data: {source}: holds a {type(held).__name__}, expected a dictionary")
    return {_text(key): value for key, value in held.items()}


def _field(held: dict[str, Any], name: str, source: str, kind: Any) -> Any:
    if not isinstance(held.get(name), kind):
        raise ValueError(f"data: {source}: looked for {name!r}, found {listed(sorted(held))}")
    return held[name]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
