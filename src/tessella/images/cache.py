"""The cache: images decoded once, as files that are mapped into memory, with a manifest that says what they must be.

A prepared folder holds TRAIN-images.npy and TRAIN-labels.npy for each split, and manifest.json with shapes, classes,
sizes and SHA-256 checksums. It is made under another name and renamed when it is whole, so that a folder of this name
is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from tessella.images.found import MissingSplitError, listed
from tessella.images.image_set import ImageSet

FORMAT = "tessella images 1"
_MANIFEST = "manifest.json"
_PARTIAL = ".partial-"
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Kept:
    """One file: what its length and its content must be."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a prepared folder holds, and what it was made from."""

    data: str
    source: str
    classes: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    """Of the images of each split: number, height, width, channels."""
    files: tuple[Kept, ...]


class Draft:
    """A prepared folder while it is made."""

    def __init__(self, path: Path):
        self.path = path

    def images_file(self, split: str, shape: tuple[int, int, int, int]) -> Path:
        """A file of zeros for the images of a split."""
        path = self.path / _file(split, "images")
        allocate(path, shape)
        return path

    def write_labels(self, split: str, labels: Int64[np.ndarray, " n"]) -> None:
        """The labels of a split."""
        np.save(self.path / _file(split, "labels"), labels, allow_pickle=False)

    def finish(self, data: str, source: str, classes: tuple[str, ...], progress: Callable[[float], None]) -> None:
        """Checksums and the manifest."""
        paths = sorted(self.path.glob("*.npy"))
        total, done = sum(path.stat().st_size for path in paths), 0
        kept = []
        for path in paths:
            size = path.stat().st_size
            kept.append(Kept(path.name, size, _checksum(path, _further(progress, done, total))))
            done += size
        shapes = {
            path.name.removesuffix("-images.npy"): _mapped(path).shape for path in paths if "-images" in path.name
        }
        record = {"format": FORMAT, **asdict(Manifest(data, source, classes, shapes, tuple(kept)))}
        with (self.path / _MANIFEST).open("w") as file:
            file.write(json.dumps(record, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())


def allocate(path: Path, shape: tuple[int, ...]) -> None:
    """Makes a .npy file of zeros to be mapped into memory. The room is taken now, where the system can: a full disk is
    an error here, and a signal that kills to whoever writes later."""
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape).flush()
    if not hasattr(os, "posix_fallocate"):
        return
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def drafted(path: Path) -> Iterator[Draft]:
    """A new prepared folder, which is there whole after the block, or not at all. What a kill left behind goes."""
    path = path.resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"to: got {path}, which is there already, expected a new name")
    missing = [folder for folder in path.parents if not folder.exists()]
    partial = path.with_name(f"{path.name}{_PARTIAL}{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f"{path.name}{_PARTIAL}*"):
            if not _runs(left.name.rpartition("-")[2]):
                shutil.rmtree(left)
        partial.mkdir()
        yield Draft(partial)
        os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not path.exists():
            _remove_empty(missing)


def _remove_empty(folders: Sequence[Path]) -> None:
    """The innermost first, up to one that another program has put something into."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def is_cache(path: Path) -> bool:
    """Whether a path is a prepared folder."""
    return (path / _MANIFEST).is_file()


def read_manifest(path: Path) -> Manifest:
    """What a prepared folder says of itself."""
    file = path / _MANIFEST
    try:
        record: dict[str, Any] = json.loads(file.read_text())
        if record.pop("format") != FORMAT:
            raise ValueError(f"data: {file} is of another format, expected {FORMAT!r}; prepare it anew")
        shapes = {name: tuple(shape) for name, shape in record["shapes"].items()}
        files = tuple(Kept(**each) for each in record["files"])
        return Manifest(record["data"], record["source"], tuple(record["classes"]), shapes, files)
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"data: {file} is damaged ({error}), expected a manifest; prepare it anew") from error


def load(path: Path, split: str) -> ImageSet:
    """A split, its images mapped into memory. That every file has its length is checked; `verify` checks the rest."""
    manifest = read_manifest(path)
    check_sizes(path, manifest)
    if split not in manifest.shapes:
        raise MissingSplitError(f"data: looked for {split} in {path}, found {listed(sorted(manifest.shapes))}")
    images = _mapped(path / _file(split, "images"))
    if images.shape != manifest.shapes[split]:
        raise ValueError(f"data: {path}: got images of shape {images.shape}, expected {manifest.shapes[split]}")
    labels = np.load(path / _file(split, "labels"), allow_pickle=False)
    return ImageSet(images, labels, manifest.classes, manifest.data, split)


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Names the first file that is missing or has another length."""
    for kept in manifest.files:
        file = path / kept.name
        if not file.is_file():
            raise ValueError(f"data: looked for {file}, found nothing; prepare it anew")
        if file.stat().st_size != kept.bytes:
            raise ValueError(
                f"data: {file}: got {file.stat().st_size:,} bytes, expected {kept.bytes:,}; prepare it anew"
            )


def verify(path: Path, progress: Callable[[float], None] = lambda fraction: None) -> Manifest:
    """Reads every byte, and names the first file whose checksum is another."""
    manifest = read_manifest(path)
    check_sizes(path, manifest)
    total, done = sum(kept.bytes for kept in manifest.files), 0
    for kept in manifest.files:
        file = path / kept.name
        checksum = _checksum(file, _further(progress, done, total))
        if checksum != kept.sha256:
            raise ValueError(
                f"data: {file}: got the SHA-256 checksum {checksum[:16]}..., expected {kept.sha256[:16]}...; "
                "prepare it anew"
            )
        done += kept.bytes
    return manifest


def _further(progress: Callable[[float], None], done: int, total: int) -> Callable[[int], None]:
    """Tells how far all files are, from how far one is."""
    return lambda read: progress((done + read) / total)


def _checksum(path: Path, progress: Callable[[int], None]) -> str:
    made, read = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            made.update(block)
            read += len(block)
            progress(read)
        os.fsync(file.fileno())
    return made.hexdigest()


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"data: {path} is damaged ({error}); prepare it anew") from error


def _file(split: str, what: str) -> str:
    return f"{split}-{what}.npy"
