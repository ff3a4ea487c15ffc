"""Theorem 4.1: the idealized process associates and fits f*, through three events."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.idealized import Idealized, IdealizedProblem
from tessella.dynamics.idealized_flow import IdealizedPath, events, flow
from tessella.dynamics.set_law import set_types
from tessella.dynamics.truncation import truncation_bound

AGAIN = (
    "after Event I alpha stays at the value that is best for the A of the moment, and that value first rises and then "
    "falls as G grows; what keeps rising is alpha G, by which the mean of a patch's own set is multiplied"
)
SADDLE = (
    "from sigma_A = 0 uniform attention is an exact saddle for gamma and rho, so that nothing associates at any time"
)


@dataclass(frozen=True)
class Setup:
    """(D, lambda, nu) of each world."""

    worlds: tuple[tuple[int, float, float], ...] = ((1_000, 9, 1e-6), (10_000, 16, 1e-8), (1_000_000, 16, 1e-10))
    size: int = 4
    diagonal: float = 2.0
    target: float = 1e-4
    """The loss at which a path ends."""


def name(patches: int) -> str:
    return f"{patches:.0e}".replace("e+0", "e").replace("e+", "e")


def rule_error(patches: int, size: int, spurious: float) -> float:
    """P[y f*(X) <= 0], at most: some random set has all its features against y."""
    pairs, mass = set_types(size, spurious)
    against = float(mass[(pairs[:, 0] < -0.9 * size)].sum())
    return -math.expm1((patches // size - 1) * math.log1p(-against))


def associates(idealized: Idealized, path: IdealizedPath) -> bool:
    """Top_C of every row of A is its set: beta and gamma both exceed rho."""
    end = path.at(-1)
    return min(end.gamma, idealized.problem.diagonal) > end.rho


def _rises(values: np.ndarray) -> float:
    """The share of steps that do not fall, but for the solver's tolerance; NaN where there is none."""
    if len(values) < 2:
        return math.nan
    return float((np.diff(values) > -1e-8 * values[1:]).mean())


def _off_best(idealized: Idealized, path: IdealizedPath, since: float, places: int = 30) -> float:
    """How far alpha is, after Event I, from the alpha of least loss for the gamma and rho of the moment.

    NaN where Event I does not come, as with nu = 0, or without a spurious feature that would hold alpha back.
    """
    settled = np.flatnonzero(path.time >= 10 * since)
    if len(settled) == 0:
        return math.nan
    chosen = settled[np.linspace(0, len(settled) - 1, places).astype(int)]
    best = [idealized.best_alpha(float(path.gamma[index]), float(path.rho[index])) for index in chosen]
    return float(np.abs(path.alpha[chosen] / best - 1).max())


def measure(setup: Setup, context: Context) -> Findings:
    measured: dict[str, list[float]] = {}
    runs = []
    for number, (patches, expected, linear) in enumerate(setup.worlds):
        context.progress(number / len(setup.worlds), f"D = {patches:,}")
        spurious = expected / (patches - setup.size)
        idealized = Idealized(IdealizedProblem(patches, setup.size, spurious, 3, linear, setup.diagonal))
        path = flow(idealized, target=setup.target)
        found = events(idealized, path, 10 * setup.target)
        third = path.time >= found.association
        values = {
            "associates": float(associates(idealized, path)),
            "error_rule": float(path.error[-1]) + rule_error(patches, setup.size, spurious) + idealized.law.lost,
            "loss": float(path.loss[-1]),
            "events_in_order": float(found.in_order),
            "plateau_loss": found.plateau_loss,
            "plateau_scaled": found.plateau_alpha * patches ** (1 / 3),
            "alpha_rise": found.peak_alpha / found.plateau_alpha,
            "alpha_final_over_peak": found.final_alpha / found.peak_alpha,
            "alpha_off_best": _off_best(idealized, path, found.plateau),
            "own_set_rises": _rises((path.alpha * path.own_set_weight)[third]),
            "time_I": found.plateau,
            "time_II": found.association,
            "time_II_clear": found.clear_association,
            "time_III": found.fit,
        }
        for key, value in values.items():
            measured[f"{key}_{name(patches)}"] = [value]
        bound = truncation_bound(idealized, path.at(-1))
        runs.append({"problem": idealized.problem, "path": path, "events": found, "law": idealized.law, "bound": bound})
    measured |= _scaling(runs)
    return Findings(measured, {"runs": runs})


def _scaling(runs: list[dict[str, object]]) -> dict[str, list[float]]:
    """The exponents of D in the events' times, between the worlds that share a lambda."""
    exponents: dict[str, list[float]] = {}
    for first, second in itertools.pairwise(runs):
        low, high = first["problem"], second["problem"]
        assert isinstance(low, IdealizedProblem)
        assert isinstance(high, IdealizedProblem)
        if not math.isclose(low.spurious * (low.patches - low.size), high.spurious * (high.patches - high.size)):
            continue
        for key, attribute in (("I", "plateau"), ("II_clear", "clear_association"), ("III", "fit")):
            ratio = getattr(second["events"], attribute) / getattr(first["events"], attribute)
            exponent = math.log(ratio) / math.log(high.patches / low.patches)
            exponents.setdefault(f"exponent_{key}", []).append(exponent)
    return exponents


def bars(setup: Setup) -> tuple[Bar, ...]:
    listed = []
    stays = SADDLE if setup.diagonal == 0 else ""
    for patches, _, _ in setup.worlds:
        suffix = name(patches)
        listed += [
            Bar(f"associates_{suffix}", ">=", 1.0, why_not=stays),
            Bar(f"error_rule_{suffix}", "<=", 1e-2),
            Bar(f"loss_{suffix}", "<=", 2 * setup.target, why_not=stays),
            Bar(f"events_in_order_{suffix}", ">=", 1.0, why_not=stays),
            Bar(f"alpha_rise_{suffix}", ">", 1.0, why_not=stays),
            Bar(f"alpha_final_over_peak_{suffix}", ">=", 1.0, why_not=stays or AGAIN),
            Bar(f"alpha_off_best_{suffix}", "<=", 1e-3),
            Bar(f"own_set_rises_{suffix}", ">=", 1.0),
        ]
    lambdas = [expected for _, expected, _ in setup.worlds]
    if any(first == second for first, second in itertools.pairwise(lambdas)):
        listed += [Bar("exponent_II_clear", ">=", 1.9), Bar("exponent_II_clear", "<=", 2.1)]
    return tuple(listed)


CLAIM = Claim(
    id="thm4.1",
    statement=(
        "Gradient descent on (P) learns patch association and f*, in three events: alpha rises to a plateau; gamma "
        "passes every |rho|; alpha increases again until the population risk is o(1)."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Theorem 4.1 and the events of Section 4.1",
    default=Setup(),
    full=Setup(
        worlds=(
            (1_000, 9, 1e-6),
            (10_000, 16, 1e-8),
            (1_000_000, 16, 1e-10),
            (100_000_000, 16, 1e-12),
            (10**12, 16, 1e-16),
        )
    ),
    bars=bars,
    measure=measure,
    seeds=1,
)
