"""Changes of colour, each image by its own amount: blends, thresholds, and histograms.

Pixels are floats from 0 to 255. An operation takes `chosen`, the images that it is for, and leaves the others as they
are: no shape depends on a draw.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

Images = Float[Tensor, "batch channels height width"]
Chosen = Bool[Tensor, " batch"]
Amount = Float[Tensor, " batch"]

FULL = 255.0
_LUMA = (0.2989, 0.587, 0.114)


def brighten(images: Images, factor: Amount) -> Images:
    """Blends with black: 0 is black, 1 the image, 2 twice as bright."""
    return blend(images, torch.zeros((), device=images.device), factor)


def change_contrast(images: Images, factor: Amount) -> Images:
    """Blends with the image's mean grey."""
    return blend(images, mean_grey(images), factor)


def saturate(images: Images, factor: Amount) -> Images:
    """Blends with the grey image."""
    return blend(images, grey(images), factor)


def sharpen(images: Images, factor: Amount) -> Images:
    """Blends with a smoothed image."""
    return blend(images, smooth(images), factor)


def blend(images: Images, other: Tensor, factor: Amount) -> Images:
    """The image where the factor is 1, the other where it is 0, and beyond both on the same line."""
    return (images + (factor[:, None, None, None] - 1) * (images - other)).clamp(0, FULL)


def grey(images: Images) -> Float[Tensor, "batch 1 height width"]:
    """What the eye makes of red, green and blue; the mean where there are not three channels."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    return _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue


def mean_grey(images: Images) -> Float[Tensor, "batch 1 1 1"]:
    """One grey an image."""
    return grey(images).mean((2, 3), keepdim=True)


def smooth(images: Images) -> Images:
    """The mean of a pixel, five times, and its eight neighbours; the border stays."""
    inner = (9 * avg_pool2d(images, 3, stride=1) + 4 * images[:, :, 1:-1, 1:-1]) / 13
    height, width = images.shape[2:]
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    within = ((rows > 0) & (rows < height - 1))[:, None] & ((columns > 0) & (columns < width - 1))
    return torch.where(within, pad(inner, (1, 1, 1, 1)), images)


def posterize(images: Images, lost_bits: Amount, chosen: Chosen) -> Images:
    """Sets the last bits of each byte to 0."""
    step = lost_bits.round().exp2()[:, None, None, None]
    return _where(chosen, (images.round() / step).floor() * step, images)


def solarize(images: Images, threshold: Amount, chosen: Chosen) -> Images:
    """Inverts what is at least as bright as the threshold."""
    return _where(chosen, torch.where(images >= threshold[:, None, None, None], FULL - images, images), images)


def stretch_contrast(images: Images, chosen: Chosen) -> Images:
    """Each channel's darkest pixel becomes black, and its brightest full."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    varies = high > low
    stretched = (images - low) * (FULL / (high - low).masked_fill(~varies, 1.0))
    return torch.where(chosen[:, None, None, None] & varies, stretched, images)


def equalize(images: Images, chosen: Chosen) -> Images:
    """Spreads each channel's 256 values so that equally many pixels have each, by the integer rule of PIL."""
    batch, channels, height, width = images.shape
    values = images.round().long().flatten(2)
    counts = torch.zeros(batch, channels, 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, values, torch.ones_like(values))
    brightest = counts.gather(2, values.amax(2, keepdim=True))
    step = (height * width - brightest) // 255
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    spread = table.gather(2, values).view_as(images).to(images.dtype)
    return torch.where(chosen[:, None, None, None] & (step > 0)[..., None], spread, images)


def _where(chosen: Chosen, changed: Images, images: Images) -> Images:
    return torch.where(chosen[:, None, None, None], changed, images)
