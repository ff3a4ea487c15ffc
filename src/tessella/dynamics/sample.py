"""The N data points that the realistic problem (E) is posed on: held in memory, or drawn again at every pass."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tessella.models.simplified_vit import slice_length
from tessella.worlds.signal_sets import BLOCK, SignalSets


@runtime_checkable
class Sample(Protocol):
    """A fixed sample that can be read in slices, in the same order every time."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, D, d)."""

    def slices(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Patches and labels of the points from `start` to `stop`, a slice at a time."""


class HeldSample:
    """Patches and labels as tensors; `patches` may be memory-mapped, since it is only ever read in slices."""

    def __init__(self, patches: Tensor, label: Tensor):
        if patches.ndim != 3:
            raise ValueError(f"patches: got shape {tuple(patches.shape)}, expected (points, patches, dim)")
        if label.shape != patches.shape[:1]:
            raise ValueError(f"label: got shape {tuple(label.shape)}, expected ({len(patches)},), one for each point")
        if not ((label == 1) | (label == -1)).all():
            raise ValueError(f"label: got {label[(label != 1) & (label != -1)][0]:g}, expected -1 or 1")
        self.patches = patches.contiguous()
        self.label = label.to(patches.dtype)
        rows = slice_length(patches)
        for start in range(0, len(patches), rows):
            finite = torch.isfinite(patches[start : start + rows]).all(dim=2).all(dim=1)
            if not finite.all():
                point = start + int((~finite).nonzero()[0])
                raise ValueError(f"patches: got NaN or infinity in data point {point}, expected finite numbers")

    @property
    def shape(self) -> tuple[int, int, int]:
        points, patches, dim = self.patches.shape
        return points, patches, dim

    def slices(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        rows = slice_length(self.patches)
        for first in range(start, stop, rows):
            last = min(first + rows, stop)
            yield self.patches[first:last], self.label[first:last]


class StreamedSample:
    """A sample that is never held: every pass draws the same points again from the same seed."""

    def __init__(self, world: SignalSets, points: int, seed: int, dtype: torch.dtype, device: str):
        self._world = world
        self._points = points
        self._seed = seed
        self._dtype = dtype
        self._device = device

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._points, self._world.partition.patches, self._world.dim

    def slices(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._world.stream(stop - start, BLOCK, self._seed, self._dtype, self._device, start):
            yield batch.patches, batch.label


def draw(world: SignalSets, points: int, seed: int, dtype: torch.dtype, device: str) -> HeldSample | StreamedSample:
    """A sample held in memory where it takes at most half of what is free, and streamed otherwise."""
    size = points * world.partition.patches * world.dim * dtype.itemsize
    if size > _free_memory(device) / 2:
        return StreamedSample(world, points, seed, dtype, device)
    batch = world.sample(points, seed, dtype, device)
    return HeldSample(batch.patches, batch.label)


def _free_memory(device: str) -> int:
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
