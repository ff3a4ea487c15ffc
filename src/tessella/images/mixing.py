"""MixUp, CutMix, erasing, and what they make of the labels: a share, a place and a kind for each image."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy import stats
from torch import Tensor

Images = Float[Tensor, "batch channels height width"]
Uniform = Float[Tensor, " batch"]

_GRAINS = 4096


def beta_table(alpha: float) -> Float[Tensor, " grains"]:
    """Quantiles of Beta(alpha, alpha), evenly spaced: a uniform draw becomes a beta draw by looking it up."""
    return torch.from_numpy(stats.beta.ppf((np.arange(_GRAINS) + 0.5) / _GRAINS, alpha, alpha)).float()


def look_up(table: Float[Tensor, " grains"], uniform: Uniform) -> Uniform:
    """The quantile at each uniform draw."""
    return table[(uniform * len(table)).long().clamp(max=len(table) - 1)]


def cut_boxes(
    share: Uniform, down: Uniform, right: Uniform, height: int, width: int
) -> Bool[Tensor, "batch height width"]:
    """CutMix's boxes: each has the image's form and this share of its area about a uniform centre, then is clipped."""
    side = share.sqrt()
    tall, wide = (side * height).long(), (side * width).long()
    rows = _span((down * height).long() - tall // 2, tall, height)
    columns = _span((right * width).long() - wide // 2, wide, width)
    return rows[:, :, None] & columns[:, None, :]


def _span(start: Int64[Tensor, " batch"], length: Int64[Tensor, " batch"], size: int) -> Bool[Tensor, "batch size"]:
    places = torch.arange(size, device=start.device)
    return (places >= start[:, None]) & (places < (start + length)[:, None])


def mix(
    images: Images, targets: Float[Tensor, "batch classes"], kept: Uniform, boxes: Bool[Tensor, "batch height width"]
) -> tuple[Images, Float[Tensor, "batch classes"]]:
    """Blends each image with the one before it in the batch, keeping its own share outside and nothing in the box.

    `kept` is the share outside the box; an image whose box is empty is mixed by MixUp, one with `kept` 1 by CutMix.
    The label gets the mass that the image gets: its share outside, times the area outside.
    """
    share = kept[:, None, None] * ~boxes
    mass = share.mean((1, 2))[:, None]
    share = share[:, None]
    mixed = share * images + (1 - share) * images.roll(1, 0)
    return mixed, mass * targets + (1 - mass) * targets.roll(1, 0)


def erase(
    images: Images, share: Uniform, ratio: Uniform, down: Uniform, right: Uniform, chosen: Tensor, noise: Images
) -> Images:
    """Fills a box of each chosen image with noise; it lies inside, of this share of the area and height to width."""
    height, width = images.shape[2:]
    tall = ((share * ratio).sqrt() * height).round().long().clamp(1, height)
    wide = ((share / ratio).sqrt() * width).round().long().clamp(1, width)
    rows = _span((down * (height - tall + 1)).long(), tall, height)
    columns = _span((right * (width - wide + 1)).long(), wide, width)
    box = rows[:, :, None] & columns[:, None, :] & chosen[:, None, None]
    return torch.where(box[:, None], noise, images)


def soft_targets(labels: Int64[Tensor, " batch"], classes: int, smoothing: float) -> Float[Tensor, "batch classes"]:
    """One-hot, with a share of the mass spread evenly over all classes."""
    hot = labels[:, None] == torch.arange(classes, device=labels.device)
    return hot * (1 - smoothing) + smoothing / classes
