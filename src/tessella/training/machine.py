"""What a machine's matrix products reach, and how many operations a step takes: the share of it that training uses."""

from __future__ import annotations

import copy
import functools
import time
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tessella.models.vit import ViTShape


def operations(model: nn.Module, shape: ViTShape, batch: int) -> float:
    """Multiplications and additions of a training step's products: three times those of a forward pass.

    They are counted on two images, since scores that a batch shares are made once; the rest is in proportion.
    """
    counts = []
    copied = copy.deepcopy(model).cpu().float().eval()
    for images in (1, 2):
        counter = FlopCounterMode(display=False, custom_mapping={torch.ops.tessella.mix: _mix_operations})
        pixels = torch.zeros(images, shape.channels, shape.image, shape.image)
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            copied(pixels)
        counts.append(counter.get_total_flops())
    each = counts[1] - counts[0]
    return 3.0 * (counts[0] + (batch - 1) * each)


def _mix_operations(scores: Any, values: Any, *rest: Any, out_shape: Any = None, **named: Any) -> int:
    batch, tokens, heads, size = values
    return int(2 * batch * heads * tokens * tokens * size)


@functools.cache
def matrix_rate(device: torch.device) -> float:
    """Operations a second of a large product: in bfloat16 on a GPU, in float32 on a CPU. Measured once a process."""
    on_gpu = device.type == "cuda"
    side, times = (8192, 20) if on_gpu else (768, 4)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(side, side, generator=generator, device=device).to(dtype) for _ in range(2))
    for _ in range(3):
        torch.mm(left, right)
    _wait(device)
    start = time.perf_counter()
    for _ in range(times):
        torch.mm(left, right)
    _wait(device)
    return times * 2.0 * side**3 / (time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
