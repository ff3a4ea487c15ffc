"""Augmentation on the device: bytes in, normalised images and soft targets out, each image with draws of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from tessella.images import colour, geometry, mixing
from tessella.images.randaugment import Draw

Bytes = UInt8[Tensor, "batch side side channels"]
Floats = Float[Tensor, "batch channels side side"]


@dataclass(frozen=True)
class Augmentation:
    """What is changed at random. Everything that is 0 is off."""

    crop: int = 4
    """Up to so many pixels to each side, black beyond the border."""
    flip: bool = True
    """Mirrors one image in two."""
    resized: float = 0.0
    """A random part of at least this share of the area, height/width from 3/4 to 4/3, resized to the whole."""
    rotate: float = 0.0
    """Up to so many degrees either way."""
    translate: float = 0.0
    """Up to this share of the side."""
    zoom: float = 0.0
    """Looks at 1 - zoom to 1 + zoom of the side."""
    shear: float = 0.0
    """Up to so much across for each unit down."""
    brightness: float = 0.0
    """Factors from 1 - brightness to 1 + brightness; likewise the next two."""
    contrast: float = 0.0
    saturation: float = 0.0
    randaugment: int = 0
    """Operations of RandAugment an image. Their geometry is applied at once, before their colours."""
    magnitude: float = 9.0
    """How strong they are, up to 10."""
    erasing: float = 0.0
    """Share of images of which a box, 2 % to a third of the area, is filled with noise."""
    mixup: float = 0.0
    """Alpha of the beta distribution."""
    cutmix: float = 0.0
    """Alpha of the beta distribution. With MixUp on too, each image has one or the other, as likely."""
    mixed: float = 1.0
    """Share of images that MixUp or CutMix mixes, where either is on."""
    smoothing: float = 0.0
    """Share of the label that is spread evenly over all classes."""
    repeats: int = 1
    """Copies of each image in a batch, each changed in its own way."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name}: got {value}, expected a number of 0 or more")
        for name in (*_SHARES, *_LESS_THAN_ONE):
            if getattr(self, name) > 1 or (name in _LESS_THAN_ONE and getattr(self, name) == 1):
                bound = "below" if name in _LESS_THAN_ONE else "at most"
                raise ValueError(f"{name}: got {getattr(self, name)}, expected {bound} 1")
        if self.magnitude > 10:
            raise ValueError(f"magnitude: got {self.magnitude}, expected at most 10")
        if self.repeats < 1:
            raise ValueError(f"repeats: got {self.repeats}, expected at least 1")

    @property
    def resamples(self) -> bool:
        """Whether pixels fall between pixels; a crop and a flip alone only move them."""
        return bool(self.resized or self.rotate or self.translate or self.zoom or self.shear or self.randaugment)

    @property
    def recolours(self) -> bool:
        return bool(self.brightness or self.contrast or self.saturation)


_SHARES = ("resized", "translate", "brightness", "contrast", "saturation", "erasing", "mixed")
_LESS_THAN_ONE = ("smoothing", "zoom")

NONE = Augmentation(crop=0, flip=False)
"""Images as they are."""


