"""A run folder: what a run was, how it went, and where it can go on after a kill.

    config.json          the configuration and the environment it started in
    metrics.jsonl        one line a logged step, flushed as it is written
    checkpoint/          state.safetensors, replaced atomically: a reader sees the old state or the new one
    weights.safetensors  the trained model
    result.json          written last; it holds nothing that depends on time, so a resumed run ends with the same

Every file but metrics.jsonl is written beside its place and then moved onto it; metrics.jsonl is cut back to the
checkpoint on resuming, so that no line stands twice and half a line is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from tessella.runs.environment import environment

PARTIAL = ".tessella-partial-"
"""How the names of files begin that are being written."""


class RunFolder:
    """A folder for one run of one configuration. Opening it again with the same configuration continues the run."""

    def __init__(self, path: Path, config: Mapping[str, Any]):
        self.path = path
        checked_folder(path)
        for left in [*path.glob(f"{PARTIAL}*"), *path.glob(f"checkpoint/{PARTIAL}*")]:
            left.unlink(missing_ok=True)  # of a run that was killed while it wrote
        recorded = path / "config.json"
        wanted = json.loads(json.dumps(config))
        if recorded.exists():
            content = _read_json(recorded)
            held = content.get("config") if isinstance(content, dict) else None
            if held != wanted:
                why = _difference(held, wanted)
                raise ValueError(
                    f"folder: got {path}, which holds another run ({why}), expected this run or a new folder"
                )
        elif any(entry.name != "checkpoint" for entry in path.iterdir()):
            raise ValueError(f"folder: got {path}, which holds files but no run, expected a run folder or an empty one")
        else:
            write_json(recorded, {"config": wanted, "environment": asdict(environment())})
        (path / "checkpoint").mkdir(exist_ok=True)

    @property
    def _state(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def log(self, record: Mapping[str, Any]) -> None:
        """Appends one line to metrics.jsonl and hands it to the operating system."""
        with _naming(self._metrics), self._metrics.open("a") as lines:
            lines.write(json.dumps(record) + "\n")

    def save(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Replaces the checkpoint."""
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_bytes(self._state, safetensors.torch.save(contiguous, {"step": str(step)}))

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """The checkpoint, with metrics.jsonl cut back to it; None where there is none yet."""
        if not self._state.exists():
            self._rewind(-1)
            return None
        try:
            with safetensors.safe_open(self._state, framework="pt") as state:
                step = int(state.metadata()["step"])
                tensors = {name: state.get_tensor(name) for name in state.keys()}  # noqa: SIM118 (not a mapping)
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"checkpoint: got {self._state}, which cannot be read ({error}), expected a checkpoint of this run"
            ) from error
        self._rewind(step)
        return step, tensors

    def _rewind(self, step: int) -> None:
        """Drops the lines of metrics.jsonl after `step`, and a last line that was cut short."""
        if not self._metrics.exists():
            return
        kept = []
        for line in self._metrics.read_text(errors="replace").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (json.JSONDecodeError, KeyError, TypeError):
                break
        write_bytes(self._metrics, "".join(kept).encode())

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Writes weights.safetensors and then result.json, whose presence says that the run is complete."""
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        write_bytes(self.path / "weights.safetensors", safetensors.torch.save(contiguous))
        write_json(self.path / "result.json", result)


def checked_folder(folder: Path) -> None:
    """Makes the folder and fails now, in one line, where it cannot be written to, rather than after the work."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder: got {folder}, which is a file, expected a folder or a new name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"folder: got {folder}, which cannot be written to ({error.strerror})") from error


def checked_file(path: Path) -> None:
    """Fails now, in one line, where a file could not be written, rather than after the work."""
    if not path.name or path.is_dir():
        raise ValueError(f"file: got {str(path)!r}, which is a folder, expected the name of a file")
    checked_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    write_bytes(path, text.encode())


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A full disk is reported by the system without saying of which file: this adds it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; through a link to what it points at, and into a pipe or device as it is."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        with _naming(path), path.open("wb") as stream:
            stream.write(content)
        return
    with _naming(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=PARTIAL)
    try:
        with _naming(path), os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"folder: got {path}, which is not JSON ({error}), expected the configuration of a run"
        ) from error


def _difference(held: Any, wanted: Any, prefix: str = "") -> str:
    """The first field in which two configurations differ."""
    if not isinstance(held, dict) or not isinstance(wanted, dict):
        return "its configuration is of another kind"
    name = next(
        name for name in [*wanted, *held] if held.get(name) != wanted.get(name) or (name in held) != (name in wanted)
    )
    if isinstance(held.get(name), dict) and isinstance(wanted.get(name), dict):
        return _difference(held[name], wanted[name], f"{prefix}{name}.")
    return f"{prefix}{name} = {held.get(name)}, not {wanted.get(name)}"
