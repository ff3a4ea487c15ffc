"""Figure 1b: sets of a partition may be spatially localized, and need not be (Definition 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.structure.partition import Partition

EXAMPLE = ((1, 2, 5, 6), (3, 4, 7, 8), (9, 10, 13, 14), (11, 12, 15, 16))
"""S_1 to S_4 as the text of Section 2 prints them, numbered from 1."""


@dataclass(frozen=True)
class Setup:
    side: int = 4
    block: int = 2


def contiguous(partition: Partition) -> float:
    """The share of sets whose patches are connected on the grid, by edges."""
    if partition.grid is None:
        raise ValueError("partition: got one without a grid, expected patches on a grid")
    grid = partition.labels.reshape(partition.grid)
    return float(np.mean([ndimage.label(grid == number)[1] == 1 for number in range(partition.sets)]))


def measure(setup: Setup, context: Context) -> Findings:
    blocks = Partition.blocks(setup.side, setup.side, setup.block, setup.block)
    random = [
        Partition.random(blocks.patches, blocks.size, seed, (setup.side, setup.side)) for seed in range(context.seeds)
    ]
    printed = [[patch - 1 for patch in patches] for patches in EXAMPLE]
    paper = Partition.from_sets(printed, (4, 4))
    return Findings(
        {
            "contiguous_blocks": [contiguous(blocks)],
            "contiguous_random": [contiguous(partition) for partition in random],
            "equals_the_text": [float(paper == Partition.blocks(4, 4, 2, 2))],
        },
        {"blocks": blocks, "random": random[0]},
    )


CLAIM = Claim(
    id="fig1b",
    statement=(
        "A partition of the patches may have spatially localized sets, or sets whose patches lie apart; Definition 2.1 "
        "covers both."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Figure 1b and Section 2",
    default=Setup(),
    full=Setup(side=14),
    bars=lambda setup: (
        Bar("contiguous_blocks", ">=", 1.0, "every run"),
        Bar("contiguous_random", "<", 0.5),
        Bar("equals_the_text", ">=", 1.0, "every run"),
    ),
    measure=measure,
)
