"""Accuracy and loss on held-out images, in large batches, on a GPU by replaying one captured batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tessella.images.image_set import ImageSet
from tessella.training.capture import Captured, attention_by
from tessella.training.processes import Processes
from tessella.training.recipe import Recipe
from tessella.training.step import Step

BATCH = 1000
"""Images at a time, at most."""

RESIDENT_BYTES = 4_000_000_000
"""Up to so many, held-out images are kept on the device."""


@dataclass(frozen=True)
class Score:
    """Of a model on held-out images: accuracy in percent, and cross-entropy."""

    accuracy: float
    loss: float


class Evaluation:
    """Scores a step's model; each process takes its share of the images."""

    def __init__(self, step: Step, images: ImageSet, processes: Processes):
        self._step, self._processes, self._whole = step, processes, len(images)
        own = np.arange(processes.rank, len(images), processes.size)
        batch = max(1, min(BATCH, len(own)))
        device = step.device
        keep = device if images.images.nbytes <= RESIDENT_BYTES else torch.device("cpu")
        whole = processes.size == 1
        self._source = torch.from_numpy(np.array(images.images if whole else images.images[own])).to(keep)
        self._answers = torch.from_numpy(images.labels[own]).to(device)
        shape = images.images.shape[1:]
        self._images = torch.zeros(batch, *shape, dtype=torch.uint8, device=device)
        self._labels = torch.zeros(batch, dtype=torch.int64, device=device)
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)
        self._run: Callable[[], None] = self._batch

    def prepare(self, recipe: Recipe) -> None:
        """Compiles and captures."""
        self._step.model.eval()
        with attention_by(recipe.sdpa):
            if recipe.captured and self._step.device.type == "cuda":
                self._run = Captured(self._batch, lambda: None, self._step.device)
            else:
                self._batch()
        self._step.model.train()

    def __call__(self) -> Score:
        """The score now; it waits for the device once."""
        self._step.model.eval()
        self._sums.zero_()
        batch = len(self._labels)
        for start in range(0, len(self._answers), batch):
            some = self._source[start : start + batch]
            self._images[: len(some)].copy_(some)
            self._labels.fill_(-1)
            self._labels[: len(some)].copy_(self._answers[start : start + batch])
            self._run()
        self._step.model.train()
        self._processes.add(self._sums)
        right, loss = self._sums.tolist()
        return Score(100 * right / self._whole, loss / self._whole)

    @torch.no_grad()
    def _batch(self) -> None:
        """Adds right answers and losses of the batch in place; a label of -1 is none."""
        logits = self._step.logits(self._step.shown(self._step.augmenter.plain(self._images))).float()
        asked = self._labels >= 0
        right = (logits.argmax(-1) == self._labels) & asked
        losses: Tensor = -torch.log_softmax(logits, -1).gather(1, self._labels.clamp(min=0)[:, None])[:, 0]
        self._sums.add_(torch.stack([right.sum().double(), (losses * asked).double().sum()]))
