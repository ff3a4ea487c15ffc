"""Whether kernels mix a tensor on a CUDA device; where none do, matrix products take their place and say so once."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from types import ModuleType

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16)


def kernels(values: Tensor) -> ModuleType | None:
    """The module that launches kernels, for values that they take.

    float32 and float64 stay with matrix products: torch's own setting says there how exact float32 is to be.
    """
    if values.dtype not in DTYPES:
        return _without(f"no kernel for {values.dtype}, but for float16 and bfloat16")
    if torch.version.hip is not None or torch.cuda.get_device_capability(values.device) < (8, 0):
        return _without("no kernel for this device, but for NVIDIA's from compute capability 8.0 on")
    if not _has_triton():
        return _without("triton is not installed")
    return importlib.import_module("tessella.models.mixing_kernels.launch")


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _without(reason: str) -> None:
    """Said once for each reason."""
    warnings.warn(f"tessella::mix: {reason}: matrix products are used", stacklevel=3)
