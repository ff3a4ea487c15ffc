"""The seats of timm's VisionTransformer and its subclasses, and a class for its `attn_layer` argument."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from torch import nn

from tessella.models.positional_scores import PositionalScores
from tessella.surgery.encodings import Encodings
from tessella.surgery.hosted_attention import HostedAttention
from tessella.surgery.seat import Seat, part


def is_tower(model: nn.Module) -> bool:
    """Whether this is timm's VisionTransformer or a subclass; timm need not be imported to know."""
    kinds = {(kind.__module__, kind.__name__) for kind in type(model).__mro__}
    return ("timm.models.vision_transformer", "VisionTransformer") in kinds


def seats(path: str, model: Any) -> Iterator[Seat]:
    """A seat for each block, or a ValueError that says what is in the way."""
    if model.pos_embed is None:
        raise ValueError(f"model: {type(model).__name__} has no positional encoding, which positional attention reads")
    if not isinstance(model.patch_drop, nn.Identity):
        raise ValueError("model: its patches are dropped at random, expected patch_drop_rate=0: all images share S")
    if getattr(model, "dynamic_img_size", False):
        raise ValueError("model: takes images of any size (dynamic_img_size), expected one grid of positions")
    encodings = _encodings(model)
    for number, block in enumerate(model.blocks):
        attention: Any = getattr(block, "attn", None)
        if type(attention).__name__ != "Attention" or not hasattr(attention, "qkv") or not hasattr(block, "norm1"):
            raise ValueError(f"model: block {number} ({type(block).__name__}) has no plain attention to replace")
        if getattr(attention, "gate", None) is not None or not isinstance(attention.norm, nn.Identity):
            raise ValueError(f"model: attention of block {number} is gated or normalised, which is not supported")
        qkv = attention.qkv
        query, key, value = (part(qkv.weight, qkv.bias, third) for third in range(3))
        yield Seat(
            path=f"{path}blocks.{number}.attn",
            parent=block,
            name="attn",
            encodings=encodings,
            # A block that normalises after attention reads raw tokens, and so does positional attention in it.
            norm=nn.Identity() if type(block).__name__ == "ResPostBlock" else block.norm1,
            heads=attention.num_heads,
            query=query,
            key=key,
            value=value,
            out=attention.proj,
            answer="tensor",
            attention_dropout=attention.attn_drop.p,
            dropout=attention.proj_drop.p,
            query_norm=attention.q_norm,
            key_norm=attention.k_norm,
        )


def _encodings(model: Any) -> Encodings:
    """Of all tokens, or where `no_embed_class` leaves class and register tokens without, those ahead of the patches."""
    tokens = tuple(name for name in ("cls_token", "reg_token") if getattr(model, name, None) is not None)
    return Encodings(model, "pos_embed", tokens if model.no_embed_class else ())


@functools.cache
def attn_layer(tokens: int, diagonal: float = 2.0) -> type[HostedAttention]:
    """A class for timm's `attn_layer=`: A itself for this many tokens, class and register tokens included.

    timm builds attention before it knows of positions, so that only A itself can be built this way; for the other
    parametrisations construct the model as usual and call `use_positional`. Weights of the vanilla model load into it.

    >>> attn_layer(197).__name__
    'PositionalAttention197'
    """

    class Layer(HostedAttention):
        def __init__(
            self,
            dim: int,
            num_heads: int = 8,
            qkv_bias: bool = False,
            qk_norm: bool = False,
            scale_norm: bool = False,
            proj_bias: bool = True,
            attn_drop: float = 0.0,
            proj_drop: float = 0.0,
            norm_layer: object = None,
            device: Any = None,
            dtype: Any = None,
        ):
            if scale_norm:
                raise ValueError("scale_norm: got True, expected False: it is not supported with positional attention")
            scores = PositionalScores(dim, num_heads, "matrix", tokens, diagonal).to(device, dtype)
            value = nn.Linear(dim, dim, qkv_bias, device, dtype)
            out = nn.Linear(dim, dim, proj_bias, device, dtype)
            super().__init__(scores, value, out, None, None, "tensor", attn_drop, proj_drop)

        def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
            return _blank, (tokens, diagonal), dict(self.__dict__)

    Layer.__name__ = Layer.__qualname__ = f"PositionalAttention{tokens}"
    return Layer


def _blank(tokens: int, diagonal: float) -> HostedAttention:
    """An instance for pickle to fill: a class made in a function has no name that it could be found by."""
    kind = attn_layer(tokens, diagonal)
    return kind.__new__(kind)
