import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from tessella.images.digits import digits as digit_images
from tessella.runs import folder as folder_module
from tessella.training import loop as loop_module
from tessella.training import run as run_module
from tessella.training.failures import DivergenceError, LoaderError
from tessella.training.feeds import Mapped
from tessella.training.loop import Trained, train, train_many
from tessella.training.machine import operations
from tessella.training.network import build
from tessella.training.recipe import Recipe
from tessella.training.recipes import digits

TRAIN, TEST = digit_images("train"), digit_images("test")
FIELDS = [
    "epochs=3", "batch=128", "log_every=4", "evaluate_every=2", "ema=0.9", "drop_path=0.2", "snapshots=3",
    "shape.dim=16", "shape.depth=2", "shape.heads=2", "shape.hidden=16", "shape.dropout=0.1",
    "augmentation.cutmix=1.0", "augmentation.erasing=0.2",
]  # fmt: skip


def small(**changes: object) -> Recipe:
    recipe = digits()
    shape = dataclasses.replace(recipe.shape, dim=16, depth=2, heads=2, hidden=16, dropout=0.1)
    augmentation = dataclasses.replace(recipe.augmentation, cutmix=1.0, erasing=0.2)
    settings: dict[str, Any] = {
        "epochs": 3, "batch": 128, "log_every": 4, "evaluate_every": 2, "ema": 0.9, "drop_path": 0.2, "snapshots": 3,
        "shape": shape, "augmentation": augmentation,
    }  # fmt: skip
    return dataclasses.replace(recipe, **{**settings, **changes})


def run(recipe: Recipe, folder: Path | None = None, seed: int = 0, **more: Any) -> Trained:
    return train(recipe, TRAIN, TEST, seed=seed, folder=folder, **more)


def command(folder: Path, *more: str) -> list[str]:
    settings = [part for field in FIELDS for part in ("--set", field)]
    return ["-m", "tessella", "train", "digits", "--folder", str(folder), *settings, *more]


