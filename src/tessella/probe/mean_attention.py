"""Where each head of a ViT looks on average over images: its mean attention, in the form of one matrix a head.

Positional attention is the same for every image, so that its mean is its scores S. Vanilla attention is computed here
from the tokens that reach each layer, as scaled dot products; the fused kernels of training never hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.models.positional_attention import PositionalMixing
from tessella.models.vit import Block, SelfAttention, ViT


def mean_attention(
    model: ViT, images: Float[Tensor, "n channels side side"], batch: int = 256
) -> Float[Tensor, "layers heads tokens tokens"]:
    """The share of attention that token i pays to token j, in the mean over the images, for each layer and head."""
    if not len(images):
        raise ValueError("images: got none, expected at least one to average over")
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), _collecting(model) as sums:
            for part in images.split(batch):
                model(part)
    finally:
        model.train(was_training)
    return torch.stack(sums) / len(images)


def between_patches(
    attention: Float[Tensor, "*batch tokens tokens"], prefix: int
) -> Float[Tensor, "*batch patches patches"]:
    """Without the class token and the registers, which have no place on the grid."""
    return attention[..., prefix:, prefix:]


@contextmanager
def _collecting(model: ViT) -> Iterator[list[Tensor]]:
    """Sums the attention of every layer over the images that pass through the model within."""
    layers: list[nn.Module] = [block.attention for block in model.blocks if isinstance(block, Block)]
    sums: list[Tensor] = [torch.zeros(()) for _ in layers]
    hooks = [layer.register_forward_pre_hook(_adding(sums, place)) for place, layer in enumerate(layers)]
    try:
        yield sums
    finally:
        for hook in hooks:
            hook.remove()


def _adding(sums: list[Tensor], place: int) -> Any:
    def add(layer: nn.Module, inputs: tuple[Tensor, Tensor | None]) -> None:
        tokens, positions = inputs
        sums[place] = sums[place].to(tokens.device) + _summed(layer, tokens, positions)

    return add


def _summed(layer: nn.Module, tokens: Tensor, positions: Tensor | None) -> Float[Tensor, "heads tokens tokens"]:
    """The attention of one layer, summed over a batch, in float32."""
    if isinstance(layer, PositionalMixing):
        return layer.scores(positions).float() * len(tokens)
    assert isinstance(layer, SelfAttention)
    batch, count, dim = tokens.shape
    size = dim // layer.heads
    query, key, _ = layer.qkv(tokens).view(batch, count, 3, layer.heads, size).permute(2, 0, 3, 1, 4).float()
    return torch.softmax(query @ key.transpose(-1, -2) * size**-0.5, -1).sum(0)
