"""A model's weights as one vector: optimiser, average, precision and exchange each touch it in one operation.

`master` holds every parameter in float32, group after group. In float32 the model's parameters are views of it. In
bfloat16 they are views of `working`, a copy that is made once a step: the model then computes in bfloat16 throughout,
residual stream included, and nothing is cast within it. Batch normalisation keeps float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

_ALIGNED = 64
"""Each parameter starts at a multiple of so many numbers, so that kernels may read 16 bytes at a time."""


class Weights:
    """The parameters of `groups`, in their order; `groups` are as an optimiser takes them.

    `exchanged` is the gradient followed by the loss, so that processes average both at once.
    """

    def __init__(self, model: nn.Module, groups: Sequence[Mapping[str, Any]], dtype: torch.dtype = torch.float32):
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.parameters: list[nn.Parameter] = [each for group in groups for each in group["params"]]
        self.names = [names[id(each)] for each in self.parameters]
        device = self.parameters[0].device
        room = [_room(each) for each in self.parameters]
        self.master = torch.zeros(sum(room), device=device)
        self.exchanged = torch.zeros(sum(room) + _ALIGNED, device=device)
        self.gradient, self.loss = self.exchanged[: sum(room)], self.exchanged[sum(room)]
        self.working = self.master if dtype == torch.float32 else torch.zeros_like(self.master, dtype=dtype)
        self._starts = [sum(room[:place]) for place in range(len(room))]
        self._slots = self.views(self.gradient)
        kept = {id(each) for part in model.modules() if _is_norm_of_batches(part) for each in part.parameters()}
        homes = zip(self.parameters, self.views(self.master), self.views(self.working), strict=True)
        for parameter, master, working in homes:
            master.copy_(parameter.detach())
            parameter.data = master if id(parameter) in kept else working
        self.publish()
        self.groups = list(self._grouped(groups, room))

    def _grouped(self, groups: Sequence[Mapping[str, Any]], room: Sequence[int]) -> Iterable[dict[str, Any]]:
        """A group's parameters as one: AdamW treats every number by itself, so that nothing changes but the speed."""
        place = start = 0
        for group in groups:
            stop = start + sum(room[place : place + len(group["params"])])
            flat = nn.Parameter(self.master[start:stop])
            flat.grad = self.gradient[start:stop]
            yield {**group, "params": [flat]}
            place, start = place + len(group["params"]), stop

    @property
    def count(self) -> int:
        """How many numbers are trained."""
        return sum(each.numel() for each in self.parameters)

    def views(self, flat: Float[Tensor, " numbers"]) -> list[Tensor]:
        """The parts of such a vector, in the shapes of the parameters."""
        pairs = zip(self._starts, self.parameters, strict=True)
        return [flat[start : start + each.numel()].view(each.shape) for start, each in pairs]

    def named(self, flat: Float[Tensor, " numbers"]) -> dict[str, Tensor]:
        """The same, by the model's names for them."""
        return dict(zip(self.names, self.views(flat), strict=True))

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Takes the parameters' values, by name."""
        for name, view in self.named(self.master).items():
            view.copy_(values[name].detach())
        self.publish()

    def take(self, gradients: Sequence[Tensor], loss: Float[Tensor, ""]) -> None:
        """Brings gradients and the loss into `exchanged`, in float32."""
        torch._foreach_copy_(self._slots, list(gradients))
        self.loss.copy_(loss)

    def publish(self) -> None:
        """Gives the model the master weights."""
        if self.working is not self.master:
            self.working.copy_(self.master)


def _room(parameter: nn.Parameter) -> int:
    return math.ceil(parameter.numel() / _ALIGNED) * _ALIGNED


def _is_norm_of_batches(part: nn.Module) -> bool:
    return isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d)
