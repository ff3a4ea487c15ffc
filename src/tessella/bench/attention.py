"""The mixing of positional attention against fused softmax attention, on the same shapes and from the same layout.

Ours takes A to S by a softmax, in each call, and mixes values of (batch, tokens, heads, size) into the same layout.
The peers take queries, keys and values as a fused projection leaves them, and bring what comes out to the layout that
the output projection reads: every backend of scaled_dot_product_attention that runs here, the fastest being the peer.

The floor counts what the mixing cannot avoid, with S made and stored: 2 B H T^2 size operations forward and three
times that with the backward; values, scores and outputs moved once forward, and with the backward the gradient of
the outputs, values and scores read and both gradients written. Operations go at the rate of a square matrix product,
bytes at that of a copy, both timed in this run; the larger of the two times is the floor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tessella.bench.benchmark import Case, median_ms
from tessella.models.positional_mixing import mix
from tessella.models.positional_scores import held_scores
from tessella.models.vit import ViT, ViTShape

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


@dataclass(frozen=True)
class Size:
    batch: int
    heads: int
    tokens: int
    size: int
    dtype: torch.dtype

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"batch {self.batch}, {self.heads} heads, {self.tokens} tokens, head size {self.size}, {dtype}"

    def operations(self, backward: bool) -> int:
        return (3 if backward else 1) * 2 * self.batch * self.heads * self.tokens**2 * self.size

    def bytes_moved(self, backward: bool) -> int:
        values = self.batch * self.tokens * self.heads * self.size
        scores = self.heads * self.tokens**2
        return self.dtype.itemsize * ((5 if backward else 2) * values + (3 if backward else 1) * scores)


CPU_SIZES = (
    Size(16, 12, 197, 64, torch.float32),
    Size(16, 12, 197, 64, torch.bfloat16),
    Size(32, 12, 65, 32, torch.float32),
    Size(16, 6, 257, 64, torch.float32),
    Size(1, 12, 1024, 64, torch.float32),
)
GPU_SIZES = (
    Size(1024, 12, 64, 32, torch.bfloat16),
    Size(1024, 12, 65, 32, torch.bfloat16),
    Size(256, 12, 197, 64, torch.bfloat16),
    Size(64, 12, 1024, 64, torch.bfloat16),
    Size(16, 12, 4096, 64, torch.bfloat16),
)


@dataclass(frozen=True)
class Rates:
    """What this device does in this run: operations and bytes a millisecond."""

    operations: float
    bytes_moved: float

    @classmethod
    def measured(cls, device: str, dtype: torch.dtype) -> Rates:
        on_gpu = torch.device(device).type == "cuda"
        side, length = (8192, 2**28) if on_gpu else (1024, 2**25)
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        source = torch.zeros(length, device=device, dtype=dtype)
        target = torch.empty_like(source)
        product_ms = median_ms(lambda: torch.mm(a, b), device, repeats=10)
        copy_ms = median_ms(lambda: target.copy_(source), device, repeats=10)
        return cls(2 * side**3 / product_ms, 2 * length * dtype.itemsize / copy_ms)

    def floor_ms(self, size: Size, backward: bool) -> float:
        return max(size.operations(backward) / self.operations, size.bytes_moved(backward) / self.bytes_moved)


def _timed(call: Callable[[], object], device: str) -> float:
    on_gpu = torch.device(device).type == "cuda"
    return median_ms(call, device, repeats=30 if on_gpu else 9, warm_up=5 if on_gpu else 1)


def cases(device: str) -> list[Case]:
    """The mixing core forward and with its backward, and a whole ViT forward."""
    on_gpu = torch.device(device).type == "cuda"
    sizes = GPU_SIZES if on_gpu else CPU_SIZES
    rates = {dtype: Rates.measured(device, dtype) for dtype in dict.fromkeys(size.dtype for size in sizes)}
    cores = [core(size, backward, rates[size.dtype], device) for backward in (False, True) for size in sizes]
    return cores + [inference(name, shape, batch, device) for name, shape, batch in _vits(on_gpu)]


def core(size: Size, backward: bool, rates: Rates, device: str) -> Case:
    """Softmax and mixing against fused attention."""
    generator = torch.Generator().manual_seed(0)
    layout = (size.batch, size.tokens, size.heads, size.size)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, size.dtype).requires_grad_(backward)

    logits, values = drawn(size.heads, size.tokens, size.tokens), drawn(*layout)
    qkv = drawn(size.batch, size.tokens, 3, size.heads, size.size)
    by_output = drawn(*layout).detach()

    def whole(forward: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> Callable[[], object]:
        return (lambda: torch.autograd.grad(forward(), inputs, by_output)) if backward else forward

    def fused() -> Tensor:
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous()

    ours_ms = _timed(whole(lambda: mix(torch.softmax(logits, -1), values), (logits, values)), device)
    more: dict[str, Any] = {}
    if not backward:
        scores = torch.softmax(logits, -1)
        more["scores_at_hand_ms"] = _timed(lambda: mix(scores, values), device)
    peers = _peers(whole(fused, (qkv,)), device)
    peer = min(peers, key=lambda name: peers[name])
    more |= {f"sdpa_{name}_ms": ms for name, ms in peers.items()}
    more |= {"operations": size.operations(backward), "bytes": size.bytes_moved(backward)}
    more |= {"matrix_tflop_per_s": rates.operations / 1e9, "copy_gb_per_s": rates.bytes_moved / 1e6}
    title = "forward and backward" if backward else "forward"
    return Case(f"{title}, {size}", ours_ms, f"SDPA, {peer}", peers[peer], rates.floor_ms(size, backward), more)


def _peers(call: Callable[[], object], device: str) -> dict[str, float]:
    """The time of every backend that takes these inputs on this device."""
    times = {}
    for name, backend in BACKENDS.items():
        with sdpa_kernel(backend):
            try:
                call()
            except RuntimeError:
                continue
            times[name] = _timed(call, device)
    return times


def inference(name: str, shape: ViTShape, batch: int, device: str) -> Case:
    """A whole ViT in eval mode: A itself with held scores, against vanilla attention with SDPA's own choice."""
    on_gpu = torch.device(device).type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    images = torch.randn(batch, 3, shape.image, shape.image, generator=torch.Generator().manual_seed(0))
    images = images.to(device, dtype)
    ours, vanilla = (ViT(shape, attention).to(device, dtype).eval() for attention in ("matrix", "vanilla"))
    with torch.inference_mode():
        with held_scores(ours):
            ours_ms = _timed(lambda: ours(images), device)
        vanilla_ms = _timed(lambda: vanilla(images), device)
    title = f"{name}, inference, batch {batch}, {str(dtype).removeprefix('torch.')}, not compiled"
    return Case(title, ours_ms, "vanilla attention by SDPA", vanilla_ms)


def _vits(on_gpu: bool) -> list[tuple[str, ViTShape, int]]:
    small = ViTShape(image=224, patch=16, classes=1000, depth=12, heads=6, hidden=1536)
    return [
        ("ViT of 7 layers, 65 tokens", ViTShape(), 512 if on_gpu else 32),
        ("ViT-S/16, 197 tokens", small, 256 if on_gpu else 4),
    ]
