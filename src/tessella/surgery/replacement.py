"""`use_positional`: positional attention in the place of self-attention, in a model that someone else wrote.

    from tessella.surgery.replacement import use_positional
    replaced = use_positional(model)                              # queries and keys kept, now on the encodings
    replaced = use_positional(model, "matrix")                    # A itself, sigma_A on the diagonal
    optimiser = torch.optim.AdamW(parameter_groups(model, 1e-3))  # made after the swap, since parameters are new

timm's VisionTransformer family, transformers' ViT, DeiT, DINOv2 and ViTMAE, torchvision's VisionTransformer; alone or
inside another model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from tessella.models.positional_scores import PARAMETRISATIONS, Parametrisation
from tessella.surgery import timm_seats, torchvision_seats, transformers_seats
from tessella.surgery.encodings import MaskedEncodings
from tessella.surgery.hosted_attention import hosted
from tessella.surgery.seat import Seat

_LIBRARIES = (timm_seats, transformers_seats, torchvision_seats)


@dataclass(frozen=True)
class Replaced:
    """What `use_positional` took out of a model, by name; and what a user should know about it."""

    modules: dict[str, nn.Module]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.modules)


def use_positional(
    model: nn.Module,
    parametrisation: Parametrisation = "projections",
    queries_and_keys: Literal["kept", "fresh"] = "kept",
    diagonal: float = 2.0,
    generator: torch.Generator | None = None,
) -> Replaced:
    """Swaps every self-attention of the model, in place; values and output projections keep their weights.

    Under `projections` queries and keys are kept, or drawn anew with `fresh`; the other two have none. Positions pass
    through the norm that the host puts ahead of attention. A model that cannot be done is left as it was.
    """
    if parametrisation not in PARAMETRISATIONS:
        raise ValueError(f"parametrisation: got {parametrisation!r}, expected one of {', '.join(PARAMETRISATIONS)}")
    if queries_and_keys not in ("kept", "fresh"):
        raise ValueError(f"queries_and_keys: got {queries_and_keys!r}, expected kept or fresh")
    seats = _seats(model)
    # All are made before one is put in its place: an error leaves the model as it was.
    made = [seat.filled(parametrisation, queries_and_keys == "kept", diagonal, generator) for seat in seats]
    replaced = {seat.path: seat.replaced for seat in seats}
    notes = []
    for encodings in {id(seat.encodings): seat.encodings for seat in seats}.values():
        if isinstance(encodings, MaskedEncodings):
            encodings.owner.register_forward_hook(encodings)
            notes.append("the encoder sees other patches of each image: it makes scores for each, and shares none")
    for seat, module in zip(seats, made, strict=True):
        setattr(seat.parent, seat.name, module)
    return Replaced(replaced, tuple(notes))


def _seats(model: nn.Module) -> list[Seat]:
    seats: list[Seat] = []
    if hosted(model):
        raise ValueError("model: got one that has positional attention, expected one with self-attention")
    for name, part in model.named_modules():
        for library in _LIBRARIES:
            if library.is_tower(part):
                seats += library.seats(f"{name}." if name else "", part)
    if not seats:
        raise ValueError(f"model: {_why_not(model)}")
    first: dict[int, Seat] = {}
    for seat in seats:
        other = first.setdefault(id(seat.replaced), seat)
        # Norms ahead of one attention give it positions of their own, and positional scores are made once.
        if other.parent is not seat.parent:
            raise ValueError(f"model: {other.path} and {seat.path} are one module, expected one each")
    return seats


def _why_not(model: nn.Module) -> str:
    """What is in the way, as far as names tell."""
    kinds = {kind.__name__ for part in model.modules() for kind in type(part).__mro__}
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_parameters()}
    if any("Window" in kind or "Swin" in kind for kind in kinds):
        return f"{type(model).__name__} attends within windows, and positional attention needs all tokens together"
    if any("relative_position_bias" in name for name in names) or any("RelPos" in kind for kind in kinds):
        return f"{type(model).__name__} has relative position biases, and no encodings for scores to be made from"
    if any("Rope" in kind or "RoPE" in kind or "Rotary" in kind for kind in kinds):
        return f"{type(model).__name__} rotates queries and keys, where scores are made from encodings alone"
    return (
        f"{type(model).__name__} holds no ViT that is known here: timm's VisionTransformer, transformers' ViT, DeiT, "
        "DINOv2 or ViTMAE, torchvision's VisionTransformer"
    )
