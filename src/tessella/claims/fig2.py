"""Figure 2: on Gaussian patches a transformer may reach a small error without patch association, or with it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.head_training import HeadTraining, train_head
from tessella.structure.association import association
from tessella.structure.partition import Partition
from tessella.worlds.gaussian_filters import GaussianFilters

ASSOCIATES = (
    "whether it associates is decided by how A is made and where it starts: a free A from sigma_A = 0 does not, while "
    "a trained P with A = P^T P, what the figure shows, does, and so does a free A from sigma_A = 3"
)


def settings() -> dict[str, HeadTraining]:
    """The four ways that are tabulated."""
    return {
        "free_from_0": HeadTraining("free", 0.0),
        "free_from_3": HeadTraining("free", 3.0),
        "gram": HeadTraining("gram", 1.0),
        "query_key": HeadTraining("query-key", 1.0),
    }


@dataclass(frozen=True)
class Setup:
    side: int = 4
    block: int = 2
    dim: int = 8
    settings: dict[str, HeadTraining] = field(default_factory=settings)


def measure(setup: Setup, context: Context) -> Findings:
    partition = Partition.blocks(setup.side, setup.side, setup.block, setup.block)
    world = GaussianFilters(partition, setup.dim)
    measured: dict[str, list[float]] = {}
    runs: list[dict[str, Any]] = []
    jobs = list(itertools.product(setup.settings.items(), range(context.seeds)))
    for number, ((name, training), seed) in enumerate(jobs):
        trained = train_head(world, training, seed, context.part(number, len(jobs), f"{name}, seed {seed}"))
        similarities = trained.model.similarities().detach()
        found = association(similarities, partition)
        for key, value in (("error", trained.error[-1]), ("exact_rows", found.exact_rows), ("overlap", found.overlap)):
            measured.setdefault(f"{key}_{name}", []).append(value)
        runs.append({
            "name": name, "seed": seed, "steps": trained.steps, "loss": trained.loss, "error": trained.error,
            "similarities": similarities.numpy(), "logits": trained.model.logits().detach().numpy(),
            "chance": found.chance, "training": training,
        })  # fmt: skip
    return Findings(measured, {"runs": runs, "partition": partition})


def bars(setup: Setup) -> tuple[Bar, ...]:
    errors = [Bar(f"error_{name}", "<=", 0.02) for name in setup.settings]
    return (
        *errors,
        Bar("exact_rows_free_from_0", "<=", 0.25, "every run"),
        Bar("exact_rows_free_from_3", ">=", 1.0, "every run"),
        Bar("exact_rows_gram", "<=", 0.25, "every run", why_not=ASSOCIATES),
    )


CLAIM = Claim(
    id="fig2",
    statement=(
        "With standard normal patches labelled by a cubic convolution, a one-layer ViT gets a small test error while "
        "P^T P does not match the convolution's sets."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Figure 2",
    default=Setup(),
    full=Setup(
        settings={**settings(), "gram_from_3": HeadTraining("gram", 3.0), "small": HeadTraining("free", 0.0, 0.01)}
    ),
    bars=bars,
    measure=measure,
    seeds=3,
)
