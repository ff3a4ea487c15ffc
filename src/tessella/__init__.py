"""Tessella: how vision transformers learn which patches of an image belong together.

>>> import tessella
>>> outcome = tessella.solve(tessella.Realistic(grid=(4, 4), points=2000, spurious=0.4), seed=0)
>>> outcome.association.chance < outcome.association.overlap
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tessella.dynamics.descent import Descent, Trajectory, Watch, descend
    from tessella.dynamics.realistic import Outcome, Realistic
    from tessella.dynamics.realistic import run as solve
    from tessella.dynamics.sample import HeldSample
    from tessella.images.augmentation import Augmentation, Augmenter
    from tessella.images.catalogue import load as load_images
    from tessella.images.grid_shuffle import GridShuffle
    from tessella.images.image_set import ImageSet
    from tessella.models.positional_attention import PositionalAttention, parameter_groups
    from tessella.models.positional_mixing import mix
    from tessella.models.positional_scores import held_scores
    from tessella.models.simplified_vit import Activation, SimplifiedViT, loss_gradient
    from tessella.models.vit import ViT, ViTShape
    from tessella.probe.inspecting import Extent, inspect
    from tessella.probe.inspection import Inspection
    from tessella.structure.association import Association, association
    from tessella.structure.partition import Partition
    from tessella.surgery.replacement import use_positional
    from tessella.worlds.masked_areas import MaskedAreas
    from tessella.worlds.signal_sets import SignalSets

_PLACES = {
    "Activation": "models.simplified_vit",
    "Association": "structure.association",
    "Augmentation": "images.augmentation",
    "Augmenter": "images.augmentation",
    "Descent": "dynamics.descent",
    "Extent": "probe.inspecting",
    "GridShuffle": "images.grid_shuffle",
    "HeldSample": "dynamics.sample",
    "ImageSet": "images.image_set",
    "Inspection": "probe.inspection",
    "MaskedAreas": "worlds.masked_areas",
    "Outcome": "dynamics.realistic",
    "Partition": "structure.partition",
    "PositionalAttention": "models.positional_attention",
    "Realistic": "dynamics.realistic",
    "SignalSets": "worlds.signal_sets",
    "SimplifiedViT": "models.simplified_vit",
    "Trajectory": "dynamics.descent",
    "ViT": "models.vit",
    "ViTShape": "models.vit",
    "Watch": "dynamics.descent",
    "association": "structure.association",
    "descend": "dynamics.descent",
    "held_scores": "models.positional_scores",
    "inspect": "probe.inspecting",
    "load_images": "images.catalogue",
    "loss_gradient": "models.simplified_vit",
    "mix": "models.positional_mixing",
    "parameter_groups": "models.positional_attention",
    "solve": "dynamics.realistic",
    "use_positional": "surgery.replacement",
}
"""Where the public names live. They are imported when first used, so that the command line answers at once."""

_RENAMED = {"load_images": "load", "solve": "run"}

__all__ = [
    "Activation",
    "Association",
    "Augmentation",
    "Augmenter",
    "Descent",
    "Extent",
    "GridShuffle",
    "HeldSample",
    "ImageSet",
    "Inspection",
    "MaskedAreas",
    "Outcome",
    "Partition",
    "PositionalAttention",
    "Realistic",
    "SignalSets",
    "SimplifiedViT",
    "Trajectory",
    "ViT",
    "ViTShape",
    "Watch",
    "association",
    "descend",
    "held_scores",
    "inspect",
    "load_images",
    "loss_gradient",
    "mix",
    "parameter_groups",
    "solve",
    "use_positional",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tessella' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tessella.{_PLACES[name]}"), _RENAMED.get(name, name))


def __dir__() -> list[str]:
    return __all__
