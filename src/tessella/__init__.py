"""Tessella: how vision transformers learn which patches of an image belong together.

>>> import tessella
>>> outcome = tessella.solve(tessella.Realistic(grid=(4, 4), points=2000, spurious=0.4), seed=0)
>>> outcome.association.chance < outcome.association.overlap
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tessella.dynamics.descent import Descent, Trajectory, Watch, descend
    from tessella.dynamics.realistic import Outcome, Realistic
    from tessella.dynamics.realistic import run as solve
    from tessella.dynamics.sample import HeldSample
    from tessella.models.simplified_vit import Activation, SimplifiedViT, loss_gradient
    from tessella.structure.association import Association, association
    from tessella.structure.partition import Partition
    from tessella.worlds.signal_sets import SignalSets

_PLACES = {
    "Activation": "models.simplified_vit",
    "Association": "structure.association",
    "Descent": "dynamics.descent",
    "HeldSample": "dynamics.sample",
    "Outcome": "dynamics.realistic",
    "Partition": "structure.partition",
    "Realistic": "dynamics.realistic",
    "SignalSets": "worlds.signal_sets",
    "SimplifiedViT": "models.simplified_vit",
    "Trajectory": "dynamics.descent",
    "Watch": "dynamics.descent",
    "association": "structure.association",
    "descend": "dynamics.descent",
    "loss_gradient": "models.simplified_vit",
    "solve": "dynamics.realistic",
}
"""Where the public names live. They are imported when first used, so that the command line answers at once."""

_RENAMED = {"solve": "run"}

__all__ = [
    "Activation",
    "Association",
    "Descent",
    "HeldSample",
    "Outcome",
    "Partition",
    "Realistic",
    "SignalSets",
    "SimplifiedViT",
    "Trajectory",
    "Watch",
    "association",
    "descend",
    "loss_gradient",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tessella' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tessella.{_PLACES[name]}"), _RENAMED.get(name, name))


def __dir__() -> list[str]:
    return __all__
