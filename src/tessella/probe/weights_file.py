"""Weights from a file: safetensors, or what torch.load reads without running anything that the file says."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_WRAPPED = ("state_dict", "model_state_dict", "model", "model_ema", "module")
"""Under what names training scripts put a model's weights into a checkpoint."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, or a ValueError that says why there are none."""
    if not path.is_file():
        raise ValueError(f"weights: got {str(path)!r}, which is no file, expected .safetensors or a torch checkpoint")
    if path.suffix == ".safetensors":
        import safetensors
        import safetensors.torch

        try:
            return safetensors.torch.load_file(path)
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ValueError(f"weights: {path} cannot be read as safetensors ({reason(error)})") from error
    try:
        # Many a training script keeps its arguments beside the weights, in a class that holds values and does nothing.
        with torch.serialization.safe_globals([argparse.Namespace]):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load lets a damaged file through to whatever it breaks
        other = re.search(r"Unsupported (?:global: GLOBAL|class) ([\w.]+)", str(error))
        if other:
            raise ValueError(
                f"weights: {path} holds {other[1]}, and nothing but tensors and plain values is read; save the "
                "model's state_dict()"
            ) from error
        raise ValueError(f"weights: {path} cannot be read as a checkpoint of tensors ({reason(error)})") from error
    return _unwrapped(loaded, path)


def _unwrapped(loaded: Any, path: Path) -> dict[str, Tensor]:
    for _ in range(3):
        if not isinstance(loaded, Mapping):
            break
        tensors = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
        inner = next((loaded[name] for name in _WRAPPED if isinstance(loaded.get(name), Mapping)), None)
        if inner is None or len(tensors) > 2:
            if tensors:
                return _without_wrappers(tensors)
            break
        loaded = inner
    inside = f" of {some([str(name) for name in loaded])}" if isinstance(loaded, Mapping) and loaded else ""
    raise ValueError(
        f"weights: {path} holds a {type(loaded).__name__}{inside} without tensors, expected a model's state dict"
    )


def _without_wrappers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names as they were before DistributedDataParallel or torch.compile wrapped the model."""
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Every tensor into its place; a ValueError names what is missing, not expected, or of another shape."""
    own = model.state_dict()
    missing = [name for name in own if name not in weights]
    unexpected = [name for name in weights if name not in own]
    shapes = [
        f"{name} {_sizes(value)} for {_sizes(own[name])}"
        for name, value in weights.items()
        if name in own and value.shape != own[name].shape
    ]
    found = [("missing", missing), ("not expected", unexpected), ("of another shape", shapes)]
    said = [f"{len(names)} {what} ({some(names)})" for what, names in found if names]
    if said:
        raise ValueError(f"weights: {source} does not fit {type(model).__name__}: {', '.join(said)}")
    not_finite = [name for name, value in weights.items() if value.is_floating_point() and not value.isfinite().all()]
    if not_finite:
        raise ValueError(f"weights: {source} has numbers that are not finite in {some(not_finite)}")
    model.load_state_dict(dict(weights))


def _sizes(value: Tensor) -> str:
    return " x ".join(map(str, value.shape)) or "a number"


def some(names: Sequence[str]) -> str:
    """The first three."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def reason(error: BaseException) -> str:
    """The first sentence of what a library says."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0][:160].rstrip(".")
