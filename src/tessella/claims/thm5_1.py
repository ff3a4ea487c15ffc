"""Theorem 5.1: with the learnt A kept, a handful of downstream samples is enough."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.descent import Descent
from tessella.dynamics.idealized import Idealized, IdealizedProblem
from tessella.dynamics.idealized_flow import flow
from tessella.dynamics.realistic import Realistic, run
from tessella.dynamics.transfer import Ladder, Tuning, climb, downstream, fine_tune, set_attention
from tessella.structure.association import association
from tessella.worlds.signal_sets import SignalSets


@dataclass(frozen=True)
class Stage:
    """A source world with how A is pre-trained on it."""

    realistic: Realistic
    sampled: bool = True
    """False takes A from the idealized process (P) instead of (E), which costs nothing at large D."""

    @property
    def patches(self) -> int:
        return self.realistic.grid[0] * self.realistic.grid[1]


def stages() -> tuple[Stage, ...]:
    """D = 16 and 64 pre-trained on (E); D = 196 on (P)."""
    small = Descent(steps=1_500, rate_attention=1.5, rate_value=0.02, log_every=100, snapshots=2)
    medium = Descent(steps=400, log_every=100, snapshots=2)
    large = Descent(steps=300, rate_attention=100.0, rate_value=3e-4, log_every=100, snapshots=2)
    return (
        Stage(Realistic(grid=(4, 4), spurious=0.4, points=5_000, descent=small)),
        Stage(Realistic(points=10_000, descent=medium)),
        Stage(Realistic(grid=(14, 14), spurious=0.083, points=20_000, diagonal=3.0, descent=large), sampled=False),
    )


@dataclass(frozen=True)
class Setup:
    stages: tuple[Stage, ...]
    sizes: tuple[int, ...] = (2, 5, 10, 20, 35, 50, 100, 200)
    target: float = 0.02
    """The test error against f* to reach, in the median over draws of the sample and of the downstream feature."""
    draws: int = 9
    """Draws for each seed."""
    tuning: Tuning = field(default_factory=Tuning)


def pretrained(stage: Stage, seed: int, device: str) -> tuple[SignalSets, Float[Tensor, "patches patches"]]:
    """The source world and A after pre-training on it."""
    if stage.sampled:
        outcome = run(stage.realistic, seed, device)
        return outcome.world, outcome.model.attention.detach().cpu().float()
    world, given = stage.realistic.world(seed), stage.realistic
    problem = IdealizedProblem(
        stage.patches, world.partition.size, given.spurious, given.degree, given.linear, given.diagonal
    )
    path = flow(Idealized(problem), target=1e-3)
    return world, set_attention(world.partition, path.at(-1), given.diagonal)


def fixed_ladder(setup: Setup, world: SignalSets, attention: Float[Tensor, "patches patches"], seed: int) -> Ladder:
    """Sample sizes with A kept, up to the first that is enough."""
    seeds = [1_000 * seed + draw for draw in range(setup.draws)]
    worlds = [downstream(world, 50_000 + each) for each in seeds]
    return climb(setup.sizes, setup.target, lambda points: fine_tune(attention, worlds, points, seeds, setup.tuning))


def measure(setup: Setup, context: Context) -> Findings:
    measured: dict[str, list[float]] = {}
    runs: list[dict[str, Any]] = []
    for number, stage in enumerate(setup.stages):
        suffix = f"_{stage.patches}"
        names = ("exact_rows", "samples", "error_at_most_samples")
        found: dict[str, list[float]] = {name: [] for name in names}
        for seed in range(context.seeds):
            done = (number + seed / context.seeds) / len(setup.stages)
            context.progress(done, f"D = {stage.patches}, seed {seed}")
            world, attention = pretrained(stage, seed, context.device)
            ladder = fixed_ladder(setup, world, attention, seed)
            found["exact_rows"].append(association(attention, world.partition).exact_rows)
            found["samples"].append(float(ladder.need))
            found["error_at_most_samples"].append(list(ladder.medians.values())[-1])
            runs.append({"patches": stage.patches, "seed": seed, "ladder": ladder, "partition": world.partition})
        measured |= {name + suffix: values for name, values in found.items()}
    return Findings(measured, {"runs": runs, "target": setup.target})


def allowed(patches: int) -> float:
    """(log2 D)^2: the polylog(D) that the bar stands for."""
    return float(torch.log2(torch.tensor(float(patches))) ** 2)


CLAIM = Claim(
    id="thm5.1",
    statement=(
        "With A kept from pre-training, polylog(D) downstream samples, here at most (log2 D)^2, fit a downstream task "
        "that has the same sets and another feature."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Theorem 5.1",
    default=Setup(stages()),
    full=Setup(tuple(replace(stage, sampled=True) for stage in stages()), draws=25),
    bars=lambda setup: tuple(
        bar
        for stage in setup.stages
        for bar in (
            Bar(f"exact_rows_{stage.patches}", ">=", 1.0, "every run"),
            Bar(f"samples_{stage.patches}", "<=", allowed(stage.patches)),
        )
    ),
    measure=measure,
    seeds=2,
)
