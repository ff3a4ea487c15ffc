"""Which correlation moves first depends on the information gap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.masked_draws import Draws, layout_of
from tessella.dynamics.masked_process import Run, descend
from tessella.models.block_basis import Correlations, gradient
from tessella.worlds.masked_areas import MaskedAreas


@dataclass(frozen=True)
class Sweep:
    """Worlds whose gap is swept by the size of the global area, and the two that stand for the regimes."""

    patches: int = 256
    clusters: int = 3
    local_size: int = 8
    global_sizes: tuple[int, ...] = (40, 64, 88, 112, 136, 160, 184, 200)
    negative: tuple[int, int] = (32, 16)
    """Global and local size of the world with a negative gap."""
    rate: float = 10.0
    """Above 10 a step moves so far that the phases blur."""
    batch: int = 32
    steps: int = 200
    rows: int = 6
    first_images: int = 3000
    """Images in each cluster for the rates at Q = 0."""

    def worlds(self, seed: int) -> list[MaskedAreas]:
        sizes = [(size, self.local_size) for size in self.global_sizes] + [self.negative]
        return [MaskedAreas.paper(self.patches, self.clusters, *pair, seed) for pair in sizes]


def bars(config: Sweep) -> tuple[Bar, ...]:
    return (
        Bar("lead_of_decoupling_large_gap", ">", 2.0, "every run"),
        Bar("lead_of_decoupling_negative_gap", "<", 0.5, "every run"),
        Bar("rate_ratio_error", "<", 0.1, "every run"),
        Bar("depth_slope", ">=", 0.8),
        Bar("depth_slope", "<=", 1.25),
    )


def measure(config: Sweep, context: Context) -> Findings:
    """Local queries of cluster 0, for which the own area is small and the global area is not theirs."""
    measured: dict[str, list[float]] = {}
    evidence: dict[str, Any] = {}
    for seed in range(context.seeds):
        worlds = config.worlds(seed)
        rows = [_local_rows(world, config.rows) for world in worlds]
        own, other = _trace(config, worlds, rows, seed, context, context.part(seed, context.seeds, f"seed {seed}"))
        leads = [_lead(a, b) for a, b in zip(own, other, strict=True)]
        depths = [_depth(a, b) for a, b in zip(own, other, strict=True)]
        ratios = [
            _initial_ratio(world, listed, config.first_images, seed, context.device)
            for world, listed in zip(worlds, rows, strict=True)
        ]
        formula = [world.initial_rate_ratio for world in worlds]
        gaps = [world.information_gap for world in worlds]
        swept = len(config.global_sizes)
        scale = [gap / 2 * math.log(config.patches) for gap in gaps[:swept]]
        positive = [i for i in range(swept) if gaps[i] > 0]
        slope, offset = np.polyfit([scale[i] for i in positive], [depths[i] for i in positive], 1)
        crossing = np.interp(0.0, np.log(ratios[:swept]), gaps[:swept])
        for name, value in (
            ("lead_of_decoupling_large_gap", leads[swept - 1]),
            ("lead_of_decoupling_negative_gap", leads[-1]),
            ("rate_ratio_error", max(abs(a / b - 1) for a, b in zip(ratios, formula, strict=True))),
            ("depth_slope", float(slope)),
            ("depth_offset", float(offset)),
            ("depth_at_largest_gap", depths[swept - 1]),
            ("gap_where_rates_are_equal", float(crossing)),
        ):
            measured.setdefault(name, []).append(value)
        if seed == 0:
            evidence = {
                "gaps": gaps,
                "ratios": ratios,
                "formula": formula,
                "depths": depths,
                "leads": leads,
                "scale": [gap / 2 * math.log(config.patches) for gap in gaps],
                "own": own,
                "global": other,
            }
    return Findings(measured, evidence)


def _local_rows(world: MaskedAreas, rows: int) -> list[int]:
    """Positions that lie in local areas of cluster 0."""
    return torch.nonzero(world.labels[0] > 0).flatten()[:rows].tolist()


def _trace(
    config: Sweep, worlds: list[MaskedAreas], rows: list[list[int]], seed: int, context: Context, tell: Any
) -> tuple[np.ndarray, np.ndarray]:
    """(worlds, steps + 1): Phi of the own feature and of the global one, the mean over rows, in cluster 0."""
    runs = [Run(world, config.rate, config.batch, seed) for world in worlds]
    every = range(config.steps + 1)
    own, other = [], []
    for number, (run, listed) in enumerate(zip(runs, rows, strict=True)):
        path = descend([run], config.steps, rows=listed, snapshots=every, device=context.device)
        mask = path.layout.own[0, 0].T
        own.append([float((shot.theta.phi[0, :, 0] * mask).sum(-1).mean()) for shot in path.snapshots])
        other.append([float(shot.theta.phi[0, :, 0, 0].mean()) for shot in path.snapshots])
        tell((number + 1) / len(runs), f"gap {run.world.information_gap:.2f}")
    return np.array(own), np.array(other)


def _lead(own: np.ndarray, other: np.ndarray) -> float:
    """How far the global correlation has fallen over how far the own one has grown, when either has moved by .25."""
    moved = np.maximum(own, -other) >= 0.25
    if not moved.any():
        return math.nan
    step = int(np.argmax(moved))
    return float(-other[step] / own[step])


def _depth(own: np.ndarray, other: np.ndarray) -> float:
    """How deep the global correlation is when the own one passes 1."""
    passed = own >= 1
    return float(-other[int(np.argmax(passed))]) if passed.any() else math.nan


def _initial_ratio(world: MaskedAreas, rows: list[int], images: int, seed: int, device: str) -> float:
    """The fall of the global correlation over the growth of the own one in the first step, over many masks."""
    layout = layout_of([world], rows, device)
    sample = Draws([world], [images], [seed], device).at(0)
    slope = gradient(Correlations.zeros(layout), layout, sample).phi[0, :, 0]
    return float(slope[:, 0].mean() / -(slope * layout.own[0, 0].T).sum(-1).mean())


CLAIM = Claim(
    id="mim.phases",
    statement=(
        "With a large information gap training first decouples the local patches from the global feature, as deep as "
        "(Delta/2) log P; with a negative gap the own feature's correlation grows from the start."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233), phases of training; as recalled. Rate formula derived here",
    default=Sweep(),
    full=Sweep(global_sizes=(40, 64, 72, 80, 88, 96, 112, 128, 144, 160, 176, 192, 200, 208, 216), batch=256, rows=16),
    bars=bars,
    measure=measure,
    seeds=3,
)
