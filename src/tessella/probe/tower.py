"""The part of a model that reads images, and how it is called: timm's, transformers', torchvision's, or any other."""

from __future__ import annotations

import contextlib
import inspect as signatures
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Tower:
    """A model's image tower."""

    model: nn.Module
    library: str

    @property
    def device(self) -> torch.device:
        return self._like.device

    @property
    def dtype(self) -> torch.dtype:
        return self._like.dtype

    @property
    def _like(self) -> Tensor:
        """The first floating point tensor of the model; images go where it is."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        return next((each for each in tensors if each.is_floating_point()), torch.zeros(()))

    def __call__(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch ..."]:
        """Logits, where the model has such, or else its features."""
        images = images.to(self.device, self.dtype)
        if self.library != "transformers":
            return _output(self.model(images))
        named: dict[str, Any] = {}
        accepted = signatures.signature(self.model.forward).parameters
        if "interpolate_pos_encoding" in accepted and tuple(images.shape[2:]) != _image_size(self.model):
            named["interpolate_pos_encoding"] = True
        if "noise" in accepted:
            # A masked autoencoder sorts patches by noise, and sees all of them, in their order.
            grid = (side // patch for side, patch in zip(images.shape[2:], _patch_size(self.model), strict=True))
            rows, columns = grid
            named["noise"] = torch.arange(rows * columns, device=self.device).expand(len(images), -1).float()
        return _output(self.model(pixel_values=images, **named))

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Evaluation without gradients, nothing masked; afterwards the model is as it was."""
        training = {name: part.training for name, part in self.model.named_modules()}
        config = getattr(self.model, "config", None)
        ratio = getattr(config, "mask_ratio", None) if self.library == "transformers" else None
        try:
            # An exported program's module is in whichever mode it was exported in, and refuses to be asked.
            with contextlib.suppress(NotImplementedError):
                self.model.eval()
            if ratio is not None:
                config.mask_ratio = 0.0  # type: ignore[union-attr]
            with torch.no_grad():
                yield
        finally:
            if ratio is not None:
                config.mask_ratio = ratio  # type: ignore[union-attr]
            for name, part in self.model.named_modules():
                part.training = training[name]


def tower(model: nn.Module) -> Tower:
    """The image tower of a model, or a ValueError that says why it cannot be read."""
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("model: got TorchScript, whose attention cannot be seen; expected the model it was made from")
    library = _library(model)
    if library == "transformers" and hasattr(model, "vision_model") and hasattr(model, "text_model"):
        inner = model.vision_model
        assert isinstance(inner, nn.Module)
        model = inner
    return Tower(model, library)


def _library(model: nn.Module) -> str:
    for kind in type(model).__mro__:
        start = kind.__module__.partition(".")[0]
        if start in ("timm", "transformers", "torchvision", "tessella"):
            return start
    return "exported program" if isinstance(model, torch.fx.GraphModule) else "torch"


def _output(answer: Any) -> Tensor:
    for name in ("logits", "pooler_output", "last_hidden_state"):
        found = answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)
        if isinstance(found, Tensor):
            return found
    if isinstance(answer, Mapping):
        answer = tuple(answer.values())
    if isinstance(answer, tuple | list) and answer:
        return _output(answer[0])
    if isinstance(answer, Tensor):
        return answer
    raise ValueError(f"model: it answers with {type(answer).__name__}, expected a tensor for each image")


def _image_size(model: nn.Module) -> tuple[int, int]:
    return _pair(getattr(model.config, "image_size", 0))


def _patch_size(model: nn.Module) -> tuple[int, int]:
    return _pair(model.config.patch_size)  # type: ignore[union-attr]


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
