"""What lies at a path, in words: for messages that say what was looked for and what was found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_NAMED = 4


class MissingSplitError(ValueError):
    """The data set is there, and the split that was asked for is not."""


def found(path: Path) -> str:
    """What there is, shortly."""
    if not path.exists():
        return f"nothing at {path}"
    if path.is_file():
        return f"{path}, a file of {path.stat().st_size:,} bytes"
    names = sorted(each.name + ("/" if each.is_dir() else "") for each in path.iterdir())
    return f"{path}, a folder with {listed(names)}" if names else f"{path}, an empty folder"


def listed(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _NAMED:,} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more
