"""The mixing of positional attention against fused softmax attention, on the same shapes and from the same layout.

Ours takes A to S by a softmax, in each call, and mixes values of (batch, tokens, heads, size) into the same layout.
The peers take queries, keys and values as a fused projection leaves them, and bring what comes out to the layout that
the output projection reads: every backend of scaled_dot_product_attention that runs here, the fastest being the peer.

The floor counts what the mixing cannot avoid, with S made and stored: 2 B H T^2 size operations forward and three
times that with the backward; values, scores and outputs moved once forward, and with the backward the gradient of
the outputs, values and scores read and both gradients written. Operations go at the rate of a square matrix product,
bytes at that of a copy, both timed in the same rounds; the larger of the two times is the floor. A product
or a copy can meet quieter moments than the mixing does, so that a share is no more exact than the machine is idle.

On a CUDA device every side is captured once and its graph replayed, as a training step would be: what is timed is the
device's work, without the host's time for the launches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tessella.bench.benchmark import Case, side_by_side
from tessella.models.positional_mixing import mix
from tessella.models.positional_scores import held_scores
from tessella.models.row_softmax import row_softmax
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


def cases(device: str) -> list[Case]:
    """The mixing core forward and with its backward, and a whole ViT forward."""
    on_gpu = torch.device(device).type == "cuda"
    sizes = GPU_SIZES if on_gpu else CPU_SIZES
    cores = [core(size, backward, device) for backward in (False, True) for size in sizes]
    return cores + [inference(name, shape, batch, device) for name, shape, batch in _vits(on_gpu)]


def core(size: Size, backward: bool, device: str) -> Case:
    """Softmax and mixing against fused attention, beside a matrix product and a copy for the floor."""
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

    yardsticks, operations, moved = _yardsticks(device, size.dtype)
    calls = {"ours": whole(lambda: mix(row_softmax(logits), values), (logits, values)), **yardsticks}
    peers = _peers(whole(fused, (qkv,)))
    times = side_by_side({name: captured(call, device) for name, call in {**calls, **peers}.items()}, device)
    rate, bandwidth = operations / times["product"], moved / times["copy"]
    floor_ms = max(size.operations(backward) / rate, size.bytes_moved(backward) / bandwidth)
    peer = min(peers, key=lambda name: times[name])
    return Case(
        f"{'forward and backward' if backward else 'forward'}, {size}",
        times["ours"],
        peer,
        times[peer],
        floor_ms,
        {
            **{f"{name} ms": times[name] for name in peers},
            "operations": size.operations(backward),
            "bytes": size.bytes_moved(backward),
            "matrix_gflop_per_s": rate / 1e6,
            "copy_gb_per_s": bandwidth / 1e6,
        },
    )


def captured(call: Callable[[], object], device: str) -> Callable[[], object]:
    """On a CUDA device a graph of the call, after it has run aside as capturing asks for; the call itself elsewhere."""
    if torch.device(device).type != "cuda":
        return call
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _yardsticks(device: str, dtype: torch.dtype) -> tuple[dict[str, Callable[[], object]], int, int]:
    """A square product and a copy, the operations of the one and the bytes that the other moves."""
    side, length = (8192, 2**28) if torch.device(device).type == "cuda" else (1024, 2**24)
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    source = torch.zeros(length, device=device, dtype=dtype)
    target = torch.empty_like(source)
    calls: dict[str, Callable[[], object]] = {"product": lambda: torch.mm(a, b), "copy": lambda: target.copy_(source)}
    return calls, 2 * side**3, 2 * length * dtype.itemsize


def _peers(call: Callable[[], object]) -> dict[str, Callable[[], object]]:
    """The call under every backend that takes these inputs on this device."""
    found: dict[str, Callable[[], object]] = {}
    for name, backend in BACKENDS.items():

        def under(backend: SDPBackend = backend) -> None:
            with sdpa_kernel(backend):
                call()

        try:
            under()
        except RuntimeError:
            continue
        found[f"SDPA {name}"] = under
    return found


def inference(name: str, shape: ViTShape, batch: int, device: str) -> Case:
    """A whole ViT in eval mode: A itself with held scores, against vanilla attention with SDPA's own choice."""
    on_gpu = torch.device(device).type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    images = torch.randn(batch, 3, shape.image, shape.image, generator=torch.Generator().manual_seed(0))
    images = images.to(device, dtype)
    ours, vanilla = (ViT(shape, attention).to(device, dtype).eval() for attention in ("matrix", "vanilla"))
    with torch.inference_mode(), held_scores(ours):
        ours(images)  # holds the scores, before a compiler or a graph looks at them
        made = [torch.compile(model) if on_gpu else model for model in (ours, vanilla)]
        graphs = [captured(functools.partial(call, images), device) for call in made]
        times = side_by_side(dict(zip(("ours", "vanilla"), graphs, strict=True)), device)
    title = f"{name}, inference, batch {batch}, {str(dtype).removeprefix('torch.')}{', compiled' if on_gpu else ''}"
    return Case(title, times["ours"], "vanilla attention by SDPA", times["vanilla"])


def _vits(on_gpu: bool) -> list[tuple[str, ViTShape, int]]:
    small = ViTShape(image=224, patch=16, classes=1000, depth=12, heads=6, hidden=1536)
    return [
        ("ViT of 7 layers, 65 tokens", ViTShape(), 512 if on_gpu else 32),
        ("ViT-S/16, 197 tokens", small, 256 if on_gpu else 4),
    ]
