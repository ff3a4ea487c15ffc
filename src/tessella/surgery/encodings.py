"""Where another library's model keeps its positional encodings, read each time they are needed.

The encodings stay the model's own: nothing is copied, and no parameter is registered twice. What is held is the module
that owns them, so that loading, moving, casting and resizing them is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(eq=False)
class Encodings:
    """The encodings called `name` in `owner`. Tokens without one stand at their embeddings, which no image changes.

    `leading` name such tokens ahead of all encodings, `second` a token between the first encoding and the others, as
    DINOv2's registers are.
    """

    owner: nn.Module
    name: str
    leading: tuple[str, ...] = ()
    second: str | None = None

    def positions(self) -> Float[Tensor, "tokens dim"]:
        """One row for each token."""
        encodings = getattr(self.owner, self.name)[0]
        if self.second is not None:
            return torch.cat([encodings[:1], getattr(self.owner, self.second)[0], encodings[1:]])
        if self.leading:
            return torch.cat([*(getattr(self.owner, name)[0] for name in self.leading), encodings])
        return encodings

    def kept(self) -> Int[Tensor, "batch kept"] | None:
        """Which positions each image's tokens stand at; None where all images have them all."""
        return None


class MaskedEncodings(Encodings):
    """Those of a masked autoencoder's encoder, whose embeddings keep some patches of each image, in a random order.

    Called as a forward hook of the embeddings, it notes which. Scores are then one matrix for each image.
    """

    noted: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
        tokens, _, restore = output
        patches = restore.argsort(dim=1)[:, : tokens.shape[1] - 1]
        self.noted = torch.nn.functional.pad(patches + 1, (1, 0))

    def kept(self) -> Int[Tensor, "batch kept"] | None:
        return self.noted

    def __getstate__(self) -> dict[str, Any]:
        """The patches of the last batch are neither saved nor copied."""
        return {**self.__dict__, "noted": None}
