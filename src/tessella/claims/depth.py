"""The readers' question: does association survive in a positional transformer of two and three layers?"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.deep_training import DeepTraining, train_deep
from tessella.structure.association import association
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets

EVERY_LAYER = (
    "one layer that has found the sets is enough to fit f*, so the others are left where gradient descent happens to "
    "leave them: with more layers fewer rows are exact in the layer that has the fewest"
)


@dataclass(frozen=True)
class Setup:
    worlds: tuple[tuple[int, float], ...] = ((4, 0.4), (8, 0.15))
    """(side of the grid, q); the sets are blocks of 2 x 2."""
    dim: int = 16
    layers: tuple[int, ...] = (1, 2, 3)
    training: DeepTraining = field(default_factory=DeepTraining)


def measure(setup: Setup, context: Context) -> Findings:
    measured: dict[str, list[float]] = {}
    runs: list[dict[str, Any]] = []
    jobs = list(itertools.product(setup.worlds, setup.layers, range(context.seeds)))
    for number, ((side, spurious), layers, seed) in enumerate(jobs):
        partition = Partition.blocks(side, side, 2, 2)
        world = SignalSets(partition, setup.dim, spurious)
        text = f"D = {side * side}, {layers} layers, seed {seed}"
        run = train_deep(world, replace(setup.training, layers=layers), seed, context.part(number, len(jobs), text))
        found = [association(run.model.logits(layer).detach(), partition) for layer in range(layers)]
        values = {
            "error": run.error[-1],
            "rand_index_best": max(each.rand_index for each in found),
            "overlap_best": max(each.overlap for each in found),
            "exact_rows_last": found[-1].exact_rows,
            "exact_rows_least": min(each.exact_rows for each in found),
        }
        for name, value in values.items():
            measured.setdefault(f"{name}_{layers}_{side * side}", []).append(value)
        runs.append({
            "patches": side * side, "layers": layers, "seed": seed, "partition": partition, "steps": run.steps,
            "loss": run.loss, "error": run.error, "found": found, "logits": [each.numpy() for each in run.logits],
        })  # fmt: skip
    return Findings(measured, {"runs": runs})


def bars(setup: Setup) -> tuple[Bar, ...]:
    """Names end in the number of layers and D."""
    listed = []
    for (side, _), layers in itertools.product(setup.worlds, setup.layers):
        suffix = f"{layers}_{side * side}"
        listed += [
            Bar(f"error_{suffix}", "<=", 0.01, "every run"),
            Bar(f"rand_index_best_{suffix}", ">=", 0.9, "every run"),
        ]
        if layers > 1:
            listed.append(Bar(f"exact_rows_least_{suffix}", ">=", 0.95, why_not=EVERY_LAYER))
    return tuple(listed)


CLAIM = Claim(
    id="depth",
    statement=(
        "Patch association is not an artefact of one layer: positional transformers of two and three layers trained on "
        "the same data fit f* and associate, in every layer."
    ),
    source="A reader's question about Jelassi, Sander, Li (NeurIPS 2022): do one-layer results generalise to more?",
    default=Setup(),
    full=Setup(worlds=((4, 0.4), (8, 0.15), (14, 0.083)), layers=(1, 2, 3, 4), training=DeepTraining(steps=2_000)),
    bars=bars,
    measure=measure,
    seeds=3,
)
