"""Fresh masks and magnitudes for several worlds side by side, padded to one shape.

The draws come from counters, so that a setting sees the same masks alone and in a batched sweep, on any device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tessella.models.block_basis import Layout, Sample
from tessella.worlds.counters import uniforms
from tessella.worlds.masked_areas import MAGNITUDES, MASKS, MaskedAreas


def layout_of(
    worlds: Sequence[MaskedAreas],
    rows: Sequence[int] | Sequence[Sequence[int]] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> Layout:
    """The padded layout of these worlds, for the query positions `rows`: all by default, or a list for every world,
    or one list for each, of one length.

    Where worlds differ in P and all rows are asked for, the positions past a world's own P are padding.
    """
    if not worlds:
        raise ValueError("worlds: got none, expected at least one setting")
    clusters, areas, patches = (max(getattr(world, name) for world in worlds) for name in _SIZES)
    member = torch.zeros(len(worlds), clusters, areas, patches, dtype=dtype)
    real = torch.zeros(len(worlds), patches, dtype=torch.bool)
    for s, world in enumerate(worlds):
        real[s, : world.patches] = True
        member[s, : world.clusters, :, : world.patches] = (
            world.labels[:, None, :] == torch.arange(areas)[None, :, None]
        ).to(dtype)
    return Layout(member.to(device), real.to(device), _positions(worlds, rows, patches).to(device))


def _positions(
    worlds: Sequence[MaskedAreas], rows: Sequence[int] | Sequence[Sequence[int]] | None, patches: int
) -> Tensor:
    if rows is None:
        return torch.arange(patches).repeat(len(worlds), 1)
    kept = torch.tensor(rows)
    if kept.ndim == 1:
        kept = kept.repeat(len(worlds), 1)
    if kept.ndim != 2 or len(kept) != len(worlds) or kept.numel() == 0:
        raise ValueError(f"rows: got shape {tuple(kept.shape)}, expected one list, or one for each of {len(worlds)}")
    for world, listed in zip(worlds, kept, strict=True):
        if int(listed.min()) < 0 or int(listed.max()) >= world.patches:
            shown = f"{int(listed.min())} to {int(listed.max())}"
            raise ValueError(f"rows: got {shown}, expected positions from 0 to {world.patches - 1}")
    return kept


_SIZES = ("clusters", "areas", "patches")


class Draws:
    """Samples of `batch` images in each cluster of each world, a fresh one for each step."""

    def __init__(
        self,
        worlds: Sequence[MaskedAreas],
        batch: Sequence[int],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ):
        if not len(worlds) == len(batch) == len(seeds):
            raise ValueError(f"seeds: got {len(seeds)} and {len(batch)} batch sizes, expected {len(worlds)} of each")
        if min(batch) < 1:
            raise ValueError(f"batch: got {min(batch)}, expected at least one image in each cluster")
        for world in worlds:
            if world.noise:
                raise ValueError(f"noise: got {world.noise:g}, expected 0: areas share one feature in the block basis")
        self._worlds, self._seeds, self._device, self._dtype = list(worlds), list(seeds), device, dtype
        clusters, self._areas, patches = (max(getattr(world, name) for world in worlds) for name in _SIZES)
        self._shape = (clusters, max(batch), patches)
        weight = torch.zeros(len(worlds), clusters, max(batch), dtype=torch.float64)
        real = torch.zeros(len(worlds), patches, dtype=torch.bool)
        for s, world in enumerate(worlds):
            weight[s, : world.clusters, : batch[s]] = 1 / (world.clusters * batch[s])
            real[s, : world.patches] = True
        self._weight = weight.to(device, dtype)
        self._real = real.to(device)[:, None, None, :]
        self._masked = torch.tensor([world.masked for world in worlds], device=device)[:, None, None, None]
        self._ratio = torch.tensor([world.ratio for world in worlds], device=device, dtype=torch.float64)
        self._bernoulli = torch.tensor([world.masking == "bernoulli" for world in worlds], device=device)
        self._all_bernoulli = all(world.masking == "bernoulli" for world in worlds)
        self._one_law = all(world.law == worlds[0].law for world in worlds)

    def at(self, step: int) -> Sample:
        """The images of a step."""
        return Sample(self._unmasked(step), self._magnitudes(step), self._weight)

    def _unmasked(self, step: int) -> Tensor:
        draws = uniforms(self._seeds, MASKS, step, self._shape, self._device)
        everywhere = self._ratio[:, None, None, None]
        if not self._all_bernoulli:
            ordered = draws.masked_fill(~self._real, 2.0).sort(-1).values
            place = (self._masked - 1).clamp_min(0).expand(*draws.shape[:3], 1)
            last = ordered.gather(-1, place)
            everywhere = torch.where(self._bernoulli[:, None, None, None], everywhere, last)
        return ((draws > everywhere) & self._real).to(self._dtype)

    def _magnitudes(self, step: int) -> Tensor:
        laws = [world.law for world in self._worlds]
        clusters, samples, _ = self._shape
        if all(law.is_constant for law in laws):
            values = torch.tensor([law.low for law in laws], dtype=self._dtype, device=self._device)
            return values[:, None, None, None].expand(-1, clusters, 1, self._areas)
        draws = uniforms(self._seeds, MAGNITUDES, step, (clusters, samples, self._areas), self._device)
        if self._one_law:
            return laws[0].draw(draws).to(self._dtype)
        return torch.stack([law.draw(part) for law, part in zip(laws, draws, strict=True)]).to(self._dtype)
