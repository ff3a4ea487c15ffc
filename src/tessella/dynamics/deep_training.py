"""Training positional transformers of one layer and more on one sample of Assumption 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.models.deep_positional import DeepPositional
from tessella.worlds.signal_sets import SignalSets


@dataclass(frozen=True)
class DeepTraining:
    """Adam with a cosine schedule, on minibatches of a fixed sample."""

    layers: int = 2
    steps: int = 800
    batch: int = 256
    points: int = 20_000
    test_points: int = 10_000
    diagonal: float = 2.0
    init: float = 1e-2
    rate: float = 1e-3
    rate_attention: float = 0.03
    snapshots: int = 20


@dataclass(frozen=True)
class DeepRun:
    """The model at the end; loss, test error and every layer's A on the way."""

    model: DeepPositional
    steps: list[int]
    loss: list[float]
    error: list[float]
    logits: list[Float[Tensor, "layers patches patches"]]


def train_deep(
    world: SignalSets,
    training: DeepTraining,
    seed: int,
    tell: Callable[[float, str], None] = lambda fraction, text: None,
) -> DeepRun:
    """Trains from one seed."""
    generator = torch.Generator().manual_seed(seed)
    sample, test = world.sample(training.points, 2 * seed), world.sample(training.test_points, 2 * seed + 1)
    model = DeepPositional(
        world.partition.patches, world.dim, training.layers, training.diagonal, training.init, generator
    )
    attention = list(model.attention)
    others = [*model.mixing, model.value]
    optimizer = torch.optim.Adam(
        [{"params": attention, "lr": training.rate_attention}, {"params": others, "lr": training.rate}]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, training.steps)
    run = DeepRun(model, [], [], [], [])
    parameters = [*attention, *others]
    every = max(training.steps // training.snapshots, 1)
    for step in range(training.steps + 1):
        chosen = torch.randint(0, training.points, (training.batch,), generator=generator)
        margin = sample.label[chosen] * model(sample.patches[chosen])
        loss = torch.nn.functional.softplus(-margin).mean()
        if step % every == 0 or step == training.steps:
            with torch.no_grad():
                error = float((model(test.patches) * test.label <= 0).double().mean())
                logits = torch.stack([model.logits(layer) for layer in range(training.layers)])
            run.steps.append(step)
            run.loss.append(float(loss.detach()))
            run.error.append(error)
            run.logits.append(logits)
            tell(step / training.steps, f"error {error:.4f}")
        if step < training.steps:
            for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = slope
            optimizer.step()
            schedule.step()
    return run
