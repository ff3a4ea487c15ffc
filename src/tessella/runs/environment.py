"""What a figure was measured on: hardware, versions, and the commit of this code."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from tessella import __version__

COMMIT = "TESSELLA_COMMIT"
"""The variable that names the commit where the source is a copy without its git history."""


@dataclass(frozen=True)
class Environment:
    """The machine and the libraries that a result came from."""

    processor: str
    cores: int
    accelerator: str | None
    python: str
    torch: str
    tessella: str
    commit: str | None
    """The commit of the source tree, with `+` where it had uncommitted changes. Outside a git checkout it is what
    TESSELLA_COMMIT says, and None where that is not set."""

    def __str__(self) -> str:
        where = self.accelerator or f"{self.processor}, {self.cores} cores"
        versions = f"Python {self.python}, torch {self.torch}, tessella {self.tessella}"
        return f"{where}; {versions} ({self.commit or 'no commit'})"


@functools.cache
def environment() -> Environment:
    """The environment of this process."""
    return Environment(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        accelerator=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        python=platform.python_version(),
        torch=torch.__version__,
        tessella=__version__,
        commit=_commit(),
    )


def _processor() -> str:
    """The processor's marketing name where the system tells it, else its architecture."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    source = Path(__file__).parent
    try:
        # Fails where this very file is not tracked, as when the package is installed below some other project.
        _git(source, "ls-files", "--error-unmatch", Path(__file__).name)
        commit = _git(source, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(source, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get(COMMIT) or None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