def assert_same_end(one: Path, two: Path) -> None:
    for name in ("result.json", "weights.safetensors", "metrics.jsonl"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    states = [safetensors.torch.load_file(folder / "checkpoint/state.safetensors") for folder in (one, two)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(each, states[1][name]) for name, each in states[0].items() if name != "seconds")


def test_a_run_says_what_it_has_come_to(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    trained = run(small(), tmp_path / "run", watch=lambda *each: told.append(each))
    assert [record["step"] for record in trained.history] == [4, 8, 10, 14, 18, 20, 24, 28, 30]
    assert [record["epoch"] for record in trained.history if "accuracy" in record] == [2, 3]
    assert trained.history == [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    last = trained.history[-1]
    assert (trained.accuracy, trained.last_accuracy) == (last["accuracy"], last["last_accuracy"])
    mean, std = TRAIN.statistics()
    pixels = (torch.from_numpy(TEST.images).permute(0, 3, 1, 2) / 255 - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        right = (trained.model(pixels).argmax(-1).numpy() == TEST.labels).mean()
    assert 100 * right == pytest.approx(trained.accuracy)
    assert [each["step"] for each in trained.snapshots] == [0, 8, 30]
    assert torch.equal(trained.snapshots[0]["state"]["positions"], build(trained.recipe, 0).get_parameter("positions"))
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["accuracy"] == trained.accuracy
    assert result["parameters"] == sum(each.numel() for each in trained.model.parameters())
    weights = safetensors.torch.load_file(tmp_path / "run/weights.safetensors")
    assert all(torch.equal(each, weights[name]) for name, each in trained.model.state_dict().items())
    assert told[-1][0] == 1.0
    assert "images/s" in told[-1][1]
    assert "of the matrix rate" in told[-1][1]


def test_training_leaves_torchs_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    run(small(epochs=1))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("changes", [{}, {"model": "small_resnet", "drop_path": 0.0}])
def test_a_run_that_stops_anywhere_resumes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    recipe = small(attention="vanilla", **changes)
    whole = run(recipe, tmp_path / "whole")

    def stop(fraction: float, text: str) -> None:
        if fraction > stops[0][0]:
            os.kill(os.getpid(), stops.pop(0)[1])

    stops = [(0.3, signal.SIGINT), (0.7, signal.SIGTERM), (2.0, signal.SIGINT)]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(recipe, tmp_path / "broken", watch=stop)
        assert not (tmp_path / "broken/result.json").exists()
    resumed = run(recipe, tmp_path / "broken", watch=stop)
    assert_same_end(tmp_path / "whole", tmp_path / "broken")
    assert [each["step"] for each in resumed.snapshots] == [each["step"] for each in whole.snapshots]
    for one, two in zip(resumed.snapshots, whole.snapshots, strict=True):
        assert all(torch.equal(each, two["state"][name]) for name, each in one["state"].items())


def test_a_killed_run_resumes_to_the_same_end(tmp_path: Path) -> None:
    script = "import sys, tessella.training.run as r; r.CHECKPOINT_SECONDS = 0.0; from tessella.cli.main import main"
    arguments = [sys.executable, "-c", f"{script}; sys.exit(main(sys.argv[1:]))", *command(tmp_path / "broken")[2:]]
    arguments += ["--set", "epochs=6"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as process:
        metrics = tmp_path / "broken/metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") > 2):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "broken/result.json").exists()
    recipe = small(epochs=6)
    run(recipe, tmp_path / "broken")
    run(recipe, tmp_path / "whole")
    assert_same_end(tmp_path / "whole", tmp_path / "broken")


def test_another_recipe_does_not_go_on_from_this_ones_folder(tmp_path: Path) -> None:
    run(small(epochs=1), tmp_path)
    with pytest.raises(ValueError, match=r"which holds another run \(rate = 0.002, not 0.001\)"):
        run(small(epochs=1, rate=1e-3), tmp_path)


def test_runs_that_share_what_is_compiled_are_runs_of_their_own() -> None:
    recipes = [(small(epochs=1), 0), (small(epochs=2, rate=1e-3, score_rate=3.0, attention="matrix"), 1)]
    together = list(train_many([*recipes, recipes[0], recipes[1]], TRAIN, TEST))
    alone = [run(recipe, seed=seed, reuse=loop_module.Reuse()) for recipe, seed in recipes]
    for number, expected in enumerate([*alone, *alone]):
        assert together[number].history == expected.history
    assert together[2].compile_seconds == 0.0


def test_a_rate_too_high_is_named_and_the_checkpoint_stays_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    recipe = small(rate=1e12, attention="matrix", warmup=0.0)
    with pytest.raises(DivergenceError, match=r"rate: got 1e\+12, with which .* such as 5e\+11, or a lower"):
        run(recipe, tmp_path)
    held = tmp_path / "checkpoint/state.safetensors"
    if held.exists():
        state = safetensors.torch.load_file(held)
        assert all(torch.isfinite(each).all() for each in state.values())


class Dying(Mapped):
    """A loader that dies in its second epoch."""

    epochs = 0

    def batches(self, order: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        self.epochs += 1
        yield from super().batches(order[: 5 if self.epochs == 2 else None])
        if self.epochs == 2:
            raise OSError("the disk is gone")


def test_a_dead_loader_leaves_a_checkpoint_that_goes_on(tmp_path: Path) -> None:
    recipe = small()
    with pytest.raises(LoaderError, match="the disk is gone"):
        train(recipe, Dying(TRAIN), TEST, seed=0, folder=tmp_path / "broken")
    with safetensors.safe_open(tmp_path / "broken/checkpoint/state.safetensors", framework="pt") as state:
        assert state.metadata()["step"] == "15"
    train(recipe, Mapped(TRAIN), TEST, seed=0, folder=tmp_path / "broken")
    run(recipe, tmp_path / "whole")
    assert_same_end(tmp_path / "whole", tmp_path / "broken")


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    recipe, writes = small(), [0]
    replace = os.replace

    def full(source: str, target: Path) -> None:
        if Path(target).name == "state.safetensors":
            writes[0] += 1
            if writes[0] > 6:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(folder_module.os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            run(recipe, tmp_path / "broken")
    run(recipe, tmp_path / "broken")
    run(recipe, tmp_path / "whole")
    assert_same_end(tmp_path / "whole", tmp_path / "broken")


def test_a_device_without_room_is_told_the_batch() -> None:
    def large(recipe: Recipe, seed: int) -> nn.Module:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError, match="batch: got 128, which does not fit"):
        run(small(), factory=large)


def test_images_that_do_not_fit_the_recipe_are_told() -> None:
    with pytest.raises(ValueError, match="batch: got 4000, expected at most the 1347 images"):
        run(small(batch=4000))
    other = dataclasses.replace(TEST, classes=tuple("abcdefghij"))
    with pytest.raises(ValueError, match="test_set: got"):
        train(small(), TRAIN, other, seed=0)


def test_a_shuffled_run_sees_shuffled_images() -> None:
    plain, shuffled = (run(small(epochs=1, shuffle_cell=cell)) for cell in (0, 1))
    assert plain.history[-1]["loss"] != shuffled.history[-1]["loss"]
    whole = run(small(epochs=1, shuffle_cell=8))  # one cell: there is nothing to shuffle
    assert whole.history == plain.history


@pytest.mark.parametrize("attention", ["vanilla", "matrix"])
def test_operations_are_those_of_the_formula(attention: str) -> None:
    recipe = digits().with_attention(attention)
    shape, batch = recipe.shape, 64
    tokens, dim = shape.tokens, shape.dim
    projections = 4 if attention == "vanilla" else 2
    mixing = 2 if attention == "vanilla" else 1
    layer = 2 * tokens * dim * (projections * dim + 2 * shape.hidden) + mixing * 2 * tokens**2 * dim
    rest = 2 * (tokens - 1) * shape.channels * shape.patch**2 * dim + 2 * dim * shape.classes
    assert operations(build(recipe, 0), shape, batch) == 3 * batch * (shape.depth * layer + rest)


def test_the_command_trains_and_says_what_came_of_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, *command(tmp_path)], capture_output=True, text=True, check=True)
    assert "digits, vanilla, seed 0: " in done.stdout
    assert f"kept in {tmp_path}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cifar100"], "data: got no path for cifar100"),
        (["cifar100", "--data", "/nowhere"], "found nothing at /nowhere"),
        (["digits", "--set", "augmentation.mixup=much"], "got augmentation.mixup=much, expected float"),
        (["digits", "--set", "rate=1e12"], "rate: got 1e+12, with which the loss is"),
        (["signal-sets"], "folder: got none"),
    ],
)
def test_a_wrong_command_ends_in_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    from tessella.cli.main import main

    assert main(["train", *arguments]) in (1, 2)
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_an_empty_folder_of_data_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tessella.cli.main import main

    assert main(["train", "cifar100", "--data", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "looked for cifar100" in error
    assert error.count("\n") == 1
