"""Lemma 4.1: gradient descent on (P) keeps A in three values, though it moves all D^2 entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.idealized import Idealized, IdealizedProblem
from tessella.dynamics.idealized_flow import descend as descend_scalars
from tessella.dynamics.set_law import exact_law
from tessella.dynamics.whole_process import WholePath, descend, population, population_gradient, start
from tessella.models.simplified_vit import Activation, SimplifiedViT
from tessella.structure.partition import Partition


@dataclass(frozen=True)
class Setup:
    """Worlds that are small enough to write out: (sets, patches in each, q)."""

    worlds: tuple[tuple[int, int, float], ...] = ((4, 2, 0.2), (3, 3, 0.4), (3, 4, 0.4))
    unequal: tuple[int, ...] = (2, 3, 4)
    """Sizes of a partition with which the lemma's symmetry fails; there A is not kept in three values."""
    linear: float = 1e-2
    diagonal: float = 2.0
    rate: float = 0.02
    rate_attention: float = 1.0
    """The symmetry does not ask for one rate; with one, the larger of these worlds would take 50,000 steps."""
    steps: int = 1_200


def run(partition: Partition, spurious: float, setup: Setup, context: Context, part: int, parts: int) -> WholePath:
    """(GD) over every assignment of features that the world has."""
    whole = population(partition, spurious)
    feature = torch.ones(1, dtype=torch.float64)
    attention, value = start(partition, feature, setup.linear**0.5, setup.diagonal)
    model = SimplifiedViT(attention, value, Activation(3, setup.linear))
    tell = context.part(part, parts, f"D = {partition.patches}, {len(whole.mass)} assignments")
    return descend(
        model,
        partition,
        feature,
        lambda step: population_gradient(model, whole),
        setup.rate,
        setup.steps,
        setup.rate_attention,
        lambda fraction: tell(fraction, ""),
    )


def measure(setup: Setup, context: Context) -> Findings:
    measured: dict[str, list[float]] = {"spread": [], "engine_difference": [], "gamma": [], "spread_unequal_sets": []}
    runs: list[dict[str, Any]] = []
    parts = len(setup.worlds) + 1
    for number, (sets, size, spurious) in enumerate(setup.worlds):
        partition = Partition.random(sets * size, size, number)
        path = run(partition, spurious, setup, context, number, parts)
        problem = IdealizedProblem(sets * size, size, spurious, 3, setup.linear, setup.diagonal)
        idealized = Idealized(problem, exact_law(sets * size, size, spurious, lost=0.0))
        scalars = descend_scalars(idealized, setup.rate, setup.steps, rate_attention=setup.rate_attention)
        differences = [np.abs(getattr(path, name) - getattr(scalars, name)) for name in ("alpha", "gamma", "rho")]
        measured["spread"].append(float(path.spread.max()))
        measured["engine_difference"].append(float(np.max(differences)))
        measured["gamma"].append(float(path.gamma[-1]))
        runs.append({"partition": partition, "whole": path, "scalars": scalars, "spurious": spurious})
    unequal = Partition(np.repeat(np.arange(len(setup.unequal)), setup.unequal))
    path = run(unequal, setup.worlds[0][2], setup, context, parts - 1, parts)
    measured["spread_unequal_sets"].append(float(path.spread.max()))
    return Findings(measured, {"runs": runs, "unequal": {"partition": unequal, "whole": path}})


CLAIM = Claim(
    id="lem4.1",
    statement=(
        "From the idealized start, gradient descent on the population loss (P) over all D^2 entries keeps A in three "
        "values: beta on the diagonal, gamma within sets, rho between them. It needs sets of one size."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Lemma 4.1",
    default=Setup(),
    full=Setup(worlds=((5, 2, 0.2), (3, 3, 0.4), (4, 3, 0.3), (3, 4, 0.4)), steps=3_000),
    bars=lambda setup: (
        Bar("spread", "<=", 1e-9, "every run"),
        Bar("engine_difference", "<=", 1e-9, "every run"),
        Bar("gamma", ">=", 0.5, "every run"),
        Bar("spread_unequal_sets", ">=", 1e-2, "every run"),
    ),
    measure=measure,
    seeds=1,
)
