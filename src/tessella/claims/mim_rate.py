"""How long attention takes to find the areas, and how fast the rest of the loss falls, by sizes and magnitudes.

What to expect at z = 1 (derived here): let o = A / (1 - A) be the odds of attention on the own area. A masked local
query pulls at its own Phi with A (1 - A)^2, where the small squares of attention on other areas are left out, and the
logarithm of the odds moves with Phi. It is masked with probability gamma and its cluster comes once in K, so that

    do/dt = c o^2 / (1 + o)^3,    c = rate gamma / K,    and so    c t = [ o^2/2 + 3 o + 3 log o - 1/o ] from o_0 on,

with o_0 about (1 - gamma) Cs / P. Attention .95 is o = 19: the climb from one half up costs 244, whatever the sizes,
and the sizes come in through 1/o_0, which is 8 to 32 in the sweeps below. Only where P / Cs is in the hundreds does
1/o_0 outweigh the climb, and the exponents tend to 1 and -1; `by_far_patches` goes there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.masked_process import Run, descend, evaluate
from tessella.worlds.magnitudes import Law
from tessella.worlds.masked_areas import MaskedAreas


@dataclass(frozen=True)
class Case:
    """Sizes, and the spread U/L of a uniform law of mean 1."""

    patches: int
    global_size: int
    local_size: int
    spread: float = 1.0

    @property
    def label(self) -> str:
        text = f"P{self.patches}_{self.global_size}_{self.local_size}"
        return text if self.spread == 1 else f"{text}_spread{self.spread:g}"

    def world(self, clusters: int, seed: int) -> MaskedAreas:
        low = 2 / (1 + self.spread)
        law = Law.constant(1.0) if self.spread == 1 else Law.uniform(low, self.spread * low)
        return MaskedAreas.paper(self.patches, clusters, self.global_size, self.local_size, seed, law=law)


@dataclass(frozen=True)
class Setup:
    clusters: int = 2
    rate: float = 20.0
    batch: int = 16
    steps: int = 1200
    rows: int = 4
    by_patches: tuple[Case, ...] = (Case(64, 32, 16), Case(128, 64, 16), Case(256, 128, 16))
    by_local_size: tuple[Case, ...] = (Case(128, 64, 8), Case(128, 64, 16), Case(128, 64, 32))
    by_global_size: tuple[Case, ...] = (Case(128, 32, 16), Case(128, 64, 16), Case(128, 96, 16))
    by_spread: tuple[Case, ...] = (Case(128, 64, 16), Case(128, 64, 16, 2.0), Case(128, 64, 16, 4.0))
    by_far_patches: tuple[Case, ...] = (Case(512, 256, 8), Case(2048, 1024, 8))
    """Where areas are a small share of the patches; reported without bars, for `far_steps` alone."""
    far_steps: int = 220


LATE = (
    "at a fixed rate the climb from one half to .95 costs 244 K / (rate gamma) steps whatever the sizes, and finding "
    "the area about P / ((1 - gamma) Cs) times K / (rate gamma), which is 8 to 32 times here: derived_time_exponent "
    "says what follows, time_to_half_exponent and time_exponent_far_P where sizes do count"
)


def bars(config: Setup) -> tuple[Bar, ...]:
    tails = [f"tail_slope_{case.label}" for case in config.by_local_size if case.local_size >= 16]
    return (
        Bar("time_exponent_P", ">=", 0.5, why_not=LATE),
        Bar("time_exponent_P", "<=", 1.5),
        Bar("time_exponent_Cs", ">=", -1.5),
        Bar("time_exponent_Cs", "<=", -0.5, why_not=LATE),
        Bar("time_ratio_widest_spread", ">", 1.0),
        *(Bar(tail, ">=", -1.15) for tail in tails),
        *(Bar(tail, "<=", -0.85) for tail in tails),
    )


def measure(config: Setup, context: Context) -> Findings:
    """Local queries of cluster 0. Exponents are slopes of log time against log size; the tail is the last quarter of
    the descent to the end, in log-log."""
    sweeps = (config.by_patches, config.by_local_size, config.by_global_size, config.by_spread)
    near = list(dict.fromkeys(case for sweep in sweeps for case in sweep))
    cases = near + [case for case in config.by_far_patches if case not in near]
    measured: dict[str, list[float]] = {}
    curves = {}
    for seed in range(context.seeds):
        times: dict[Case, float] = {}
        halves: dict[Case, float] = {}
        for number, case in enumerate(cases):
            tell = context.part(seed * len(cases) + number, context.seeds * len(cases), case.label)
            length = config.steps if case in near else config.far_steps
            steps, attention, excess = _descent(config, case, length, seed, context.device, tell)
            times[case], halves[case] = (_crossing(steps, attention, level) for level in (0.95, 0.5))
            measured.setdefault(f"time_{case.label}", []).append(times[case])
            if case.spread == 1:
                over = times[case] / derived_time(config, case, 0.95)
                measured.setdefault(f"time_over_derived_{case.label}", []).append(over)
            if case not in near:
                continue
            if seed == 0:
                curves[case.label] = (steps, attention, excess)
            late = [i for i, step in enumerate(steps) if step >= config.steps / 4]
            slope = np.polyfit(np.log([steps[i] for i in late]), np.log([excess[i] for i in late]), 1)[0]
            measured.setdefault(f"tail_slope_{case.label}", []).append(float(slope))
        for name, sweep, sizes in (
            ("P", config.by_patches, [case.patches for case in config.by_patches]),
            ("Cs", config.by_local_size, [case.local_size for case in config.by_local_size]),
            ("C1", config.by_global_size, [case.global_size for case in config.by_global_size]),
            ("far_P", config.by_far_patches, [case.patches for case in config.by_far_patches]),
        ):
            series = {"time": times, "time_to_half": halves}
            if name != "C1":  # the derived time does not know the global area
                series["derived_time"] = {case: derived_time(config, case, 0.95) for case in sweep}
            for what, found in series.items():
                exponent = np.polyfit(np.log(sizes), np.log([found[case] for case in sweep]), 1)[0]
                measured.setdefault(f"{what}_exponent_{name}", []).append(float(exponent))
        widest = times[config.by_spread[-1]] / times[config.by_spread[0]]
        measured.setdefault("time_ratio_widest_spread", []).append(widest)
    barred = list(dict.fromkeys(bar.measurement for bar in bars(config)))
    return Findings({name: measured[name] for name in [*barred, *measured]}, {"curves": curves})


def derived_time(config: Setup, case: Case, level: float, ratio: float = 0.5) -> float:
    """Steps until attention on a local area is at `level`, as derived above."""

    def climbed(odds: float) -> float:
        return odds**2 / 2 + 3 * odds + 3 * math.log(odds) - 1 / odds

    start = (1 - ratio) * case.local_size / case.patches
    reached = climbed(level / (1 - level)) - climbed(start / (1 - start))
    return config.clusters / (config.rate * ratio) * reached


def _descent(
    config: Setup, case: Case, length: int, seed: int, device: str, tell: Callable[[float, str], None]
) -> tuple[list[int], list[float], list[float]]:
    """Steps, mean attention on the own area, and excess loss."""
    world = case.world(config.clusters, seed)
    rows = torch.nonzero(world.labels[0] > 0).flatten()[: config.rows].tolist()
    places = sorted({round(length ** (i / 40)) for i in range(41)})
    run = Run(world, config.rate, config.batch, seed)
    path = descend([run], length, rows, places, device=device, tell=tell)
    views = [evaluate(path, shot.theta) for shot in path.snapshots[1:]]
    attention = [float(view.own_attention[0, :, 0].mean()) for view in views]
    return [shot.step for shot in path.snapshots[1:]], attention, [float(view.excess[0]) for view in views]


def _crossing(steps: list[int], attention: list[float], level: float) -> float:
    """When attention first reaches a level, between snapshots by interpolation; NaN if it never does."""
    above = [i for i, value in enumerate(attention) if value >= level]
    if not above:
        return math.nan
    i = above[0]
    if i == 0:
        return float(steps[0])
    share = (level - attention[i - 1]) / (attention[i] - attention[i - 1])
    return steps[i - 1] + share * (steps[i] - steps[i - 1])


CLAIM = Claim(
    id="mim.rate",
    statement=(
        "The time until attention finds the areas grows with P and with the spread of the magnitudes, and falls with "
        "the size of the area; afterwards the excess loss falls as 1/t where areas are too large to be fully masked."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233), rates of convergence; dependence measured here",
    default=Setup(),
    full=Setup(batch=64, steps=6000, rows=8),
    bars=bars,
    measure=measure,
    seeds=3,
)
