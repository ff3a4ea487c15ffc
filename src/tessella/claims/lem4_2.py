"""Lemma 4.2: in (P) the value vector stays in span(w*)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.idealized import Idealized, IdealizedProblem
from tessella.dynamics.idealized_flow import descend as descend_scalars
from tessella.dynamics.whole_process import WholePath, descend, sampled_gradient, start
from tessella.models.simplified_vit import Activation, SimplifiedViT
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets


@dataclass(frozen=True)
class Setup:
    sets: int = 4
    size: int = 4
    dim: int = 8
    spurious: float = 0.25
    samples: tuple[int, ...] = (250, 1_000, 4_000)
    """How many fresh data points a step stands on; the population is their limit."""
    linear: float = 1e-2
    diagonal: float = 2.0
    rate: float = 0.01
    steps: int = 150


def run(setup: Setup, points: int, seed: int, mirrored: bool) -> WholePath:
    """(GD) on fresh samples from v in span(w*); no step knows the direction."""
    generator = torch.Generator().manual_seed(seed)
    feature = torch.nn.functional.normalize(torch.randn(setup.dim, generator=generator, dtype=torch.float64), dim=0)
    partition = Partition.random(setup.sets * setup.size, setup.size, seed)
    world = SignalSets(partition, setup.dim, setup.spurious, feature=feature)
    attention, value = start(partition, feature, setup.linear**0.5, setup.diagonal)
    model = SimplifiedViT(attention, value, Activation(3, setup.linear))
    first = seed * (setup.steps + 1)
    return descend(
        model,
        partition,
        feature,
        lambda step: sampled_gradient(model, world, points, first + step, mirrored),
        setup.rate,
        setup.steps,
    )


def measure(setup: Setup, context: Context) -> Findings:
    problem = IdealizedProblem(setup.sets * setup.size, setup.size, setup.spurious, 3, setup.linear, setup.diagonal)
    scalars = descend_scalars(Idealized(problem), setup.rate, setup.steps)
    names = ("across_mirrored", "across_slope", "spread_slope", "across_most_samples", "alpha_difference")
    measured: dict[str, list[float]] = {name: [] for name in names}
    evidence = []
    for seed in range(context.seeds):
        paths = {}
        for number, points in enumerate(setup.samples):
            done = (seed * len(setup.samples) + number) / (context.seeds * len(setup.samples))
            context.progress(done, f"seed {seed}, {points} samples a step")
            paths[points] = run(setup, points, seed, mirrored=False)
        mirrored = run(setup, setup.samples[0], seed, mirrored=True)
        most = paths[setup.samples[-1]]
        measured["across_mirrored"].append(float((mirrored.across / np.abs(mirrored.alpha)).max()))
        measured["across_most_samples"].append(float((most.across / np.abs(most.alpha)).max()))
        measured["alpha_difference"].append(float(np.abs(most.alpha / scalars.alpha - 1).max()))
        for name in ("across", "spread"):
            ends = [getattr(path, name)[-1] for path in paths.values()]
            measured[f"{name}_slope"].append(float(np.polyfit(np.log(setup.samples), np.log(ends), 1)[0]))
        evidence.append({"seed": seed, "paths": paths, "mirrored": mirrored})
    return Findings(measured, {"runs": evidence, "scalars": scalars})


CLAIM = Claim(
    id="lem4.2",
    statement=(
        "From the idealized start the value vector stays in span(w*): what steps on N fresh samples add outside it is "
        "sampling error, which falls as 1/sqrt(N), and is nil once each X comes with its reflection in w*."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Lemma 4.2",
    default=Setup(),
    full=Setup(samples=(250, 1_000, 4_000, 16_000, 64_000)),
    bars=lambda setup: (
        Bar("across_mirrored", "<=", 1e-10, "every run"),
        Bar("across_slope", "<=", -0.35),
        Bar("across_slope", ">=", -0.65),
        Bar("alpha_difference", "<=", 0.05),
    ),
    measure=measure,
    seeds=5,
)
