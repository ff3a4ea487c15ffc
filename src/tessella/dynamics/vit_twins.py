"""Training one compact ViT in three ways: to rebuild masked patches, to name the image, to tell images apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.models.compact_vit import Classifier, Contrastive, Encoder, MaskedAutoencoder, Shape, initialise
from tessella.worlds.digits import Digits

Objective = Literal["masked", "supervised", "contrastive"]
OBJECTIVES: tuple[Objective, ...] = ("masked", "supervised", "contrastive")


@dataclass(frozen=True)
class Recipe:
    """What the three share: sizes, steps and optimiser; and what is each one's own."""

    shape: Shape = field(default_factory=Shape)
    steps: int = 500
    batch: int = 64
    rate: float = 1e-2
    weight_decay: float = 0.05
    ratio: float = 0.5
    """The share of patches that the masked autoencoder hides."""
    temperature: float = 0.2
    shift: int = 1
    """A contrastive view moves the image by up to so many pixels, and changes its contrast."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 2:
            raise ValueError(f"steps, batch: got {self.steps} and {self.batch}, expected at least 1 and 2")


@dataclass(frozen=True)
class Twin:
    """A trained encoder, its losses, and the share of held-out digits that the supervised twin names right."""

    objective: Objective
    encoder: Encoder
    losses: tuple[float, ...]
    accuracy: float


def train(
    objective: Objective,
    recipe: Recipe,
    data: Digits,
    seed: int,
    device: torch.device | str = "cpu",
    tell: Callable[[float, str], None] = lambda fraction, text: None,
) -> Twin:
    """AdamW with a warm-up and a cosine, on fresh batches; the same seed starts the three encoders alike."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):  # modules draw initial values on construction, which are replaced
        model = _model(objective, recipe)
    initialise(model.encoder, generator)  # type: ignore[arg-type]
    for name, part in model.named_children():
        if name != "encoder":
            initialise(part, generator)
    model.to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay, fused=True)
    losses = []
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * _schedule(step / recipe.steps)
        loss = _loss(model, recipe, data, generator, device)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(float(loss.detach()))
        if step % 50 == 0:
            tell(step / recipe.steps, f"{objective} step {step}")
    accuracy = math.nan
    if isinstance(model, Classifier):
        with torch.no_grad():
            right = model(data.held_out.to(device)).argmax(-1).cpu() == data.held_out_labels
        accuracy = float(right.double().mean())
    encoder = model.encoder
    assert isinstance(encoder, Encoder)
    return Twin(objective, encoder, tuple(losses), accuracy)


def attention_by_layer(
    encoder: Encoder, images: Float[Tensor, "batch side side"]
) -> list[Float[Tensor, "batch heads tokens tokens"]]:
    """The attention maps on whole images, on the CPU."""
    device = encoder.positions.device
    with torch.no_grad():
        return [maps.cpu() for maps in encoder(images.to(device))[1]]


def _model(objective: Objective, recipe: Recipe) -> nn.Module:
    if objective == "masked":
        return MaskedAutoencoder(recipe.shape, recipe.ratio)
    if objective == "supervised":
        return Classifier(recipe.shape, 10)
    if objective == "contrastive":
        return Contrastive(recipe.shape, recipe.temperature)
    raise ValueError(f"objective: got {objective!r}, expected one of {', '.join(OBJECTIVES)}")


def _loss(
    model: nn.Module, recipe: Recipe, data: Digits, generator: torch.Generator, device: torch.device | str
) -> Tensor:
    chosen = torch.randint(len(data.train), (recipe.batch,), generator=generator)
    images = data.train[chosen]
    if isinstance(model, MaskedAutoencoder):
        order = torch.rand(recipe.batch, recipe.shape.patches, generator=generator).argsort(-1)
        return model.loss(images.to(device), order.to(device))
    if isinstance(model, Contrastive):
        first, second = (_view(images, recipe.shift, generator).to(device) for _ in range(2))
        return model.loss(first, second)
    return nn.functional.cross_entropy(model(images.to(device)), data.train_labels[chosen].to(device))


def _view(
    images: Float[Tensor, "batch side side"], shift: int, generator: torch.Generator
) -> Float[Tensor, "batch side side"]:
    """Each image moved by up to `shift` pixels either way, blank coming in, with a contrast of its own and noise."""
    batch, side, _ = images.shape
    moves = torch.randint(-shift, shift + 1, (batch, 2), generator=generator)
    padded = nn.functional.pad(images, (shift, shift, shift, shift), value=-1.0)
    rows = (torch.arange(side) + shift + moves[:, :1])[:, :, None]
    columns = (torch.arange(side) + shift + moves[:, 1:])[:, None, :]
    moved = padded[torch.arange(batch)[:, None, None], rows, columns]
    contrast = 0.7 + 0.6 * torch.rand(batch, 1, 1, generator=generator)
    return moved * contrast + 0.1 * torch.randn(moved.shape, generator=generator)


def _schedule(done: float) -> float:
    """Up in a line over the first tenth, then down along a cosine."""
    return min(1.0, done / 0.1 + 0.02) * 0.5 * (1 + math.cos(math.pi * done))
