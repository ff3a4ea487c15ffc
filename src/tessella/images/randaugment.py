"""RandAugment, drawn for each image: which of fourteen operations, how strong, and which way."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tessella.images import colour, geometry

OPERATIONS = (
    "identity",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
    "rotate",
    "brightness",
    "saturation",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)
"""Those of RandAugment's paper, as torchvision has them. The geometric ones come first."""

STRONGEST = {"shear": 0.3, "translate": 0.45, "rotate": 30.0, "blend": 0.9, "posterize": 4.0, "solarize": 255.0}
"""At magnitude 10: across for each unit down, share of the side, degrees, factors 1 ± .9, bits lost, and how far the
threshold lies below full."""

DEVIATION = 0.5
"""Of the magnitude, drawn normally for each image and operation."""

Images = Float[Tensor, "batch channels side side"]


class Draw(NamedTuple):
    """One operation for each image of a batch."""

    operation: Int64[Tensor, " batch"]
    """Its place in `OPERATIONS`."""
    strength: Float[Tensor, " batch"]
    """From 0 to 1."""
    sign: Float[Tensor, " batch"]
    """1 or -1: which way."""

    @classmethod
    def random(cls, batch: int, magnitude: float, device: torch.device, generator: torch.Generator | None) -> Draw:
        """Every operation is as likely as another."""
        uniform = torch.rand(2, batch, device=device, generator=generator)
        normal = torch.randn(batch, device=device, generator=generator)
        operation = (uniform[0] * len(OPERATIONS)).long().clamp(max=len(OPERATIONS) - 1)
        strength = ((magnitude + DEVIATION * normal) / 10).clamp(0, 1)
        return cls(operation, strength, 1 - 2.0 * (uniform[1] < 0.5))

    def amount(self, name: str, strongest: float) -> Float[Tensor, " batch"]:
        """Signed, and 0 where the image has another operation."""
        return strongest * self.strength * self.sign * self._is(name)

    def maps(self) -> geometry.Maps:
        """The geometric operations, as one map an image; nothing moves where the operation is another."""
        shear, translate = STRONGEST["shear"], 2 * STRONGEST["translate"]
        return geometry.compose(
            geometry.shear(self.amount("shear-x", shear), self.amount("shear-y", shear)),
            geometry.shift(self.amount("translate-x", translate), self.amount("translate-y", translate)),
            geometry.rotation(self.amount("rotate", STRONGEST["rotate"])),
        )

    def recolour(self, images: Images) -> Images:
        """The other operations. The four blends are one blend, with what each image blends with."""
        grey = colour.grey(images)
        other = torch.zeros_like(images)
        factor = torch.ones_like(self.strength)
        for name, blended in (
            ("brightness", None),
            ("saturation", grey),
            ("contrast", grey.mean((2, 3), keepdim=True)),
            ("sharpness", colour.smooth(images)),
        ):
            factor = factor + self.amount(name, STRONGEST["blend"])
            if blended is not None:
                other = torch.where(self._is(name)[:, None, None, None], blended, other)
        images = colour.blend(images, other, factor)
        images = colour.posterize(images, STRONGEST["posterize"] * self.strength, self._is("posterize"))
        threshold = colour.FULL - STRONGEST["solarize"] * self.strength
        images = colour.solarize(images, threshold, self._is("solarize"))
        images = colour.stretch_contrast(images, self._is("autocontrast"))
        return colour.equalize(images, self._is("equalize"))

    def _is(self, name: str) -> colour.Chosen:
        return self.operation == OPERATIONS.index(name)
