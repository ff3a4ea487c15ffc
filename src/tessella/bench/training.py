"""A whole training step with positional attention against the same with vanilla attention, as `tessella train` runs it.

Both sides gather and augment images, go forward and backward, and take a step of AdamW, in the same recipe; on a CUDA
device both are compiled, computed in bfloat16, and captured in a CUDA graph, and vanilla attention takes the fused
backend that torch chooses. The floor is the products' operations at the rate of a large matrix product in the same run:
what a step would take if nothing but its products took time, and they ran as one large one does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch

from tessella.bench.benchmark import Case, side_by_side
from tessella.images.augmentation import Augmentation
from tessella.images.image_set import ImageSet
from tessella.models.vit import ViTShape
from tessella.training.machine import matrix_rate, operations
from tessella.training.network import build
from tessella.training.processes import Processes
from tessella.training.recipe import Recipe
from tessella.training.reuse import Reuse

STEPS = 8
"""Steps of an epoch on a GPU, which are timed together."""

SMALL = Recipe(
    name="ViT of 7 layers, 65 tokens",
    data="random",
    shape=ViTShape(classes=100),
    augmentation=Augmentation(crop=4, flip=True, cutmix=1.0),
)
LARGER = Recipe(
    name="ViT-S/16 at 224 pixels",
    data="random",
    shape=ViTShape(image=224, patch=16, classes=1000, depth=12, heads=6, hidden=1536),
    batch=256,
    augmentation=Augmentation(crop=16, flip=True, cutmix=1.0),
)


def cases(device: str) -> list[Case]:
    """The paper's small ViT and ViT-S/16 on a GPU; the small one, in a batch that a CPU can do, elsewhere."""
    if torch.device(device).type == "cuda":
        return [training(SMALL, device), training(LARGER, device)]
    return [training(dataclasses.replace(SMALL, batch=16), device)]


def training(recipe: Recipe, device: str) -> Case:
    """A itself against vanilla attention."""
    steps = STEPS if torch.device(device).type == "cuda" else 1
    images = _images(recipe, steps)
    vanilla, ours = recipe.with_attention("vanilla"), recipe.with_attention("positional")
    calls = {"ours": _epoch(ours, images, steps, device), "vanilla": _epoch(vanilla, images, steps, device)}
    times = {name: taken / steps for name, taken in side_by_side(calls, device).items()}
    counted = {
        name: operations(build(each, 0), each.shape, each.batch)
        for name, each in (("ours", ours), ("vanilla", vanilla))
    }
    rate = matrix_rate(torch.device(device))
    how = "bfloat16, compiled, captured" if torch.device(device).type == "cuda" else "float32"
    return Case(
        f"training step, {recipe.name}, batch {recipe.batch}, {how}",
        times["ours"],
        "vanilla attention by SDPA",
        times["vanilla"],
        1e3 * counted["ours"] / rate,
        {
            "images_per_s": 1e3 * recipe.batch / times["ours"],
            "vanilla_images_per_s": 1e3 * recipe.batch / times["vanilla"],
            "operations": counted["ours"],
            "vanilla_operations": counted["vanilla"],
            "matrix_gflop_per_s": rate / 1e9,
        },
    )


def _epoch(recipe: Recipe, images: ImageSet, steps: int, device: str) -> Callable[[], None]:
    """So many training steps, prepared."""
    prepared, _ = Reuse().prepared(recipe, (images, images), build, Processes(), torch.device(device))
    step = prepared.step
    step.restart(build(recipe, 0), recipe)
    order = np.random.default_rng(0).permutation(len(images)).reshape(steps, recipe.batch)
    table = np.tile(np.array([recipe.rate, 0.0]), (steps, 1)).astype(np.float32)

    def run() -> None:
        step.begin(order, table, np.arange(steps), 0)
        for number in range(steps):
            step.advance(number)

    return run


def _images(recipe: Recipe, steps: int) -> ImageSet:
    """Random bytes and labels: what a step takes does not depend on them."""
    random, shape = np.random.default_rng(0), recipe.shape
    count = steps * recipe.batch
    pixels = random.integers(0, 256, (count, shape.image, shape.image, shape.channels), dtype=np.uint8)
    labels = random.integers(0, shape.classes, count)
    return ImageSet(pixels, labels, tuple(map(str, range(shape.classes))), "random", "train")
