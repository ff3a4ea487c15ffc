"""Where a step's images come from: a set that lies on the device as bytes, or a stream that brings each batch.

Either way an epoch's order is drawn once, for all processes alike, and a step reads its batch on the device: of a
resident set by the epoch's order and a counter, so that a captured step needs nothing from the host; of a stream from
a buffer that the host has filled.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from tessella.images.image_set import ImageSet
from tessella.training.failures import LoaderError

Batch: TypeAlias = tuple[UInt8[Tensor, "batch side side channels"], Int64[Tensor, " batch"]]

RESIDENT_SHARE = 0.25
"""Of a device's free memory, what a set may take to be kept there."""


Ready: TypeAlias = "queue.Queue[Batch | BaseException | None]"
"""Batches that wait; None ends an epoch, an error ends the run."""


@runtime_checkable
class Stream(Protocol):
    """Images that are read or decoded as they are needed."""

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    @property
    def size(self) -> tuple[int, int]: ...

    @property
    def channels(self) -> int: ...

    def statistics(self) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]: ...

    def batches(self, order: Int64[np.ndarray, "steps batch"]) -> Iterator[Batch]:
        """The images of each row of the order, on the CPU."""
        ...


@runtime_checkable
class Feed(Protocol):
    """What a step needs of its images."""

    order: Int64[Tensor, "steps batch"]

    def begin(self, order: Int64[np.ndarray, "steps batch"], start: int) -> None:
        """Takes an epoch's order, from a step on."""
        ...

    def fetch(self) -> None:
        """Brings the next batch within reach of the device, where it is not yet."""
        ...

    def batch(self, place: Int64[Tensor, " one"]) -> Batch:
        """The batch of the step that `place` counts, by operations that a CUDA graph can capture."""
        ...


class Resident:
    """A set that lies on the device whole."""

    def __init__(self, images: ImageSet, steps: int, batch: int, device: torch.device):
        self._images, self._labels = images.tensors(device)
        self.order = torch.zeros(steps, batch, dtype=torch.int64, device=device)

    def begin(self, order: Int64[np.ndarray, "steps batch"], start: int) -> None:
        self.order.copy_(torch.from_numpy(order))

    def fetch(self) -> None:
        """All is there."""

    def batch(self, place: Int64[Tensor, " one"]) -> Batch:
        chosen = self.order.index_select(0, place)[0]
        return self._images.index_select(0, chosen), self._labels.index_select(0, chosen)


class Streamed:
    """A stream, two batches ahead in a thread of its own."""

    def __init__(self, stream: Stream, steps: int, batch: int, device: torch.device):
        self._stream, self._device = stream, device
        self.order = torch.zeros(steps, batch, dtype=torch.int64)
        self._images = torch.zeros(batch, *stream.size, stream.channels, dtype=torch.uint8, device=device)
        self._labels = torch.zeros(batch, dtype=torch.int64, device=device)
        self._ready: Ready = queue.Queue(2)
        self._stopped = threading.Event()

    def begin(self, order: Int64[np.ndarray, "steps batch"], start: int) -> None:
        self._stopped.set()
        self._stopped, self._ready = threading.Event(), queue.Queue(2)
        arguments = (order[start:], self._ready, self._stopped)
        threading.Thread(target=self._read, args=arguments, daemon=True).start()

    def _read(self, order: np.ndarray, ready: Ready, stop: threading.Event) -> None:
        try:
            for images, labels in self._stream.batches(order):
                if stop.is_set():
                    return
                if self._device.type == "cuda":
                    images, labels = images.pin_memory(), labels.pin_memory()
                _put(ready, (images, labels), stop)
            _put(ready, None, stop)
        except BaseException as error:  # whatever it was, the thread that waits must hear of it
            _put(ready, error, stop)

    def fetch(self) -> None:
        got = self._ready.get()
        if got is None:
            raise LoaderError(f"{self._stream.name}: the images ended before the epoch did")
        if isinstance(got, BaseException):
            why = f"{type(got).__name__}: {str(got).splitlines()[0] if str(got) else 'no reason given'}"
            raise LoaderError(f"{self._stream.name}: the loader of images has died ({why})") from got
        images, labels = got
        self._images.copy_(images, non_blocking=True)
        self._labels.copy_(labels, non_blocking=True)

    def batch(self, place: Int64[Tensor, " one"]) -> Batch:
        return self._images, self._labels


class Mapped:
    """An image set as a stream: what does not fit on the device is read from memory, or from a mapped file."""

    def __init__(self, images: ImageSet):
        self._set = images
        self.name, self.classes = images.name, images.classes

    def __len__(self) -> int:
        return len(self._set)

    @property
    def size(self) -> tuple[int, int]:
        return self._set.size

    @property
    def channels(self) -> int:
        return self._set.channels

    def statistics(self) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
        return self._set.statistics()

    def batches(self, order: Int64[np.ndarray, "steps batch"]) -> Iterator[Batch]:
        for row in order:
            ascending = np.sort(row)  # a file is read forwards
            back = np.searchsorted(ascending, row)
            images = self._set.images[ascending][back]
            yield torch.from_numpy(images), torch.from_numpy(self._set.labels[row])


def feed(source: ImageSet | Stream, steps: int, batch: int, device: torch.device) -> Feed:
    """The fastest feed that the device has room for."""
    if not isinstance(source, ImageSet):
        return Streamed(source, steps, batch, device)
    if device.type == "cuda" and source.images.nbytes > RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]:
        return Streamed(Mapped(source), steps, batch, device)
    return Resident(source, steps, batch, device)


def _put(ready: Ready, item: Batch | BaseException | None, stop: threading.Event) -> None:
    """Waits for room, unless nobody will ask any more."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.2)
            return
        except queue.Full:
            continue
