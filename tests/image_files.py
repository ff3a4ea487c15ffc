"""Small data sets in the real formats, written for the tests of whoever reads them."""

import io
import json
import pickle
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np


def pixels(number: int, side: int = 32, seed: int = 0) -> np.ndarray:
    """Random bytes: (number, side, side, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (number, side, side, 3), dtype=np.uint8)


class _Python2Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """Writes text and bytes as Python 2 wrote its strings, and names numpy's parts as it named them then."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes(self, value: bytes) -> None:
        if len(value) < 256:
            self.write(b"U" + bytes([len(value)]) + value)
        else:
            self.write(b"T" + struct.pack("<i", len(value)) + value)

    def save_str(self, value: str) -> None:
        self.save_bytes(value.encode())

    dispatch[bytes] = save_bytes
    dispatch[str] = save_str


def pickled_by_python2(value: Any) -> bytes:
    """As CIFAR's own files were written."""
    made = io.BytesIO()
    _Python2Pickler(made, 2).dump(value)
    return made.getvalue().replace(b"numpy._core.", b"numpy.core.")


def cifar_rows(images: np.ndarray) -> np.ndarray:
    """A row an image: all of its red, then green, then blue."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def write_cifar100(folder: Path, train: np.ndarray, test: np.ndarray, labels: Sequence[int], dump: Any = None) -> Path:
    """cifar-100-python/ with as many labels as images, train first."""
    dump = dump or pickled_by_python2
    made = folder / "cifar-100-python"
    made.mkdir(parents=True)
    names = {"fine_label_names": [f"fine{number}" for number in range(100)], "coarse_label_names": ["coarse"]}
    (made / "meta").write_bytes(dump(names))
    for name, images, chosen in (
        ("train", train, list(labels)[: len(train)]),
        ("test", test, list(labels)[len(train) :]),
    ):
        batch = {
            "filenames": [f"{number}.png" for number in range(len(images))],
            "batch_label": f"{name} batch 1 of 1",
            "fine_labels": chosen,
            "coarse_labels": [0] * len(images),
            "data": cifar_rows(images),
        }
        (made / name).write_bytes(dump(batch))
    return made


def write_cifar10(folder: Path, images: np.ndarray, labels: Sequence[int]) -> Path:
    """cifar-10-batches-py/: six batches of a sixth of the images each, the last of them for testing."""
    made = folder / "cifar-10-batches-py"
    made.mkdir(parents=True)
    (made / "batches.meta").write_bytes(pickled_by_python2({"label_names": [f"class{number}" for number in range(10)]}))
    each = len(images) // 6
    for number, name in enumerate([*(f"data_batch_{place}" for place in range(1, 6)), "test_batch"]):
        part = slice(number * each, (number + 1) * each)
        batch = {"batch_label": name, "labels": list(labels)[part], "data": cifar_rows(images[part]), "filenames": []}
        (made / name).write_bytes(pickled_by_python2(batch))
    return made


def archived(folder: Path, archive: Path) -> Path:
    """A folder as a tar.gz that holds it."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def encoded(image: np.ndarray, form: str = "PNG", **options: Any) -> bytes:
    """One image as a file's content."""
    from PIL import Image

    made = io.BytesIO()
    Image.fromarray(image).save(made, form, **options)
    return made.getvalue()


def write_parquet(
    path: Path,
    contents: Sequence[bytes | None],
    labels: Sequence[int],
    names: Sequence[str] | None,
    image: str = "img",
    label: str = "fine_label",
    group: int = 4,
) -> Path:
    """One shard as the hub serves it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"bytes": content, "path": f"{number}.png"} for number, content in enumerate(contents)]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({image: pa.array(rows, kind), label: pa.array(list(labels), pa.int64())})
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"names": list(names), "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def write_tree(folder: Path, images: dict[str, Sequence[np.ndarray]], form: str = "PNG", **options: Any) -> Path:
    """A folder for each class."""
    for name, several in images.items():
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(several):
            (folder / name / f"{number}.{form.lower()}").write_bytes(encoded(image, form, **options))
    return folder
