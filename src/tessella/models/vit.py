"""A small vision transformer with vanilla or positional attention, which one argument chooses.

    ViT(ViTShape(), attention="vanilla")
    ViT(ViTShape(), attention="matrix", added=False)

The default shape is the paper's for CIFAR: 7 layers, 12 heads, width 384, hidden width 384, 64 patches and a class
token. Encodings are added to the input or not; positional attention reads them in either case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from tessella.models.positional_attention import PositionalAttention
from tessella.models.positional_scores import PARAMETRISATIONS

Attention = Literal["vanilla", "projections", "gram", "matrix"]


@dataclass(frozen=True)
class ViTShape:
    """The sizes of a ViT, and its dropout."""

    image: int = 32
    """Pixels along an image's side."""
    patch: int = 4
    channels: int = 3
    classes: int = 10
    dim: int = 384
    depth: int = 7
    heads: int = 12
    hidden: int = 384
    registers: int = 0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    pooling: Literal["class", "mean"] = "class"
    """What is classified: the class token, as in the paper, or the mean of the patches' tokens."""

    def __post_init__(self) -> None:
        if self.pooling not in ("class", "mean"):
            raise ValueError(f"pooling: got {self.pooling!r}, expected 'class' or 'mean'")
        if self.patch < 1 or self.image < 1 or self.image % self.patch:
            raise ValueError(f"patch: got {self.patch}, expected a divisor of the image's side, {self.image}")
        if self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads: got {self.heads}, expected a divisor of dim, {self.dim}")
        for name in ("channels", "classes", "depth", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")
        if self.registers < 0:
            raise ValueError(f"registers: got {self.registers}, expected 0 or more")

    @property
    def tokens(self) -> int:
        """The class token, the registers and the patches, in this order."""
        return 1 + self.registers + (self.image // self.patch) ** 2


class SelfAttention(nn.Module):
    """Vanilla attention (Definition 3.1, in several heads): scores from tokens; it does not look at `positions`."""

    def __init__(self, shape: ViTShape, generator: torch.Generator):
        super().__init__()
        self.heads, self.chance = shape.heads, shape.attention_dropout
        self.qkv, self.out = nn.Linear(shape.dim, 3 * shape.dim), nn.Linear(shape.dim, shape.dim)
        self.dropout = nn.Dropout(shape.dropout)
        for projection in (self.qkv, self.out):
            _start(projection, generator)

    def forward(
        self, tokens: Float[Tensor, "batch tokens dim"], positions: Float[Tensor, "tokens dim"] | None = None
    ) -> Float[Tensor, "batch tokens dim"]:
        batch, count, dim = tokens.shape
        q, k, v = self.qkv(tokens).view(batch, count, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        chance = self.chance if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=chance)
        out: Tensor = self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, count, dim)))
        return out


