"""One training step of the masked model: the block basis against autograd on the d x d matrix, and batched sweeps.

    tessella bench masked                  the step, on the CPU
    tessella bench masked --device cuda    the step and the sweep of 64 settings, on a GPU

All sides of the step see the same images and masks, compute the gradient of the same loss and apply it. The peers are
autograd on the d x d model, in d = features + P coordinates, the least that it can have: `tessella.models.bilinear` as
written, for all queries, and the same for the masked queries alone, which is what somebody would write who wants it
fast. The faster of the two is the peer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tessella.bench.benchmark import Case, median_ms, side_by_side
from tessella.dynamics.masked_draws import Draws, layout_of
from tessella.dynamics.masked_process import Run, descend
from tessella.models.bilinear import reconstruction_loss
from tessella.models.block_basis import Correlations, Layout, Sample, gradient
from tessella.worlds.masked_areas import MaskedAreas

SIZES = {"C1 = 200, Cs = 8": (256, 3, 200, 8), "C1 = 32, Cs = 16": (256, 3, 32, 16)}
BATCH = 32
IN_A_ROW = 10
"""Our steps are timed so many at a time, as training takes them: one alone would find the caches full of a peer's."""


def step_case(name: str, dtype: torch.dtype, device: str, repeats: int) -> Case:
    """P = 256, K = 3, 32 images: a step of the block basis, and one of autograd on the d x d model."""
    world = MaskedAreas.paper(*SIZES[name], seed=0)
    layout, sample = layout_of([world], device=device, dtype=dtype), _sample(world, device, dtype)
    theta, rate = Correlations.zeros(layout), torch.ones(1, device=device, dtype=dtype)

    def ours() -> None:
        for _ in range(IN_A_ROW):
            theta.minus(gradient(theta, layout, sample), rate)

    peers = _peers(world, sample)
    times = side_by_side({"ours": ours, "floor": _floor(layout, sample), **peers}, device, repeats)
    times = times | {name: times[name] / IN_A_ROW for name in ("ours", "floor")}
    peer = min(peers, key=lambda name: times[name])
    return Case(
        f"step, P = 256, K = 3, {name}, batch {BATCH}, {str(dtype).removeprefix('torch.')}",
        times["ours"],
        f"autograd on the d x d model, {peer}",
        times[peer],
        times["floor"],
        {"all_queries_ms": times["all queries"], "ratio_to_all_queries": times["all queries"] / times["ours"]},
    )


def _peers(world: MaskedAreas, sample: Sample) -> dict[str, Callable[[], Tensor]]:
    """Steps of the d x d model."""
    images, unmasked = _dense(world, sample)
    dim = images.shape[-1]
    Q = images.new_zeros(dim, dim).requires_grad_()
    positions = torch.eye(dim, device=images.device, dtype=images.dtype)[world.features :]
    hidden = (~unmasked).nonzero()[:, 1].view(BATCH, -1, 1).expand(-1, -1, dim)

    def all_queries() -> Tensor:
        loss = reconstruction_loss(Q, images, unmasked, positions)
        return Q.detach() - torch.autograd.grad(loss, Q)[0]

    def masked_queries() -> Tensor:
        seen = images * unmasked[..., None]
        x = seen + positions
        scores = x.gather(1, hidden) @ Q @ x.transpose(-1, -2)
        error = torch.softmax(scores, -1) @ seen - images.gather(1, hidden)
        return Q.detach() - torch.autograd.grad(0.5 * (error**2).sum() / BATCH, Q)[0]

    return {"all queries": all_queries, "masked queries": masked_queries}


def _floor(layout: Layout, sample: Sample) -> Callable[[], object]:
    """What no step of the block basis can do without, with every index ready beforehand.

    An exponential for each pair of positions; for each image and seen key one row of those added to an area, and one
    row of worths added to the key; attention on areas written once and its worth read once.
    """
    settings, clusters, samples, patches = sample.unmasked.shape
    areas, rows = layout.member.shape[2], layout.rows.shape[1]
    ups = torch.rand(patches, rows, device=layout.member.device, dtype=layout.member.dtype)
    attention = torch.rand(settings * clusters * samples * areas, rows, device=ups.device, dtype=ups.dtype)
    image, key = sample.unmasked.flatten(0, 2).nonzero(as_tuple=True)
    place = image * areas + layout.area[0].repeat_interleave(samples, 0)[image, key]
    starts = torch.arange(0, len(key), patches // 2, device=ups.device)

    def floor() -> None:
        for _ in range(IN_A_ROW):
            torch.nn.functional.embedding_bag(key, ups.exp(), starts, mode="sum")
            torch.nn.functional.embedding_bag(place, attention.mul_(1.0), starts, mode="sum")

    return floor


def sweep_case(device: str, settings: int = 64, steps: int = 100) -> Case:
    """A sweep of sizes, gaps and seeds in one batched run, and the same settings one after the other."""
    shapes = [(64, 2, 32, 8), (64, 2, 16, 8), (100, 3, 60, 8), (100, 3, 20, 10)]
    runs = [Run(MaskedAreas.paper(*shapes[i % 4], seed=i), 10.0, 32, i) for i in range(settings)]

    def batched() -> None:
        descend(runs, steps, device=device)

    def serial() -> None:
        for run in runs:
            descend([run], steps, device=device)

    ours_ms, peer_ms = median_ms(batched, device, 3, warm_up=1), median_ms(serial, device, 1, warm_up=0)
    return Case(
        f"sweep of {settings} settings, {steps} steps, float64", ours_ms, "one setting after the other", peer_ms
    )


def _sample(world: MaskedAreas, device: str, dtype: torch.dtype) -> Sample:
    """32 images over the three clusters: 11, 11 and 10, the last place of the third being padding."""
    most = -(-BATCH // world.clusters)
    drawn = Draws([world], [most], [0], device, dtype).at(0)
    weight = torch.full_like(drawn.weight, 1 / BATCH)
    weight.view(-1)[BATCH:] = 0
    return Sample(drawn.unmasked, drawn.z, weight)


def _dense(world: MaskedAreas, sample: Sample) -> tuple[Tensor, Tensor]:
    """The same images as whole tensors in d coordinates, and their masks."""
    unmasked = sample.unmasked[0].flatten(0, 1)[:BATCH]
    which = torch.arange(BATCH) // sample.unmasked.shape[2]
    column = torch.tensor(world.feature_offsets[:-1])[which][:, None] + world.labels[which]
    images = unmasked.new_zeros(BATCH, world.patches, world.features + world.patches)
    images.scatter_(2, column[..., None].to(images.device), 1.0)
    return images, unmasked.bool()


def cases(device: str = "cpu", repeats: int = 20) -> list[Case]:
    """All cases. The sweep, which batching is meant for, is measured on a GPU alone."""
    found = [step_case(name, dtype, device, repeats) for name in SIZES for dtype in (torch.float64, torch.float32)]
    if torch.device(device).type == "cuda":
        found.append(sweep_case(device))
    return found
