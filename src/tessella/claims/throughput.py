"""How many images a second models train on, side by side: the same step, the same batch, turn by turn.

Every model goes through the very same step (augmentation, forward, backward, AdamW; compiled and captured on a GPU) on
images of random bytes, so that what differs is the model alone. Turns alternate, so that a machine's moods reach all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from tessella.images.image_set import ImageSet
from tessella.training.loop import train
from tessella.training.recipe import Recipe
from tessella.training.reuse import Reuse

WARM = 1
"""Turns that are not counted: kernels are tuned, and caches filled."""


def random_images(count: int, side: int, channels: int, classes: int, split: str = "train") -> ImageSet:
    """Images of random bytes, every class among their labels."""
    draw = np.random.default_rng(0)
    images = draw.integers(256, size=(count, side, side, channels), dtype=np.uint8)
    names = tuple(str(each) for each in range(classes))
    return ImageSet(images, np.arange(count, dtype=np.int64) % classes, names, "random bytes", split)


def images_per_second(
    recipes: Mapping[str, Recipe],
    steps: int,
    rounds: int,
    device: str,
    tell: Callable[[float, str], None] = lambda fraction, text: None,
) -> dict[str, list[float]]:
    """One figure a round for each recipe, which must agree in batch and image size."""
    first = next(iter(recipes.values()))
    for name, recipe in recipes.items():
        if (recipe.batch, recipe.shape.image) != (first.batch, first.shape.image):
            raise ValueError(
                f"recipes: got {name} with batch {recipe.batch} and {recipe.shape.image} pixels, expected "
                f"{first.batch} and {first.shape.image}, as the others have"
            )
    for name, number in (("steps", steps), ("rounds", rounds)):
        if number < 1:
            raise ValueError(f"{name}: got {number}, expected at least 1")
    shape = first.shape
    few = min(steps, 4)  # batches that lie on the device; an epoch is one pass through them
    learnt = random_images(few * first.batch, shape.image, shape.channels, shape.classes)
    held_out = random_images(shape.classes, shape.image, shape.channels, shape.classes, "test")
    reuse = Reuse(kept=len(recipes))
    found: dict[str, list[float]] = {name: [] for name in recipes}
    epochs = max(1, steps // few)
    for turn in range(WARM + rounds):
        for place, (name, recipe) in enumerate(recipes.items()):
            tell((turn * len(recipes) + place) / ((WARM + rounds) * len(recipes)), f"images a second of {name}")
            # A rate of next to nothing: random labels teach nothing, and must not drive weights to infinity.
            timed = dataclasses.replace(
                recipe, epochs=epochs, rate=1e-6, warmup=0.0, evaluate_every=epochs, log_every=few * first.batch,
                snapshots=0,
            )  # fmt: skip
            ran = train(timed, learnt, held_out, seed=turn, device=device, reuse=reuse)
            if turn >= WARM:
                found[name].append(ran.images_per_second)
    return found
