"""Reads run folders for those who watch: what lies under a folder, what state it is in, and the newest of its metrics.

A run may be writing at that moment. A last line of metrics.jsonl without its end is left for the next reading, and a
file that was cut back to a checkpoint is read again from its start.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUIET = 180.0
"""Seconds without a change after which a run that has not finished is called stopped."""

AT_ONCE = 8_000_000
"""Bytes of metrics in one reading; the rest comes with the next."""

DEPTH = 6
"""How many folders deep runs are looked for."""

SHOWN = {".html": "page", ".svg": "figure", ".png": "figure", ".jpg": "figure", ".pdf": "figure"}
"""What is listed beside the runs, by the ending of its name."""


@dataclass(frozen=True)
class Reading:
    """What metrics.jsonl gained since the last reading."""

    records: list[dict[str, float | None]]
    cursor: str
    """Where the next reading begins."""
    restarted: bool
    """Whether the records are all there are, in place of those that were read before."""


def walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders under the root and the names of their files; hidden ones and links to elsewhere are left out."""
    for where, folders, files in os.walk(root):
        here = Path(where)
        depth = len(here.relative_to(root).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and depth < DEPTH)
        yield here, sorted(name for name in files if not name.startswith("."))


def found(root: Path) -> dict[str, Any]:
    """Runs under the root, the last changed first, and pages that belong to none."""
    runs, pages = [], []
    for folder, files in walk(root):
        if is_run(folder):
            runs.append(summary(root, folder))
        elif not any(is_run(above) for above in folder.parents if above.is_relative_to(root)):
            pages += [relative(root, folder / name) for name in files if SHOWN.get(Path(name).suffix.lower()) == "page"]
    runs.sort(key=lambda run: run["idle"])
    return {"runs": runs, "pages": pages}


def is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def relative(root: Path, path: Path) -> str:
    """A path under the root as addresses write it; the root itself is a dot."""
    return path.relative_to(root).as_posix()


def summary(root: Path, folder: Path) -> dict[str, Any]:
    """A run in one line: where, its state, how long nothing has changed, and its last record."""
    idle = max(0.0, time.time() - max((_changed(folder / name) for name in _WRITTEN), default=0.0))
    return {
        "path": relative(root, folder),
        "state": _state(folder, idle),
        "idle": idle,
        "last": _last(folder / "metrics.jsonl"),
    }


def _state(folder: Path, idle: float) -> str:
    if not isinstance(_json(folder / "config.json"), dict):
        return "unreadable"
    if (folder / "result.json").is_file():
        return "finished"
    return "running" if idle < QUIET else "stopped"


_WRITTEN = ("config.json", "metrics.jsonl", "checkpoint", "weights.safetensors", "result.json")


def details(root: Path, folder: Path) -> dict[str, Any]:
    """All of a run but its metrics: what it was asked, what came out, its pages and figures."""
    read = _json(folder / "config.json")
    config = read if isinstance(read, dict) else {}
    files = [folder / name for folder, names in walk(folder) for name in names]
    held: dict[str, list[str]] = {"page": [], "figure": []}
    for path in files:
        if kind := SHOWN.get(path.suffix.lower()):
            held[kind].append(relative(root, path))
    return {
        **summary(root, folder),
        "config": _flat(config.get("config", config)),
        "environment": _flat(config.get("environment")),
        "result": _flat(_json(folder / "result.json")),
        "pages": held["page"],
        "figures": held["figure"],
    }


def new_metrics(path: Path, cursor: str = "") -> Reading:
    """The records after `cursor`, which an earlier reading gave; all of them where the file is another one now."""
    try:
        with path.open("rb") as lines:
            status = os.fstat(lines.fileno())
            place, start = f"{status.st_dev:x}-{status.st_ino:x}", 0
            before, _, offset = cursor.rpartition("-")
            if before == place and offset.isdecimal() and int(offset) <= status.st_size:
                start = int(offset)
            lines.seek(start)
            content = lines.read(AT_ONCE)
    except OSError:  # not written yet
        return Reading([], "", cursor != "")
    whole = content[: content.rfind(b"\n") + 1]
    records = [record for line in whole.splitlines() if (record := _record(line))]
    return Reading(records, f"{place}-{start + len(whole)}", start == 0)


def _record(line: bytes) -> dict[str, float | None]:
    """One line's numbers; nothing where it is not JSON. What is not finite becomes a gap."""
    try:
        fields = _flat(json.loads(line))
        numbers = {name: value for name, value in fields.items() if value is None or isinstance(value, int | float)}
        return {name: None if value is None else float(value) for name, value in numbers.items()}
    except (ValueError, OverflowError, RecursionError):
        return {}


def _last(path: Path, tail: int = 65_536) -> dict[str, float | None]:
    """The last whole record, from the end of the file."""
    try:
        with path.open("rb") as lines:
            lines.seek(max(0, os.fstat(lines.fileno()).st_size - tail))
            whole = lines.read().rpartition(b"\n")[0]
    except OSError:
        return {}
    return _record(whole.rpartition(b"\n")[2])


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dots in the names; lists as text."""
    if isinstance(value, dict):
        inner = (_flat(each, f"{name}.{key}" if name else str(key)) for key, each in value.items())
        return {key: each for part in inner for key, each in part.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return {name: None}
    if isinstance(value, list):
        return {name: json.dumps(value)[:500]}
    return {name: value} if name else {}
