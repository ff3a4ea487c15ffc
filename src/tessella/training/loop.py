"""Training a recipe: `train` for one run, on one device or on many processes' devices, and `train_many` for a list.

trained = train(digits(), image_set("train"), image_set("test"), seed=0)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tessella.images.image_set import ImageSet
from tessella.training.feeds import Stream
from tessella.training.journal import Journal
from tessella.training.network import Factory, build
from tessella.training.processes import Processes, joined
from tessella.training.recipe import Recipe
from tessella.training.reuse import LATEST, Reuse
from tessella.training.run import Run, Watch


@dataclass(frozen=True)
class Trained:
    """What a run has come to."""

    recipe: Recipe
    seed: int
    accuracy: float
    """On the held-out images, in percent; of the averaged weights, if the recipe averages them."""
    last_accuracy: float
    """The same of the last weights."""
    seconds: float
    """Training and evaluation, over all parts of a run that was resumed; not compiling, capturing, copying images."""
    compile_seconds: float
    """What was needed before the first step."""
    images_per_second: float
    """In training, evaluation left out."""
    history: list[dict[str, Any]]
    """Records of the run: epoch, step, loss, rate, and after an evaluation accuracy, last_accuracy, test_loss."""
    model: nn.Module
    """In eval mode, in float32, on the CPU."""
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    """States during training: `step`, and as `state` the weights by name."""


def train(
    recipe: Recipe,
    train_set: ImageSet | Stream,
    test_set: ImageSet,
    *,
    seed: int,
    device: str = "cpu",
    folder: Path | None = None,
    watch: Watch | None = None,
    reuse: Reuse | None = None,
    factory: Factory = build,
) -> Trained:
    """Trains a recipe's model from a seed. With a folder the run is kept there, and goes on from its checkpoint.

    What earlier runs of this process have compiled serves this one too, where shapes agree: `reuse` holds it, or one
    that all runs share. `factory` makes the model in `build`'s place. Under torchrun every process calls this alike.
    """
    if seed < 0:
        raise ValueError(f"seed: got {seed}, expected 0 or more")
    processes, own = joined(device)
    recipe = fitted(recipe, train_set, test_set, processes)
    config = {**dataclasses.asdict(recipe), "seed": seed, "device": own.type}
    journal = Journal(folder if processes.leads else None, config)
    with _own_draws(own), _memory_named(recipe):
        prepared, compile_seconds = (reuse or LATEST).prepared(recipe, (train_set, test_set), factory, processes, own)
        run = Run(recipe, seed, prepared, factory(recipe, seed), journal, processes, watch)
        try:
            run.resume()
            run.train()
        finally:
            journal.close()
        run.finish(compile_seconds)
    return Trained(
        recipe,
        seed,
        run.history[-1]["accuracy"],
        run.history[-1]["last_accuracy"],
        run.seconds,
        compile_seconds,
        run.images_per_second,
        run.history,
        run.model,
        run.snapshots,
    )


def train_many(
    runs: Sequence[tuple[Recipe, int]],
    train_set: ImageSet | Stream,
    test_set: ImageSet,
    device: str = "cpu",
    watch: Watch | None = None,
) -> Iterator[Trained]:
    """Trains recipes from seeds, one after the other, compiling anew only where shapes change."""
    for number, (recipe, seed) in enumerate(runs):
        told = None if watch is None else _part(watch, number, len(runs))
        yield train(recipe, train_set, test_set, seed=seed, device=device, watch=told)


def fitted(
    recipe: Recipe,
    train_set: ImageSet | Stream,
    test_set: ImageSet,
    processes: Processes = Processes(),  # noqa: B008
) -> Recipe:
    """The recipe for these images, or one line on what does not fit."""
    if train_set.classes != test_set.classes or (train_set.size, train_set.channels) != (
        test_set.size,
        test_set.channels,
    ):
        raise ValueError(
            f"test_set: got {len(test_set.classes)} classes of {test_set.size} pixels, expected those of the images "
            f"to learn from, {len(train_set.classes)} of {train_set.size}"
        )
    if recipe.batch % processes.size or (recipe.draws == "process" and recipe.distinct % processes.size):
        raise ValueError(f"batch: got {recipe.batch}, expected a multiple of {processes.size} processes")
    recipe = recipe.fitted(train_set)
    recipe.steps_per_epoch(len(train_set))
    return recipe


@contextmanager
def _own_draws(device: torch.device) -> Iterator[None]:
    """Steps seed torch's own generators, which dropout and compiled code draw from; afterwards they are as before."""
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def _memory_named(recipe: Recipe) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"batch: got {recipe.batch}, which does not fit in the device's memory; expected a smaller batch"
        ) from error


def _part(watch: Watch, number: int, count: int) -> Watch:
    return lambda fraction, text: watch((number + fraction) / count, f"run {number + 1} of {count}: {text}")
