"""The partition that association is measured with where none is given."""

from __future__ import annotations

import math

import torch

from tessella.structure.partition import Partition


def small_blocks(grid: tuple[int, int]) -> Partition:
    """Blocks of two by two patches; where a side is odd, the last ones are narrower.

    >>> small_blocks((2, 3)).labels.tolist()
    [0, 0, 1, 0, 0, 1]
    """
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    return Partition.from_labels((rows // 2 * math.ceil(grid[1] / 2) + columns // 2).flatten(), grid)
