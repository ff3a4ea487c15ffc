"""The N data points that the realistic problem (E) is posed on: held in memory, or drawn again at every pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tessella.models.simplified_vit import check_signs, slice_length
from tessella.worlds.signal_sets import SignalSets


@runtime_checkable
class Sample(Protocol):
    """A fixed sample that can be read in slices, in the same order every time."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, D, d)."""

    @property
    def dtype(self) -> torch.dtype:
        """What the patches are stored in."""

    def slices(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Patches and labels of the points from `start` to `stop`, a slice at a time."""


class HeldSample:
    """Patches and labels as tensors; `patches` may be memory-mapped, since it is only ever read in slices."""

    def __init__(self, patches: Tensor, label: Tensor):
        if patches.ndim != 3 or len(patches) == 0 or not patches.is_floating_point():
            got = f"{patches.dtype} of shape {tuple(patches.shape)}"
            raise ValueError(f"patches: got {got}, expected floating-point numbers of shape (points, patches, dim)")
        if label.shape != patches.shape[:1]:
            raise ValueError(f"label: got shape {tuple(label.shape)}, expected ({len(patches)},), one for each point")
        check_signs(label)
        self.patches = patches.contiguous()
        self.label = label.to(patches.dtype)
        self._rows = slice_length(patches.shape[1], patches.shape[2], patches.dtype, patches.device.type)
        for start in range(0, len(patches), self._rows):
            finite = torch.isfinite(patches[start : start + self._rows]).all(dim=2).all(dim=1)
            if not finite.all():
                point = start + int((~finite).nonzero()[0])
                raise ValueError(f"patches: got NaN or infinity in data point {point}, expected finite numbers")

    @property
    def shape(self) -> tuple[int, int, int]:
        points, patches, dim = self.patches.shape
        return points, patches, dim

    @property
    def dtype(self) -> torch.dtype:
        return self.patches.dtype

    def slices(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        for first in range(start, stop, self._rows):
            last = min(first + self._rows, stop)
            yield self.patches[first:last], self.label[first:last]


class StreamedSample:
    """A sample that is never held: every pass draws the same points again from the same seed.

    Its slices are those of a held sample, so that the sums over them are the same bit for bit.
    """

    def __init__(self, world: SignalSets, points: int, seed: int, dtype: torch.dtype, device: str):
        self._world = world
        self._points = points
        self._seed = seed
        self.dtype = dtype
        self._device = device
        self._rows = slice_length(world.partition.patches, world.dim, dtype, torch.device(device).type)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._points, self._world.partition.patches, self._world.dim

    def slices(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._world.stream(stop - start, self._rows, self._seed, self.dtype, self._device, start):
            yield batch.patches, batch.label


def draw(world: SignalSets, points: int, seed: int, dtype: torch.dtype, device: str) -> HeldSample | StreamedSample:
    """A sample held in memory where it takes at most half of what is free, and streamed otherwise."""
    size = points * world.partition.patches * world.dim * dtype.itemsize
    free = _free_memory(device)
    if free is not None and size > free / 2:
        return StreamedSample(world, points, seed, dtype, device)
    batch = world.sample(points, seed, dtype, device)
    return HeldSample(batch.patches, batch.label)


def _free_memory(device: str) -> int | None:
    """Bytes that can be had, or None on a system that does not tell."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    information = Path("/proc/meminfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None
