"""Gradient descent on the empirical risk (E), with the trajectory that Theorem 4.2 and Figure 4 look at."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tessella.dynamics.sample import Sample
from tessella.models.simplified_vit import Gradient, LossGradient, SimplifiedViT
from tessella.runs.folder import RunFolder
from tessella.structure.association import exact_rows
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import Projection, SignalSets

CHECKPOINT_SECONDS = 2.0
"""A run with a folder saves its state at the end of a step, when so long has passed since it last did."""


class DivergenceError(RuntimeError):
    """Descent left the finite numbers; the message names the rate to lower."""


@dataclass(frozen=True)
class Descent:
    """How to descend: rates for A and v apart, since no single rate suits both beyond D = 16.

    The default rates are for plain descent; Adam, whose steps have the size of its rates, wants some .1 and .01.
    """

    steps: int = 250
    rate_attention: float = 40.0
    rate_value: float = 2e-3
    optimizer: Literal["gd", "adam"] = "gd"
    batch: int | None = None
    """Points a step; None for all. Minibatches come in the order of the sample, whose points are i.i.d., over and over;
    points that do not fill a last minibatch are not used."""
    log_every: int = 5
    snapshots: int = 25
    """How many snapshots of A to keep, spread evenly over the logged steps."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("log_every", 1), ("snapshots", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least {least}")
        for name in ("rate_attention", "rate_value"):
            rate = getattr(self, name)
            if not (rate >= 0.0 and math.isfinite(rate)):
                raise ValueError(f"{name}: got {rate}, expected a number of 0 or more")
        if self.optimizer not in ("gd", "adam"):
            raise ValueError(f"optimizer: got {self.optimizer!r}, expected 'gd' or 'adam'")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"batch: got {self.batch}, expected at least 1")

    @property
    def logged(self) -> list[int]:
        """The steps at which the state is measured; the first and the last are among them."""
        return sorted({*range(0, self.steps, self.log_every), self.steps})

    @property
    def kept(self) -> set[int]:
        """The logged steps at which a snapshot of A is kept."""
        places = np.linspace(0, len(self.logged) - 1, min(self.snapshots, len(self.logged))).round().astype(int)
        return {self.logged[place] for place in places}


@dataclass(frozen=True)
class State:
    """What is measured of the model at one logged step."""

    step: int
    loss: float
    """The training loss over all N points (over the last minibatch where there are minibatches)."""
    error: float
    """P[y F(X) <= 0], on a test sample."""
    error_rule: float
    """P[f*(X) F(X) <= 0], on the same."""
    cosine: float
    """cos(v, w*)."""
    alpha: float
    """<v, w*>."""
    within_mean: float
    within_min: float
    within_max: float
    """A_ij over i != j in one set."""
    between_mean: float
    between_min: float
    between_max: float
    """A_ij over i and j in different sets."""
    exact_rows: float
    """Share of rows with Top_C of A equal to their set (Definition 2.2)."""


@dataclass
class Trajectory:
    """The states at logged steps, and A itself at some of them."""

    states: list[State] = field(default_factory=list)
    snapshots: dict[int, Tensor] = field(default_factory=dict)

    def column(self, name: str) -> list[float]:
        """One measured quantity over the logged steps."""
        return [getattr(state, name) for state in self.states]

    @property
    def final(self) -> State:
        return self.states[-1]


class Watch:
    """Measures a model against the world that it is trained on."""

    def __init__(self, world: SignalSets, test: Projection):
        self._world = world
        self._test = test
        self._rule = world.labelling(test)
        same = world.partition.same_set.to(test.label.device)
        diagonal = torch.eye(len(same), dtype=torch.bool, device=same.device)
        self._within = same & ~diagonal
        self._between = ~same

    @property
    def partition(self) -> Partition:
        return self._world.partition

    def state(self, step: int, loss: float, model: SimplifiedViT) -> State:
        """All of State but the loss, which comes with the gradient."""
        value, attention = model.value.detach(), model.attention.detach()
        with torch.no_grad():
            output = model.output(self._test.along(value))
        aligned = float(value @ self._test.feature)
        return State(
            step=step,
            loss=loss,
            error=float((output * self._test.label <= 0).double().mean()),
            error_rule=float((output * self._rule <= 0).double().mean()),
            cosine=aligned / max(float(torch.linalg.vector_norm(value)), 1e-300),
            alpha=aligned,
            **_summary("within", attention[self._within]),
            **_summary("between", attention[self._between]),
            exact_rows=exact_rows(attention, self._world.partition),
        )


def _summary(name: str, entries: Tensor) -> dict[str, float]:
    """Mean and extremes; all 0 where the partition leaves no such pair (one set, or sets of one patch)."""
    if entries.numel() == 0:
        return dict.fromkeys((f"{name}_mean", f"{name}_min", f"{name}_max"), 0.0)
    return {
        f"{name}_mean": float(entries.double().mean()),
        f"{name}_min": float(entries.min()),
        f"{name}_max": float(entries.max()),
    }


