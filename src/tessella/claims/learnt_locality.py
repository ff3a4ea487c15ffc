"""How local what a trained ViT has learnt between patches is: its encodings, its heads, its layers.

A layer's share is that of its attention in the mean over heads; a model's is the mean over its layers. The class token
and registers are left out, since they have no place on the grid. So is the last layer of a ViT that reads its class
token: nothing reads what its patches attend to, and no gradient reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.models.vit import ViT, ViTShape
from tessella.probe.locality import nearest_adjacent
from tessella.probe.mean_attention import between_patches, mean_attention


@dataclass(frozen=True, eq=False)
class AttentionLocality:
    """Shares of patches whose most attended other patch is adjacent."""

    share: float
    by_layer: list[float]
    by_head: list[list[float]]
    attention: Float[Tensor, "layers patches patches"]
    """The mean over heads that the shares of layers are read from, on the CPU."""


def grid_of(shape: ViTShape) -> tuple[int, int]:
    """Rows and columns of patches."""
    side = shape.image // shape.patch
    return side, side


def prefix_of(shape: ViTShape) -> int:
    """How many tokens stand before the patches."""
    return 1 + shape.registers


def read_layers(shape: ViTShape) -> int:
    """How many layers, from the first on, have attention between patches that the logits depend on."""
    count = shape.depth - (shape.pooling == "class")
    if count < 1:
        raise ValueError(
            f"depth: got {shape.depth} with the class token read, expected at least 2 layers or pooling='mean', since "
            "nothing reads what patches attend to in the last layer"
        )
    return count


def attention_locality(attention: Float[Tensor, "layers heads tokens tokens"], shape: ViTShape) -> AttentionLocality:
    """The shares of attention that was recorded in a ViT of this shape."""
    patches = between_patches(attention.detach().float().cpu(), prefix_of(shape))[: read_layers(shape)]
    grid = grid_of(shape)
    of_layers = patches.mean(1)
    by_layer = nearest_adjacent(of_layers, grid)
    return AttentionLocality(
        float(by_layer.mean()), by_layer.tolist(), nearest_adjacent(patches, grid).tolist(), of_layers
    )


def scores_locality(model: nn.Module) -> AttentionLocality:
    """The same of positional attention, which every image shares: one black image is as good as any."""
    vit = checked_vit(model)
    shape = vit.shape
    parameter = next(vit.parameters())
    black = torch.zeros(1, shape.channels, shape.image, shape.image, device=parameter.device, dtype=parameter.dtype)
    return attention_locality(mean_attention(vit, black), shape)


def encodings(model: nn.Module) -> Float[Tensor, "patches dim"]:
    """The encodings of the patches, on the CPU."""
    vit = checked_vit(model)
    if vit.positions is None:
        raise ValueError("model: got one without encodings, expected `added=True`, or attention that reads them")
    return vit.positions.detach().float().cpu()[prefix_of(vit.shape) :]


def checked_vit(model: nn.Module) -> ViT:
    """The model itself, once it is sure to be this library's ViT."""
    if not isinstance(model, ViT):
        raise ValueError(f"model: got {type(model).__name__}, expected 'vit', whose encodings and heads can be read")
    return model
