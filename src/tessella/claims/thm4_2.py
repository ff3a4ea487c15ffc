"""Theorem 4.2: gradient descent on (E) finds the hidden sets and fits the labelling function."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.descent import Descent
from tessella.dynamics.realistic import Realistic, run


@dataclass(frozen=True)
class Case:
    """One problem, run with its sets as blocks and at random, and the bars that the runs must clear."""

    problem: Realistic
    error: float
    cosine: float
    suffix: str = ""
    """Tells this case's measurements from another's where there are several."""


@dataclass(frozen=True)
class Setup:
    cases: tuple[Case, ...]


def default() -> Setup:
    """D = 64, d = 16, N = 10,000: ten runs in under 30 s on two cores."""
    return Setup((Case(Realistic(), error=0.005, cosine=0.97),))


def full() -> Setup:
    """D = 64 with N = 30,000, where the error is halved, and D = 196 (14 x 14 patches, as in a ViT/16 at 224)."""
    # Longer is not better: once the sets are found, v goes on to fit the noise of the N points, and the cosine falls.
    more = Realistic(points=30_000, descent=Descent(steps=400, log_every=10))
    larger = Realistic(
        grid=(14, 14),
        dim=32,
        spurious=0.083,
        points=20_000,
        diagonal=3.0,
        descent=Descent(steps=300, rate_attention=100.0, rate_value=3e-4, log_every=10),
    )
    return Setup((Case(more, error=0.0025, cosine=0.99), Case(larger, error=0.01, cosine=0.97, suffix="_196")))


def bars(setup: Setup) -> tuple[Bar, ...]:
    return tuple(
        bar
        for case in setup.cases
        for bar in (
            Bar(f"exact_rows{case.suffix}", ">=", 1.0, "every run"),
            Bar(f"test_error{case.suffix}", "<=", case.error),
            Bar(f"cosine{case.suffix}", ">=", case.cosine),
        )
    )


def measure(setup: Setup, context: Context) -> Findings:
    jobs = [
        (case, replace(case.problem, sets=sets), seed)
        for case in setup.cases
        for sets in ("blocks", "random")
        for seed in range(context.seeds)
    ]
    measured: dict[str, list[float]] = {}
    runs = []
    for number, (case, problem, seed) in enumerate(jobs):
        name = f"{problem.sets}{case.suffix}-seed{seed}"
        folder = None if context.folder is None else context.folder / "thm4.2" / name
        outcome = run(problem, seed, context.device, folder, context.part(number, len(jobs), name))
        for measurement, value in (
            ("exact_rows", outcome.association.exact_rows),
            ("test_error", outcome.final.error),
            ("test_error_rule", outcome.final.error_rule),
            ("cosine", outcome.final.cosine),
            ("rand_index", outcome.association.rand_index),
        ):
            measured.setdefault(measurement + case.suffix, []).append(value)
        runs.append({"name": name, "partition": outcome.world.partition, "trajectory": outcome.trajectory})
    return Findings(measured, {"runs": runs})


CLAIM = Claim(
    id="thm4.2",
    statement=(
        "Gradient descent on the empirical risk (E) of the simplified ViT, from random initialisation, makes Top_C of "
        "every row of A its hidden set, and fits the labelling function."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Theorem 4.2",
    default=default(),
    full=full(),
    bars=bars,
    measure=measure,
)
