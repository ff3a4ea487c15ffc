"""Images made of areas, seen through masks: the distribution of the paper on masked reconstruction.

An image belongs to a cluster k. Each cluster cuts the patches 1..P into areas of its own: area 0 is global and
large, the others are local and small. Every patch of area j shows the same feature, X_p = z_j v_{k,j}, with all the
v orthonormal and each magnitude z_j in [L, U]. A mask hides some patches, that is, sets them to zero.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tessella.structure.partition import Partition
from tessella.worlds.counters import uniforms
from tessella.worlds.magnitudes import Law

MASKS, MAGNITUDES, NOISE, CLUSTERS = range(4)
"""The streams of random numbers that one step of sampling uses."""


@dataclass(frozen=True)
class MaskedAreas:
    """K clusters, each with its own partition of the P patches; area 0 of each is the global one.

    >>> MaskedAreas.paper(patches=100, clusters=3, global_size=60, local_size=8, seed=0).information_gap
    0.3266...
    """

    partitions: tuple[Partition, ...]
    ratio: float = 0.5
    """gamma: the share of patches that a mask hides."""
    masking: Literal["uniform", "bernoulli"] = "uniform"
    """Uniform: exactly gamma P patches, without replacement. Bernoulli: each patch on its own."""
    law: Law = field(default_factory=Law.constant)
    """The law of every z_j; they are independent."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on every coordinate of a patch in the span of the features."""

    def __post_init__(self) -> None:
        if not self.partitions:
            raise ValueError("partitions: got K = 0 clusters, expected at least one")
        sizes = sorted({partition.patches for partition in self.partitions})
        if len(sizes) > 1:
            raise ValueError(f"partitions: got clusters of {sizes[0]} and {sizes[-1]} patches, expected one P")
        if not 0 < self.ratio < 1:
            raise ValueError(
                f"ratio: got {self.ratio:g}, expected gamma, the share that is masked, above 0 and below 1"
            )
        if self.masking not in ("uniform", "bernoulli"):
            raise ValueError(f"masking: got {self.masking!r}, expected 'uniform' or 'bernoulli'")
        if self.masking == "uniform" and not 0 < self.masked < self.patches:
            raise ValueError(
                f"ratio: got {self.ratio:g}, which masks {self.masked} of {self.patches} patches, "
                "expected some but not all"
            )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ValueError(f"noise: got {self.noise:g}, expected a standard deviation of at least 0")

    @classmethod
    def of_sizes(
        cls,
        sizes: Sequence[Sequence[int]],
        seed: int,
        ratio: float = 0.5,
        masking: Literal["uniform", "bernoulli"] = "uniform",
        law: Law | None = None,
        noise: float = 0.0,
    ) -> MaskedAreas:
        """One cluster for each list of area sizes, the global area first; which patches are whose is drawn."""
        if not sizes:
            raise ValueError("clusters: got K = 0, expected at least one")
        generator = np.random.default_rng(seed)
        partitions = []
        for listed in sizes:
            if not listed or min(listed) < 1:
                raise ValueError(f"sizes: got {list(listed)}, expected at least one area and no empty one")
            labels = np.empty(sum(listed), dtype=np.int64)
            labels[generator.permutation(labels.size)] = np.repeat(np.arange(len(listed)), listed)
            partitions.append(Partition(labels))
        return cls(tuple(partitions), ratio, masking, law or Law.constant(), noise)

    @classmethod
    def paper(
        cls,
        patches: int,
        clusters: int,
        global_size: int,
        local_size: int,
        seed: int,
        ratio: float = 0.5,
        masking: Literal["uniform", "bernoulli"] = "uniform",
        law: Law | None = None,
        noise: float = 0.0,
    ) -> MaskedAreas:
        """The paper's sizes: in every cluster one global area and local areas of one size."""
        if clusters < 1:
            raise ValueError(f"clusters: got K = {clusters}, expected at least one")
        if patches < 1:
            raise ValueError(f"patches: got P = {patches}, expected at least one")
        for name, size in (("global_size", global_size), ("local_size", local_size)):
            if not 1 <= size <= patches:
                raise ValueError(f"{name}: got {size}, expected an area of 1 to P = {patches} patches")
        if (patches - global_size) % local_size:
            raise ValueError(
                f"local_size: got {local_size}, expected a divisor of the {patches - global_size} patches "
                f"that the global area leaves of {patches}"
            )
        sizes = [global_size] + [local_size] * ((patches - global_size) // local_size)
        return cls.of_sizes([sizes] * clusters, seed, ratio, masking, law, noise)

    @property
    def patches(self) -> int:
        """P."""
        return self.partitions[0].patches

    @property
    def clusters(self) -> int:
        """K."""
        return len(self.partitions)

    @property
    def areas(self) -> int:
        """N: the number of areas of the cluster that has the most."""
        return max(partition.sets for partition in self.partitions)

    @property
    def masked(self) -> int:
        """How many patches a uniform mask hides: gamma P, rounded."""
        return round(self.ratio * self.patches)

    @property
    def information_gap(self) -> float:
        """Delta = (1 - ks) - 2 (1 - kc), with the exponents read off as C = P^k; recalled as the paper's.

        Where clusters or local areas differ in size, the exponents are those of the mean sizes.
        """
        global_size, local_size = self._mean_sizes
        kc, ks = (math.log(size) / math.log(self.patches) for size in (global_size, local_size))
        return (1 - ks) - 2 * (1 - kc)

    @property
    def initial_rate_ratio(self) -> float:
        """How fast the global correlation falls over how fast the own one grows, for a local masked patch at Q = 0.

        Attention starts uniform, so that an area has its share of the unmasked patches, A_m = (1 - gamma) C_m / P,
        and the own area one patch fewer, for the query itself is masked. Put into the gradient this is the ratio
        that P^Delta stands for at large P. Derived here; it ignores that a random mask makes A_m fluctuate.
        """
        kept, patches = 1 - self.ratio, self.patches
        global_size, local_size = self._mean_sizes
        others = (patches - global_size) / local_size - 1
        if self.masking == "uniform":
            kept = (patches - self.masked) / (patches - 1)
        first, local, own = (kept * size / patches for size in (global_size, local_size, local_size - 1))
        square = first**2 + others * local**2
        fall = first * (first - square + own * (1 - own))
        growth = own * ((1 - own) ** 2 + square)
        return fall / growth if growth > 0 else math.inf

    @property
    def finite_size_gap(self) -> float:
        """The exponent D for which P^D is `initial_rate_ratio`: positive where decoupling starts faster (derived)."""
        return math.log(self.initial_rate_ratio) / math.log(self.patches)

    @property
    def _mean_sizes(self) -> tuple[float, float]:
        local = [size for partition in self.partitions for size in partition.sizes[1:].tolist()]
        if not local:
            raise ValueError("partitions: got no local area, expected at least one for an information gap")
        return float(np.mean([partition.sizes[0] for partition in self.partitions])), float(np.mean(local))

    @functools.cached_property
    def labels(self) -> Int[Tensor, "clusters patches"]:
        """The area of each patch in each cluster."""
        return torch.from_numpy(np.stack([partition.labels for partition in self.partitions]))

    def chance_fully_masked(self, size: int) -> float:
        """The probability that a mask hides a whole area of this size."""
        if size < 0:
            raise ValueError(f"size: got {size}, expected at least 0 patches")
        if self.masking == "bernoulli":
            return self.ratio**size
        if size > self.masked:
            return 0.0
        return math.comb(self.patches - size, self.masked - size) / math.comb(self.patches, self.masked)

    @property
    def floor(self) -> float:
        """L*: the least loss, sum_j C_j E[z^2] P(area j fully masked) / 2, with the mean over clusters; plus noise.

        Where a patch of its area is left, a masked patch is rebuilt exactly; where none is, the best output is zero.
        With noise on the patches this is the floor of the part without noise.
        """
        losses = [
            sum(size * self.chance_fully_masked(size) for size in partition.sizes.tolist())
            for partition in self.partitions
        ]
        return 0.5 * self.law.second_moment * float(np.mean(losses))

    @functools.cached_property
    def feature_offsets(self) -> tuple[int, ...]:
        """Where the features of each cluster start among all of them."""
        return tuple(np.cumsum([0, *(partition.sets for partition in self.partitions)]).tolist())

    @property
    def features(self) -> int:
        """How many orthonormal features v_{k,j} there are in all."""
        return self.feature_offsets[-1]

    def unmasked(
        self, samples: int, seed: int, step: int = 0, clusters: int = 1
    ) -> Bool[Tensor, "clusters samples patches"]:
        """Fresh masks: True where a patch is seen."""
        draws = uniforms([seed], MASKS, step, (clusters, samples, self.patches))[0]
        if self.masking == "bernoulli":
            return draws >= self.ratio
        return draws > draws.kthvalue(self.masked, dim=-1, keepdim=True).values

    def images(
        self, samples: int, seed: int, step: int = 0
    ) -> tuple[Float[Tensor, "samples patches features"], Int[Tensor, " samples"], Bool[Tensor, "samples patches"]]:
        """Whole images in the coordinates of the orthonormal features, their clusters (uniform), and a mask each."""
        which = (uniforms([seed], CLUSTERS, step, (1, samples, 1)).flatten() * self.clusters).long()
        z = self.law.draw(uniforms([seed], MAGNITUDES, step, (1, samples, self.areas))[0, 0])
        labels = self.labels[which]
        column = torch.tensor(self.feature_offsets[:-1])[which][:, None] + labels
        images = torch.zeros(samples, self.patches, self.features, dtype=torch.float64)
        images.scatter_(2, column[..., None], z.gather(1, labels)[..., None])
        if self.noise:
            draws = uniforms([seed], NOISE, step, (self.patches, samples, self.features))[0]
            images += self.noise * torch.special.ndtri(draws).transpose(0, 1)
        return images, which, self.unmasked(samples, seed, step)[0]
