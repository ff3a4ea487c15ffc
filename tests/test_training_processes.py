import dataclasses
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import distributed

from tessella.images.digits import digits as digit_images
from tessella.training import loop as loop_module
from tessella.training import run as run_module
from tessella.training.loop import fitted, train
from tessella.training.processes import Processes, of_this_start
from tessella.training.recipe import Recipe
from tessella.training.recipes import digits

RUN = """
import dataclasses, os, signal, sys
from pathlib import Path
from tessella.images.digits import digits
from tessella.training import loop, run, step
from test_training_processes import small

run.CHECKPOINT_SECONDS = 0.0
dies = os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and sys.argv[2] == "dies"
advance, steps = step.Step.advance, [0]

def counted(self, number):
    steps[0] += 1
    if dies and steps[0] == 17:
        os.kill(os.getpid(), signal.SIGKILL)
    advance(self, number)

step.Step.advance = counted
loop.train(small(), digits("train"), digits("test"), seed=0, folder=Path(sys.argv[1]))
"""


def small(**changes: Any) -> Recipe:
    recipe = digits()
    shape = dataclasses.replace(recipe.shape, dim=16, depth=2, heads=2, hidden=16)
    augmentation = dataclasses.replace(recipe.augmentation, cutmix=1.0, mixup=0.8, erasing=0.2)
    settings: dict[str, Any] = {
        "epochs": 3, "batch": 128, "log_every": 1, "evaluate_every": 1, "ema": 0.9, "drop_path": 0.2, "snapshots": 2,
        "attention": "matrix", "shape": shape, "augmentation": augmentation,
    }  # fmt: skip
    return dataclasses.replace(recipe, **{**settings, **changes})


def torchrun(folder: Path, *arguments: str, restarts: int = 0) -> str:
    """Two processes on this machine's CPU, as torchrun starts them."""
    script = folder / "run.py"
    script.write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    done = subprocess.run(
        [sys.executable, *launch, str(script), *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def records(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    train(small(), digit_images("train"), digit_images("test"), seed=0, folder=folder)
    return folder


@pytest.mark.parametrize("fate", ["lives", "dies"])
def test_two_processes_take_the_path_of_one_even_if_one_is_killed(tmp_path: Path, alone: Path, fate: str) -> None:
    torchrun(tmp_path, str(tmp_path / "run"), fate, restarts=1)
    one, two = records(alone), records(tmp_path / "run")
    assert [record["step"] for record in two] == list(range(1, 31))
    for name in ("loss", "rate", "test_loss"):
        expected = [record[name] for record in one if name in record]
        assert [record[name] for record in two if name in record] == pytest.approx(expected, rel=2e-4), name
    weights = [safetensors.torch.load_file(folder / "weights.safetensors") for folder in (alone, tmp_path / "run")]
    for name, each in weights[0].items():
        torch.testing.assert_close(weights[1][name], each, rtol=1e-2, atol=2e-3)
    assert (tmp_path / "run/result.json").exists()


def test_processes_that_start_anew_do_not_read_what_dead_ones_left() -> None:
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60))
    for attempt in (b"first", b"second"):
        with ThreadPoolExecutor(3) as pool:
            # The first process comes last, so that the others find the name of the start before.
            others = [pool.submit(of_this_start, store.clone(), rank, 3) for rank in (1, 2)]
            time.sleep(0.2)
            shared = [pool.submit(of_this_start, store.clone(), 0, 3), *others]
            one, two, three = (each.result() for each in shared)
        assert not two.check(["address"])
        one.set("address", attempt)
        assert two.get("address") == three.get("address") == attempt


def test_a_batch_that_processes_cannot_share_is_told() -> None:
    with pytest.raises(ValueError, match="batch: got 128, expected a multiple of 3 processes"):
        fitted(small(), digit_images("train"), digit_images("test"), Processes(0, 3))


def test_shares_are_the_whole_in_order() -> None:
    shares = [Processes(rank, 4).share(12) for rank in range(4)]
    assert [number for share in shares for number in range(12)[share]] == list(range(12))


def test_processes_that_draw_alone_draw_for_different_images(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = fitted(small(draws="process"), digit_images("train"), digit_images("test"), Processes(0, 2))
    tables = []
    for rank in range(2):
        run = run_module.Run.__new__(loop_module.Run)
        run._recipe, run._seed, run._steps, run._images = recipe, 0, 10, 1347
        run._processes = Processes(rank, 2)
        tables.append(run._tables(0))
    whole = run_module.Run.__new__(loop_module.Run)
    whole._recipe, whole._seed, whole._steps, whole._images = recipe, 0, 10, 1347
    whole._processes = Processes()
    together = torch.cat([torch.from_numpy(order) for order, _, _ in tables], dim=1)
    assert torch.equal(together, torch.from_numpy(whole._tables(0)[0]))
    assert (tables[0][1] == tables[1][1]).all()
    assert (tables[0][2] != tables[1][2]).all()
