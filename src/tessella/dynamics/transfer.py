"""Transfer to a downstream distribution with the same sets and another feature (Section 5).

With A fixed, (T) reads a data point only through Z = D S X, which is computed once: F = sum_i sigma(<v, Z_i>). Every
draw of a downstream sample is then a problem in v in R^d alone, and many draws are solved side by side. Without
pre-training, A is trained with v from its own initialisation. Both use Adam on the full batch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.dynamics.descent import Descent, Watch, descend
from tessella.dynamics.idealized import Scalars
from tessella.dynamics.sample import HeldSample
from tessella.models.simplified_vit import Activation, SimplifiedViT
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import Batch, SignalSets


@dataclass(frozen=True)
class Tuning:
    """How v, and A where it is trained, are fitted to a downstream sample."""

    steps: int = 400
    rate: float = 0.002
    """Adam's, for v."""
    rate_attention: float = 0.05
    """Adam's, for A where it is trained."""
    init: float = 1e-2
    diagonal: float = 2.0
    linear: float = 1e-2
    degree: int = 3


def downstream(world: SignalSets, seed: int) -> SignalSets:
    """The same sets with a feature of its own, drawn uniformly from the sphere."""
    generator = torch.Generator().manual_seed(seed)
    feature = torch.nn.functional.normalize(torch.randn(world.dim, generator=generator, dtype=torch.float64), dim=0)
    return SignalSets(world.partition, world.dim, world.spurious, world.noise, feature)


def both_classes(world: SignalSets, points: int, seed: int) -> Batch:
    """A sample in which both labels occur, as a sample of one label teaches no classifier which is which.

    The first point and a later one of the other label come first; the rest follows in the order in which it was drawn.
    """
    if points < 2:
        raise ValueError(f"points: got {points}, expected at least 2, one of each label")
    drawn = world.sample(points + 64, seed)
    other = int((drawn.label != drawn.label[0]).nonzero()[0])
    kept = torch.tensor(([0, other, *(i for i in range(1, points + 64) if i != other)])[:points])
    return Batch(drawn.patches[kept], drawn.label[kept], drawn.signal_set[kept], drawn.features[kept])


def set_attention(partition: Partition, at: Scalars, diagonal: float) -> Float[Tensor, "patches patches"]:
    """A of the idealized process at a point (Lemma 4.1)."""
    same = partition.same_set.float()
    return (at.gamma * same + at.rho * (1 - same)).fill_diagonal_(diagonal)


def uniform_attention(partition: Partition) -> Float[Tensor, "patches patches"]:
    """A that knows nothing of the sets: every patch attends to all alike."""
    return torch.zeros(partition.patches, partition.patches)


def fine_tune(
    attention: Float[Tensor, "patches patches"],
    worlds: list[SignalSets],
    points: int,
    seeds: list[int],
    tuning: Tuning,
    test_points: int = 4_000,
) -> list[float]:
    """Test errors against f* after training v alone on `points` samples, one for each world and seed."""
    activation = Activation(tuning.degree, tuning.linear)
    scores = torch.softmax(attention, dim=1) * len(attention)
    batches = [both_classes(world, points, seed) for world, seed in zip(worlds, seeds, strict=True)]
    mixed = torch.stack([scores @ batch.patches for batch in batches])
    label = torch.stack([batch.label for batch in batches])
    values = torch.stack(
        [_initial_value(world.dim, tuning.init, seed) for world, seed in zip(worlds, seeds, strict=True)]
    )
    values.requires_grad_(True)
    optimizer = torch.optim.Adam([values], tuning.rate)
    for _ in range(tuning.steps):
        along = torch.einsum("wnpd,wd->wnp", mixed, values)
        margin = label * activation(along).sum(2)
        # A sum over draws, whose gradients do not mix: Adam scales every entry by itself.
        loss = torch.nn.functional.softplus(-margin).mean(1).sum()
        values.grad = torch.autograd.grad(loss, [values])[0]
        optimizer.step()
    return [
        error_against_rule(SimplifiedViT(attention, value, activation), world, test_points, seed)
        for value, world, seed in zip(values.detach(), worlds, seeds, strict=True)
    ]


def from_scratch(world: SignalSets, points: int, seed: int, tuning: Tuning, test_points: int = 4_000) -> float:
    """Test error against f* after training A and v together on `points` samples."""
    model = SimplifiedViT.initialised(
        world.partition.patches,
        world.dim,
        tuning.diagonal,
        tuning.init,
        seed,
        Activation(tuning.degree, tuning.linear),
    )
    batch = both_classes(world, points, seed)
    plan = Descent(tuning.steps, tuning.rate_attention, tuning.rate, "adam", log_every=tuning.steps, snapshots=2)
    watch = Watch(world, world.project(100, seed + 7))
    descend(model, HeldSample(batch.patches, batch.label), watch, plan)
    return error_against_rule(model, world, test_points, seed)


def error_against_rule(model: SimplifiedViT, world: SignalSets, points: int, seed: int) -> float:
    """P[f* F <= 0] on a test sample of its own."""
    drawn = world.project(points, 1_000_003 + seed)
    rule = world.labelling(drawn)
    with torch.no_grad():
        output = model.output(drawn.along(model.value.detach()))
    return float((output * rule <= 0).double().mean())


@dataclass(frozen=True)
class Ladder:
    """Errors of several draws at growing sample sizes, up to the first size whose median error is the target."""

    errors: dict[int, list[float]]
    target: float

    @property
    def need(self) -> float:
        """The first sample size with a median error of at most the target; infinite where none was enough."""
        return min((size for size, error in self.medians.items() if error <= self.target), default=math.inf)

    @property
    def medians(self) -> dict[int, float]:
        return {size: statistics.median(errors) for size, errors in self.errors.items()}


def climb(sizes: Sequence[int], target: float, errors_at: Callable[[int], list[float]]) -> Ladder:
    """Goes up the sample sizes until the median error is the target."""
    errors: dict[int, list[float]] = {}
    for size in sizes:
        errors[size] = errors_at(size)
        if statistics.median(errors[size]) <= target:
            break
    return Ladder(errors, target)


def _initial_value(dim: int, init: float, seed: int) -> Float[Tensor, " dim"]:
    return init * torch.randn(dim, generator=torch.Generator().manual_seed(seed))
