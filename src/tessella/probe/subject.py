"""What is inspected: a model's image tower with what is known about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tessella.probe.pictures import Sight
from tessella.probe.tower import Tower, tower
from tessella.probe.weights_file import load_weights, read_weights

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and deviation that torchvision's models take."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A tower, how to show it images, and the same architecture with random weights."""

    tower: Tower
    name: str
    sight: Sight
    details: Mapping[str, str] = field(default_factory=dict)
    fresh: Callable[[int], nn.Module] | None = None
    """Makes the architecture with random weights from a seed; None where the model can only be copied and reset."""
    classes: Sequence[str] = ()
    step: int | None = None
    """The training step, where this is a snapshot."""
    batch: int | None = None
    """How many images the model takes at a time, where it takes no other number."""

    def prediction(self, answer: Tensor) -> str | None:
        """The name of the greatest logit; None where the model is not known to give logits."""
        if answer.dim() != 1 or len(answer) != len(self.classes):
            return None
        return self.classes[int(answer.argmax())]


def of_module(model: nn.Module, name: str | None = None, details: Mapping[str, str] | None = None) -> Subject:
    """A module as it is; timm's and transformers' say themselves what they want to see."""
    found = tower(model)
    given = name or _name(found.model)
    return Subject(found, given, sight(found), details or {"weights": "as given"}, classes=_classes(found.model))


def subject(
    model: nn.Module | str | Path | Any,
    weights: str | Path | None = None,
    size: tuple[int, int] | None = None,
) -> Subject:
    """From a module, an exported program, or what `tessella inspect` takes; see `tessella.probe.named_models`."""
    if isinstance(model, str | Path):
        from tessella.probe.named_models import named

        return named(str(model), weights, size)
    if isinstance(model, torch.export.ExportedProgram):
        from tessella.probe.named_models import of_program

        return of_program(model, "exported program")
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: got {type(model).__name__}, expected a module, an exported program, a name or a path")
    if weights is not None:
        load_weights(model, read_weights(Path(weights)), str(weights))
    return of_module(model)


def sight(found: Tower) -> Sight:
    """What the model says that it wants to see; else 224 pixels in three colours, between -1 and 1."""
    model: Any = found.model
    convolution = next((part for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    channels = 3 if convolution is None else convolution.in_channels
    known = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if found.library == "timm" and known:
        size = _size(getattr(getattr(model, "patch_embed", None), "img_size", None)) or known["input_size"][-2:]
        return Sight(tuple(size), channels, tuple(known["mean"]), tuple(known["std"]))
    if found.library == "torchvision":
        return Sight(_size(getattr(model, "image_size", None)) or (224, 224), channels, *IMAGENET)
    if found.library == "tessella" and hasattr(model, "shape"):
        plain = (0.5,) * model.shape.channels
        return Sight((model.shape.image,) * 2, model.shape.channels, plain, plain, known=False)
    config = getattr(model, "config", None)
    size = _size(getattr(config, "image_size", None)) or (224, 224)
    return Sight(size, getattr(config, "num_channels", channels), known=False)


def _size(side: Any) -> tuple[int, int] | None:
    if isinstance(side, int):
        return side, side
    return None if side is None else (int(side[0]), int(side[1]))


def _name(model: Any) -> str:
    known = getattr(model, "pretrained_cfg", None) or {}
    return str(known.get("architecture") or type(model).__name__)


def _classes(model: Any) -> tuple[str, ...]:
    """transformers' configurations name the classes."""
    names = getattr(getattr(model, "config", None), "id2label", None)
    if not isinstance(names, Mapping) or getattr(model, "classifier", None) is None:
        return ()
    return tuple(str(names[key]) for key in sorted(names))
