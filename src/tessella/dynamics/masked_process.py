"""Gradient descent on masked reconstruction from Q = 0, in the block basis, many settings side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.dynamics.masked_draws import Draws, layout_of
from tessella.models.block_basis import Correlations, Keys, Layout, counted, forward, gradient, query_losses
from tessella.worlds.masked_areas import MaskedAreas

HELD_OUT = 1 << 19
"""Steps from here on number the samples that only measurements see."""


@dataclass(frozen=True)
class Run:
    """One setting: its world, its rate, and how many images in each cluster a step sees."""

    world: MaskedAreas
    rate: float
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"rate: got {self.rate:g}, expected a positive number")


@dataclass(frozen=True)
class Snapshot:
    """The parameters after so many steps."""

    step: int
    theta: Correlations


@dataclass(frozen=True)
class Trajectory:
    """What a descent leaves: its settings, their layout, and parameters over time (the last is the end)."""

    runs: tuple[Run, ...]
    layout: Layout
    snapshots: tuple[Snapshot, ...]
    features: bool
    keys: Keys

    @property
    def theta(self) -> Correlations:
        return self.snapshots[-1].theta


def descend(
    runs: Sequence[Run],
    steps: int,
    rows: Sequence[int] | Sequence[Sequence[int]] | None = None,
    snapshots: Sequence[int] = (),
    features: bool = True,
    keys: Keys = "all",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
    tell: Callable[[float, str], None] = lambda fraction, text: None,
) -> Trajectory:
    """Stochastic gradients with fresh masks at every step, all runs in one batch.

    `rows` restricts training to some query positions, which changes nothing for them. Parameters are kept at the
    steps named in `snapshots`, and always at 0 and at the end.
    """
    if steps < 1:
        raise ValueError(f"steps: got {steps}, expected at least 1")
    worlds = [run.world for run in runs]
    layout = layout_of(worlds, rows, device, dtype)
    draws = Draws(worlds, [run.batch for run in runs], [run.seed for run in runs], device, dtype)
    rate = torch.tensor([run.rate for run in runs], dtype=dtype, device=device)
    theta = Correlations.zeros(layout)
    kept, wanted = [Snapshot(0, theta)], {*snapshots, steps}
    for step in range(steps):
        theta = theta.minus(gradient(theta, layout, draws.at(step), features, keys), rate)
        if step + 1 in wanted:
            if not bool(theta.phi.isfinite().all() and theta.ups.isfinite().all()):
                raise ValueError(f"rate: got {max(run.rate for run in runs):g}, which diverged by step {step + 1}")
            kept.append(Snapshot(step + 1, theta))
        if step % 50 == 0:
            tell(step / steps, f"step {step}")
    return Trajectory(tuple(runs), layout, tuple(kept), features, keys)


@dataclass(frozen=True)
class Evaluation:
    """Measured on held-out masks, with what no model can do taken off sample by sample."""

    excess: Float[Tensor, " settings"]
    """Loss minus the floor, summed over the rows. The floor of a query is 0 where its area has an unmasked patch and
    z^2 / 2 where it has none: subtracting it image by image leaves a far less noisy number than subtracting L*."""
    loss: Float[Tensor, " settings"]
    own_attention: Float[Tensor, "settings rows clusters"]
    """The mean attention of a masked query on its own area, over images that do not hide the whole area."""
    area_attention: Float[Tensor, "settings rows clusters areas"]
    """The same for every area."""


def evaluate(
    trajectory: Trajectory, theta: Correlations | None = None, batch: int = 64, repeats: int = 4
) -> Evaluation:
    """Loss and attention of these parameters (the end of the run by default) on `repeats` held-out samples."""
    theta = theta or trajectory.theta
    layout, runs = trajectory.layout, trajectory.runs
    device, dtype = layout.member.device, layout.member.dtype
    draws = Draws([r.world for r in runs], [batch] * len(runs), [r.seed for r in runs], device, dtype)
    own = layout.own[:, :, None]
    excess = loss = torch.zeros(len(runs), dtype=dtype, device=device)
    attended = torch.zeros_like(theta.phi)
    seen_by = torch.zeros_like(theta.phi[..., 0])
    for repeat in range(repeats):
        sample = draws.at(HELD_OUT + repeat)
        passed = forward(theta, layout, sample, trajectory.features, trajectory.keys)
        weight = counted(layout, sample)
        losses = query_losses(passed.area_attention, layout, sample)
        shown = sample.unmasked @ layout.member.transpose(2, 3)
        lost = ((shown[..., None] * own).sum(3) == 0).to(dtype)
        floor = 0.5 * lost * ((own * sample.z[..., None]) ** 2).sum(3)
        loss = loss + (weight * losses).sum((1, 2, 3)) / repeats
        excess = excess + (weight * (losses - floor)).sum((1, 2, 3)) / repeats
        fair = weight * (1 - lost)
        attended = attended + (fair[:, :, :, None] * passed.area_attention).sum(2).permute(0, 3, 1, 2)
        seen_by = seen_by + fair.sum(2).transpose(1, 2)
    area_attention = attended / seen_by.clamp_min(torch.finfo(dtype).tiny)[..., None]
    return Evaluation(excess, loss, (area_attention * layout.own.permute(0, 3, 1, 2)).sum(-1), area_attention)


def matrix(trajectory: Trajectory, setting: int = 0) -> Float[Tensor, "dim dim"]:
    """Q of one setting in the coordinates of features and position encodings, with all rows trained."""
    world = trajectory.runs[setting].world
    phi, ups = trajectory.theta.phi[setting], trajectory.theta.ups[setting]
    if len(phi) < world.patches:
        raise ValueError(f"rows: got {len(phi)} trained query positions, expected all {world.patches}")
    found = [phi[: world.patches, k, : part.sets] for k, part in enumerate(world.partitions)]
    Q = phi.new_zeros(world.features + world.patches, world.features + world.patches)
    Q[world.features :] = torch.cat([*found, ups[: world.patches, : world.patches]], dim=1)
    return Q