class Block(nn.Module):
    """Attention and a two-layer network, each on normalised tokens and added to them."""

    def __init__(self, shape: ViTShape, attention: Attention, diagonal: float, generator: torch.Generator):
        super().__init__()
        self.norm_attention, self.norm_network = nn.LayerNorm(shape.dim), nn.LayerNorm(shape.dim)
        if attention == "vanilla":
            self.attention: nn.Module = SelfAttention(shape, generator)
        else:
            self.attention = PositionalAttention(
                shape.dim,
                shape.heads,
                attention,
                shape.tokens,
                diagonal,
                attention_dropout=shape.attention_dropout,
                dropout=shape.dropout,
                generator=generator,
            )
        first, second = nn.Linear(shape.dim, shape.hidden), nn.Linear(shape.hidden, shape.dim)
        _start(first, generator)
        _start(second, generator)
        self.network = nn.Sequential(first, nn.GELU(), second, nn.Dropout(shape.dropout))

    def forward(
        self,
        tokens: Float[Tensor, "batch tokens dim"],
        positions: Float[Tensor, "tokens dim"] | None,
        weights: Float[Tensor, "two batch 1 1"] | None = None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """`weights` is what the two branches count for each image; without it, one."""
        attended = self.attention(self.norm_attention(tokens), positions)
        tokens = tokens + (attended if weights is None else weights[0] * attended)
        rewritten = self.network(self.norm_network(tokens))
        return tokens + (rewritten if weights is None else weights[1] * rewritten)


def branch_weights(
    drop: float, depth: int, batch: int, device: torch.device | str = "cpu", generator: torch.Generator | None = None
) -> Float[Tensor, "depth 2 batch"]:
    """Stochastic depth: each branch is left out for each image by itself, and counts 1 / (1 - its chance) otherwise.

    Its expectation is then that of the branch. The chance rises from 0 in the first block to `drop` in the last.
    """
    if not 0.0 <= drop < 1.0:
        raise ValueError(f"drop: got {drop}, expected a probability of at least 0 and below 1")
    kept = 1.0 - torch.linspace(0.0, drop, depth, device=device)[:, None, None]
    return (torch.rand(depth, 2, batch, device=device, generator=generator) < kept) / kept


class ViT(nn.Module):
    """Images of (batch, channels, image, image) to logits of (batch, classes), read off the class token or the mean.

    `attention` is vanilla or a parametrisation of positional attention, `diagonal` its sigma_A at initialisation.
    `added=False` keeps the encodings out of the input, so that positions act through the scores alone. `spread` is the
    deviation of encodings at initialisation; without it, what suits the attention.

    >>> model = ViT(ViTShape(image=8, dim=8, depth=1, heads=2), attention="matrix", added=False)
    >>> model(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        shape: ViTShape,
        attention: Attention = "vanilla",
        added: bool = True,
        diagonal: float = 2.0,
        seed: int = 0,
        spread: float | None = None,
    ):
        super().__init__()
        if spread is not None and not (spread >= 0.0 and math.isfinite(spread)):
            raise ValueError(f"spread: got {spread}, expected a standard deviation of 0 or more")
        if attention not in ("vanilla", *PARAMETRISATIONS):
            raise ValueError(f"attention: got {attention!r}, expected vanilla, {', '.join(PARAMETRISATIONS)}")
        generator = torch.Generator().manual_seed(seed)
        self.shape, self.added = shape, added
        self.embed = nn.Linear(shape.channels * shape.patch**2, shape.dim)
        _start(self.embed, generator)
        self.prefix_tokens = nn.Parameter(0.02 * torch.randn(1 + shape.registers, shape.dim, generator=generator))
        # A itself has no use for encodings that are not added either.
        self.positions: nn.Parameter | None = None
        if added or attention in ("projections", "gram"):
            drawn = torch.randn(shape.tokens, shape.dim, generator=generator)
            deviation = _spread(shape, attention, diagonal) if spread is None else spread
            self.positions = nn.Parameter(deviation * drawn)
        self.blocks = nn.ModuleList(Block(shape, attention, diagonal, generator) for _ in range(shape.depth))
        self.norm, self.head = nn.LayerNorm(shape.dim), nn.Linear(shape.dim, shape.classes)
        _start(self.head, generator)

    def forward(
        self,
        images: Float[Tensor, "batch channels side side"],
        branches: Float[Tensor, "depth 2 batch"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """`branches` is what each branch counts for each image, as `branch_weights` draws it."""
        shape = self.shape
        if images.shape[1:] != (shape.channels, shape.image, shape.image):
            expected = f"(batch, {shape.channels}, {shape.image}, {shape.image})"
            raise ValueError(f"images: got shape {tuple(images.shape)}, expected {expected}")
        patches = functional.pixel_unshuffle(images, shape.patch).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.prefix_tokens.expand(images.shape[0], -1, -1), self.embed(patches)], dim=1)
        if self.added and self.positions is not None:
            tokens = tokens + self.positions
        for layer, block in enumerate(self.blocks):
            weights = None if branches is None else branches[layer, :, :, None, None].to(tokens.dtype)
            tokens = block(tokens, self.positions, weights)
        read = tokens[:, 0] if shape.pooling == "class" else tokens[:, len(self.prefix_tokens) :].mean(1)
        logits: Tensor = self.head(self.norm(read))
        return logits


def _spread(shape: ViTShape, attention: Attention, diagonal: float) -> float:
    """The deviation of encodings at initialisation.

    For `gram` it makes A_ii = |p_i|^2 / sqrt(head size) equal to sigma_A on average; for `projections`, one gives
    logits of variance one. Vanilla attention knows positions from the tokens alone, where one makes them as large as
    the patches' embeddings; with A itself they need not be seen there, and 0.02 leaves the tokens to the patches.
    """
    if attention == "gram":
        if diagonal <= 0.0:
            raise ValueError(f"diagonal: got {diagonal}, expected a number above 0, as a norm is")
        return float(diagonal**0.5 * (shape.dim / shape.heads) ** -0.25)
    return 0.02 if attention == "matrix" else 1.0


def _start(projection: nn.Linear, generator: torch.Generator) -> None:
    nn.init.xavier_uniform_(projection.weight, generator=generator)
    nn.init.zeros_(projection.bias)
