"""Figure 2's world: Gaussian patches, labelled by a one-hidden-layer convolution with cubic activation.

X_j ~ N(0, I_d) for every patch, and y = sign f*(X) with f*(X) = sum over sets of (sum over the set of <w, X_i>)^3. The
patches carry no trace of the sets: they are in the label alone.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.structure.partition import Partition


class GaussianFilters:
    """Independent standard normal patches and the sign of a sum of cubed filters, one for each set."""

    def __init__(self, partition: Partition, dim: int, feature: Float[Tensor, " dim"] | None = None):
        if dim < 1:
            raise ValueError(f"dim: got {dim}, expected at least 1")
        feature = torch.eye(1, dim)[0] if feature is None else feature.float()
        if feature.shape != (dim,):
            raise ValueError(f"feature: got shape {tuple(feature.shape)}, expected ({dim},) as dim is {dim}")
        length = float(torch.linalg.vector_norm(feature))
        if not (length > 0.0 and math.isfinite(length)):
            raise ValueError(f"feature: got norm {length:g}, expected a vector other than 0")
        self.partition = partition
        self.dim = dim
        self.feature = feature / length
        sets = torch.from_numpy(partition.labels.copy())
        self._indicator = torch.nn.functional.one_hot(sets, partition.sets).float()

    def labelling(self, patches: Float[Tensor, "points patches dim"]) -> Float[Tensor, " points"]:
        """f*(X)."""
        return ((patches @ self.feature @ self._indicator) ** 3).sum(1)

    def sample(
        self, points: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "points patches dim"], Float[Tensor, " points"]]:
        """Patches and labels y = sign f*(X)."""
        if points < 1:
            raise ValueError(f"points: got {points}, expected at least 1")
        patches = torch.randn(points, self.partition.patches, self.dim, generator=generator)
        return patches, torch.sign(self.labelling(patches))
