"""Lemma 4.3: gamma outgrows |rho| at every step, hence gamma > |rho| from the first one on."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.idealized import Idealized, IdealizedProblem
from tessella.dynamics.idealized_flow import IdealizedPath, descend, flow, velocity

FLOOR = (
    "with few patches, lambda = 8 and beta of 3 or more, gamma passes a maximum once the loss is down to what the "
    "points on which f* itself errs leave, long after the sets are found; gamma > |rho| holds there too (least_lead)"
)


@dataclass(frozen=True)
class Setup:
    """A grid of (D, lambda), each with every beta; nu is 1 / D^1.5."""

    worlds: tuple[tuple[int, float], ...] = ((64, 4), (64, 8), (196, 4), (1_000, 9), (10_000, 16), (10**6, 16))
    diagonals: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0)
    dense: tuple[tuple[int, float], ...] = ((16, 8), (16, 12), (64, 60))
    """(D, lambda) with q of 2/3 and 1, which Assumption 2's q = poly(C) / D excludes: measured, and held to no bar."""
    size: int = 4
    descended: tuple[int, float] = (16, 2.0)
    """(D, lambda) of the descent that is followed step by step with the paper's one learning rate."""
    rate: float = 0.02
    steps: int = 20_000
    points: int = 100


def problem(patches: int, size: int, expected: float, diagonal: float) -> IdealizedProblem:
    """lambda = q (D - C), and nu = 1 / D^1.5."""
    return IdealizedProblem(patches, size, expected / (patches - size), 3, patches**-1.5, diagonal)


def increments(idealized: Idealized, path: IdealizedPath) -> tuple[np.ndarray, np.ndarray]:
    """|d rho| / d gamma, infinite where gamma does not rise, and the lemma's hidden factor, along a path.

    The factor is d gamma / (alpha^p Gamma G^(p-1)).
    """
    speeds = np.array([velocity(idealized, path.at(index)) for index in range(len(path.time))])
    within = np.array([idealized.attention(path.at(index)).within for index in range(len(path.time))])
    power = idealized.problem.power
    factor = speeds[:, 1] / (path.alpha**power * within * path.own_set_weight ** (power - 1))
    rising = speeds[:, 1] > 0
    ratio = np.full(len(speeds), np.inf)  # where gamma falls it is outgrown, however slowly rho moves
    ratio[rising] = np.abs(speeds[rising, 2]) / speeds[rising, 1]
    return ratio, factor


def measure(setup: Setup, context: Context) -> Findings:
    measured: dict[str, list[float]] = {
        "increment_ratio": [],
        "least_increment": [],
        "least_lead": [],
        "final_ratio": [],
    }
    runs = []
    grid = list(itertools.product(setup.worlds, setup.diagonals))
    for number, ((patches, expected), diagonal) in enumerate(grid):
        context.progress(number / len(grid), f"D = {patches}, lambda = {expected:g}, beta = {diagonal:g}")
        idealized = Idealized(problem(patches, setup.size, expected, diagonal))
        path = flow(idealized, points=setup.points)
        ratio, factor = increments(idealized, path)
        measured["increment_ratio"].append(float(ratio.max()))
        measured["least_increment"].append(float(factor.min()))
        measured["least_lead"].append(float((path.gamma - np.abs(path.rho))[1:].min()))
        measured["final_ratio"].append(float(np.abs(path.rho[-1]) / path.gamma[-1]))
        runs.append({
            "patches": patches, "expected": expected, "diagonal": diagonal, "path": path, "ratio": ratio,
            "factor": factor, "states": idealized.law.states, "loss": float(path.loss[-1]),
        })  # fmt: skip
    measured |= {"least_lead_dense": [], "gamma_over_rho_dense": []}
    dense = []
    for (patches, expected), diagonal in itertools.product(setup.dense, setup.diagonals):
        idealized = Idealized(problem(patches, setup.size, expected, diagonal))
        path = flow(idealized, points=setup.points)
        lead = (path.gamma - np.abs(path.rho))[1:]
        measured["least_lead_dense"].append(float(lead.min()))
        measured["gamma_over_rho_dense"].append(float(path.gamma[-1] - path.rho[-1]))
        dense.append({"patches": patches, "expected": expected, "diagonal": diagonal, "path": path})
    patches, expected = setup.descended
    idealized = Idealized(problem(patches, setup.size, expected, 2.0))
    path = descend(idealized, setup.rate, setup.steps)
    moved = np.diff(path.gamma) - np.abs(np.diff(path.rho))
    measured["steps_in_order"] = [float((moved > 0).mean())]
    measured["steps_gamma_above"] = [float((path.gamma[1:] > np.abs(path.rho[1:])).mean())]
    return Findings(
        measured, {"runs": runs, "dense": dense, "descent": {"path": path, "patches": patches, "expected": expected}}
    )


CLAIM = Claim(
    id="lem4.3",
    statement=(
        "At every step gamma, the attention within sets, grows by more than |rho|, the attention between sets, "
        "moves; so gamma > |rho| at all t > 0, whatever D, lambda and beta. It needs q well below 1."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Lemma 4.3",
    default=Setup(),
    full=Setup(
        worlds=((64, 4), (64, 8), (196, 4), (196, 9), (1_000, 4), (1_000, 9), (10_000, 16), (10**6, 16), (10**8, 16)),
        diagonals=(0.25, 0.5, 1.0, 2.0, 3.0, 4.0),
        steps=60_000,
    ),
    bars=lambda setup: (
        Bar("increment_ratio", "<", 1.0, "every run", why_not=FLOOR),
        Bar("least_increment", ">", 0.0, "every run", why_not=FLOOR),
        Bar("least_lead", ">", 0.0, "every run"),
        Bar("steps_in_order", ">=", 1.0),
        Bar("steps_gamma_above", ">=", 1.0),
    ),
    measure=measure,
    seeds=1,
)
