"""The report on a ViT-B/16 against plain forward passes of the same model on the same images, in one run.

On a CPU: `tessella.inspect` on 64 images and the page of it, against two forward passes; the report is to take at most
2.5 times as long as these, a ratio of at least 0.4. On a GPU: `tessella.inspect` on 10,000 images in bfloat16, against
one forward pass with fused attention; at least half its throughput is a ratio of at least 0.5. Weights and images are
random: no number of the report depends on time, and no time on the numbers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from tessella.bench.benchmark import Case
from tessella.models.vit import ViT, ViTShape
from tessella.probe.inspecting import inspect
from tessella.probe.inspection import Inspection
from tessella.probe.pictures import Pictures
from tessella.report.inspection_page import write_page

SHAPE = ViTShape(image=224, patch=16, classes=1000, dim=768, depth=12, heads=12, hidden=3072)
"""ViT-B/16."""

CPU_IMAGES, GPU_IMAGES = 64, 10_000
BATCH = {"cpu": 8, "cuda": 64}
"""What an inspection takes at a time, and the plain pass too."""


def cases(device: str) -> list[Case]:
    kind = torch.device(device).type
    model = ViT(SHAPE).eval().to(device)
    if kind == "cuda":
        return [on_gpu(model.bfloat16(), device, GPU_IMAGES)]
    return [on_cpu(model, CPU_IMAGES)]


def on_cpu(model: ViT, count: int) -> Case:
    """The report with its page, between two plain passes."""
    images = drawn(model, count)
    passes = [_seconds(lambda: _plain(model, images))]
    found: list[Inspection] = []
    reading = _seconds(lambda: found.append(inspect(model, images)))
    with tempfile.TemporaryDirectory() as folder:
        writing = _seconds(lambda: write_page(found, Path(folder)))
        size = (Path(folder) / "inspection.html").stat().st_size
    passes.append(_seconds(lambda: _plain(model, images)))
    return Case(
        f"report and page, {_named(model.shape)}, {count} images",
        1e3 * (reading + writing),
        "two plain forward passes",
        1e3 * sum(passes),
        more={
            "times two plain passes": (reading + writing) / sum(passes),
            "inspect ms": 1e3 * reading,
            "page ms": 1e3 * writing,
            "page bytes": size,
            "images a second": count / reading,
        },
    )


def on_gpu(model: ViT, device: str, count: int) -> Case:
    """The report without its page, after one on few images, in rounds with plain passes."""
    images = drawn(model, count)
    inspect(model, drawn(model, 2 * BATCH["cuda"]))
    _plain(model, images)
    reading, passes = [], []
    for _ in range(3):
        passes.append(_seconds(lambda: _plain(model, images), device))
        reading.append(_seconds(lambda: inspect(model, images), device))
    ours, plain = statistics.median(reading), statistics.median(passes)
    return Case(
        f"report, {_named(model.shape)}, {count} images, bfloat16",
        1e3 * ours,
        "one plain forward pass",
        1e3 * plain,
        more={"images a second": count / ours, "plain images a second": count / plain},
    )


def drawn(model: ViT, count: int) -> Pictures:
    """Random images where the model is; a few hundred of them, over and over."""
    shape, like = model.shape, model.embed.weight
    generator = torch.Generator().manual_seed(0)
    distinct = torch.randn(min(count, 512), shape.channels, shape.image, shape.image, generator=generator).to(like)

    def batches(at_once: int) -> Iterator[Tensor]:
        left = count
        while left > 0:
            for batch in distinct[:left].split(at_once):
                yield batch
                left -= len(batch)

    return Pictures(batches, count, source="a random generator")


def _plain(model: ViT, images: Pictures) -> None:
    with torch.no_grad():
        for batch in images.batches(BATCH[model.embed.weight.device.type]):
            model(batch)


def _seconds(call: Callable[[], object], device: str = "cpu") -> float:
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    if on_gpu:
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _named(shape: ViTShape) -> str:
    if shape == SHAPE:
        return "ViT-B/16 at 224 pixels"
    return f"ViT of {shape.depth} layers, {shape.tokens} tokens"
