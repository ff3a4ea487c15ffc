"""The distribution of Assumption 1: one set of patches carries the label, the others carry spurious features.

One data point has D patches in R^d. Patch j is X_j = s_j w* + xi_j, where xi_j ~ N(0, sigma^2 (I - w* w*^T)).
In the signal set l(X), drawn uniformly, s_j = y. Elsewhere s_j is 1 or -1 with probability q/2 each, else 0.
(The paper prints I_D for the identity of R^d.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

from tessella.structure.partition import Partition

BLOCK = 2048
"""Data points drawn from one generator. Fixed, so that a sample is the same however it is cut into batches."""

SAMPLE, PROJECTION = 0, 1
"""What a seed is used for: a sample and a projection of one seed are independent."""


@dataclass(frozen=True)
class Batch:
    """Data points with what generated them open to inspection."""

    patches: Float[Tensor, "points patches dim"]
    """X: patch j of point n is `patches[n, j]`."""
    label: Float[Tensor, " points"]
    """y, -1 or 1."""
    signal_set: Int[Tensor, " points"]
    """l(X), the number of the set that carries the label."""
    features: Int8[Tensor, "points patches"]
    """s_j in {-1, 0, 1}: the multiple of w* in each patch, the signal's and the spurious ones."""


@dataclass(frozen=True)
class Projection:
    """A sample seen through any v that is independent of it, exactly in law, with no vector of R^d drawn.

    <v, X_j> = s_j <v, w*> + sigma |v - <v, w*> w*| g_j with g_j standard normal: all that (T) reads of X.
    """

    label: Float[Tensor, " points"]
    features: Int8[Tensor, "points patches"]
    normal: Float[Tensor, "points patches"]
    feature: Float[Tensor, " dim"]
    noise: float

    def along(self, value: Float[Tensor, " dim"]) -> Float[Tensor, "points patches"]:
        """The inner products <v, X_j>."""
        aligned = value @ self.feature
        across = torch.linalg.vector_norm(value - aligned * self.feature)
        return self.features.to(value.dtype) * aligned + self.normal * (self.noise * across)


