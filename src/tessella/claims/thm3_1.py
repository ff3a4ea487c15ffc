"""Theorem 3.1: generalized linear rules err on at least 1/8, once there are enough spurious features."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.linear_fit import fit_errors, fit_logistic
from tessella.dynamics.whole_process import population
from tessella.models.linear_rules import best_weights, error_of, uniform_error
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets

EIGHTH = 1 / 8
SMALL_LAMBDA = (
    "Assumption 1 alone does not bound the number of spurious features; with lambda = q (D - C) below about C^2 the "
    "sum of all features is mostly the signal set's. Assumption 2's q = poly(C) / D supplies the condition"
)


@dataclass(frozen=True)
class Setup:
    patches: int = 64
    size: int = 4
    few: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """Values of lambda at most C^2 / 2."""
    between: tuple[float, ...] = (12.0,)
    many: tuple[float, ...] = (16.0, 24.0, 32.0, 60.0)
    """Values of lambda from C^2 on; the last is q = 1."""
    trained: tuple[float, ...] = (4.0, 8.0, 12.0, 16.0, 32.0)
    samples: int = 20_000
    test_samples: int = 100_000
    written_out: tuple[tuple[int, int], ...] = ((2, 3), (3, 2), (2, 4))
    """(sets, patches in each) of worlds small enough to find the best rule of all."""
    rates: tuple[float, ...] = (0.2, 0.5, 1.0)

    @property
    def lambdas(self) -> tuple[float, ...]:
        return (*self.few, *self.between, *self.many)


def trained_error(setup: Setup, expected: float, seed: int) -> tuple[float, float]:
    """Test errors of logistic regression, and of a rule trained on the share of errors itself."""
    partition = Partition.random(setup.patches, setup.size, seed)
    world = SignalSets(partition, 1, expected / (setup.patches - setup.size), noise=0.0)
    samples = []
    for points, stream in ((setup.samples, 2 * seed), (setup.test_samples, 2 * seed + 1)):
        drawn = world.project(points, stream)
        samples.append((drawn.features * drawn.label[:, None]).numpy().astype(np.float64))
    train, test = samples
    uniform = np.full(len(test), 1 / len(test))
    logistic = fit_logistic(train)
    errors = [error_of(weights, test, uniform) for weights in (logistic, fit_errors(train, logistic))]
    return errors[0].half, errors[1].half


def measure(setup: Setup, context: Context) -> Findings:
    exact = {
        value: uniform_error(setup.patches, setup.size, value / (setup.patches - setup.size)) for value in setup.lambdas
    }
    measured: dict[str, list[float]] = {
        **{f"uniform_with_ties_{value:g}": [exact[value].with_ties] for value in setup.few},
        **{f"uniform_strict_{value:g}": [exact[value].strict] for value in setup.many},
        "least_over_lambda": [min(error.with_ties for error in exact.values())],
        "best_over_strict": [],
        "best_over_half": [],
    }
    trained: dict[float, list[tuple[float, float]]] = {value: [] for value in setup.trained}
    jobs = list(itertools.product(setup.trained, range(context.seeds)))
    for number, (value, seed) in enumerate(jobs):
        context.progress(0.8 * number / len(jobs), f"training at lambda = {value:g}, seed {seed}")
        trained[value].append(trained_error(setup, value, seed))
    for value, errors in trained.items():
        measured[f"trained_{value:g}"] = [min(pair) for pair in errors]
    best: list[dict[str, Any]] = []
    for (sets, size), rate in itertools.product(setup.written_out, setup.rates):
        context.progress(0.8 + 0.2 * len(best) / 9, f"best rule on {sets} sets of {size}, q = {rate:g}")
        whole = population(Partition(np.repeat(np.arange(sets), size)), rate)
        points, mass = whole.features.numpy(), whole.mass.numpy()
        weights, bound = best_weights(points, mass)
        found, uniform = error_of(weights, points, mass), uniform_error(sets * size, size, rate)
        measured["best_over_strict"].append(bound - uniform.strict)
        measured["best_over_half"].append(found.with_ties - uniform.half)
        best.append(
            {"sets": sets, "size": size, "rate": rate, "best": found.with_ties, "bound": bound, "uniform": uniform}
        )
    return Findings(measured, {"exact": exact, "trained": trained, "best": best, "setup": setup})


def bars(setup: Setup) -> tuple[Bar, ...]:
    """Names end in lambda. At least 1/8 from C^2 on, however ties are broken; below 1/8 up to C^2 / 2."""
    many = min(setup.many)
    return (
        *(Bar(f"uniform_strict_{value:g}", ">=", EIGHTH) for value in setup.many),
        *(Bar(f"trained_{value:g}", ">=", EIGHTH, "every run") for value in setup.trained if value >= many),
        *(Bar(f"uniform_with_ties_{value:g}", "<", EIGHTH) for value in setup.few),
        Bar("best_over_strict", ">=", -1e-9, "every run"),
        Bar("least_over_lambda", ">=", EIGHTH, why_not=SMALL_LAMBDA),
    )


CLAIM = Claim(
    id="thm3.1",
    statement=(
        "A generalized linear model errs on at least 1/8 of Assumption 1. It needs enough spurious features: "
        "lambda = q (D - C) at least C^2; at C^2 / 2 a linear rule is below."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Theorem 3.1",
    default=Setup(),
    full=Setup(
        patches=196,
        few=(1.0, 2.0, 4.0, 8.0),
        many=(16.0, 24.0, 32.0, 64.0, 128.0, 192.0),
        samples=100_000,
        written_out=((2, 3), (3, 2), (2, 4), (4, 2)),
        rates=(0.2, 1.0),
    ),
    bars=bars,
    measure=measure,
    seeds=3,
)
