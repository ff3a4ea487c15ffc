"""How positional attention is parametrised and optimised decides what it learns: the theory's two conditions.

The theory needs sigma_A > 0: with A = 0 attention is uniform, which is an exact saddle of the idealized process
(`tessella verify lem4.3`). And beyond sixteen patches it needs a rate for A far above the rate for v
(`tessella verify thm4.2`). Here a ViT is trained with A = (P W_Q)(P W_K)^T, with A = P P^T, whose diagonal is a norm
and so never 0, and with A itself. What is predicted of each case follows from the two conditions alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.image_training import ImageSetup, Job, Record, column, records_grid, run_jobs
from tessella.claims.learnt_locality import scores_locality
from tessella.models.positional_scores import Parametrisation
from tessella.probe.locality import chance
from tessella.training.loop import Trained

SADDLE = (
    "sigma_A = 0 is a saddle of the idealized process because its patches are alike in distribution; those of real "
    "images are not, so that A has a gradient there and leaves it"
)

FAST = 10.0
"""From how many times the base rate on the rate of the scores counts as far above it."""


@dataclass(frozen=True)
class Setup(ImageSetup):
    parametrisations: tuple[Parametrisation, ...] = ("projections", "gram", "matrix")
    diagonals: tuple[float, ...] = (0.0, 2.0, 3.0)
    score_rates: tuple[float, ...] = (1.0, 10.0, 50.0, 100.0)
    """Rates of the scores, in times of the base rate."""
    compare: bool = True
    """Whether to train vanilla attention too, as the measure of what can be reached."""


@dataclass(frozen=True)
class Case:
    """One way to make A, and one rate to train it with."""

    parametrisation: Parametrisation
    diagonal: float
    score_rate: float

    @property
    def name(self) -> str:
        """As measurements end: `matrix_2_50`; `projections` has no sigma_A, its logits start with variance one."""
        middle = "" if self.parametrisation == "projections" else f"_{self.diagonal:g}"
        return f"{self.parametrisation}{middle}_{self.score_rate:g}"

    @property
    def predicted(self) -> bool:
        """Whether both conditions of the theory are met, so that patch association is to be expected."""
        return self.parametrisation != "projections" and self.diagonal > 0.0 and self.score_rate >= FAST

    @property
    def prediction(self) -> str:
        """The same in words, with the condition that is not met."""
        if self.parametrisation == "projections":
            return "no sigma_A: A starts as noise, and no statement covers it"
        if self.diagonal == 0.0:
            return "sigma_A = 0: uniform attention, a saddle, is left late or never"
        if self.score_rate < FAST:
            return "A moves too slowly beside the values"
        return "the sets are found"


def cases(setup: Setup) -> list[Case]:
    """Every combination that exists: a Gram matrix has no diagonal of 0, and projections have no sigma_A at all."""
    made: list[Case] = []
    for parametrisation, rate in itertools.product(setup.parametrisations, setup.score_rates):
        if parametrisation == "projections":
            made.append(Case(parametrisation, 0.0, rate))
        else:
            least = 0.0 if parametrisation == "matrix" else 1e-9
            made += [Case(parametrisation, each, rate) for each in setup.diagonals if each >= least]
    return made


def jobs(setup: Setup, seeds: Sequence[int]) -> list[Job]:
    """Seed after seed, so that what a stopped run leaves behind is whole seeds."""
    vanilla = [Job({"case": "vanilla"}, setup.recipe.with_attention("vanilla"), 0)] if setup.compare else []
    positional = [
        Job(
            {"case": case.name},
            dataclasses.replace(
                setup.recipe.with_attention(case.parametrisation), diagonal=case.diagonal, score_rate=case.score_rate
            ),
            0,
        )
        for case in cases(setup)
    ]
    return [dataclasses.replace(job, seed=seed) for seed in seeds for job in (*vanilla, *positional)]


def measured(setup: Setup, records: Sequence[Record]) -> dict[str, list[float]]:
    """Accuracy (percent) and locality of each case, and over all cases what the predictions are worth."""
    found: dict[str, list[float]] = {}
    if vanilla := column(records, "accuracy", case="vanilla"):
        found["vanilla"] = vanilla
    for case in cases(setup):
        found[f"accuracy_{case.name}"] = column(records, "accuracy", case=case.name)
        found[f"locality_{case.name}"] = column(records, "locality", case=case.name)
    seeds = sorted({record["seed"] for record in records})
    for seed in seeds:
        of_seed = {record["case"]: record for record in records if record["seed"] == seed}
        for name, value in contrasts(setup, of_seed).items():
            found.setdefault(name, []).append(value)
    return found


def contrasts(setup: Setup, records: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What one seed says of each prediction, from the records of its cases by name.

    Contrasts that the chosen cases leave open are left out.
    """
    found: dict[str, float] = {}
    tried = cases(setup)
    for kind in ("accuracy", "locality"):
        values = {case: records[case.name][kind] for case in tried}
        as_predicted = [value for case, value in values.items() if case.predicted]
        others = [value for case, value in values.items() if not case.predicted]
        if as_predicted and others:
            found[f"{kind}_gain_predicted"] = _mean(as_predicted) - _mean(others)
        for name, one, other in (
            ("diagonal", _matrix(values, diagonal=2.0), _matrix(values, diagonal=0.0)),
            ("rate", _matrix(values, slow=False), _matrix(values, slow=True)),
        ):
            if one and other:
                found[f"{kind}_gain_{name}"] = _mean(one) - _mean(other)
    if len(tried) > 2:
        local, accurate = ([records[case.name][kind] for case in tried] for kind in ("locality", "accuracy"))
        # Where nothing differs there is nothing to order.
        differs = len(set(local)) > 1 and len(set(accurate)) > 1
        found["rank_correlation"] = float(stats.spearmanr(local, accurate)[0]) if differs else math.nan
    if "vanilla" in records:
        found["best_minus_vanilla"] = (
            max(records[case.name]["accuracy"] for case in tried) - records["vanilla"]["accuracy"]
        )
    return found