class Augmenter(nn.Module):
    """Applies an augmentation to batches of bytes that lie on the device it was moved to.

    All draws are made on the device, one an image, from the generator or from the device's own where none is given.
    No shape depends on a draw, nothing waits for the device and nothing is copied to it (torch.where with a number
    would), so that a step with it fits one CUDA graph.
    """

    scale: Tensor
    offset: Tensor

    def __init__(
        self,
        augmentation: Augmentation,
        mean: Float[Tensor, " channels"],
        std: Float[Tensor, " channels"],
        classes: int,
        size: int,
    ):
        super().__init__()
        if mean.shape != std.shape or not bool((std > 0).all()):
            raise ValueError(f"std: got {std.tolist()}, expected {len(mean)} numbers above 0")
        if augmentation.crop >= size:
            raise ValueError(f"crop: got {augmentation.crop}, expected less than the {size} pixels of a side")
        self.augmentation = augmentation
        self.classes = classes
        self.size = size
        self.register_buffer("scale", (1 / (colour.FULL * std)).float()[:, None, None], persistent=False)
        self.register_buffer("offset", (mean / std).float()[:, None, None], persistent=False)
        for name in ("mixup", "cutmix"):
            alpha = getattr(augmentation, name)
            self.register_buffer(f"{name}_table", mixing.beta_table(alpha) if alpha else None, persistent=False)

    def plain(self, images: Bytes) -> Floats:
        """Normalised only, as in evaluation."""
        return self._normalised(self._floats(images))

    def forward(
        self, images: Bytes, labels: Int64[Tensor, " batch"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "copies channels side side"], Float[Tensor, "copies classes"]]:
        """Changed images and soft targets; of `repeats` copies, the second of all images follows the first of all."""
        wanted = (self.size, self.size, len(self.scale))
        if images.shape[1:] != wanted:
            raise ValueError(f"images: got {tuple(images.shape[1:])} for height, width and channels, expected {wanted}")
        if self.augmentation.repeats > 1:
            images, labels = images.repeat(self.augmentation.repeats, 1, 1, 1), labels.repeat(self.augmentation.repeats)
        floats = self._erased(self._normalised(self._changed(images, generator)), generator)
        return self._mixed(floats, mixing.soft_targets(labels, self.classes, self.augmentation.smoothing), generator)

    def _changed(self, images: Bytes, generator: torch.Generator | None) -> Floats:
        """Moves pixels and changes colours, on the scale of bytes."""
        wanted = self.augmentation
        device, batch = images.device, len(images)
        operations = [Draw.random(batch, wanted.magnitude, device, generator) for _ in range(wanted.randaugment)]
        if wanted.resamples:
            maps = geometry.compose(self._placed(batch, device, generator), *(each.maps() for each in operations))
            floats = geometry.resample(self._floats(images), maps)
        elif wanted.crop or wanted.flip:
            floats = self._floats(geometry.crop_and_flip(images, *self._window(batch, device, generator)))
        else:
            floats = self._floats(images)
        if wanted.recolours:
            either = 2 * torch.rand(3, batch, device=device, generator=generator) - 1
            floats = colour.brighten(floats, 1 + wanted.brightness * either[0])
            floats = colour.change_contrast(floats, 1 + wanted.contrast * either[1])
            floats = colour.saturate(floats, 1 + wanted.saturation * either[2])
        for operation in operations:
            floats = operation.recolour(floats)
        return floats

    def _window(
        self, batch: int, device: torch.device, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows down, columns to the right, and whether mirrored."""
        uniform = torch.rand(3, batch, device=device, generator=generator)
        crop = self.augmentation.crop
        moved = (uniform[:2] * (2 * crop + 1)).long().clamp(max=2 * crop) - crop
        return moved[0], moved[1], (uniform[2] < 0.5) & self.augmentation.flip

    def _placed(self, batch: int, device: torch.device, generator: torch.Generator | None) -> geometry.Maps:
        """The crop, the flip and the affine part as one map an image; the latter's order is torchvision's."""
        wanted = self.augmentation
        down, right, flipped = self._window(batch, device, generator)
        pixel = 2 / self.size
        mirror = 1 - 2.0 * flipped
        maps = geometry.compose(geometry.shift(right * pixel, down * pixel), geometry.stretch(mirror, mirror.abs()))
        if wanted.resized:
            uniform = torch.rand(4, batch, device=device, generator=generator)
            area = wanted.resized + (1 - wanted.resized) * uniform[0]
            ratio = torch.exp((2 * uniform[1] - 1) * math.log(4 / 3))
            width, height = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
            centre = geometry.shift((1 - width) * (2 * uniform[2] - 1), (1 - height) * (2 * uniform[3] - 1))
            maps = geometry.compose(maps, centre, geometry.stretch(width, height))
        if wanted.rotate or wanted.translate or wanted.zoom or wanted.shear:
            either = 2 * torch.rand(5, batch, device=device, generator=generator) - 1
            zoom = 1 + wanted.zoom * either[4]
            maps = geometry.compose(
                maps,
                geometry.stretch(zoom, zoom),
                geometry.shear(wanted.shear * either[3], torch.zeros_like(zoom)),
                geometry.rotation(wanted.rotate * either[2]),
                geometry.shift(2 * wanted.translate * either[0], 2 * wanted.translate * either[1]),
            )
        return maps

    def _erased(self, images: Floats, generator: torch.Generator | None) -> Floats:
        if not self.augmentation.erasing:
            return images
        uniform = torch.rand(5, len(images), device=images.device, generator=generator)
        noise = torch.randn(images.shape, device=images.device, generator=generator)
        share = 0.02 + (1 / 3 - 0.02) * uniform[0]
        ratio = torch.exp((2 * uniform[1] - 1) * math.log(1 / 0.3))
        return mixing.erase(images, share, ratio, uniform[2], uniform[3], uniform[4] < self.augmentation.erasing, noise)

    def _mixed(
        self, images: Floats, targets: Float[Tensor, "batch classes"], generator: torch.Generator | None
    ) -> tuple[Floats, Float[Tensor, "batch classes"]]:
        wanted = self.augmentation
        if not (wanted.mixup or wanted.cutmix):
            return images, targets
        uniform = torch.rand(5, len(images), device=images.device, generator=generator)
        likely = 0.5 if wanted.mixup and wanted.cutmix else float(bool(wanted.cutmix))
        mixed, cuts = uniform[0] < wanted.mixed, uniform[1] < likely
        kept = torch.ones_like(uniform[0])
        share = torch.zeros_like(kept)
        if wanted.mixup:
            kept = torch.where(mixed & ~cuts, mixing.look_up(self.get_buffer("mixup_table"), uniform[2]), kept)
        if wanted.cutmix:
            share = torch.where(mixed & cuts, mixing.look_up(self.get_buffer("cutmix_table"), uniform[2]), share)
        return mixing.mix(images, targets, kept, mixing.cut_boxes(share, uniform[3], uniform[4], self.size, self.size))

    def _floats(self, images: Bytes) -> Floats:
        return images.permute(0, 3, 1, 2).float().contiguous()

    def _normalised(self, images: Floats) -> Floats:
        return images * self.scale - self.offset
