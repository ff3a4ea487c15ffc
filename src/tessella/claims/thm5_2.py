"""Theorem 5.2: without knowing the sets, the samples that a downstream task takes grow as a power of D."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.thm5_1 import Setup as FixedSetup
from tessella.claims.thm5_1 import Stage, fixed_ladder, stages
from tessella.dynamics.idealized import Idealized, IdealizedProblem
from tessella.dynamics.idealized_flow import flow
from tessella.dynamics.transfer import (
    Ladder,
    climb,
    downstream,
    fine_tune,
    from_scratch,
    set_attention,
    uniform_attention,
)
from tessella.worlds.signal_sets import SignalSets


@dataclass(frozen=True)
class Setup:
    fixed: FixedSetup
    """The comparison: A kept, here from the idealized process at every D."""
    sizes: tuple[int, ...] = (125, 250, 500, 1_000, 2_000, 4_000, 8_000)
    uniform_samples: int = 500
    """How many samples uniform attention is given; more than ten times what a known A needs."""
    ignored: tuple[int, ...] = field(default=(16,))
    """Values of D at which uniform attention is not held to a bar: with 16 patches a linear rule is not bad."""


def measure(setup: Setup, context: Context) -> Findings:
    measured: dict[str, list[float]] = {}
    runs: list[dict[str, Any]] = []
    target, tuning = setup.fixed.target, setup.fixed.tuning
    for number, stage in enumerate(setup.fixed.stages):
        context.progress(number / len(setup.fixed.stages), f"D = {stage.patches}")
        world = stage.realistic.world(0)
        scratch = _scratch_ladder(setup, world, context, number)
        fixed = fixed_ladder(setup.fixed, world, _idealized_attention(stage, world), 0)
        draws = [downstream(world, 90_000 + draw) for draw in range(setup.fixed.draws)]
        seeds = list(range(setup.fixed.draws))
        uniform = fine_tune(uniform_attention(world.partition), draws, setup.uniform_samples, seeds, tuning)
        suffix = f"_{stage.patches}"
        measured[f"samples_scratch{suffix}"] = [float(scratch.need)]
        measured[f"samples_fixed{suffix}"] = [float(fixed.need)]
        measured[f"ratio{suffix}"] = [scratch.need / fixed.need]
        measured[f"error_uniform{suffix}"] = [float(np.median(uniform))]
        runs.append({"patches": stage.patches, "scratch": scratch, "fixed": fixed, "uniform": uniform})
    patches = [stage.patches for stage in setup.fixed.stages]
    for kind in ("scratch", "fixed"):
        needs = [measured[f"samples_{kind}_{each}"][0] for each in patches]
        measured[f"exponent_{kind}"] = [_exponent(patches, needs)]
    ratios = [measured[f"ratio_{each}"][0] for each in patches]
    measured["ratio_growth"] = [ratios[-1] / ratios[0]]
    return Findings(measured, {"runs": runs, "target": target, "uniform_samples": setup.uniform_samples})


def _exponent(patches: list[int], needs: list[float]) -> float:
    """The power of D with which a need grows; not a number for one D, infinite where a need is."""
    if len(patches) < 2:
        return math.nan
    if not all(math.isfinite(need) for need in needs):
        return math.inf
    return float(np.polyfit(np.log(patches), np.log(needs), 1)[0])


def _scratch_ladder(setup: Setup, world: SignalSets, context: Context, number: int) -> Ladder:
    """A and v trained together from nothing."""

    def errors_at(points: int) -> list[float]:
        errors = []
        for draw in range(context.seeds):
            text = f"D = {world.partition.patches}, {points} samples from scratch, draw {draw}"
            context.progress((number + 0.5) / len(setup.fixed.stages), text)
            errors.append(from_scratch(downstream(world, 50_000 + draw), points, draw, setup.fixed.tuning))
        return errors

    return climb(setup.sizes, setup.fixed.target, errors_at)


def _idealized_attention(stage: Stage, world: SignalSets) -> Any:
    given = stage.realistic
    problem = IdealizedProblem(
        stage.patches, world.partition.size, given.spurious, given.degree, given.linear, given.diagonal
    )
    return set_attention(world.partition, flow(Idealized(problem), target=1e-3).at(-1), given.diagonal)


def bars(setup: Setup) -> tuple[Bar, ...]:
    patches = [stage.patches for stage in setup.fixed.stages]
    grown = [Bar(f"ratio_{each}", ">=", 10.0) for each in patches if each not in setup.ignored]
    stuck = [
        Bar(f"error_uniform_{each}", ">=", 2 * setup.fixed.target) for each in patches if each not in setup.ignored
    ]
    growth = [Bar("exponent_scratch", ">=", 0.5)] if len(patches) > 1 else []
    return (*growth, *grown, *stuck)


CLAIM = Claim(
    id="thm5.2",
    statement=(
        "Without patch association a downstream task takes D^Omega(1) samples: training A and v from scratch needs "
        "ever more samples as D grows, many times what a known A needs, and uniform attention never gets there."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Theorem 5.2",
    default=Setup(FixedSetup(stages())),
    full=Setup(
        FixedSetup(tuple(replace(stage, sampled=True) for stage in stages()), draws=25),
        sizes=(60, 125, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000),
        uniform_samples=5_000,
    ),
    bars=bars,
    measure=measure,
    seeds=3,
)
