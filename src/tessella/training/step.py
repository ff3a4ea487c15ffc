"""One step of training, whole: gathering, augmentation, forward, backward, exchange, AdamW, averages.

It works on tensors that stay where they are, and reads what differs from step to step, the images' places, the rate,
and what the average keeps, from tables of an epoch by a counter on the device. So on a GPU the step is captured once
and replayed, and all the host does in between is to name the seed of the step's random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tessella.images.augmentation import Augmenter
from tessella.models.vit import ViT, branch_weights
from tessella.training.average import Average
from tessella.training.capture import Captured, attention_by, compiled
from tessella.training.feeds import Feed
from tessella.training.network import groups
from tessella.training.processes import Processes
from tessella.training.recipe import Recipe
from tessella.training.weights import Weights

Drawn: TypeAlias = tuple[
    Float[Tensor, "batch channels side side"], Float[Tensor, "batch classes"], Float[Tensor, "depth 2 batch"] | None
]


class Step:
    """A model with its optimiser on a device, and the step that trains it. `prepare` comes first."""

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        feed: Feed,
        augmenter: Augmenter,
        order: Int64[Tensor, " pixels"] | None,
        processes: Processes,
        device: torch.device,
    ):
        self.device, self._recipe, self._feed, self._processes = device, recipe, feed, processes
        on_gpu = device.type == "cuda"
        precision = recipe.precision if on_gpu else "float32"
        self.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._autocast = precision == "autocast"
        mode = recipe.compile_mode if on_gpu else "none"
        self.model = model.to(device).train()
        self.augmenter = augmenter.to(device)
        self.order = order
        self.weights = Weights(self.model, groups(self.model, recipe), self.dtype)
        self._bases = torch.tensor([group["lr"] for group in self.weights.groups], device=device)
        self._rates = self._bases.clone()
        made = [{**group, "lr": rate} for group, rate in zip(self.weights.groups, self._rates, strict=True)]
        betas = (recipe.momentum, recipe.second_moment)
        self.optimizer = torch.optim.AdamW(made, betas=betas, fused=True, capturable=on_gpu and recipe.captured)
        self.average = Average(self.model, self.weights) if recipe.ema else None
        steps = len(feed.order)
        self._table = torch.zeros(steps, 2, device=device)
        self.losses = torch.zeros(steps, device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self._draw = compiled(self._drawn, mode)
        self._loss = compiled(self._loss_of, mode)
        self.logits = compiled(self._logits, mode)
        self._run: Callable[[], None] = self._step
        self._seeds = np.zeros(steps, dtype=np.int64)
        self._generator = torch.cuda.default_generators[device.index or 0] if on_gpu else torch.default_generator

    def prepare(self) -> None:
        """Compiles and captures. The weights are anything afterwards: `restart` follows."""
        if self.device.type == "cuda" and self._recipe.captured:
            self._run = Captured(self._step, self._rewind, self.device)
        else:
            self._rewind()
            self._step()

    def _rewind(self) -> None:
        self.place.zero_()

    def restart(self, model: nn.Module, recipe: Recipe) -> None:
        """Begins anew with another model's values, and another recipe's rates, in the same places."""
        self.weights.load(dict(model.named_parameters()))
        theirs = dict(model.named_buffers())
        for name, buffer in self.model.named_buffers():
            buffer.copy_(theirs[name])
        for group in self.weights.groups:
            for each in self.optimizer.state[group["params"][0]].values():
                each.zero_()
        self._bases.copy_(torch.tensor([group["lr"] for group in groups(model, recipe)]))
        self.losses.zero_()
        if self.average is not None:
            self.average.restart()

    def begin(
        self,
        order: Int64[np.ndarray, "steps batch"],
        table: Float[np.ndarray, "steps 2"],
        seeds: Int64[np.ndarray, " steps"],
        start: int,
    ) -> None:
        """Takes an epoch's tables: images, rates with what the average keeps, and seeds; it goes on at `start`."""
        self._feed.begin(order, start)
        self._table.copy_(torch.from_numpy(table))
        self._seeds = seeds
        self.place.fill_(start)

    def advance(self, number: int) -> None:
        """Step `number` of the epoch. A GPU goes on working after it returns."""
        self._feed.fetch()
        self._generator.manual_seed(int(self._seeds[number]))
        self._run()

    def _step(self) -> None:
        images, targets, branches = self._draw()
        with attention_by(self._recipe.sdpa):
            loss = self._loss(images, targets, branches)
        gradients = torch.autograd.grad(loss, self.weights.parameters, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            self.weights.take(gradients, loss.detach())
            self._processes.average(self.weights.exchanged)
            if self._recipe.clip:
                norm = torch.linalg.vector_norm(self.weights.gradient)
                self.weights.gradient.mul_((self._recipe.clip / (norm + 1e-6)).clamp(max=1.0))
            now = self._table.index_select(0, self.place)[0]
            torch.mul(self._bases, now[0], out=self._rates)
            self.optimizer.step()
            self.weights.publish()
            if self.average is not None:
                self.average.update(now[1])
            self.losses.index_copy_(0, self.place, self.weights.loss[None])
            self.place.add_(1)

    def _drawn(self) -> Drawn:
        """The images of this process, their targets, and what each branch counts for them."""
        recipe, processes = self._recipe, self._processes
        images, targets = self.augmenter(*self._feed.batch(self.place))
        batch = len(images)
        branches = None
        if recipe.drop_path and isinstance(self.model, ViT):
            branches = branch_weights(recipe.drop_path, recipe.shape.depth, batch, self.device).to(self.dtype)
        if recipe.draws == "batch" and processes.size > 1:
            share = processes.share(batch)
            images, targets = images[share], targets[share]
            branches = None if branches is None else branches[:, :, share]
        return self.shown(images), targets, branches

    def shown(self, images: Float[Tensor, "batch channels side side"]) -> Float[Tensor, "batch channels side side"]:
        """As the model sees them: shuffled where the recipe says so, and in its precision."""
        if self.order is not None:
            images = images.flatten(2).index_select(2, self.order).view_as(images)
        return images.to(self.dtype)

    def _loss_of(self, images: Tensor, targets: Tensor, branches: Tensor | None) -> Float[Tensor, ""]:
        """Cross-entropy with soft targets."""
        logits = self._logits(images, branches).float()
        return -(targets * torch.log_softmax(logits, -1)).sum(-1).mean()

    def _logits(self, images: Tensor, branches: Tensor | None = None) -> Float[Tensor, "batch classes"]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast):
            logits: Tensor = self.model(images) if branches is None else self.model(images, branches)
            return logits

    def moments(self) -> dict[str, Tensor]:
        """AdamW's state, by the group's number and its own names."""
        found = {}
        for number, group in enumerate(self.weights.groups):
            for name, value in self.optimizer.state[group["params"][0]].items():
                found[f"{number}.{name}"] = value
        return found

    def state(self) -> dict[str, Tensor]:
        """All that training goes on from, in tensors that are the step's own."""
        tensors = {"weights": self.weights.master, "losses": self.losses}
        tensors |= {f"optimizer.{name}": value for name, value in self.moments().items()}
        tensors |= {f"buffer.{name}": value for name, value in self.model.named_buffers()}
        if self.average is not None:
            tensors["average"] = self.average.vector
            tensors |= {f"average.{number}": value for number, value in enumerate(self.average.statistics)}
        return tensors

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        """Goes on from such a state."""
        for name, own in self.state().items():
            own.copy_(tensors[name])
        self.weights.publish()