class SignalSets:
    """Assumption 1 over any partition and any unit feature w*; sets may differ in size.

    `spurious` is the paper's q, `noise` its sigma (1/sqrt(d) where not given), `feature` its w* (the first basis
    vector where not given).
    """

    def __init__(
        self,
        partition: Partition,
        dim: int,
        spurious: float,
        noise: float | None = None,
        feature: Float[Tensor, " dim"] | None = None,
    ):
        if dim < 1:
            raise ValueError(f"dim: got {dim}, expected at least 1")
        if not 0.0 <= spurious <= 1.0:
            raise ValueError(f"spurious: got {spurious}, expected a probability between 0 and 1")
        noise = 1.0 / math.sqrt(dim) if noise is None else noise
        if not (noise >= 0.0 and math.isfinite(noise)):
            raise ValueError(f"noise: got {noise}, expected a standard deviation of 0 or more")
        feature = torch.eye(1, dim, dtype=torch.float64)[0] if feature is None else feature.detach().to("cpu").double()
        if feature.shape != (dim,):
            raise ValueError(f"feature: got shape {tuple(feature.shape)}, expected ({dim},) as dim is {dim}")
        length = float(torch.linalg.vector_norm(feature))
        if not abs(length - 1.0) <= 1e-5:
            raise ValueError(f"feature: got norm {length:.6g}, expected a unit vector")
        self.partition = partition
        self.dim = dim
        self.spurious = spurious
        self.noise = noise
        self.feature = feature / length

    @property
    def expected_spurious(self) -> float:
        """lambda = q (D - C): the expected number of spurious features, on average over the signal set."""
        sizes = torch.from_numpy(self.partition.sizes.copy()).double()
        return self.spurious * float((self.partition.patches - sizes).mean())

    def __repr__(self) -> str:
        return f"SignalSets({self.partition}, dim={self.dim}, spurious={self.spurious:g}, noise={self.noise:g})"

    def sample(self, points: int, seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Batch:
        """`points` data points, drawn into one tensor in place; besides it only one block is ever made."""
        batch = self._empty(points, dtype, device)
        whole = points - points % BLOCK
        for start in range(0, whole, BLOCK):
            self._draw(_rows(batch, start, start + BLOCK), _generator(seed, SAMPLE, start // BLOCK, device))
        for rest in self.stream(points - whole, BLOCK, seed, dtype, device, whole):
            _copy(_rows(batch, whole, points), rest)
        return batch

    def stream(
        self,
        points: int,
        batch: int,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        skip: int = 0,
    ) -> Iterator[Batch]:
        """The same data points as `sample`, `batch` at a time, without the first `skip`.

        No more than a batch and one block are ever in memory.
        """
        if batch < 1:
            raise ValueError(f"batch: got {batch}, expected at least 1")
        if skip < 0:
            raise ValueError(f"skip: got {skip}, expected at least 0 points")
        held, held_block = self._empty(BLOCK, dtype, device), -1
        for start in range(skip, skip + points, batch):
            stop = min(start + batch, skip + points)
            out = self._empty(stop - start, dtype, device)
            for block in range(start // BLOCK, (stop - 1) // BLOCK + 1):
                if held_block != block:
                    self._draw(held, _generator(seed, SAMPLE, block, device))
                    held_block = block
                first = block * BLOCK
                low, high = max(start, first), min(stop, first + BLOCK)
                _copy(_rows(out, low - start, high - start), _rows(held, low - first, high - first))
            yield out

    def project(self, points: int, seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Projection:
        """A sample of `points` for testing: exact in law for every v that does not depend on it, D numbers a point."""
        _positive(points)
        generator = _generator(seed, PROJECTION, 0, device)
        label, _, features = self._structure(points, dtype, device, generator)
        normal = torch.empty(points, self.partition.patches, dtype=dtype, device=device).normal_(generator=generator)
        return Projection(label, features, normal, self.feature.to(device, dtype), self.noise)

    def labelling(self, batch: Batch | Projection) -> Float[Tensor, " points"]:
        """f* of Assumption 1: the sum over sets of Threshold_0.9C of the set's sum of <w*, X_i>.

        <w*, X_i> is s_i, since the noise is orthogonal to w*. A set of |S_l| patches has the threshold 0.9 |S_l|.
        """
        return self.labelling_of(batch.features.to(batch.label.dtype))

    def labelling_of(self, along: Float[Tensor, "points patches"]) -> Float[Tensor, " points"]:
        """f* from the inner products <w*, X_i>."""
        sets = torch.from_numpy(self.partition.labels.copy()).to(along.device)
        sizes = torch.from_numpy(self.partition.sizes.copy()).to(along.device)
        sums = along.new_zeros(len(along), self.partition.sets).index_add_(1, sets, along)
        return torch.where(sums.abs() > 0.9 * sizes, sums, 0.0).sum(1)

    def _empty(self, points: int, dtype: torch.dtype, device: str) -> Batch:
        _positive(points)
        patches = self.partition.patches
        return Batch(
            patches=torch.empty(points, patches, self.dim, dtype=dtype, device=device),
            label=torch.empty(points, dtype=dtype, device=device),
            signal_set=torch.empty(points, dtype=torch.int64, device=device),
            features=torch.empty(points, patches, dtype=torch.int8, device=device),
        )

    def _structure(
        self, points: int, dtype: torch.dtype, device: str, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Labels, signal sets and features s_j, without the noise."""
        patches = self.partition.patches
        sets = torch.from_numpy(self.partition.labels.copy()).to(device)
        label = torch.randint(0, 2, (points,), generator=generator, device=device) * 2 - 1
        signal_set = torch.randint(0, self.partition.sets, (points,), generator=generator, device=device)
        uniform = torch.rand(points, patches, generator=generator, device=device)
        spurious = (uniform < self.spurious / 2).to(torch.int8) - (uniform >= 1 - self.spurious / 2).to(torch.int8)
        signal = sets[None, :] == signal_set[:, None]
        features = torch.where(signal, label[:, None].to(torch.int8), spurious)
        return label.to(dtype), signal_set, features

    def _draw(self, out: Batch, generator: torch.Generator) -> None:
        points, patches, dim = out.patches.shape
        label, signal_set, features = self._structure(points, out.patches.dtype, str(out.patches.device), generator)
        out.label.copy_(label)
        out.signal_set.copy_(signal_set)
        out.features.copy_(features)
        flat = out.patches.view(points * patches, dim)
        flat.normal_(0.0, self.noise, generator=generator)
        feature = self.feature.to(flat.device, flat.dtype)
        # One rank-one update replaces the noise's component along w* by s_j.
        flat.addr_(features.view(-1).to(flat.dtype) - flat @ feature, feature)


def _positive(points: int) -> None:
    if points < 1:
        raise ValueError(f"points: got {points}, expected at least 1")


def _generator(seed: int, use: int, block: int, device: str) -> torch.Generator:
    """A generator of its own for each block of each use of a seed.

    torch's CPU generator reads only 32 bits of its seed, so the three numbers are hashed into 32.
    """
    if seed < 0:
        raise ValueError(f"seed: got {seed}, expected 0 or more")
    generator = torch.Generator(device)
    generator.manual_seed(int(np.random.SeedSequence([seed, use, block]).generate_state(1)[0]))
    return generator


def _rows(batch: Batch, start: int, stop: int) -> Batch:
    return Batch(
        batch.patches[start:stop], batch.label[start:stop], batch.signal_set[start:stop], batch.features[start:stop]
    )


def _copy(target: Batch, source: Batch) -> None:
    target.patches.copy_(source.patches)
    target.label.copy_(source.label)
    target.signal_set.copy_(source.signal_set)
    target.features.copy_(source.features)
