"""Whether Triton kernels run on a CUDA tensor, and whether registered operators serve what is asked of them.

Where no kernel runs, torch's products take over and say so once.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd import forward_ad


def kernels(module: str, tensor: Tensor, dtypes: Sequence[torch.dtype]) -> ModuleType | None:
    """`module` of `tessella.models`, which launches kernels, for a tensor that they take; otherwise None.

    Importing the module needs Triton, which comes with torch's CUDA builds alone.
    """
    if tensor.dtype not in dtypes:
        known = " and ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        return _without(module, f"no kernel for {tensor.dtype}, but for {known}")
    if torch.version.hip is not None or torch.cuda.get_device_capability(tensor.device) < (8, 0):
        return _without(module, "no kernel for this device, but for NVIDIA's from compute capability 8.0 on")
    if not _has_triton():
        return _without(module, "triton is not installed")
    return importlib.import_module(f"tessella.models.{module}")


def transformed() -> bool:
    """Whether `torch.func` or forward-mode derivatives are at work, which a registered operator knows no rules for."""
    if torch.compiler.is_compiling():
        return False
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _without(module: str, reason: str) -> None:
    """Said once for each reason."""
    warnings.warn(f"tessella.models.{module}: {reason}: torch's matrix products are used", stacklevel=3)
