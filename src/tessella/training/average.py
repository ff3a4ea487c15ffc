"""The exponential moving average of a model's weights (EMA), and evaluation with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.training.weights import Weights


class Average:
    """average <- keep average + (1 - keep) weights, at each step; running statistics are averaged alike."""

    def __init__(self, model: nn.Module, weights: Weights):
        self._weights = weights
        self._statistics = [each for each in model.buffers() if each.is_floating_point()]
        self.vector = torch.empty_like(weights.master)
        self.statistics = [torch.empty_like(each) for each in self._statistics]
        self.restart()

    def restart(self) -> None:
        """Begins at the weights as they are."""
        for average, now in self._pairs():
            average.copy_(now)

    def update(self, kept: Float[Tensor, ""]) -> None:
        """One step; `kept` lies on the device, so that a captured step can read another one each time."""
        for average, now in self._pairs():
            average.lerp_(now, 1 - kept)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within it, the model has the averaged weights."""
        own = [now.clone() for _, now in self._pairs()]
        try:
            self._write([average for average, _ in self._pairs()])
            yield
        finally:
            self._write(own)

    def _write(self, values: list[Tensor]) -> None:
        for (_, now), value in zip(self._pairs(), values, strict=True):
            now.copy_(value)
        self._weights.publish()

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip([self.vector, *self.statistics], [self._weights.master, *self._statistics], strict=True))
