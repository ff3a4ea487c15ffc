"""The loop: epochs of steps, evaluation, records and checkpoints, on one device or on many processes' devices.

    trained = train(digits(), image_set("train"), image_set("test"), seed=0)

Every draw is made from the seed and the number of its epoch or step, so that a run that resumes from a checkpoint draws
what an unbroken one would.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tessella.images.image_set import ImageSet
from tessella.runs.folder import write_bytes, write_json
from tessella.training.failures import DivergenceError, LoaderError
from tessella.training.feeds import Stream
from tessella.training.journal import Journal
from tessella.training.machine import matrix_rate, operations
from tessella.training.network import Factory, build
from tessella.training.processes import Processes, joined
from tessella.training.recipe import Recipe
from tessella.training.reuse import LATEST, Prepared, Reuse

CHECKPOINT_SECONDS = 30.0
"""Between two checkpoints; another one is made at the end, and where training has to stop."""

Watch = Callable[[float, str], None]
"""Told the share of the run that is done, and how it goes."""


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
        return run.result(compile_seconds, folder)


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


class Run:
    """One run under way."""

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        prepared: Prepared,
        model: nn.Module,
        journal: Journal,
        processes: Processes,
        watch: Watch | None,
    ):
        self._recipe, self._seed, self._model = recipe, seed, model
        self._step, self._evaluation = prepared.step, prepared.evaluation
        self._journal, self._processes, self._watch = journal, processes, watch
        self._source = prepared.sources[0]
        self._images = len(self._source)
        self._steps = recipe.steps_per_epoch(self._images)
        self._total = recipe.epochs * self._steps
        self._done = 0
        self._kept = set(recipe.snapshot_steps(self._steps))
        self._snapshots: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        self._here, self._evaluating = 0, 0.0
        self._watched = (0.0, 1.0)
        if watch is not None:
            self._watched = operations(model, recipe.shape, recipe.batch), matrix_rate(self._step.device)

    def resume(self) -> None:
        """Begins at the seed's initial values, or goes on from the first process's checkpoint."""
        self._step.restart(self._model, self._recipe)
        tensors: dict[str, Tensor] = {}
        if self._processes.leads:
            self._done, tensors = self._journal.load()
        self._done = self._processes.told(self._done)
        if self._done:
            if self._processes.leads:
                self._step.resume(tensors)
            self._processes.follow(list(self._step.state().values()))
            self._step.weights.publish()
            self._journal.records = self._processes.told(self._journal.records)
            self._load_snapshots()
        elif 0 in self._kept:
            self._keep_snapshot()

    def train(self) -> None:
        """From where the run stands to its end."""
        self._wait()
        self._began, saved = time.perf_counter(), time.monotonic()
        try:
            for epoch in range(self._done // self._steps, self._recipe.epochs):
                start = self._done % self._steps
                self._step.begin(*self._tables(epoch), start)
                for number in range(start, self._steps):
                    self._step.advance(number)
                    self._done += 1
                    self._here += 1
                    self._after(epoch, number)
                    if time.monotonic() - saved > CHECKPOINT_SECONDS and self._done < self._total:
                        self._save()
                        saved = time.monotonic()
        except (LoaderError, KeyboardInterrupt):
            self._save()
            raise
        if self._here:
            self._wait()
            self._journal.seconds += time.perf_counter() - self._began
            self._journal.save(self._total, self._step.state(), self._journal.seconds)

    def _tables(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An epoch's images, rates and seeds."""
        recipe = self._recipe
        draw = np.random.default_rng([self._seed, epoch])
        order = draw.permutation(self._images)[: self._steps * recipe.distinct].reshape(self._steps, recipe.distinct)
        rank = 0
        if recipe.draws == "process":
            order, rank = order[:, self._processes.share(recipe.distinct)], self._processes.rank
        seeds = np.random.default_rng([self._seed, epoch, rank]).integers(2**62, size=self._steps)
        steps = range(epoch * self._steps, (epoch + 1) * self._steps)
        table = [(recipe.rate * recipe.rate_at(step, self._steps), recipe.kept_at(step)) for step in steps]
        return np.ascontiguousarray(order), np.array(table, dtype=np.float32), seeds

    def _after(self, epoch: int, number: int) -> None:
        """Records, evaluations and snapshots that are due after a step."""
        recipe = self._recipe
        ends = number + 1 == self._steps
        if ends or (number + 1) % recipe.log_every == 0:
            loss = float(self._step.losses[number // recipe.log_every * recipe.log_every : number + 1].mean())
            if not math.isfinite(loss):
                raise self._diverged(f"the loss is {loss:g}")
            rate = recipe.rate * recipe.rate_at(self._done - 1, self._steps)
            record = {"epoch": epoch + 1, "step": self._done, "loss": loss, "rate": rate}
            if ends and ((epoch + 1) % recipe.evaluate_every == 0 or epoch + 1 == recipe.epochs):
                record |= self._evaluated()
            self._journal.log(record)
            self._tell(record)
        if self._done in self._kept:
            self._keep_snapshot()

    def _evaluated(self) -> dict[str, float]:
        self._wait()
        start = time.perf_counter()
        last = self._evaluation()
        average = last
        if self._step.average is not None:
            with self._step.average.shown():
                average = self._evaluation()
        self._evaluating += time.perf_counter() - start
        return {"accuracy": average.accuracy, "last_accuracy": last.accuracy, "test_loss": average.loss}

    @property
    def images_per_second(self) -> float:
        """In training, since the run began or was resumed."""
        passed = time.perf_counter() - self._began - self._evaluating
        return self._here * self._recipe.batch / max(passed, 1e-9)

    def _tell(self, record: dict[str, Any]) -> None:
        if self._watch is None or not self._processes.leads:
            return
        speed = self.images_per_second
        accuracy = next((each["accuracy"] for each in reversed(self._journal.records) if "accuracy" in each), None)
        parts = [f"epoch {record['epoch']}/{self._recipe.epochs}", f"loss {record['loss']:.3f}"]
        parts += [] if accuracy is None else [f"test {accuracy:.2f} %"]
        counted, most = self._watched
        reached = counted * speed / self._recipe.batch / most / self._processes.size
        parts += [f"{speed:,.0f} images/s", f"{100 * reached:.0f} % of the matrix rate"]
        self._watch(self._done / self._total, ", ".join(parts))

    def _save(self) -> None:
        """A checkpoint, unless there is nothing sound to keep."""
        if self._journal.folder is None:
            return
        state = self._step.state()
        if not all(bool(torch.isfinite(each).all()) for each in state.values()):
            raise self._diverged("weights are not finite")
        self._journal.save(self._done, state, self._journal.seconds + time.perf_counter() - self._began)

    def _diverged(self, what: str) -> DivergenceError:
        recipe = self._recipe
        other = "" if recipe.attention == "vanilla" else f", or a lower score_rate than {recipe.score_rate:g}"
        return DivergenceError(
            f"rate: got {recipe.rate:g}, with which {what} by step {self._done}; "
            f"expected a lower rate, such as {recipe.rate / 2:g}{other}"
        )

    def _wait(self) -> None:
        if self._step.device.type == "cuda":
            torch.cuda.synchronize(self._step.device)

    def _values(self, averaged: bool) -> dict[str, Tensor]:
        """The weights by name, copied to the CPU."""
        average = self._step.average if averaged else None
        with nullcontext() if average is None else average.shown():
            weights = self._step.weights
            found = {name: each.detach().cpu().clone() for name, each in weights.named(weights.master).items()}
            return found | {name: each.detach().cpu().clone() for name, each in self._step.model.named_buffers()}

    def _keep_snapshot(self) -> None:
        state = self._values(averaged=False)
        self._snapshots.append({"step": self._done, "state": state})
        if self._journal.folder is not None:
            import safetensors.torch

            folder = self._journal.folder.path / "snapshots"
            folder.mkdir(exist_ok=True)
            write_bytes(folder / f"{self._done}.safetensors", safetensors.torch.save(state))

    def _load_snapshots(self) -> None:
        if self._journal.folder is None:
            return
        import safetensors.torch

        for step in sorted(self._kept):
            path = self._journal.folder.path / "snapshots" / f"{step}.safetensors"
            if step <= self._done and path.exists():
                self._snapshots.append({"step": step, "state": safetensors.torch.load_file(path)})

    def result(self, compile_seconds: float, folder: Path | None) -> Trained:
        """What the run has come to, and its last files."""
        values, last = self._values(averaged=True), self._journal.records[-1]
        self._model.load_state_dict(values, strict=False)
        seconds = self._journal.seconds
        speed = self.images_per_second if self._here else 0.0
        if self._journal.folder is not None:
            mean, deviation = self._source.statistics()
            result = {
                "recipe": dataclasses.asdict(self._recipe),
                "seed": self._seed,
                "accuracy": last["accuracy"],
                "last_accuracy": last["last_accuracy"],
                "parameters": self._step.weights.count,
                "steps": self._total,
                "classes": list(self._source.classes),
                "mean": mean.tolist(),
                "deviation": deviation.tolist(),
            }
            if self._here:
                timing = {"seconds": seconds, "compile_seconds": compile_seconds, "images_per_second": speed}
                write_json(self._journal.folder.path / "timing.json", timing)
            self._journal.folder.finish(values, result)
        return Trained(
            self._recipe,
            self._seed,
            last["accuracy"],
            last["last_accuracy"],
            seconds,
            compile_seconds,
            speed,
            self._journal.records,
            self._model.eval(),
            self._snapshots,
        )


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
