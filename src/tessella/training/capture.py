"""Compiling a function for the GPU, and capturing one that is called over and over in a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Function = TypeVar("Function", bound=Callable[..., Any])

_KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}

WARM_UP = 3
"""Calls before a capture: kernels are built and tuned, and workspaces made, outside of the graph."""


def compiled(function: Function, mode: str) -> Function:
    """Compiled for one shape. Random numbers are torch's own, as they are without compiling."""
    if mode == "none":
        return function
    import torch._dynamo
    import torch._inductor

    # One process trains many models; where the limit is met, torch falls back to uncompiled code, which is slow.
    torch._dynamo.config.recompile_limit = 256
    torch._dynamo.config.accumulated_recompile_limit = 4096
    options = {**torch._inductor.list_mode_options(mode), "fallback_random": True}
    return cast(Function, torch.compile(function, dynamic=False, options=options))


def attention_by(name: str) -> AbstractContextManager[None]:
    """Within it vanilla attention runs on the kernel of this name where that can, else on another; `auto` is torch's
    own choice.
    """
    if name == "auto":
        return nullcontext()
    others = [each for each in _KERNELS.values() if each != _KERNELS[name]]
    return sdpa_kernel([_KERNELS[name], *others], set_priority=True)


class Captured:
    """A function of no arguments that works on tensors that stay where they are; a call replays it."""

    def __init__(self, function: Callable[[], None], before: Callable[[], None], device: torch.device):
        """`before` is called before each call that leads up to the capture, to put counters back."""
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), warnings.catch_warnings():
            # An optimiser that can be captured says at its first step that it is not captured yet.
            warnings.filterwarnings("ignore", message=".*capturable=True.*")
            for _ in range(WARM_UP):
                before()
                function()
            before()
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.synchronize(device)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads, such as NCCL's, may go on as they please.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            function()

    def __call__(self) -> None:
        self._graph.replay()
