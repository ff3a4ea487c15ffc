"""Figure 3: a data point whose label is set by one set of patches, against a majority of spurious features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets


@dataclass(frozen=True)
class Setup:
    side: int = 8
    block: int = 2
    dim: int = 16
    spurious: float = 0.25
    points: int = 20_000


def measure(setup: Setup, context: Context) -> Findings:
    partition = Partition.blocks(setup.side, setup.side, setup.block, setup.block)
    world = SignalSets(partition, setup.dim, setup.spurious)
    agree, outvoted = [], []
    example: dict[str, Any] = {}
    for seed in range(context.seeds):
        batch = world.sample(setup.points, seed)
        agree.append(float((world.labelling(batch) * batch.label > 0).double().mean()))
        # More features against the label than for it, the signal set's own included.
        against = batch.features.sum(1) * batch.label < 0
        outvoted.append(float(against.double().mean()))
        shown = torch.nonzero(against & (batch.label > 0))
        if not example and len(shown):
            point = int(shown[0])
            example = {
                "features": batch.features[point].numpy(),
                "label": int(batch.label[point]),
                "signal_set": int(batch.signal_set[point]),
            }
        context.progress((seed + 1) / context.seeds, f"seed {seed}")
    return Findings(
        {"rule_agrees": agree, "outvoted": outvoted}, {"partition": partition, "example": example, "world": repr(world)}
    )


CLAIM = Claim(
    id="fig3",
    statement=(
        "In a data point of Assumption 1 the label is that of the one signal set, even where most features have the "
        "other sign, and f* reads it off."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Assumption 1 and Figure 3",
    default=Setup(),
    full=Setup(points=200_000),
    bars=lambda setup: (Bar("rule_agrees", ">=", 0.99, "every run"), Bar("outvoted", ">", 0.0, "every run")),
    measure=measure,
)
