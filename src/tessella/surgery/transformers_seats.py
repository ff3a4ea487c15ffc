"""The seats of transformers' ViT, DeiT, DINOv2 and ViTMAE, in the layouts of versions 4 and 5.

4.57   encoder.layer[i].attention.attention.{query, key, value}, and attention.output.dense after it
5      layers[i].attention.{q, k, v, o}_proj, or encoder.layer[i] for DINOv2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from tessella.surgery.encodings import Encodings, MaskedEncodings
from tessella.surgery.seat import Seat

_TOWERS = {
    "ViTModel",
    "DeiTModel",
    "Dinov2Model",
    "Dinov2Backbone",
    "Dinov2WithRegistersModel",
    "Dinov2WithRegistersBackbone",
    "ViTMAEModel",
    "ViTMAEDecoder",
}


def is_tower(model: nn.Module) -> bool:
    """Whether this is one of the encoders above, or ViTMAE's decoder; transformers need not be imported to know."""
    return any(
        kind.__module__.startswith("transformers.models.") and kind.__name__ in _TOWERS for kind in type(model).__mro__
    )


def seats(path: str, model: Any) -> Iterator[Seat]:
    """A seat for each layer, or a ValueError that says what is in the way."""
    encodings = _encodings(model)
    for name, layer in _layers(model):
        norm = getattr(layer, "norm1", None) or getattr(layer, "layernorm_before", None)
        attention = getattr(layer, "attention", None)
        if norm is None or attention is None:
            raise ValueError(f"model: {type(layer).__name__} has no attention that is known here")
        if hasattr(attention, "q_proj"):
            yield Seat(
                path=f"{path}{name}.attention",
                parent=layer,
                name="attention",
                encodings=encodings,
                norm=norm,
                heads=attention.num_attention_heads,
                query=attention.q_proj,
                key=attention.k_proj,
                value=attention.v_proj,
                out=attention.o_proj,
                answer="pair",
                attention_dropout=attention.attention_dropout,
            )
        else:
            inner = attention.attention
            yield Seat(
                path=f"{path}{name}.attention.attention",
                parent=attention,
                name="attention",
                encodings=encodings,
                norm=norm,
                heads=inner.num_attention_heads,
                query=inner.query,
                key=inner.key,
                value=inner.value,
                out=nn.Identity(),
                answer="pair",
                attention_dropout=getattr(inner, "dropout_prob", 0.0),
            )


def _layers(model: Any) -> Iterable[tuple[str, nn.Module]]:
    for place in ("layers", "encoder.layer", "decoder_layers"):
        owner = model
        for step in place.split("."):
            owner = getattr(owner, step, None)
        if owner is not None:
            return [(f"{place}.{number}", layer) for number, layer in enumerate(owner)]
    raise ValueError(f"model: {type(model).__name__} has no layers that are known here")


def _encodings(model: Any) -> Encodings:
    if hasattr(model, "decoder_pos_embed"):
        return Encodings(model, "decoder_pos_embed")
    embeddings = model.embeddings
    if getattr(embeddings, "position_embeddings", None) is None:
        raise ValueError(f"model: {type(model).__name__} has no positional encoding, which positional attention reads")
    if hasattr(embeddings, "random_masking"):
        return MaskedEncodings(embeddings, "position_embeddings")
    second = "register_tokens" if hasattr(embeddings, "register_tokens") else None
    return Encodings(embeddings, "position_embeddings", second=second)