def descend(
    model: SimplifiedViT,
    sample: Sample,
    watch: Watch,
    descent: Descent,
    folder: RunFolder | None = None,
    progress: Callable[[float, str], None] = lambda fraction, text: None,
) -> Trajectory:
    """Descends from the model's state, in place. With a folder, goes on from the checkpoint in it.

    On a CPU, a run that was killed and resumed ends bit for bit where an unbroken one does, given the same number of
    threads.
    """
    points = sample.shape[0]
    if sample.shape[1:] != (model.patches, len(model.value)):
        raise ValueError(
            f"sample: got {sample.shape[1:]} for patches and dim, expected {(model.patches, len(model.value))}"
        )
    if sample.dtype != model.value.dtype:
        raise ValueError(f"sample: got {sample.dtype}, expected {model.value.dtype} as the model has")
    if watch.partition.patches != model.patches:
        raise ValueError(f"watch: got a world of {watch.partition.patches} patches, expected {model.patches}")
    if descent.batch is not None and descent.batch > points:
        raise ValueError(f"batch: got {descent.batch}, expected at most the {points} points of the sample")
    optimizer = _optimizer(model, descent)
    trajectory, start = Trajectory(), 0
    if folder is not None and (held := folder.load()) is not None:
        start, tensors = held
        trajectory = _restore(model, optimizer, tensors)
    logged, kept = set(descent.logged), descent.kept
    saved = time.monotonic()
    for step in range(start, descent.steps + 1):
        gradient = _gradient(model, sample, descent.batch, step)
        _check(gradient, model, watch, descent, step)
        if step in logged and (not trajectory.states or trajectory.final.step < step):
            loss = float(gradient.loss)
            state = watch.state(step, loss, model)
            trajectory.states.append(state)
            if step in kept:
                trajectory.snapshots[step] = model.attention.detach().cpu().clone()
            progress(step / descent.steps, f"loss {loss:.4f}, error {state.error:.4f}")
            if folder is not None:
                folder.log(dataclasses.asdict(state))
        if folder is not None and (time.monotonic() - saved > CHECKPOINT_SECONDS or step == descent.steps):
            folder.save(step, _state(model, optimizer, trajectory))
            saved = time.monotonic()
        if step < descent.steps:
            model.attention.grad, model.value.grad = gradient.attention, gradient.value
            optimizer.step()
    return trajectory


def _gradient(model: SimplifiedViT, sample: Sample, batch: int | None, step: int) -> Gradient:
    points = sample.shape[0]
    start, stop = 0, points
    if batch is not None:
        batches = points // batch
        start = (step % batches) * batch
        stop = start + batch
    accumulated = LossGradient(model, stop - start)
    for patches, label in sample.slices(start, stop):
        accumulated.add(patches, label)
    return accumulated.total()


def _optimizer(model: SimplifiedViT, descent: Descent) -> torch.optim.Optimizer:
    groups = [
        {"params": [model.attention], "lr": descent.rate_attention},
        {"params": [model.value], "lr": descent.rate_value},
    ]
    return torch.optim.SGD(groups) if descent.optimizer == "gd" else torch.optim.Adam(groups)


def stable_rates(partition: Partition, scale: float = 1.0) -> tuple[float, float]:
    """Rates of A and v up to which descent was seen to stay finite for p = 3: 0.03 D^2 and 2 D^(-2/3) / C^2.

    Seen at D = 16 and 64 with C = 4, where it ends between 1 and 2.5 times the latter, and (at D = 64) between 0.6 and
    2 times the former; the softmax scale enters as in the model's docstring.
    """
    patches, size = partition.patches, int(partition.sizes.max())
    return 0.03 * (patches * scale) ** 2, 2.0 * patches ** (-2 / 3) / size**2


def _check(gradient: Gradient, model: SimplifiedViT, watch: Watch, descent: Descent, step: int) -> None:
    """Stops at the first step whose loss or gradient is not finite, and says what to change.

    What blows up is v, since F grows as its p-th power. Too high a rate of A can be behind it too: it concentrates the
    rows of S at once, and then v blows up at a rate that was low enough before.
    """
    finite = torch.isfinite(gradient.loss) & torch.isfinite(gradient.attention).all()
    if bool(finite & torch.isfinite(gradient.value).all()):
        return
    loss = float(gradient.loss)
    if step == 0:
        raise DivergenceError(
            f"init: got a model with which the loss is {loss:g} before any step; expected a smaller init"
        )
    attention, value = stable_rates(watch.partition, model.scale)
    excess = descent.rate_attention / attention
    name = "rate_attention" if excess > max(1.0, descent.rate_value / value) else "rate_value"
    got = getattr(descent, name)
    lower = min(got, attention if name == "rate_attention" else value) / 2
    advice = f"expected a lower rate, such as {lower:.2g}"
    raise DivergenceError(f"{name}: got {got:g}, with which the loss is {loss:g} at step {step}; {advice}")


def _state(model: SimplifiedViT, optimizer: torch.optim.Optimizer, trajectory: Trajectory) -> dict[str, Tensor]:
    rows = [list(dataclasses.astuple(state)) for state in trajectory.states]
    tensors = {
        "attention": model.attention,
        "value": model.value,
        "states": torch.tensor(rows, dtype=torch.float64),
        "snapshot_steps": torch.tensor(list(trajectory.snapshots)),
        "snapshots": torch.stack(list(trajectory.snapshots.values())),
    }
    for name, parameter in (("attention", model.attention), ("value", model.value)):
        for key, value in optimizer.state[parameter].items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{name}.{key}"] = value
    return tensors


def _restore(model: SimplifiedViT, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> Trajectory:
    with torch.no_grad():
        model.attention.copy_(tensors["attention"])
        model.value.copy_(tensors["value"])
    for name, parameter in (("attention", model.attention), ("value", model.value)):
        prefix = f"optimizer.{name}."
        for key, value in tensors.items():
            if key.startswith(prefix):
                # Adam counts its steps on the CPU and keeps its moments beside the parameter.
                place = value if value.ndim == 0 else value.to(parameter.device)
                optimizer.state[parameter][key.removeprefix(prefix)] = place
    states = [State(int(row[0]), *row[1:]) for row in tensors["states"].tolist()]
    snapshots = dict(zip(tensors["snapshot_steps"].tolist(), tensors["snapshots"], strict=True))
    return Trajectory(states, snapshots)
