"""A step of full-batch gradient descent on (E), against what it cannot avoid.

The floor of a step: X is read once for u = X v and once for dL/dv = X^T (e S) (the second read may come from the
cache), and u S^T, e^T u and e S are three products of N x D x D. On a CPU these are timed bare, one after the other,
on the whole of X. On a GPU the yardstick is copying X's bytes once, which moves them twice: a single read of X with
everything else fused would take 0.5 of it, two reads 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tessella.bench.benchmark import Case, side_by_side
from tessella.models.simplified_vit import SimplifiedViT, loss_gradient
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets


@dataclass(frozen=True)
class Size:
    points: int
    side: int
    dim: int
    spurious: float

    def __str__(self) -> str:
        return f"N = {self.points:,}, D = {self.side**2}, d = {self.dim}, float32"


CPU_SIZES = (
    Size(10_000, 8, 16, 0.15),
    Size(20_000, 8, 64, 0.25),
    Size(10_000, 14, 32, 0.083),
    Size(3_000, 14, 196, 0.083),
)
GPU_SIZES = (Size(10_000, 8, 16, 0.15), Size(30_000, 14, 196, 0.083), Size(100_000, 14, 196, 0.083))


def cases(device: str) -> list[Case]:
    """All sizes for this device."""
    sizes = GPU_SIZES if torch.device(device).type == "cuda" else CPU_SIZES
    return [step(size, device) for size in sizes]


def step(size: Size, device: str, rounds: int = 20) -> Case:
    """One gradient and one update, beside the bare products and passes, a copy of X, and autograd."""
    world = SignalSets(Partition.blocks(size.side, size.side, 2, 2), size.dim, size.spurious)
    batch = world.sample(size.points, 0, device=device)
    model = SimplifiedViT.initialised(size.side**2, size.dim, 2.0, 1e-2, 0, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def ours() -> None:
        gradient = loss_gradient(model, batch.patches, batch.label)
        model.attention.grad, model.value.grad = gradient.attention, gradient.value
        optimizer.step()

    def autograd() -> None:
        optimizer.zero_grad()
        torch.nn.functional.softplus(-batch.label * model(batch.patches)).mean().backward()
        optimizer.step()

    flat = batch.patches.view(-1, size.dim)
    value, scores = model.value.detach(), model.scores.detach()
    along = torch.mv(flat, value).view(size.points, -1)

    def bare() -> None:
        torch.mv(flat, value)
        torch.mm(along, scores.T)
        torch.mm(along.T, along)
        torch.mm(along, scores)
        torch.mv(flat.T, along.view(-1))

    target = torch.empty_like(batch.patches)
    calls = {"ours": ours, "bare": bare, "copy": lambda: target.copy_(batch.patches), "autograd": autograd}
    times = side_by_side(calls, device, rounds)
    ours_ms, bare_ms, copy_ms = times["ours"], times["bare"], times["copy"]
    size_bytes = batch.patches.numel() * batch.patches.element_size()
    return Case(
        case=f"step, {size}",
        ours_ms=ours_ms,
        peer="autograd on the same model",
        peer_ms=times["autograd"],
        floor_ms=bare_ms,
        more={
            "over_bare": ours_ms / bare_ms,
            "copy_ms": copy_ms,
            "over_copy": ours_ms / copy_ms,
            "copy_gb_per_s": 2 * size_bytes / copy_ms / 1e6,
        },
    )
