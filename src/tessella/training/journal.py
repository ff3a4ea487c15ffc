"""What a run leaves behind as it goes: its folder's lines, and TensorBoard's where that is installed."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tessella.runs.folder import RunFolder

_HISTORY, _SECONDS = "history", "seconds"


class Journal:
    """The records of a run, in memory and in its folder if it has one."""

    def __init__(self, folder: Path | None, config: Mapping[str, Any]):
        self.records: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.folder = None if folder is None else RunFolder(folder, config)
        self._board: Any = None

    def load(self) -> tuple[int, dict[str, Tensor]]:
        """Where the run stands, and its state; 0 and nothing at its beginning."""
        held = None if self.folder is None else self.folder.load()
        step, tensors = (0, {}) if held is None else held
        if held is not None:
            self.records = json.loads(bytes(tensors.pop(_HISTORY).numpy()))
            self.seconds = float(tensors.pop(_SECONDS))
        if self.folder is not None:
            self._board = _board(self.folder.path, step)
        return step, tensors

    def log(self, record: dict[str, Any]) -> None:
        """One more record."""
        self.records.append(record)
        if self.folder is not None:
            self.folder.log(record)
        if self._board is not None:
            for name, value in record.items():
                if name not in ("step", "epoch"):
                    self._board.add_scalar(name, value, record["step"])

    def save(self, step: int, tensors: Mapping[str, Tensor], seconds: float) -> None:
        """Replaces the checkpoint."""
        if self.folder is not None:
            written = torch.frombuffer(bytearray(json.dumps(self.records).encode()), dtype=torch.uint8)
            kept = torch.tensor(seconds, dtype=torch.float64)
            self.folder.save(step, {**tensors, _HISTORY: written, _SECONDS: kept})

    def close(self) -> None:
        """Hands what TensorBoard holds to the operating system."""
        if self._board is not None:
            self._board.close()


def _board(folder: Path, step: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        _say_absent()
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


@functools.cache
def _say_absent() -> None:
    """Said once."""
    print(
        "tessella: tensorboard is not installed, so metrics.jsonl is all that is written; "
        "pip install 'tessella[tensorboard]'",
        file=sys.stderr,
    )
