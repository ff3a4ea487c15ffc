"""The idealized process (P) on all D^2 entries of A and all of v, with nothing assumed about where they go.

Lemmas 4.1 and 4.2 say that three scalars suffice. To see that, the process has to be run without them: either over
every assignment of features that a small world has, with its probability, which is the population exactly; or on a
fresh sample at every step, which is the population up to its sampling error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tessella.models.simplified_vit import Gradient, SimplifiedViT, loss_gradient
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets

MOST_ASSIGNMENTS = 2_000_000


@dataclass(frozen=True)
class Population:
    """Every assignment of features that y = +1 can come with, and its probability. F is odd, so y = -1 adds nothing."""

    features: Float[Tensor, "assignments patches"]
    mass: Float[Tensor, " assignments"]


def population(partition: Partition, spurious: float) -> Population:
    """Assumption 1 without noise, written out: L times 3^(D - C) assignments."""
    patches = partition.patches
    if sum(3 ** (patches - int(size)) for size in partition.sizes) > MOST_ASSIGNMENTS:
        raise ValueError(f"partition: got {patches} patches, expected few enough for {MOST_ASSIGNMENTS} assignments")
    rows, mass = [], []
    for number in range(partition.sets):
        members = partition.members(number)
        others = np.setdiff1d(np.arange(patches), members)
        drawn = np.array(list(itertools.product((-1, 0, 1), repeat=len(others)))).reshape(-1, len(others))
        features = np.ones((len(drawn), patches))
        features[:, others] = drawn
        rows.append(features)
        mass.append(np.where(drawn == 0, 1 - spurious, spurious / 2).prod(axis=1) / partition.sets)
    return Population(torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(mass)))


def population_gradient(model: SimplifiedViT, whole: Population) -> Gradient:
    """The gradient of the population loss in every entry of A off the diagonal, and in v, which has one entry here."""
    margin = model(whole.features[:, :, None])
    loss = whole.mass @ torch.nn.functional.softplus(-margin)
    attention, value = torch.autograd.grad(loss, [model.attention, model.value])
    return Gradient(loss.detach(), attention.fill_diagonal_(0.0), value)


def sampled_gradient(model: SimplifiedViT, world: SignalSets, points: int, seed: int, mirrored: bool) -> Gradient:
    """The gradient on a fresh sample. Mirrored, each X comes with its reflection in w*, which has the same law.

    The reflection turns xi into -xi and leaves s alone: the symmetry that Lemma 4.2 rests on.
    """
    batch = world.sample(points, seed, torch.float64)
    if not mirrored:
        return loss_gradient(model, batch.patches, batch.label)
    along = (batch.patches @ world.feature)[..., None] * world.feature
    both = torch.cat([batch.patches, 2 * along - batch.patches])
    return loss_gradient(model, both, torch.cat([batch.label, batch.label]))


@dataclass(frozen=True)
class WholePath:
    """What a run of (P) on all its parameters went through, a row a step."""

    alpha: Float[np.ndarray, " steps"]
    """<v, w*>."""
    across: Float[np.ndarray, " steps"]
    """The length of v's part outside span(w*)."""
    gamma: Float[np.ndarray, " steps"]
    """The mean of A within sets."""
    rho: Float[np.ndarray, " steps"]
    """The mean of A between sets."""
    spread: Float[np.ndarray, " steps"]
    """How far any entry of A is from the mean of its kind."""
    final: Float[Tensor, "patches patches"]
    """A at the end."""


def descend(
    model: SimplifiedViT,
    partition: Partition,
    feature: Float[Tensor, " dim"],
    gradient: Callable[[int], Gradient],
    rate: float,
    steps: int,
    rate_attention: float | None = None,
    tell: Callable[[float], None] = lambda fraction: None,
) -> WholePath:
    """(GD) on (P); `gradient` is asked for the gradient at each step. A may have a rate of its own."""
    rate_attention = rate if rate_attention is None else rate_attention
    within = partition.same_set & ~torch.eye(partition.patches, dtype=torch.bool)
    between = ~partition.same_set
    rows = []
    for step in range(steps + 1):
        value, attention = model.value.detach(), model.attention.detach()
        aligned = value @ feature
        kinds = [attention[kind] if kind.any() else torch.zeros(1) for kind in (within, between)]
        spread = max(float((entries - entries.mean()).abs().max()) for entries in kinds)
        across = torch.linalg.vector_norm(value - aligned * feature)
        rows.append([float(aligned), float(across), float(kinds[0].mean()), float(kinds[1].mean()), spread])
        if step < steps:
            tell(step / steps)
            slope = gradient(step)
            with torch.no_grad():
                model.attention.sub_(slope.attention, alpha=rate_attention)
                model.value.sub_(slope.value, alpha=rate)
    if not np.isfinite(rows).all():
        raise ValueError(f"rate: got {rate:g}, expected a lower one; the descent diverged")
    alpha, across, gamma, rho, spread_of = np.array(rows).T
    return WholePath(alpha, across, gamma, rho, spread_of, model.attention.detach().clone())


def start(
    partition: Partition, feature: Float[Tensor, " dim"], alpha: float, diagonal: float
) -> tuple[Float[Tensor, "patches patches"], Float[Tensor, " dim"]]:
    """A and v of Parametrization 3.1, idealized."""
    return torch.eye(partition.patches, dtype=torch.float64) * diagonal, alpha * feature.double()
