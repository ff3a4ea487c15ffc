"""Parquet as the Hugging Face hub serves image data: shards named SPLIT-00000-of-00003.parquet, images still encoded.

A column holds {bytes, path}, another the label as an integer; class names stand in the schema's `huggingface` metadata.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Int64

from tessella.images.encoded import check_labels
from tessella.images.found import MissingSplitError, listed

SPLIT_NAMES = {"train": ("train",), "test": ("test", "validation", "valid", "val")}
"""What the hub calls a split. Of several the first with labels is taken."""

_IMAGE_COLUMNS = ("img", "image")
_LABEL_COLUMNS = ("fine_label", "label", "labels")
_SHARD = re.compile(r"(?P<split>[A-Za-z]+)(?:-(?P<number>\d+)-of-(?P<total>\d+))?(?:-[0-9a-f]+)?\.parquet")


class ParquetSplit:
    """The rows of a split's shards. Row groups are read when a row of theirs is, and the last `kept` of them kept."""

    def __init__(self, shards: list[Path], name: str, split: str, kept: int = 2):
        self.name = name
        self.split = split
        self.kept = kept
        self._groups: list[tuple[Path, int]] = []
        self._held: OrderedDict[int, Any] = OrderedDict()
        self._first_rows: dict[Path, int] = {}
        labels, starts = [], [0]
        for shard in shards:
            file = _opened(shard)
            self._image = _column(file, shard, _IMAGE_COLUMNS, "of images")
            label = _column(file, shard, _LABEL_COLUMNS, "of labels")
            numbers = _read(file, shard, None, [label])[label].to_numpy()
            if numbers.dtype.kind not in "iu":
                raise ValueError(f"data: {shard}: the column {label!r} holds {numbers.dtype}, expected whole numbers")
            labels.append(numbers.astype(np.int64))
            self._first_rows[shard] = starts[-1]
            for group in range(file.num_row_groups):
                self._groups.append((shard, group))
                starts.append(starts[-1] + file.metadata.row_group(group).num_rows)
        self._starts = np.array(starts)
        self.labels: Int64[np.ndarray, " n"] = np.concatenate(labels)
        self.classes = _class_names(_opened(shards[0]), label) or tuple(
            str(number) for number in range(int(self.labels.max(initial=0)) + 1)
        )

    def __len__(self) -> int:
        return len(self.labels)

    def item(self, index: int) -> bytes:
        """The encoded image of a row."""
        group = self._group_of(index)
        if group not in self._held:
            path, number = self._groups[group]
            table = _read(_opened(path), path, number, [self._image])
            self._held[group] = table[self._image].combine_chunks().field("bytes")
            while len(self._held) > self.kept:
                self._held.popitem(last=False)
        content = self._held[group][index - int(self._starts[group])].as_py()
        if not content:
            raise ValueError(f"data: {self.where(index)} has no bytes, expected an encoded image")
        return bytes(content)

    def hold_all(self) -> None:
        """Keeps every row group once it is read: for reading in random order."""
        self.kept = len(self._groups)

    def where(self, index: int) -> str:
        """Shard and row."""
        path = self._groups[self._group_of(index)][0]
        return f"{path}: row {index - self._first_rows[path]}"

    def _group_of(self, index: int) -> int:
        return int(np.searchsorted(self._starts, index, side="right")) - 1


def read(path: Path, data: str, split: str) -> ParquetSplit | None:
    """One split, or None where the path holds no parquet files."""
    shards = _shards(path)
    if not shards:
        return None
    wanted = SPLIT_NAMES[split]
    for name in wanted:
        if name in shards:
            made = ParquetSplit(_complete(shards[name]), data, split)
            # The hub gives the images of a test split whose labels are secret the label -1.
            if len(made) and (made.labels == -1).all() and any(other in shards for other in wanted if other != name):
                continue
            check_labels(made)
            return made
    looked = " or ".join(f"{name}-*.parquet" for name in wanted)
    raise MissingSplitError(
        f"data: looked for {looked} in {path}, found {listed(f'{name}-*' for name in sorted(shards))}"
    )


def _shards(path: Path) -> dict[str, list[Path]]:
    """Parquet files by the split that their names begin with; they may lie in folders such as data/."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*.parquet") if each.is_file())
    made: dict[str, list[Path]] = {}
    for file in files:
        matched = _SHARD.fullmatch(file.name)
        if matched:
            made.setdefault(matched["split"], []).append(file)
    return made


def _complete(shards: list[Path]) -> list[Path]:
    """In their order, and none missing."""
    matched = [_SHARD.fullmatch(shard.name) for shard in shards]
    totals = {int(each["total"]) for each in matched if each and each["total"]}
    if len(totals) > 1 or len({shard.parent for shard in shards}) > 1:
        raise ValueError(f"data: found {listed(map(str, shards))}, expected the shards of one data set")
    numbers = sorted(int(each["number"]) for each in matched if each and each["number"])
    if totals and numbers != list(range(total := totals.pop())):
        missing = next(number for number in range(total) if number not in numbers)
        name = f"{matched[0]['split']}-{missing:05d}-of-{total:05d}" if matched[0] else ""
        raise ValueError(f"data: looked for all {total} shards in {shards[0].parent}, found none named {name}*.parquet")
    return sorted(shards)


def _opened(path: Path) -> Any:
    try:
        return _pyarrow().ParquetFile(path, memory_map=True)
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these kinds
        raise ValueError(f"data: {path}: truncated, damaged or no parquet file ({_first_line(error)})") from error


def _read(file: Any, path: Path, group: int | None, columns: list[str]) -> Any:
    try:
        return file.read(columns) if group is None else file.read_row_group(group, columns, use_threads=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"data: {path}: truncated or damaged ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _column(file: Any, path: Path, names: tuple[str, ...], what: str) -> str:
    there = list(file.schema_arrow.names)
    for name in names:
        if name in there:
            return name
    raise ValueError(f"data: {path}: looked for a column {what} ({' or '.join(names)}), found {listed(there)}")


def _class_names(file: Any, label: str) -> tuple[str, ...]:
    """From the schema's metadata; none where they are not there."""
    try:
        features = json.loads((file.schema_arrow.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(str(name) for name in features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return ()


def _pyarrow() -> ModuleType:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ModuleNotFoundError("data: pyarrow is not installed; pip install 'tessella[images]'") from error
    return pyarrow.parquet
