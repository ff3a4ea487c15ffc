"""What a run needs before its first step, compiled and captured; runs that agree in it may share it, one by one.

Compiling takes longer than many a run. What is compiled depends on the shapes, the augmentation and the optimiser's
constants, and not on initial values, the number of epochs, or the rates, which are read from tables. So a second run
(another seed, another rate, another length) begins with new values in the same places.
"""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from tessella.images.augmentation import Augmenter
from tessella.images.image_set import ImageSet
from tessella.training.evaluation import Evaluation
from tessella.training.feeds import Stream, feed
from tessella.training.network import Factory
from tessella.training.processes import Processes
from tessella.training.recipe import Recipe
from tessella.training.step import Step


@dataclass(frozen=True)
class Prepared:
    """A step and its evaluation, ready to run on these images."""

    step: Step
    evaluation: Evaluation
    sources: tuple[ImageSet | Stream, ImageSet]


class Reuse:
    """The preparations of the latest runs, at most `kept` of them, since each holds its memory on the device."""

    def __init__(self, kept: int = 2):
        self._kept = kept
        self._held: OrderedDict[Hashable, Prepared] = OrderedDict()

    def prepared(
        self,
        recipe: Recipe,
        sources: tuple[ImageSet | Stream, ImageSet],
        factory: Factory,
        processes: Processes,
        device: torch.device,
    ) -> tuple[Prepared, float]:
        """One that fits, and the seconds that it took to make it now."""
        key = (_what_is_compiled(recipe), *map(id, sources), factory, processes, device)
        held = self._held.pop(key, None)
        seconds = 0.0
        if held is None:
            while len(self._held) >= self._kept:
                self._held.popitem(last=False)
            start = time.perf_counter()
            held = _prepare(recipe, sources, factory, processes, device)
            seconds = time.perf_counter() - start
        self._held[key] = held
        if held.step.order is not None:
            held.step.order.copy_(_order(recipe))
        return held, seconds


LATEST = Reuse()
"""What runs share that bring none of their own."""


def _prepare(
    recipe: Recipe,
    sources: tuple[ImageSet | Stream, ImageSet],
    factory: Factory,
    processes: Processes,
    device: torch.device,
) -> Prepared:
    train_set, test_set = sources
    mean, std = train_set.statistics()
    augmenter = Augmenter(recipe.augmentation, mean, std, recipe.shape.classes, recipe.shape.image)
    own = recipe.distinct // (processes.size if recipe.draws == "process" else 1)
    order = _order(recipe).to(device) if recipe.shuffle_cell else None
    fed = feed(train_set, recipe.steps_per_epoch(len(train_set)), own, device)
    step = Step(recipe, factory(recipe, 0), fed, augmenter, order, processes, device)
    step.prepare()
    evaluation = Evaluation(step, test_set, processes)
    evaluation.prepare(recipe)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return Prepared(step, evaluation, sources)


def _what_is_compiled(recipe: Recipe) -> Recipe:
    """The recipe without what only initial values and tables depend on."""
    return dataclasses.replace(
        recipe,
        name="",
        data="",
        diagonal=1.0,
        spread=None,
        score_rate=1.0,
        epochs=1,
        rate=1.0,
        final_rate=0.0,
        warmup=0.0,
        ema=0.5 if recipe.ema else 0.0,
        evaluate_every=1,
        log_every=1,
        snapshots=0,
        shuffle_cell=1 if recipe.shuffle_cell else 0,
        shuffle_seed=0,
    )


def _order(recipe: Recipe) -> Int64[Tensor, " pixels"]:
    """Which pixel of an image comes to each place."""
    from tessella.images.grid_shuffle import GridShuffle

    side = recipe.shape.image
    shuffle = GridShuffle.random(side, recipe.shuffle_cell, recipe.shuffle_seed)
    places = torch.arange(side * side).view(1, 1, side, side)
    return shuffle.shuffle(places).flatten()
