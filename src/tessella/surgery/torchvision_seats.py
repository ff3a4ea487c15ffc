"""The seats of torchvision's VisionTransformer, whose encoder calls torch's own MultiheadAttention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from tessella.surgery.encodings import Encodings
from tessella.surgery.seat import Seat, part


def is_tower(model: nn.Module) -> bool:
    """Whether this is torchvision's VisionTransformer; torchvision need not be imported to know."""
    kinds = {(kind.__module__, kind.__name__) for kind in type(model).__mro__}
    return ("torchvision.models.vision_transformer", "VisionTransformer") in kinds


def seats(path: str, model: Any) -> Iterator[Seat]:
    """A seat for each encoder block."""
    encodings = Encodings(model.encoder, "pos_embedding")
    for name, block in model.encoder.layers.named_children():
        attention = block.self_attention
        if attention.in_proj_weight is None or attention.bias_k is not None or attention.add_zero_attn:
            raise ValueError(f"model: attention of {name} is not plain self-attention, which is all that is supported")
        query, key, value = (part(attention.in_proj_weight, attention.in_proj_bias, third) for third in range(3))
        yield Seat(
            path=f"{path}encoder.layers.{name}.self_attention",
            parent=block,
            name="self_attention",
            encodings=encodings,
            norm=block.ln_1,
            heads=attention.num_heads,
            query=query,
            key=key,
            value=value,
            out=attention.out_proj,
            answer="pair",
            attention_dropout=attention.dropout,
        )