def _matrix(values: Mapping[Case, float], diagonal: float | None = None, slow: bool | None = None) -> list[float]:
    """A itself: one diagonal at rates far above the base rate, or all diagonals above 0 at slow or fast rates."""
    chosen = []
    for case, value in values.items():
        if case.parametrisation != "matrix":
            continue
        fast = case.score_rate >= FAST
        if (case.diagonal == diagonal and fast) or (slow is not None and case.diagonal > 0.0 and fast is not slow):
            chosen.append(value)
    return chosen


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def measure(setup: Setup, context: Context) -> Findings:
    kept: dict[str, Any] = {}

    def look(job: Job, trained: Trained) -> dict[str, Any]:
        if job.labels["case"] == "vanilla":
            return {}
        found = scores_locality(trained.model)
        if job.seed == setup.first_seed:
            kept[str(job.labels["case"])] = found.attention.numpy()
        return {"locality": found.share, "locality_best_layer": max(found.by_layer), "locality_layers": found.by_layer}

    records = run_jobs("parametrisation", setup, context, jobs(setup, setup.seeds(context)), look)
    grid = records_grid(records)
    evidence = {
        "runs": records, "cases": cases(setup), "attention": kept, "grid": grid, "chance": chance(grid),
    }  # fmt: skip
    return Findings({**measured(setup, records), "chance": [chance(grid)]}, evidence, {"runs": records})


def bars(setup: Setup) -> tuple[Bar, ...]:
    """Each condition by itself in A, both together over all cases, and whether what is local is also accurate."""
    matrix = "matrix" in setup.parametrisations
    fast = any(rate >= FAST for rate in setup.score_rates)
    slow = any(rate < FAST for rate in setup.score_rates)
    listed: list[Bar] = []
    for kind in ("accuracy", "locality"):
        if len({case.predicted for case in cases(setup)}) == 2:
            listed.append(Bar(f"{kind}_gain_predicted", ">", 0.0))
        if matrix and fast and {0.0, 2.0} <= set(setup.diagonals):
            listed.append(Bar(f"{kind}_gain_diagonal", ">", 0.0, why_not=SADDLE))
        if matrix and fast and slow and max(setup.diagonals) > 0.0:
            listed.append(Bar(f"{kind}_gain_rate", ">", 0.0))
    if len(cases(setup)) > 2:
        listed.append(Bar("rank_correlation", ">", 0.0))
    if setup.compare:
        listed.append(Bar("best_minus_vanilla", ">=", -0.5))
    return tuple(listed)


CLAIM = Claim(
    id="parametrisation",
    statement=(
        "Positional attention learns spatial structure, and with it accuracy, where the theory's conditions are met: "
        "A starts with a diagonal sigma_A > 0, and moves at a rate far above that of the values."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Simplification 3.1, Parametrization 3.1 and Section 4, on real images",
    default=Setup(diagonals=(0.0, 2.0), score_rates=(1.0, 50.0)),
    full=Setup(data="cifar100", epochs=60),
    bars=bars,
    measure=measure,
    seeds=1,
    needs=("sklearn",),
)
