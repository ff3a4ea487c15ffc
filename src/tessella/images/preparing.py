"""Preparing a data set: every image decoded once, by several processes, into a cache that is whole or not there."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

from tessella.images import cache
from tessella.images.catalogue import open_split
from tessella.images.decoding import decoded, write_decoded
from tessella.images.encoded import EncodedSplit
from tessella.images.found import MissingSplitError
from tessella.images.image_set import SPLITS, ImageSet

_CHUNK = 64
"""Images a process is given at a time."""

Told = Callable[[float, str], None]


def prepare(
    data: str,
    path: Path,
    to: Path,
    size: int | None = None,
    workers: int | None = None,
    progress: Told = lambda fraction, detail: None,
) -> cache.Manifest:
    """Makes the prepared folder `to` from whatever lies at `path`.

    With a size, an encoded image's short side is brought to so many pixels and the middle of its long side is kept;
    without one, all images must be of one size. A data set may have no test split; it has to have a training split.
    """
    if size is not None and size < 1:
        raise ValueError(f"size: got {size}, expected at least 1 pixel")
    if cache.is_cache(path):
        raise ValueError(f"from: got {path}, which is prepared already, expected what was downloaded")
    with cache.drafted(to) as draft:
        splits = list(_splits(data, path))
        classes = splits[0].classes
        total, done = sum(len(split) for split in splits), 0
        for split in splits:
            if split.classes != classes:
                raise ValueError(f"data: {path}: train and test name their classes differently, expected the same")
            draft.write_labels(split.split, split.labels)
            for further in _written(split, draft, size, workers):
                done += further
                progress(0.95 * done / total, f"{split.split}, {done:,} of {total:,} images")
        draft.finish(data, str(path.resolve()), classes, lambda part: progress(0.95 + 0.05 * part, "checksums"))
    return cache.read_manifest(to)


def _splits(data: str, path: Path) -> Iterator[ImageSet | EncodedSplit]:
    for name in SPLITS:
        try:
            yield open_split(data, name, path)
        except MissingSplitError:
            if name == "train":
                raise


def _written(
    split: ImageSet | EncodedSplit, draft: cache.Draft, size: int | None, workers: int | None
) -> Iterator[int]:
    """Writes the images of a split, and yields how many more there are."""
    if isinstance(split, ImageSet):
        if size not in (None, split.images.shape[1]):
            raise ValueError(
                f"size: got {size}, expected none: {split.name} has {split.size[1]} x {split.size[0]} pixels"
            )
        file = draft.images_file(split.split, split.images.shape)
        written = np.load(file, mmap_mode="r+")
        written[:] = split.images
        written.flush()
        yield len(split)
        return
    first = decoded(split.item(0), split.where(0), size)
    file = draft.images_file(split.split, (len(split), *first.shape))
    yield from _decoded_by_processes(split, file, first.shape, size, workers or os.cpu_count() or 1)


def _decoded_by_processes(
    split: EncodedSplit, file: Path, shape: tuple[int, ...], size: int | None, workers: int
) -> Iterator[int]:
    # Workers are started afresh, and not forked: a fork copies the locks of threads that it does not copy.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    waiting: deque[Future[int]] = deque()
    try:
        for start in range(0, len(split), _CHUNK):
            chunk = range(start, min(start + _CHUNK, len(split)))
            items = [(split.item(index), split.where(index)) for index in chunk]
            waiting.append(pool.submit(write_decoded, file, start, items, shape, size))
            if len(waiting) > 4 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ValueError("data: a process that decoded images was killed, perhaps for want of memory") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
