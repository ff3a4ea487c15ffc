"""Training one compact ViT in three ways: to rebuild masked patches, to name the image, to tell images apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from tessella.images.augmentation import NONE, Augmentation, Augmenter
from tessella.images.image_set import ImageSet
from tessella.models.compact_vit import Classifier, Contrastive, Encoder, MaskedAutoencoder, Shape, initialise

Objective = Literal["masked", "supervised", "contrastive"]
OBJECTIVES: tuple[Objective, ...] = ("masked", "supervised", "contrastive")


@dataclass(frozen=True)
class Recipe:
    """What the three share: data, sizes, steps and optimiser; and what is each one's own."""

    data: str = "digits"
    shape: Shape = field(default_factory=Shape)
    steps: int = 1_000
    """With half of them the masked autoencoder does little better than the mean image for some seeds."""
    batch: int = 64
    rate: float = 1e-2
    weight_decay: float = 0.05
    ratio: float = 0.5
    """The share of patches that the masked autoencoder hides."""
    temperature: float = 0.2
    images: Augmentation = NONE
    """How images are changed that are rebuilt or named."""
    views: Augmentation = field(default_factory=lambda: Augmentation(crop=1, flip=False, contrast=0.3))
    """How each of the two views of an image is made that the contrastive twin compares."""
    noise: float = 0.1
    """Added to every pixel of a view, where pixels go from -1 to 1."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 2:
            raise ValueError(f"steps, batch: got {self.steps} and {self.batch}, expected at least 1 and 2")
        if not (self.noise >= 0 and math.isfinite(self.noise)):
            raise ValueError(f"noise: got {self.noise}, expected a number of 0 or more")


@dataclass(frozen=True)
class Twin:
    """A trained model with its encoder, and its losses."""

    objective: Objective
    model: nn.Module
    encoder: Encoder
    losses: tuple[float, ...]


def train(
    objective: Objective,
    recipe: Recipe,
    data: ImageSet,
    seed: int,
    device: torch.device | str = "cpu",
    tell: Callable[[float, str], None] = lambda fraction, text: None,
) -> Twin:
    """AdamW with a warm-up and a cosine, on batches drawn with replacement; a seed starts the three encoders alike.

    On a CUDA device products are taken in bfloat16.
    """
    _check(recipe, data)
    place = torch.device(device)
    generator = torch.Generator().manual_seed(seed)
    of_images = torch.Generator(place).manual_seed(seed + 1)
    with torch.random.fork_rng(devices=[]):  # modules draw initial values on construction, which are replaced
        model = _model(objective, recipe, len(data.classes))
    encoder = model.encoder
    assert isinstance(encoder, Encoder)
    initialise(encoder, generator)
    for name, part in model.named_children():
        if name != "encoder":
            initialise(part, generator)
    model.to(place)
    pixels, labels = data.tensors(place)
    half = torch.full((data.channels,), 0.5)
    changed = recipe.views if objective == "contrastive" else recipe.images
    augmenter = Augmenter(changed, half, half, len(data.classes), recipe.shape.side).to(place)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay, fused=True)
    losses = []
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * _schedule(step / recipe.steps)
        chosen = torch.randint(len(data), (recipe.batch,), generator=generator)
        order = torch.rand(recipe.batch, recipe.shape.patches, generator=generator).argsort(-1)
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            loss = _loss(model, recipe, augmenter, pixels, labels, chosen.to(place), order.to(place), of_images)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.detach())
        if step % 50 == 0 or step == recipe.steps - 1:
            value = float(loss.detach())
            if not math.isfinite(value):
                raise ValueError(f"rate: got {recipe.rate:g}, with which the {objective} loss is {value:g} at {step}")
            tell(step / recipe.steps, f"{objective} step {step}, loss {value:.3f}")
    return Twin(objective, model, encoder, tuple(torch.stack(losses).tolist()))


def attention_by_layer(
    encoder: Encoder, data: ImageSet, count: int
) -> list[Float[Tensor, "batch heads tokens tokens"]]:
    """The attention maps on the first `count` images as they are, on the CPU."""
    device = encoder.positions.device
    images = _plain(data, count).to(device)
    with torch.no_grad():
        parts = [encoder(some)[1] for some in images.split(100)]
    return [torch.cat([part[layer].float().cpu() for part in parts]) for layer in range(len(parts[0]))]


def accuracy(twin: Twin, data: ImageSet) -> float:
    """The share of images that the supervised twin names right."""
    if not isinstance(twin.model, Classifier):
        raise ValueError(f"twin: got the {twin.objective} one, expected the supervised one")
    device, right = twin.encoder.positions.device, 0
    labels = torch.from_numpy(data.labels.copy())
    with torch.no_grad():
        for some, named in zip(_plain(data, len(data)).split(500), labels.split(500), strict=True):
            right += int((twin.model(some.to(device)).argmax(-1).cpu() == named).sum())
    return right / len(data)


def mean_image_loss(data: ImageSet) -> float:
    """What rebuilding every image as the mean image costs: the variance of a pixel over the images, on average."""
    total, squares = (np.zeros(data.images.shape[1:]) for _ in range(2))
    for start in range(0, len(data), 4_096):
        part = data.images[start : start + 4_096] / 127.5 - 1
        total += part.sum(0)
        squares += (part**2).sum(0)
    return float((squares / len(data) - (total / len(data)) ** 2).mean())


def _plain(data: ImageSet, count: int) -> Float[Tensor, "batch channels side side"]:
    return torch.from_numpy(data.images[:count].copy()).permute(0, 3, 1, 2).float() / 127.5 - 1


def _check(recipe: Recipe, data: ImageSet) -> None:
    shape = recipe.shape
    if (*data.size, data.channels) != (shape.side, shape.side, shape.channels):
        got = f"images of {data.size[0]} x {data.size[1]} pixels and {data.channels} channels"
        raise ValueError(f"shape: got {got}, expected side {shape.side} and channels {shape.channels} of the recipe")


def _model(objective: Objective, recipe: Recipe, classes: int) -> nn.Module:
    if objective == "masked":
        return MaskedAutoencoder(recipe.shape, recipe.ratio)
    if objective == "supervised":
        return Classifier(recipe.shape, classes)
    if objective == "contrastive":
        return Contrastive(recipe.shape, recipe.temperature)
    raise ValueError(f"objective: got {objective!r}, expected one of {', '.join(OBJECTIVES)}")


def _loss(
    model: nn.Module,
    recipe: Recipe,
    augmenter: Augmenter,
    pixels: UInt8[Tensor, "n side side channels"],
    labels: Int64[Tensor, " n"],
    chosen: Int64[Tensor, " batch"],
    order: Int64[Tensor, "batch patches"],
    generator: torch.Generator,
) -> Tensor:
    """The loss of the batch of these images; `order` says which patches are hidden, where some are."""

    def made() -> Float[Tensor, "batch channels side side"]:
        images: Tensor = augmenter(pixels[chosen], labels[chosen], generator)[0]
        return images

    if isinstance(model, MaskedAutoencoder):
        return model.loss(made(), order)
    if isinstance(model, Contrastive):
        views = (made(), made())
        first, second = (
            view + recipe.noise * torch.randn(view.shape, generator=generator, device=view.device) for view in views
        )
        return model.loss(first, second)
    return nn.functional.cross_entropy(model(made()), labels[chosen])


def _schedule(done: float) -> float:
    """Up in a line over the first tenth, then down along a cosine."""
    return min(1.0, done / 0.1 + 0.02) * 0.5 * (1 + math.cos(math.pi * done))
