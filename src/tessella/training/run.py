"""One run under way: epochs of steps, with the records, evaluations, snapshots and checkpoints that fall due.

Every draw is made from the seed and the number of its epoch or step, so that a run that resumes from a checkpoint draws
what an unbroken one would.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from tessella.runs.folder import write_bytes, write_json
from tessella.training.failures import DivergenceError, LoaderError
from tessella.training.journal import Journal
from tessella.training.machine import matrix_rate, operations
from tessella.training.processes import Processes
from tessella.training.recipe import Recipe
from tessella.training.reuse import Prepared
from tessella.training.stopping import Request, asked

CHECKPOINT_SECONDS = 30.0
"""Between two checkpoints; another one is made at the end, and where training has to stop."""

Watch = Callable[[float, str], None]
"""Told the share of the run that is done, and how it goes."""


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
        self._recipe, self._seed, self.model = recipe, seed, model
        self._step, self._evaluation = prepared.step, prepared.evaluation
        self._journal, self._processes, self._watch = journal, processes, watch
        self._source = prepared.sources[0]
        self._images = len(self._source)
        self._steps = recipe.steps_per_epoch(self._images)
        self._total = recipe.epochs * self._steps
        self._done = 0
        self._kept = set(recipe.snapshot_steps(self._steps))
        self.snapshots: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        self._here, self._evaluating = 0, 0.0
        self.images_per_second = 0.0
        self._watched = (0.0, 1.0)
        if watch is not None:
            self._watched = operations(model, recipe.shape, recipe.batch), matrix_rate(self._step.device)

    def resume(self) -> None:
        """Begins at the seed's initial values, or goes on from the first process's checkpoint."""
        self._step.restart(self.model, self._recipe)
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
        """From where the run stands to its end. Asked to stop, it ends the step it is at, and makes a checkpoint."""
        self._wait()
        self._began = time.perf_counter()
        alone = self._processes.size == 1  # else the others would wait for this one in the next step
        try:
            with asked(heard=alone) as request:
                self._epochs(request)
        except LoaderError:
            self._save()
            raise
        except KeyboardInterrupt:
            if alone:
                self._save()
            raise
        if self._here:
            self._wait()
            self.images_per_second = self._speed()
            self._journal.seconds += time.perf_counter() - self._began
            self._journal.save(self._total, self._step.state(), self._journal.seconds)

    def _epochs(self, request: Request) -> None:
        saved = time.monotonic()
        for epoch in range(self._done // self._steps, self._recipe.epochs):
            start = self._done % self._steps
            self._step.begin(*self._tables(epoch), start)
            for number in range(start, self._steps):
                self._step.advance(number)
                self._done += 1
                self._here += 1
                self._after(epoch, number)
                if request.made:
                    raise KeyboardInterrupt
                if time.monotonic() - saved > CHECKPOINT_SECONDS and self._done < self._total:
                    self._save()
                    saved = time.monotonic()

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
    def history(self) -> list[dict[str, Any]]:
        """The records so far."""
        return self._journal.records

    @property
    def seconds(self) -> float:
        """Of training and evaluation, in all parts of the run that have ended."""
        return self._journal.seconds

    def _speed(self) -> float:
        """Images a second in training, since the run began or was resumed."""
        passed = time.perf_counter() - self._began - self._evaluating
        return self._here * self._recipe.batch / max(passed, 1e-9)

    def _tell(self, record: dict[str, Any]) -> None:
        if self._watch is None or not self._processes.leads:
            return
        speed = self._speed()
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
        self.snapshots.append({"step": self._done, "state": state})
        if self._journal.folder is not None:
            folder = self._journal.folder.path / "snapshots"
            folder.mkdir(exist_ok=True)
            write_bytes(folder / f"{self._done}.safetensors", safetensors.torch.save(state))

    def _load_snapshots(self) -> None:
        if self._journal.folder is None:
            return
        for step in sorted(self._kept):
            path = self._journal.folder.path / "snapshots" / f"{step}.safetensors"
            if step <= self._done and path.exists():
                self.snapshots.append({"step": step, "state": safetensors.torch.load_file(path)})

    def finish(self, compile_seconds: float) -> None:
        """Gives the model what the run has come to, and writes its last files."""
        values, last = self._values(averaged=True), self.history[-1]
        self.model.load_state_dict(values, strict=False)
        self.model.eval()
        if self._journal.folder is None:
            return
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
            timing = {
                "seconds": self.seconds,
                "compile_seconds": compile_seconds,
                "images_per_second": self.images_per_second,
            }
            write_json(self._journal.folder.path / "timing.json", timing)
        self._journal.folder.finish(values, result)
