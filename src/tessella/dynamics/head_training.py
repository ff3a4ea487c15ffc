"""Training a positional head on fresh batches of Figure 2's world: Adam with a cosine schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tessella.models.positional_head import Kind, PositionalHead
from tessella.worlds.gaussian_filters import GaussianFilters


@dataclass(frozen=True)
class HeadTraining:
    """One way to set Figure 2 up, with the settings under which it was tried."""

    kind: Kind = "gram"
    diagonal: float = 1.0
    """sigma_A: the fixed diagonal of a free A, the expected |p_i|^2 otherwise."""
    init: float = 0.3
    """Deviation of a free A off its diagonal."""
    init_value: float = 0.03
    steps: int = 4_000
    batch: int = 1_000
    rate: float = 0.02
    rate_value: float = 0.01
    test_points: int = 20_000

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "test_points"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")


@dataclass(frozen=True)
class TrainedHead:
    """The model at the end, and its losses and test errors on the way."""

    model: PositionalHead
    steps: list[int]
    loss: list[float]
    error: list[float]


def train_head(
    world: GaussianFilters,
    training: HeadTraining,
    seed: int,
    tell: Callable[[float, str], None] = lambda fraction, text: None,
    logged: int = 40,
) -> TrainedHead:
    """Trains on fresh batches; nothing is seen twice, so the test error is that of the population."""
    generator = torch.Generator().manual_seed(seed)
    patches = world.partition.patches
    model = PositionalHead(patches, world.dim, training.kind, training.diagonal, training.init, patches**0.5, generator)
    with torch.no_grad():
        model.value.mul_(training.init_value / training.init)
    optimizer = torch.optim.Adam(
        [
            {"params": list(model.weights.parameters()), "lr": training.rate},
            {"params": [model.value], "lr": training.rate_value},
        ]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, training.steps)
    test = world.sample(training.test_points, torch.Generator().manual_seed(seed + 1_000_003))
    trained = TrainedHead(model, [], [], [])
    parameters = list(model.parameters())
    every = max(training.steps // logged, 1)
    for step in range(training.steps + 1):
        points, label = world.sample(training.batch, generator)
        loss = torch.nn.functional.softplus(-label * model(points)).mean()
        if step % every == 0 or step == training.steps:
            with torch.no_grad():
                error = float((model(test[0]) * test[1] <= 0).double().mean())
            trained.steps.append(step)
            trained.loss.append(float(loss.detach()))
            trained.error.append(error)
            tell(step / training.steps, f"error {error:.4f}")
        if step < training.steps:
            for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = slope
            optimizer.step()
            schedule.step()
    return trained
