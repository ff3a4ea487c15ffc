"""Where each image of a batch is looked at: a crop and a flip by one gather, an affine map by one resampling."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

Maps = Float[Tensor, "batch 3 3"]
"""One affine map an image, from a place in the result to a place in the source. The image spans [-1, 1] both ways,
x to the right and y downwards."""


def crop_and_flip(
    images: UInt8[Tensor, "batch side side channels"],
    down: Int64[Tensor, " batch"],
    right: Int64[Tensor, " batch"],
    flipped: Bool[Tensor, " batch"],
) -> UInt8[Tensor, "batch side side channels"]:
    """Each image from `down` rows and `right` columns further on, black beyond its border; mirrored where `flipped`."""
    batch, side = images.shape[:2]
    places = torch.arange(side, device=images.device)
    rows = places + down[:, None]
    columns = torch.where(flipped[:, None], places.flip(0), places) + right[:, None]
    inside = _inside(rows, side)[:, :, None] & _inside(columns, side)[:, None, :]
    image = torch.arange(batch, device=images.device)
    found = images[image[:, None, None], rows.clamp(0, side - 1)[:, :, None], columns.clamp(0, side - 1)[:, None, :]]
    return found * inside[..., None]


def _inside(places: Int64[Tensor, "batch side"], side: int) -> Bool[Tensor, "batch side"]:
    return (places >= 0) & (places < side)


def shift(right: Float[Tensor, " batch"], down: Float[Tensor, " batch"]) -> Maps:
    """Looks further right and down; 2 is a whole image."""
    one, zero = torch.ones_like(right), torch.zeros_like(right)
    return _maps(one, zero, right, zero, one, down)


def stretch(width: Float[Tensor, " batch"], height: Float[Tensor, " batch"]) -> Maps:
    """Looks at a part of this width and height about the centre; 1 is the whole, -1 the mirrored whole."""
    zero = torch.zeros_like(width)
    return _maps(width, zero, zero, zero, height, zero)


def rotation(degrees: Float[Tensor, " batch"]) -> Maps:
    """Turns the image clockwise about its centre."""
    angle = degrees * (math.pi / 180)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return _maps(cos, sin, zero, -sin, cos, zero)


def shear(across: Float[Tensor, " batch"], along: Float[Tensor, " batch"]) -> Maps:
    """Looks further right by `across` for each unit further down, and further down by `along` for each to the right."""
    one, zero = torch.ones_like(across), torch.zeros_like(across)
    return _maps(one, across, zero, along, one, zero)


def compose(first: Maps, *others: Maps) -> Maps:
    """The map that applies the last one first, as a product of matrices does; in full precision under autocast too."""
    product = first
    for other in others:
        product = (product[:, :, :, None] * other[:, None, :, :]).sum(2)
    return product


def resample(
    images: Float[Tensor, "batch channels side side"], maps: Maps
) -> Float[Tensor, "batch channels side side"]:
    """Each image through its own map, bilinearly, black beyond its border."""
    side = images.shape[-1]
    centres = (torch.arange(side, device=images.device, dtype=maps.dtype) * 2 + 1) / side - 1
    x, y = centres[None, None, :], centres[None, :, None]
    entry = maps[:, :2, :, None, None]
    grid = entry[:, :, 0] * x[:, None] + entry[:, :, 1] * y[:, None] + entry[:, :, 2]
    return grid_sample(images, grid.permute(0, 2, 3, 1), mode="bilinear", padding_mode="zeros", align_corners=False)


def _maps(*entries: Float[Tensor, " batch"]) -> Maps:
    one, zero = torch.ones_like(entries[0]), torch.zeros_like(entries[0])
    return torch.stack((*entries, zero, zero, one), dim=1).unflatten(1, (3, 3))
