"""The realistic problem (E) from end to end: a world, a sample, the simplified ViT, descent, and what came of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from tessella.dynamics.descent import Descent, State, Trajectory, Watch, descend
from tessella.dynamics.sample import draw
from tessella.models.simplified_vit import Activation, SimplifiedViT
from tessella.runs.folder import RunFolder
from tessella.structure.association import Association, association
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets


@dataclass(frozen=True)
class Realistic:
    """One instance of (E). The defaults associate every row in about 2 s on two cores."""

    sets: Literal["blocks", "bands", "random"] = "blocks"
    grid: tuple[int, int] = (8, 8)
    block: tuple[int, int] = (2, 2)
    """Height and width of a block; random sets have as many patches, bands as many rows as its height."""
    dim: int = 16
    spurious: float = 0.15
    noise: float | None = None
    """sigma; None for 1/sqrt(d)."""
    points: int = 10_000
    test_points: int = 20_000
    degree: int = 3
    linear: float = 1e-2
    scale: float = 1.0
    diagonal: float = 2.0
    """sigma_A. At 0 nothing associates: A = 0 is then an exact saddle."""
    init: float = 1e-2
    descent: Descent = field(default_factory=Descent)
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        if self.sets not in ("blocks", "bands", "random"):
            raise ValueError(f"sets: got {self.sets!r}, expected 'blocks', 'bands' or 'random'")
        for name in ("dim", "points", "test_points"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")
        for name in ("grid", "block"):
            if min(getattr(self, name)) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a height and a width of at least 1")
        for name in ("diagonal", "linear", "scale", "init"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a finite number")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: got {self.dtype!r}, expected 'float32' or 'float64'")

    def partition(self, seed: int) -> Partition:
        """The hidden sets; only random ones depend on the seed."""
        (height, width), (block_height, block_width) = self.grid, self.block
        if self.sets == "blocks":
            return Partition.blocks(height, width, block_height, block_width)
        if self.sets == "bands":
            return Partition.bands(height, width, block_height)
        return Partition.random(height * width, block_height * block_width, seed, self.grid)

    def world(self, seed: int) -> SignalSets:
        """Assumption 1 with a feature w* drawn uniformly from the sphere."""
        sets, direction, *_ = _streams(seed)
        generator = torch.Generator().manual_seed(direction)
        feature = torch.nn.functional.normalize(torch.randn(self.dim, generator=generator, dtype=torch.float64), dim=0)
        return SignalSets(self.partition(sets), self.dim, self.spurious, self.noise, feature)


@dataclass(frozen=True)
class Outcome:
    """The end of a run: the model, its trajectory, and the verdict on Definition 2.2."""

    world: SignalSets
    model: SimplifiedViT
    trajectory: Trajectory
    association: Association

    @property
    def final(self) -> State:
        return self.trajectory.final


def run(
    problem: Realistic,
    seed: int,
    device: str = "cpu",
    folder: str | Path | None = None,
    progress: Callable[[float, str], None] = lambda fraction, text: None,
) -> Outcome:
    """Solves (E) from one seed. With a folder the run is kept there, and resumes from it."""
    *_, for_model, for_sample, for_test = _streams(seed)
    world = problem.world(seed)
    dtype = torch.float32 if problem.dtype == "float32" else torch.float64
    model = SimplifiedViT.initialised(
        world.partition.patches,
        problem.dim,
        problem.diagonal,
        problem.init,
        for_model,
        Activation(problem.degree, problem.linear),
        problem.scale,
        dtype,
        device,
    )
    config = {**dataclasses.asdict(problem), "seed": seed, "device": device}
    kept = None if folder is None else RunFolder(Path(folder), config)
    sample = draw(world, problem.points, for_sample, dtype, device)
    watch = Watch(world, world.project(problem.test_points, for_test, dtype, device))
    trajectory = descend(model, sample, watch, problem.descent, kept, progress)
    outcome = Outcome(world, model, trajectory, association(model.attention, world.partition))
    if kept is not None:
        kept.finish({"attention": model.attention, "value": model.value}, _result(problem, seed, outcome))
    return outcome


def _result(problem: Realistic, seed: int, outcome: Outcome) -> dict[str, Any]:
    """What result.json says. Nothing in it depends on when or how often the run was stopped."""
    return {
        "problem": dataclasses.asdict(problem),
        "seed": seed,
        "final": dataclasses.asdict(outcome.final),
        "association": dataclasses.asdict(outcome.association),
    }


def _streams(seed: int) -> tuple[int, int, int, int, int]:
    """Independent seeds for the sets, w*, the model, the sample and the test sample."""
    if seed < 0:
        raise ValueError(f"seed: got {seed}, expected 0 or more")
    state = np.random.SeedSequence(seed).generate_state(5)
    return int(state[0]), int(state[1]), int(state[2]), int(state[3]), int(state[4])
