"""The contrastive objective on the same data and the same one-layer model.

Two masks of one image give two views. A view's representation is the mean over all patches of the model's outputs,
f(X) = 1/P sum over p of output_p. The loss pulls views of one image together against the other images of the batch:

    -1/B sum over i of log softmax over j of sim(f(view_i), stopgrad f(view'_j)) / tau   at j = i.

The paper's own objective was not read; this one is inferred from its summary, and the inner product and tau = .5 are
the case in which attention collapses to the global area. Queries of unmasked patches carry features, so that the whole
d x d matrix takes part; features and position encodings are the axes, which loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tessella.models.bilinear import attention, tokens
from tessella.worlds.masked_areas import MaskedAreas

HELD_OUT = 1 << 19
"""Steps from here on number the samples that only measurements see."""


@dataclass(frozen=True)
class Contrast:
    """How views are compared, and how the descent goes."""

    similarity: Literal["inner", "cosine"] = "inner"
    temperature: float = 0.5
    rate: float = 10.0
    batch: int = 32
    steps: int = 200

    def __post_init__(self) -> None:
        if self.similarity not in ("inner", "cosine"):
            raise ValueError(f"similarity: got {self.similarity!r}, expected 'inner' or 'cosine'")
        for name, value in (("temperature", self.temperature), ("rate", self.rate)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: got {value:g}, expected a positive number")
        if self.steps < 1:
            raise ValueError(f"steps: got {self.steps}, expected at least 1")
        if self.batch < 2:
            raise ValueError(f"batch: got {self.batch}, expected at least two images to tell apart")


@dataclass(frozen=True)
class ContrastiveRun:
    """Q over time, and the attention on the global area."""

    Q: Float[Tensor, "dim dim"]
    steps: tuple[int, ...]
    to_global: tuple[float, ...]
    losses: tuple[float, ...]


def contrastive_loss(
    Q: Float[Tensor, "dim dim"],
    images: Float[Tensor, "samples patches dim"],
    first: Bool[Tensor, "samples patches"],
    second: Bool[Tensor, "samples patches"],
    config: Contrast,
) -> Float[Tensor, ""]:
    """The loss of a batch with two masks of each image."""
    f = representation(Q, images, first)
    with torch.no_grad():
        g = representation(Q, images, second)
    if config.similarity == "cosine":
        f, g = (torch.nn.functional.normalize(part, dim=-1) for part in (f, g))
    logits = f @ g.T / config.temperature
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(f), device=f.device))


def representation(
    Q: Float[Tensor, "dim dim"], images: Float[Tensor, "samples patches dim"], unmasked: Bool[Tensor, "samples patches"]
) -> Float[Tensor, "samples dim"]:
    """f(X): the mean over patches of the model's outputs."""
    x = tokens(images, unmasked, positions_of(images))
    weights = attention(Q, x).mean(1, keepdim=True)
    return (weights @ (images * unmasked[..., None]))[:, 0]


def positions_of(images: Float[Tensor, "samples patches dim"]) -> Float[Tensor, "patches dim"]:
    """Position encodings: the last P axes."""
    patches, dim = images.shape[1:]
    return torch.eye(dim, dtype=images.dtype, device=images.device)[dim - patches :]


def widened(
    world: MaskedAreas, images: Float[Tensor, "samples patches features"]
) -> Float[Tensor, "samples patches dim"]:
    """Images with room for the position encodings' axes."""
    return torch.nn.functional.pad(images, (0, world.patches))


def contrast(
    world: MaskedAreas,
    config: Contrast,
    seed: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    record: Sequence[int] = (),
    tell: Callable[[float, str], None] = lambda fraction, text: None,
) -> ContrastiveRun:
    """Gradient descent from Q = 0 on fresh images and masks."""
    size = world.features + world.patches
    Q = torch.zeros(size, size, dtype=dtype, device=device)
    wanted = {0, config.steps, *record}
    steps, to_global, losses = [], [], []
    for step in range(config.steps + 1):
        if step in wanted:
            steps.append(step)
            to_global.append(float(attention_to_global(Q, world, seed).mean()))
        if step == config.steps:
            break
        images, _, first = world.images(config.batch, seed, step)
        second = world.unmasked(config.batch, seed ^ 0x5EED, step)[0].to(device)
        Q.requires_grad_()
        loss = contrastive_loss(Q, widened(world, images).to(device, dtype), first.to(device), second, config)
        (slope,) = torch.autograd.grad(loss, Q)
        Q = (Q - config.rate * slope).detach()
        losses.append(float(loss.detach()))
        if step % 20 == 0:
            tell(step / config.steps, f"step {step}")
    return ContrastiveRun(Q, tuple(steps), tuple(to_global), tuple(losses))


def attention_maps(
    Q: Float[Tensor, "dim dim"], world: MaskedAreas, seed: int, samples: int = 24
) -> tuple[Float[Tensor, "samples patches patches"], Int[Tensor, " samples"], Bool[Tensor, "samples patches"]]:
    """Attention on held-out images, with their clusters and masks."""
    images, which, unmasked = world.images(samples, seed, HELD_OUT)
    wide = widened(world, images).to(Q)
    with torch.no_grad():
        maps = attention(Q, tokens(wide, unmasked.to(Q.device), positions_of(wide)))
    return maps, which, unmasked


def attention_to_global(Q: Float[Tensor, "dim dim"], world: MaskedAreas, seed: int) -> Float[Tensor, " samples"]:
    """The mean attention of masked queries on the unmasked patches of the global area, image by image."""
    maps, which, unmasked = attention_maps(Q, world, seed)
    target = ((world.labels[which] == 0) & unmasked).to(maps)
    hidden = (~unmasked).to(maps)
    each = (maps @ target[..., None])[..., 0]
    return (each * hidden).sum(-1) / hidden.sum(-1)
