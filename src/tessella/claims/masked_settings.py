"""The six settings at which the second paper's claims are checked, and their training runs, made once a process.

Three claims read the same runs: that the loss reaches its floor, that attention finds the areas, and that the own
feature's correlation dominates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from tessella.claims.claim import Context
from tessella.dynamics.masked_process import Evaluation, Run, Trajectory, descend, evaluate
from tessella.models.block_basis import Correlations
from tessella.worlds.masked_areas import MaskedAreas


@dataclass(frozen=True)
class Setting:
    """Sizes of the areas, and a descent that suits them. gamma = .5, z = 1, masks without replacement."""

    patches: int
    clusters: int
    global_size: int
    local_size: int
    rate: float = 10.0
    batch: int = 64
    """Images in each cluster in a step."""
    steps: int = 800

    @property
    def label(self) -> str:
        return f"P{self.patches}_K{self.clusters}_{self.global_size}_{self.local_size}"

    def world(self, seed: int) -> MaskedAreas:
        return MaskedAreas.paper(self.patches, self.clusters, self.global_size, self.local_size, seed)


@dataclass(frozen=True)
class Settings:
    settings: tuple[Setting, ...]


SIX = Settings(
    (
        Setting(64, 2, 32, 8),
        Setting(100, 3, 60, 8),
        Setting(100, 3, 20, 10),
        Setting(256, 3, 200, 8, batch=32, steps=1000),
        Setting(256, 3, 32, 16, batch=32, steps=1000),
        Setting(100, 10, 60, 8, rate=30.0, batch=32, steps=600),
    )
)

TWICE = Settings(tuple(Setting(**{**vars(each), "steps": 2 * each.steps}) for each in SIX.settings))
"""The same, trained twice as long."""


@dataclass(frozen=True)
class Trained:
    """What a run leaves for claims and pages; plain arrays, so that it travels between processes."""

    label: str
    information_gap: float
    floor: float
    sampled_floor: float
    """The mean of what was taken off the loss sample by sample: an estimate of the floor."""
    remaining: float
    """(L - L*) / (L0 - L*)."""
    least_attention: float
    """The least over positions and clusters of the mean attention on the own area."""
    own: np.ndarray
    """(positions, clusters): Phi of the own feature."""
    own_is_global: np.ndarray
    other: np.ndarray
    """Every other Phi, flattened."""
    position_mean: float
    position_max: float
    """Mean and maximum of |Ups|."""
    by_shared_areas: tuple[tuple[int, int, float], ...]
    """For pairs of positions that lie in one local area in so many clusters: (clusters, pairs, mean Ups)."""
    steps: tuple[int, ...]
    excess: tuple[float, ...]
    maps: np.ndarray
    """(steps, clusters, areas, areas): mean attention of the masked queries of one area on another."""
    curves: dict[str, tuple[float, ...]]
    """Mean correlations over the steps."""


def trained_all(config: Settings, context: Context) -> list[tuple[Setting, int, Trained]]:
    """Every setting with every seed."""
    jobs = [(setting, seed) for setting in config.settings for seed in range(context.seeds)]
    found = []
    for number, (setting, seed) in enumerate(jobs):
        tell = context.part(number, len(jobs), setting.label)
        found.append((setting, seed, _cached(setting, seed, context.device, _Quiet(tell))))
        tell(1.0, "")
    return found


@dataclass(frozen=True, eq=False)
class _Quiet:
    """Somebody to tell; all are equal, so that the cache does not ask who it was."""

    tell: Callable[[float, str], None]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Quiet)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=64)
def _cached(setting: Setting, seed: int, device: str, quiet: _Quiet) -> Trained:
    world = setting.world(seed)
    places = sorted({round(setting.steps * share) for share in (0.01, 0.02, 0.04, 0.07, 0.12, 0.2, 0.33, 0.5, 0.7)})
    run = Run(world, setting.rate, setting.batch, seed)
    trajectory = descend([run], setting.steps, snapshots=places, device=device, tell=quiet.tell)
    start, end = evaluate(trajectory, trajectory.snapshots[0].theta), evaluate(trajectory)
    member, own = _own(trajectory)
    phi, ups = trajectory.theta.phi[0], trajectory.theta.ups[0].abs()
    real = (member.sum(-1) > 0)[None].expand_as(own)
    views = [evaluate(trajectory, shot.theta, batch=16, repeats=2) for shot in trajectory.snapshots]
    return Trained(
        label=setting.label,
        information_gap=world.information_gap,
        floor=world.floor,
        sampled_floor=float((end.loss - end.excess)[0]),
        remaining=float(end.excess[0] / start.excess[0]),
        least_attention=float(end.own_attention.min()),
        own=phi[own].view(world.patches, world.clusters).cpu().numpy(),
        own_is_global=(world.labels.T == 0).numpy(),
        other=phi[real & ~own].cpu().numpy(),
        position_mean=float(ups.mean()),
        position_max=float(ups.max()),
        by_shared_areas=_by_shared_areas(trajectory),
        steps=tuple(shot.step for shot in trajectory.snapshots),
        excess=tuple(float(view.excess[0]) for view in views),
        maps=np.stack([_area_map(view, own) for view in views]),
        curves=_curves([shot.theta for shot in trajectory.snapshots], own),
    )


def _own(trajectory: Trajectory) -> tuple[torch.Tensor, torch.Tensor]:
    """The members of areas, and which Phi are of the own feature: (rows, clusters, areas)."""
    return trajectory.layout.member[0], trajectory.layout.own[0].permute(2, 0, 1).bool()


def _by_shared_areas(trajectory: Trajectory) -> tuple[tuple[int, int, float], ...]:
    local, ups = trajectory.layout.member[0, :, 1:], trajectory.theta.ups[0]
    shared = (local.transpose(1, 2) @ local).sum(0).round().long()
    shared.fill_diagonal_(-1)
    counts = range(int(shared.max()) + 1)
    picked = [(count, ups[shared == count]) for count in counts]
    return tuple((count, len(found), float(found.mean())) for count, found in picked if len(found))


def _area_map(view: Evaluation, own: torch.Tensor) -> np.ndarray:
    queries = own.to(view.area_attention.dtype)
    total = torch.einsum("rkn,rkm->knm", queries, view.area_attention[0])
    return np.asarray((total / queries.sum(0).clamp_min(1)[..., None]).cpu())


def _curves(thetas: list[Correlations], own: torch.Tensor) -> dict[str, tuple[float, ...]]:
    in_global, feature_global = own[..., :1], torch.zeros_like(own)
    feature_global[..., 0] = True
    which = {
        "own feature, local query": own & ~in_global,
        "own feature, global query": own & in_global,
        "global feature, local query": feature_global & ~in_global,
    }
    curves = {name: tuple(float(theta.phi[0][mask].mean()) for theta in thetas) for name, mask in which.items()}
    curves["position-wise, mean size"] = tuple(float(theta.ups.abs().mean()) for theta in thetas)
    return curves
