import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tessella.dynamics import descent as descent_module
from tessella.dynamics.descent import Descent
from tessella.dynamics.realistic import Realistic, run
from tessella.runs import folder as folder_module
from tessella.runs.folder import RunFolder

PROBLEM = Realistic(grid=(4, 4), dim=6, spurious=0.3, points=2000, test_points=300, descent=Descent(40, 1.5, 0.02))


def result(folder: Path) -> bytes:
    return (folder / "result.json").read_bytes()


def test_a_finished_run_holds_what_the_conventions_say(tmp_path: Path) -> None:
    outcome = run(PROBLEM, 0, folder=tmp_path / "run")
    names = {path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    expected = {"config.json", "metrics.jsonl", "checkpoint/state.safetensors", "weights.safetensors", "result.json"}
    assert names == expected
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == [dataclasses.asdict(state) for state in outcome.trajectory.states]
    weights = safetensors.torch.load_file(tmp_path / "run/weights.safetensors")
    assert torch.equal(weights["attention"], outcome.model.attention)
    assert json.loads(result(tmp_path / "run"))["final"]["step"] == 40


@pytest.mark.parametrize("changes", [{}, {"optimizer": "adam", "rate_attention": 0.1}, {"batch": 500}])
@pytest.mark.parametrize("stop", [5, 17, 38])
def test_a_run_that_stops_anywhere_resumes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, changes: dict[str, object]
) -> None:
    problem = dataclasses.replace(PROBLEM, descent=dataclasses.replace(PROBLEM.descent, log_every=3, **changes))  # type: ignore[arg-type]
    monkeypatch.setattr(descent_module, "CHECKPOINT_SECONDS", 0.0)
    run(problem, 0, folder=tmp_path / "whole")

    def interrupt(fraction: float, text: str) -> None:
        if fraction >= stop / 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(problem, 0, folder=tmp_path / "broken", progress=interrupt)
    assert not (tmp_path / "broken/result.json").exists()
    run(problem, 0, folder=tmp_path / "broken")
    for name in ("result.json", "weights.safetensors", "metrics.jsonl", "checkpoint/state.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes(), name


def test_kill_9_then_resume_gives_the_same_result(tmp_path: Path) -> None:
    fields = ["points=4000", "grid=(4, 4)", "dim=6", "spurious=0.3", "descent.steps=3000", "descent.log_every=20"]
    fields += ["descent.rate_attention=1.5", "descent.rate_value=0.02", "test_points=500"]
    command = [sys.executable, "-m", "tessella", "train", "signal-sets"]
    command += [part for field in fields for part in ("--set", field)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--folder", str(tmp_path / "whole")], env=environment, check=True, capture_output=True)
    broken = tmp_path / "broken"
    process = subprocess.Popen([*command, "--folder", str(broken)], env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (broken / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (broken / "result.json").exists(), "the run was over before it was killed: make it longer"
    subprocess.run([*command, "--folder", str(broken)], env=environment, check=True, capture_output=True)
    assert result(broken) == result(tmp_path / "whole")


def test_a_finished_run_opened_again_ends_the_same(tmp_path: Path) -> None:
    run(PROBLEM, 0, folder=tmp_path)
    before = result(tmp_path)
    run(PROBLEM, 0, folder=tmp_path)
    assert result(tmp_path) == before


def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path: Path) -> None:
    kept = RunFolder(tmp_path, {"a": 1})
    kept.log({"step": 0, "loss": 1.0})
    kept.save(0, {"x": torch.zeros(1)})
    kept.log({"step": 10, "loss": 0.5})
    with (tmp_path / "metrics.jsonl").open("a") as lines:
        lines.write('{"step": 20, "lo')
    loaded = kept.load()
    assert loaded is not None
    assert loaded[0] == 0
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 0, "loss": 1.0}\n'


def test_another_configuration_is_refused_and_named(tmp_path: Path) -> None:
    RunFolder(tmp_path, {"steps": 5, "seed": 0})
    with pytest.raises(ValueError, match="holds another run \\(steps = 5, not 6\\)"):
        RunFolder(tmp_path, {"steps": 6, "seed": 0})


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"x")
    with pytest.raises(ValueError, match="which holds files but no run"):
        RunFolder(tmp_path, {})
    assert (tmp_path / "photo.png").read_bytes() == b"x"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ValueError, match="which is a file"):
        RunFolder(tmp_path / "taken", {})


def test_a_corrupt_checkpoint_is_named(tmp_path: Path) -> None:
    kept = RunFolder(tmp_path, {})
    (tmp_path / "checkpoint/state.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint: got .*state.safetensors, which cannot be read"):
        kept.load()


def test_a_full_disk_leaves_the_old_checkpoint_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = RunFolder(tmp_path, {})
    kept.save(3, {"x": torch.ones(2)})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kept.save(4, {"x": torch.zeros(2)})
    monkeypatch.undo()
    loaded = kept.load()
    assert loaded is not None
    assert loaded[0] == 3
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["state.safetensors"]


def test_what_a_kill_left_half_written_is_cleared(tmp_path: Path) -> None:
    (tmp_path / f"{folder_module.PARTIAL}abcd").write_text("{")
    kept = RunFolder(tmp_path, {"a": 1})
    (tmp_path / "checkpoint" / f"{folder_module.PARTIAL}efgh").write_text("x")
    RunFolder(tmp_path, {"a": 1})
    assert kept.load() is None
    assert {path.name for path in tmp_path.rglob("*")} == {"config.json", "checkpoint"}


def test_a_refused_folder_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi")
    with pytest.raises(ValueError, match="holds files but no run"):
        RunFolder(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_the_difference_is_named_where_it_is(tmp_path: Path) -> None:
    RunFolder(tmp_path, {"descent": {"steps": 5, "rate": 1.0}})
    with pytest.raises(ValueError, match=r"\(descent.steps = 5, not 6\)"):
        RunFolder(tmp_path, {"descent": {"steps": 6, "rate": 1.0}})


def test_links_and_pipes_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    folder_module.write_json(tmp_path / "link.json", {"a": 1})
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text()) == {"a": 1}
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE, text=True)
    folder_module.write_json(tmp_path / "pipe", {"b": 2})
    assert json.loads(reader.communicate(timeout=10)[0]) == {"b": 2}
    assert (tmp_path / "pipe").is_fifo()
