"""Theorem 3.2: a transformer that fits f* with no patch attending to its own set, and its Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.models.misplaced_attention import (
    misplaced_attention,
    model_on,
    nearest_gram,
    own_attention,
    rows_that_hold_themselves,
)
from tessella.structure.association import association
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets

GRAM = (
    "Definition 2.2 ranks <p_i, p_j>, where the patch of largest norm is in its own Top_C by Cauchy and Schwarz; the "
    "theorem is about A as a free matrix, or needs ties"
)


@dataclass(frozen=True)
class Setup:
    side: int = 8
    """The grid is side x side; the sets have 4 patches."""
    dim: int = 16
    spurious: float = 16 / 60
    larger: tuple[int, ...] = (14, 28)
    """Sides of larger grids with the same lambda, to see the error vanish."""
    test_samples: int = 100_000


def partitions(side: int, seed: int) -> dict[str, Partition]:
    """Blocks, horizontal runs of four patches (on a side that 4 divides), and random sets."""
    made = {
        "blocks": Partition.blocks(side, side, 2, 2),
        "random": Partition.random(side * side, 4, seed, (side, side)),
    }
    if side % 4 == 0:
        made["runs"] = Partition.blocks(side, side, 1, 4)
    return made


def error(world: SignalSets, attention: torch.Tensor, samples: int, seed: int) -> float:
    """P[f* F <= 0], on data points where f* has a sign."""
    model = model_on(attention, world.feature)
    wrong = seen = 0
    for start in range(0, samples, 20_000):
        drawn = world.project(min(20_000, samples - start), 1_000 * seed + start // 20_000, torch.float64)
        rule = world.labelling(drawn)
        with torch.no_grad():
            output = model.output(drawn.along(model.value))
        decided = rule != 0
        wrong += int(((output * rule <= 0) & decided).sum())
        seen += int(decided.sum())
    return wrong / seen


def measure(setup: Setup, context: Context) -> Findings:
    names = ("own_overlap", "error", "error_own", "lead", "self_rows_gram", "error_gram", "added_diagonal")
    measured: dict[str, list[float]] = {name: [] for name in names}
    cases: list[dict[str, Any]] = []
    for seed in range(context.seeds):
        for kind, partition in partitions(setup.side, seed).items():
            context.progress(seed / context.seeds, f"{kind}, seed {seed}")
            world = SignalSets(partition, setup.dim, setup.spurious)
            attention = misplaced_attention(partition)
            gram, added = nearest_gram(attention)
            values = {
                "own_overlap": association(attention, partition).overlap,
                "error": error(world, attention, setup.test_samples, seed),
                "error_own": error(world, own_attention(partition), setup.test_samples, seed),
                "self_rows_gram": rows_that_hold_themselves(gram, partition.size),
                "error_gram": error(world, gram, setup.test_samples, seed),
                "added_diagonal": added,
            }
            values["lead"] = values["error"] - values["error_own"]
            for name, value in values.items():
                measured[name].append(value)
            cases.append({"kind": kind, "seed": seed, "partition": partition, "attention": attention, **values})
    for side in setup.larger:
        partition = Partition.blocks(side, side, 2, 2)
        world = SignalSets(partition, setup.dim, setup.spurious * (setup.side**2 - 4) / (side**2 - 4))
        measured[f"error_{side * side}"] = [error(world, misplaced_attention(partition), setup.test_samples // 5, 0)]
    return Findings(measured, {"cases": cases, "setup": setup})


CLAIM = Claim(
    id="thm3.2",
    statement=(
        "There is a one-layer transformer that fits f* while Top_C of every row of A misses the patch's own set. It "
        "holds for A as a free matrix; with A = P^T P the patch of largest norm heads its own row."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Theorem 3.2",
    default=Setup(),
    full=Setup(side=12, spurious=16 / 140, larger=(14, 28, 42), test_samples=1_000_000),
    bars=lambda setup: (
        Bar("own_overlap", "<=", 0.0, "every run"),
        Bar("error", "<=", 0.01, "every run"),
        Bar("lead", "<=", 0.002, "every run"),
        Bar(f"error_{setup.larger[-1] ** 2}", "<=", 1e-3),
        Bar("self_rows_gram", "<=", 0.0, "every run", why_not=GRAM),
    ),
    measure=measure,
    seeds=3,
)
