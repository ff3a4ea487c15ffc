"""A compact vision transformer, and the heads that make it a masked autoencoder or one of its twins.

The encoder is the same in all three: patches, learnt positions, pre-norm blocks. It returns its tokens and, by layer,
its attention maps, so that what was learnt can be read off.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The sizes of an encoder."""

    side: int = 8
    """Pixels along an image's side."""
    channels: int = 1
    patch: int = 2
    dim: int = 32
    depth: int = 3
    heads: int = 4

    def __post_init__(self) -> None:
        if self.patch < 1 or self.side % self.patch:
            raise ValueError(f"patch: got {self.patch}, expected a divisor of the side, {self.side}")
        if self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads: got {self.heads}, expected a divisor of dim, {self.dim}")
        if self.depth < 1:
            raise ValueError(f"depth: got {self.depth}, expected at least one layer")

    @property
    def along(self) -> int:
        """Patches along a side."""
        return self.side // self.patch

    @property
    def patches(self) -> int:
        return self.along**2

    @property
    def pixels(self) -> int:
        """Numbers in a patch."""
        return self.channels * self.patch**2


def cut(images: Float[Tensor, "batch channels side side"], patch: int) -> Float[Tensor, "batch patches pixels"]:
    """Images as rows of patches, from left to right and top to bottom."""
    batch, channels, side, _ = images.shape
    along = side // patch
    squares = images.reshape(batch, channels, along, patch, along, patch).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(batch, along**2, channels * patch**2)


class Block(nn.Module):
    """Attention and a two-layer network, each on normalised tokens and added to them."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_network = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.network = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(
        self, tokens: Float[Tensor, "batch tokens dim"]
    ) -> tuple[Float[Tensor, "batch tokens dim"], Float[Tensor, "batch heads tokens tokens"]]:
        batch, count, dim = tokens.shape
        qkv = self.qkv(self.norm_attention(tokens)).view(batch, count, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(-1, -2) * (dim // self.heads) ** -0.5, dim=-1)
        tokens = tokens + self.out((attention @ v).transpose(1, 2).reshape(batch, count, dim))
        return tokens + self.network(self.norm_network(tokens)), attention


class Encoder(nn.Module):
    """Patches to tokens. `kept` encodes some of the patches alone, as a masked autoencoder does."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Linear(shape.pixels, shape.dim)
        self.positions = nn.Parameter(torch.zeros(shape.patches, shape.dim))
        self.blocks = nn.ModuleList(Block(shape.dim, shape.heads) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.dim)

    def forward(
        self, images: Float[Tensor, "batch channels side side"], kept: Int[Tensor, "batch kept"] | None = None
    ) -> tuple[Float[Tensor, "batch tokens dim"], list[Float[Tensor, "batch heads tokens tokens"]]]:
        tokens = self.embed(cut(images, self.shape.patch)) + self.positions
        if kept is not None:
            tokens = tokens.gather(1, kept[..., None].expand(-1, -1, self.shape.dim))
        maps = []
        for block in self.blocks:
            tokens, attention = block(tokens)
            maps.append(attention)
        return self.norm(tokens), maps


class MaskedAutoencoder(nn.Module):
    """Rebuilds the hidden patches from the others through a decoder of one block; the loss is on hidden patches."""

    def __init__(self, shape: Shape, ratio: float):
        super().__init__()
        self.hidden = round(ratio * shape.patches)
        if not 0 < self.hidden < shape.patches:
            raise ValueError(
                f"ratio: got {ratio:g}, expected a share that hides some of {shape.patches} patches, not all"
            )
        self.encoder = Encoder(shape)
        self.blank = nn.Parameter(torch.zeros(shape.dim))
        self.positions = nn.Parameter(torch.zeros(shape.patches, shape.dim))
        self.decoder, self.norm = Block(shape.dim, shape.heads), nn.LayerNorm(shape.dim)
        self.pixels = nn.Linear(shape.dim, shape.pixels)

    def loss(
        self, images: Float[Tensor, "batch channels side side"], order: Int[Tensor, "batch patches"]
    ) -> Float[Tensor, ""]:
        """`order` is a random order of the patches, of which the first are hidden."""
        shape = self.encoder.shape
        hidden, kept = order[:, : self.hidden], order[:, self.hidden :]
        seen, _ = self.encoder(images, kept)
        tokens = self.blank.to(seen.dtype).expand(len(images), shape.patches, -1)
        tokens = tokens.scatter(1, kept[..., None].expand(-1, -1, shape.dim), seen) + self.positions
        rebuilt = self.pixels(self.norm(self.decoder(tokens)[0]))
        pick = hidden[..., None].expand(-1, -1, shape.pixels)
        error = rebuilt.gather(1, pick) - cut(images, shape.patch).gather(1, pick)
        return (error**2).mean()


class Classifier(nn.Module):
    """The supervised twin: the mean of the tokens, and a linear layer."""

    def __init__(self, shape: Shape, classes: int):
        super().__init__()
        self.encoder, self.head = Encoder(shape), nn.Linear(shape.dim, classes)

    def forward(self, images: Float[Tensor, "batch channels side side"]) -> Float[Tensor, "batch classes"]:
        logits: Tensor = self.head(self.encoder(images)[0].mean(1))
        return logits


class Contrastive(nn.Module):
    """The contrastive twin: the mean of the tokens through a small network; two views of an image must agree."""

    def __init__(self, shape: Shape, temperature: float):
        super().__init__()
        self.encoder, self.temperature = Encoder(shape), temperature
        self.project = nn.Sequential(nn.Linear(shape.dim, shape.dim), nn.GELU(), nn.Linear(shape.dim, shape.dim))

    def loss(
        self, first: Float[Tensor, "batch channels side side"], second: Float[Tensor, "batch channels side side"]
    ) -> Float[Tensor, ""]:
        """Cross-entropy of picking the other view of the same image among all of the batch, both ways."""
        a, b = (
            nn.functional.normalize(self.project(self.encoder(view)[0].mean(1)), dim=-1) for view in (first, second)
        )
        logits = a @ b.T / self.temperature
        target = torch.arange(len(a), device=a.device)
        cross = nn.functional.cross_entropy
        return (cross(logits, target) + cross(logits.T, target)) / 2


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Matrices Gaussian with variance one over their inputs, positions and the blank token standard, the rest as made.

    Positions start as large as embedded patches are: with small ones a masked autoencoder this size needs thousands of
    steps before it does better than the mean image.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "positions" in name or "blank" in name:
                parameter.normal_(0, 1.0, generator=generator)
            elif parameter.ndim == 2:
                parameter.normal_(0, parameter.shape[1] ** -0.5, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
