"""Images that are decoded while a model trains: processes decode the next batches, and the rest is for the device.

For what is too large to be decoded beforehand, such as ImageNet. A batch is bytes of one size; crops are drawn where
images are decoded, since they say how much of an image is decoded at all.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import weakref
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from tessella.images.cache import allocate
from tessella.images.catalogue import load, open_split
from tessella.images.decoding import Look, decode, write_looks
from tessella.images.encoded import EncodedSplit
from tessella.images.image_set import ImageSet
from tessella.images.parquet import ParquetSplit

Batch: TypeAlias = tuple[UInt8[Tensor, "batch side side channels"], Int64[Tensor, " batch"]]

_CHUNK = 16
"""Images a process is given at a time: a batch is the work of several."""

_LEAST_AHEAD = 3
"""Batches under way at a time; small ones are more, so that no process waits."""

_SAMPLE = 1024
"""Images that the statistics are taken from."""


class Stream:
    """An encoded split, as batches of decoded images in whatever order is asked for.

    The processes start with the first batch and stay for the next epochs. Which part of an image is looked at follows
    from the seed and the row of the order that it stands in: the same order gives the same bytes again. Encoded images
    of parquet files are held in memory, since their order is random; those of folders are read by whoever decodes them.
    """

    channels = 3

    def __init__(self, split: EncodedSplit, look: Look, seed: int = 0, workers: int | None = None):
        if workers is not None and workers < 1:
            raise ValueError(f"workers: got {workers}, expected at least 1")
        self.split = split
        self.look = look
        self.seed = seed
        self.name = split.name
        self.classes = split.classes
        # torchrun says how many processes share this machine's cores.
        here = max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        self._workers = workers or here
        if isinstance(split, ParquetSplit):
            split.hold_all()

    def __len__(self) -> int:
        return len(self.split)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.look.size, self.look.size

    def statistics(self) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
        """Mean and standard deviation of each channel, in units in which a full byte is 1: of a fixed sample."""
        sample = np.random.default_rng(0).permutation(len(self))[:_SAMPLE]
        return self.collected(sample).statistics()

    def collected(self, chosen: Int64[np.ndarray, " n"] | None = None) -> ImageSet:
        """Those images, or all of them, decoded into memory: an evaluation looks at the same ones every time."""
        chosen = np.arange(len(self)) if chosen is None else chosen
        whole = len(chosen) // _CHUNK * _CHUNK
        rows = (chosen[:whole].reshape(-1, _CHUNK), chosen[None, whole:])
        images = np.empty((len(chosen), *self.size, self.channels), dtype=np.uint8)
        done = 0
        for order in (each for each in rows if each.size):
            for batch, _ in self.batches(order):
                images[done : done + len(batch)] = batch.numpy()
                done += len(batch)
        return ImageSet(images, self.split.labels[chosen], self.classes, self.name, self.split.split)

    def batches(self, order: Int64[np.ndarray, "steps batch"]) -> Iterator[Batch]:
        """The images of each row of the order, on the CPU."""
        batch = order.shape[1]
        ahead = max(_LEAST_AHEAD, -(-4 * self._workers * _CHUNK // batch))
        pool, ring = self._pool(), self._ring(ahead * batch)
        waiting: deque[list[Future[int]]] = deque()
        try:
            for step, row in enumerate(order):
                if len(waiting) == ahead:
                    yield self._finished(waiting.popleft(), ring, (step % ahead) * batch, order[step - ahead])
                waiting.append(self._submitted(pool, ring, (step % ahead) * batch, row))
            for step in range(len(order) - len(waiting), len(order)):
                yield self._finished(waiting.popleft(), ring, (step % ahead) * batch, order[step])
        except BrokenProcessPool as error:
            self.close()
            raise ValueError(
                f"data: a process that decoded images of {self.name} was killed, perhaps for want of memory"
            ) from error
        finally:
            for future in (each for futures in waiting for each in futures):
                future.cancel()
            for future in (each for futures in waiting for each in futures if not each.cancelled()):
                future.exception()  # nobody writes to the ring any more when another epoch begins
            ring.unlink(missing_ok=True)

    def close(self) -> None:
        """Ends the processes; the next batch would start new ones."""
        if self._ending is not None:
            self._ending()
            self._ending = None

    _ending: weakref.finalize[..., Stream] | None = None
    _started: tuple[ProcessPoolExecutor, Path]

    def _pool(self) -> ProcessPoolExecutor:
        if self._ending is None:
            # Afresh, and not forked: a fork copies the locks of threads that it does not copy.
            pool = ProcessPoolExecutor(self._workers, multiprocessing.get_context("spawn"))
            folder = Path(tempfile.mkdtemp(prefix="tessella-stream-", dir=_memory()))
            self._started = pool, folder
            self._ending = weakref.finalize(self, _end, pool, folder)
        return self._started[0]

    def _ring(self, room: int) -> Path:
        """A file for the images of the batches under way, which all processes map into memory."""
        shape = (room, self.look.size, self.look.size, self.channels)
        descriptor, name = tempfile.mkstemp(suffix=".npy", dir=self._started[1])
        os.close(descriptor)
        path = Path(name)
        allocate(path, shape)
        return path

    def _submitted(
        self, pool: ProcessPoolExecutor, ring: Path, place: int, row: Int64[np.ndarray, " batch"]
    ) -> list[Future[int]]:
        """Hands out a batch, to be written from this place of the ring on."""
        seeds = np.random.default_rng([self.seed, zlib.crc32(row.tobytes())]).integers(2**63, size=len(row)).tolist()
        items = [
            (self.split.item(index), self.split.where(index), seed)
            for index, seed in zip(row.tolist(), seeds, strict=True)
        ]
        return [
            pool.submit(write_looks, ring, place + start, items[start : start + _CHUNK], self.look)
            for start in range(0, len(items), _CHUNK)
        ]

    def _finished(self, futures: list[Future[int]], ring: Path, place: int, row: Int64[np.ndarray, " batch"]) -> Batch:
        """The batch, once all of it is written."""
        for future in futures:
            future.result()
        held = np.load(ring, mmap_mode="r")[place : place + len(row)]
        return torch.from_numpy(np.array(held)), torch.from_numpy(self.split.labels[row])


def for_training(data: str, path: Path | None, size: int, smallest: float) -> tuple[ImageSet | Stream, ImageSet]:
    """Both splits as training takes them: whole where images are prepared or small, else as a stream.

    Encoded images that are no squares of `size` pixels are streamed in that size: random parts of at least the share
    `smallest` of their area (of 0, the middle) to learn from, and the middle of those that are held out.
    """
    train = open_split(data, "train", path)
    if isinstance(train, ImageSet) or decode(train.item(0), train.where(0)).shape[:2] == (size, size):
        return load(data, "train", path), load(data, "test", path)
    test = open_split(data, "test", path)
    if isinstance(test, ImageSet):
        raise ValueError(f"data: {path}: got train images that are encoded and test images that are not")
    held_out = Stream(test, Look(size))
    try:
        return Stream(train, Look(size, smallest or None)), held_out.collected()
    finally:
        held_out.close()


def _memory() -> str | None:
    """Where files are memory alone, if the system has such a place with room to spare."""
    place = Path("/dev/shm")
    if place.is_dir() and os.access(place, os.W_OK) and shutil.disk_usage(place).free > 4 << 30:
        return str(place)
    return None


def _end(pool: ProcessPoolExecutor, folder: Path) -> None:
    pool.shutdown(wait=True, cancel_futures=True)
    shutil.rmtree(folder, ignore_errors=True)
