"""Figure 4: the learnt A beside the true sets, with the test error and cos(v, w*) over training."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.descent import Descent
from tessella.dynamics.realistic import Realistic, run


@dataclass(frozen=True)
class Setup:
    problem: Realistic


def measure(setup: Setup, context: Context) -> Findings:
    measured: dict[str, list[float]] = {"gap": [], "test_error": [], "cosine": []}
    runs = []
    for seed in range(context.seeds):
        name = f"seed{seed}"
        folder = None if context.folder is None else context.folder / "fig4" / name
        outcome = run(setup.problem, seed, context.device, folder, context.part(seed, context.seeds, name))
        measured["gap"].append(outcome.final.within_min - outcome.final.between_max)
        measured["test_error"].append(outcome.final.error)
        measured["cosine"].append(outcome.final.cosine)
        runs.append({"name": name, "partition": outcome.world.partition, "trajectory": outcome.trajectory})
    return Findings(measured, {"runs": runs})


CLAIM = Claim(
    id="fig4",
    statement=(
        "The high coefficients of the learnt A are exactly the pairs (i, j) in one set, while the test error "
        "falls to almost 0 and v aligns with w*."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Figure 4",
    default=Setup(Realistic(descent=Descent(snapshots=51))),
    full=Setup(Realistic(points=30_000, descent=Descent(steps=600, log_every=10, snapshots=61))),
    bars=lambda setup: (
        Bar("gap", ">", 0.0, "every run"),
        Bar("test_error", "<=", 0.005),
        Bar("cosine", ">=", 0.97),
    ),
    measure=measure,
    seeds=1,
)
