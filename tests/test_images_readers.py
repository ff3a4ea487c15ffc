"""Every reader on small files in its real format; what is damaged, missing or of another format is named."""

import os
import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import (
    archived,
    encoded,
    pickled_by_python2,
    pixels,
    write_cifar10,
    write_cifar100,
    write_parquet,
    write_tree,
)
from scipy.io import savemat

from tessella.cli.main import DATA_SETS, main
from tessella.images import restricted_pickle
from tessella.images.catalogue import FORMATS, load
from tessella.images.parquet import ParquetSplit

LABELS = [5, 0, 99, 7, 7, 1, 2, 3, 4, 42]


def test_the_command_line_names_the_data_sets_that_there_are() -> None:
    assert tuple(FORMATS) == DATA_SETS


# CIFAR: the python archive


@pytest.mark.parametrize("form", ["folder", "folder itself", "archive", "archive's folder"])
def test_cifar100_is_read_from_what_was_downloaded(tmp_path: Path, form: str) -> None:
    images = pixels(10)
    folder = write_cifar100(tmp_path / "a", images[:6], images[6:], LABELS)
    path = {"folder": folder.parent, "folder itself": folder}.get(form)
    if path is None:
        archive = archived(folder, tmp_path / "cifar-100-python.tar.gz")
        path = tmp_path if form == "archive's folder" else archive
    for split, part in (("train", slice(6)), ("test", slice(6, None))):
        held = load("cifar100", split, path)
        assert np.array_equal(held.images, images[part])
        assert held.labels.tolist() == LABELS[part]
        assert held.classes[7] == "fine7"
        assert (held.name, held.split) == ("cifar100", split)


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_cifar10_is_read_batch_after_batch(tmp_path: Path, form: str) -> None:
    images, labels = pixels(12), [number % 10 for number in range(12)]
    path = write_cifar10(tmp_path / "a", images, labels)
    if form == "archive":
        path = archived(path, tmp_path / "renamed.bin")
    train, test = (load("cifar10", split, path) for split in ("train", "test"))
    assert np.array_equal(train.images, images[:10])
    assert np.array_equal(test.images, images[10:])
    assert train.labels.tolist() + test.labels.tolist() == labels
    assert train.classes[9] == "class9"


def _by_numpy_1(value: Any, protocol: int) -> bytes:
    return pickle.dumps(value, protocol).replace(b"numpy._core.", b"numpy.core.")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("writer", ["numpy 1", "numpy 2"])
def test_arrays_that_numpy_1_and_2_pickled_are_read(tmp_path: Path, writer: str, protocol: int) -> None:
    def dump(value: Any) -> bytes:
        return _by_numpy_1(value, protocol) if writer == "numpy 1" else pickle.dumps(value, protocol)

    images = pixels(10)
    content = dump({"data": images})
    assert (b"numpy._core" in content) == (writer == "numpy 2" and np.__version__[0] == "2")
    write_cifar100(tmp_path, images[:6], images[6:], LABELS, dump)
    assert np.array_equal(load("cifar100", "train", tmp_path).images, images[:6])


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [1, 2], "text": "ä"},
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        [np.int64(3), np.arange(3, dtype=">i4"), None, True, 2.5, b"\xff\x00"],
    ],
)
def test_plain_content_comes_back_from_every_protocol(value: Any, protocol: int) -> None:
    held = restricted_pickle.loads(pickle.dumps(value, protocol), "file")
    np.testing.assert_equal(held, value)


class _Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pwned",)


class _Subtle:
    """Reaches for an attribute, from which others can be reached."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, ("{0.__class__}", "format")


ATTACKS = {
    "a call of the shell": (pickle.dumps({"data": _Attack()}, 2), r"posix\.system"),
    "an attribute of a module": (pickle.dumps(_Subtle(), 2), r"builtins\.getattr|__builtin__\.getattr"),
    "eval": (b"cbuiltins\neval\n(S'1+1'\ntR.", r"builtins\.eval"),
    "a name within an allowed module": (b"cnumpy\nload\n(S'x'\ntR.", r"numpy\.load"),
    "a dotted name": (b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.", r"numpy\.ndarray\.dump"),
    "a class of the library": (pickle.dumps(OrderedDict(a=1), 2), r"collections\.OrderedDict"),
    "an array of objects": (pickle.dumps(np.array([{"a": 1}], dtype=object), 2), r"an array of 'O8'"),
    "the stand-in itself": (b"cnumpy\ndtype\n.", r"holds a type"),
    "something outside": (b"Pname\n.", r"outside of the file"),
    "an array longer than its bytes": (
        pickle.dumps(np.zeros(8, np.uint8), 2).replace(b"K\x08\x85", b"K\xff\x85"),
        r"holds 8 bytes for an array of shape \(255,\)",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_malicious_pickle_is_refused_and_runs_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content, reason = ATTACKS[name]
    with pytest.raises(ValueError, match=rf"^file: .*{reason}"):
        restricted_pickle.loads(content, "file")
    assert list(tmp_path.iterdir()) == []


def test_a_cifar_file_that_would_run_code_is_named(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path, pixels(6), pixels(4), LABELS)
    (folder / "train").write_bytes(pickle.dumps({"data": _Attack()}, 2))
    with pytest.raises(ValueError, match=r"^data: .*cifar-100-python/train: asks for posix\.system"):
        load("cifar100", "train", tmp_path)
    assert len(load("cifar100", "test", tmp_path)) == 4


def test_damaged_cifar_files_are_named(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path, pixels(6), pixels(4), LABELS)
    whole = (folder / "train").read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (folder / "train").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cifar-100-python/train: truncated, damaged or no pickle"):
            load("cifar100", "train", tmp_path)
    batch = {"fine_labels": [1, 100], "data": np.zeros((2, 3072), np.uint8)}
    cases: dict[str, Any] = {
        r"train: image 1 has label 100, expected 0 to 99": batch,
        r"train: got \(1,\) labels, expected one for each of 2 images": {**batch, "fine_labels": [1]},
        r"train: got uint8 of shape \(2, 3000\), expected bytes of shape \(n, 3072\)": {
            **batch,
            "data": np.zeros((2, 3000), np.uint8),
        },
        r"train: looked for 'fine_labels', found data, labels": {"labels": [1, 2], "data": batch["data"]},
        r"train: holds a list, expected a dictionary": [1, 2],
    }
    for reason, held in cases.items():
        (folder / "train").write_bytes(pickled_by_python2(held))
        with pytest.raises(ValueError, match=rf"^data: .*{reason}"):
            load("cifar100", "train", tmp_path)
    (folder / "train").unlink()
    with pytest.raises(ValueError, match=r"^data: looked for .*cifar-100-python/train, found meta, test beside it"):
        load("cifar100", "train", tmp_path)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path / "a", pixels(6), pixels(4), LABELS)
    archive = archived(folder, tmp_path / "cifar-100-python.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(ValueError, match=r"cifar-100-python\.tar\.gz: truncated or damaged"):
        load("cifar100", "train", archive)
    other = archived(write_cifar10(tmp_path / "b", pixels(6), [0] * 6), tmp_path / "other.tar.gz")
    with pytest.raises(ValueError, match=r"looked for cifar-100-python/meta, .* in .*other\.tar\.gz, found cifar-10-b"):
        load("cifar100", "train", other)


# SVHN: MATLAB's files


def _write_svhn(folder: Path, split: str, images: np.ndarray, labels: list[int], compressed: bool = True) -> Path:
    path = folder / f"{split}_32x32.mat"
    held = {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, dtype=np.uint8)[:, None]}
    savemat(path, held, do_compression=compressed)
    return path


@pytest.mark.parametrize("compressed", [True, False])
def test_svhn_is_read_and_its_label_10_is_the_digit_0(tmp_path: Path, compressed: bool) -> None:
    images = pixels(5)
    _write_svhn(tmp_path, "train", images, [1, 10, 9, 10, 5], compressed)
    _write_svhn(tmp_path, "test", images[:2], [3, 10], compressed)
    train, test = (load("svhn", split, tmp_path) for split in ("train", "test"))
    assert np.array_equal(train.images, images)
    assert train.labels.tolist() == [1, 0, 9, 0, 5]
    assert test.labels.tolist() == [3, 0]
    assert train.classes == tuple("0123456789")


def test_damaged_svhn_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="image 1 has label 11, expected 1 to 10"):
        load("svhn", "train", _write_svhn(tmp_path, "train", pixels(2), [1, 11]).parent)
    with pytest.raises(ValueError, match="got 1 labels in y, expected one for each of 2 images"):
        load("svhn", "train", _write_svhn(tmp_path, "train", pixels(2), [1]).parent)
    with pytest.raises(ValueError, match=r"got X as uint8 of shape \(16, 16, 3, 2\)"):
        load("svhn", "train", _write_svhn(tmp_path, "train", pixels(2, 16), [1, 2]).parent)
    with pytest.raises(ValueError, match=r"looked for .*test_32x32\.mat, found .* with train_32x32\.mat"):
        load("svhn", "test", tmp_path)
    path = _write_svhn(tmp_path, "train", pixels(20), [1] * 20)
    for content in (path.read_bytes()[: path.stat().st_size // 2], b"", b"no MATLAB file at all" * 20):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"train_32x32\.mat: truncated, damaged or no MATLAB file"):
            load("svhn", "train", tmp_path)
    savemat(path, {"images": np.zeros(3)})
    with pytest.raises(ValueError, match="looked for the variables X and y, found no X and no y"):
        load("svhn", "train", tmp_path)


# Parquet in the hub's layout


NAMES = [f"name{number}" for number in range(100)]


def test_parquet_shards_are_read_in_their_order_with_the_names_of_the_schema(tmp_path: Path) -> None:
    images = pixels(10)
    contents = [encoded(image, "WEBP", lossless=True) for image in images]
    write_parquet(tmp_path / "data/train-00001-of-00002.parquet", contents[5:8], LABELS[5:8], NAMES)
    write_parquet(tmp_path / "data/train-00000-of-00002.parquet", contents[:5], LABELS[:5], NAMES, group=2)
    write_parquet(tmp_path / "data/test-00000-of-00001-0123456789abcdef.parquet", contents[8:], LABELS[8:], NAMES)
    train, test = (load("cifar100", split, tmp_path) for split in ("train", "test"))
    assert np.array_equal(train.images, images[:8])
    assert np.array_equal(test.images, images[8:])
    assert train.labels.tolist() + test.labels.tolist() == LABELS
    assert train.classes == tuple(NAMES)


@pytest.mark.parametrize(
    ("data", "side", "told"),
    [
        ("cifar100", 16, "looked for cifar100, 100 classes of 32 x 32 pixels; found 100 classes of 16 x 16 pixels in"),
        ("cifar10", 32, "looked for cifar10, 10 classes of 32 x 32 pixels; found 100 classes of 32 x 32 pixels in"),
    ],
)
def test_another_data_set_in_the_same_layout_is_refused(data: str, side: int, told: str, tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-00000-of-00001.parquet", [encoded(pixels(1, side)[0])], [0], NAMES)
    with pytest.raises(ValueError, match=told):
        load(data, "train", tmp_path)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_parquet_of_other_columns_formats_and_split_names_is_read(tmp_path: Path, form: str) -> None:
    smooth = np.tile(np.linspace(0, 255, 16).astype(np.uint8)[:, None, None], (1, 16, 3))
    contents = [encoded(smooth, form), encoded(smooth[..., 0], form)]
    for name in ("train", "validation"):
        write_parquet(tmp_path / f"{name}-00000-of-00001.parquet", contents, [0, 2], None, "image", "label")
    held = load("parquet", "test", tmp_path)
    assert held.images.shape == (2, 16, 16, 3)
    assert np.abs(held.images.astype(int) - smooth).max() <= (0 if form == "PNG" else 6)
    assert held.classes == ("0", "1", "2")


def test_a_test_split_without_labels_gives_way_to_validation(tmp_path: Path) -> None:
    contents = [encoded(image) for image in pixels(3, 8)]
    for name, labels in (("train", [0, 1, 1]), ("test", [-1, -1, -1]), ("validation", [1, 1, 0])):
        write_parquet(tmp_path / f"{name}-00000-of-00001.parquet", contents, labels, ["a", "b"])
    assert load("parquet", "test", tmp_path).labels.tolist() == [1, 1, 0]


def test_rows_are_read_at_random_as_in_order(tmp_path: Path) -> None:
    contents = [encoded(image) for image in pixels(11, 8)]
    shards = [
        write_parquet(tmp_path / f"train-0000{number}-of-00002.parquet", part, [0] * len(part), ["a"], group=3)
        for number, part in enumerate((contents[:7], contents[7:]))
    ]
    split = ParquetSplit(shards, "parquet", "train", kept=1)
    for index in np.random.default_rng(0).permutation(11).tolist():
        assert split.item(index) == contents[index]
    assert split.where(8) == f"{shards[1]}: row 1"


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    contents: list[bytes | None] = [encoded(image) for image in pixels(4, 8)]
    path = tmp_path / "train-00000-of-00001.parquet"

    def refused(reason: str) -> None:
        with pytest.raises(ValueError, match=rf"^data: .*{reason}"):
            load("parquet", "train", tmp_path)

    write_parquet(path, contents, [0, 1, 2, 1], ["a", "b"])
    refused(r"train-00000-of-00001\.parquet: row 2 has label 2, expected 0 to 1")
    write_parquet(path, [*contents[:3], contents[3][:60] if contents[3] else None], [0] * 4, ["a"])
    refused(r"parquet: row 3: truncated or damaged")
    write_parquet(path, [*contents[:2], b"no image", contents[3]], [0] * 4, ["a"])
    refused(r"parquet: row 2: in no format that Pillow knows, expected an image")
    write_parquet(path, [None, *contents[1:]], [0] * 4, ["a"])
    refused(r"parquet: row 0 has no bytes")
    write_parquet(path, [*contents[:3], encoded(pixels(1, 9)[0])], [0] * 4, ["a"])
    refused(r"parquet: row 3: got 9 x 9 pixels, expected 8 x 8 as of the first image; .* --size N")
    write_parquet(path, contents, [0] * 4, ["a"], image="picture")
    refused(r"looked for a column of images \(img or image\), found picture, fine_label")
    write_parquet(path, contents, [0] * 4, ["a"], label="kind")
    refused(r"looked for a column of labels \(fine_label or label or labels\), found img, kind")
    whole = write_parquet(path, contents, [0] * 4, ["a"]).read_bytes()
    for content in (whole[:-20], whole[20:], b""):
        path.write_bytes(content)
        refused(r"train-00000-of-00001\.parquet: truncated(, damaged or no parquet file| or damaged)")
    path.unlink()
    write_parquet(tmp_path / "train-00001-of-00003.parquet", contents, [0] * 4, ["a"])
    refused(r"looked for all 3 shards in .*, found none named train-00000-of-00003\*\.parquet")


def test_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-00000-of-00001.parquet", [encoded(pixels(1, 8)[0])], [0], ["a"])
    with pytest.raises(ValueError, match=r"looked for test-\*\.parquet or validation-.* in .*, found train-\*"):
        load("parquet", "test", tmp_path)


# A folder for each class


def test_a_tree_is_read_with_sorted_folders_as_classes(tmp_path: Path) -> None:
    images = pixels(5, 8)
    write_tree(tmp_path / "train", {"b": images[:2], "a": images[2:4]})
    write_tree(tmp_path / "val", {"b": images[4:]})
    train, test = (load("folder", split, tmp_path) for split in ("train", "test"))
    assert train.classes == test.classes == ("a", "b")
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(train.images, images[[2, 3, 0, 1]])
    assert test.labels.tolist() == [1]


def test_tiny_imagenets_own_layout_is_read(tmp_path: Path) -> None:
    images = pixels(4, 8)
    for number, name in enumerate(("n02", "n01")):
        write_tree(tmp_path / "train" / name, {"images": images[2 * number : 2 * number + 2]})
        (tmp_path / "train" / name / f"{name}_boxes.txt").write_text("0.JPEG 1 2 3 4\n")
    write_tree(tmp_path / "val", {"images": images})
    lines = [f"{number}.png\t{name}\t0\t0\t8\t8\n" for number, name in enumerate(("n02", "n02", "n01", "n01"))]
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(lines))
    train, test = (load("tiny-imagenet", split, tmp_path) for split in ("train", "test"))
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert test.labels.tolist() == [1, 1, 0, 0]
    assert np.array_equal(test.images, images)
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(lines).replace("n01", "n09"))
    with pytest.raises(ValueError, match=r"val/images/2\.png has label -1, expected 0 to 1"):
        load("tiny-imagenet", "test", tmp_path)


def test_damaged_trees_are_named(tmp_path: Path) -> None:
    images = pixels(2, 8)
    write_tree(tmp_path / "train", {"a": images, "b": images})
    with pytest.raises(ValueError, match=r"looked for test/ or val/ .* in .*, found .* with train/"):
        load("folder", "test", tmp_path)
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "1.png").write_bytes(encoded(images[0]))
    with pytest.raises(ValueError, match=r"looked for a folder for each class in .*val, found .* with 1\.png"):
        load("folder", "test", tmp_path)
    write_tree(tmp_path / "val", {"c": images})
    with pytest.raises(ValueError, match=r"found the class 'c' in .*val, expected classes of .*train alone"):
        load("folder", "test", tmp_path)
    (tmp_path / "train" / "b" / "1.png").write_bytes(encoded(images[0])[:70])
    with pytest.raises(ValueError, match=r"^data: .*train/b/1\.png: truncated or damaged"):
        load("folder", "train", tmp_path)
    for file in (tmp_path / "train" / "b").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=r"looked for images \(.*\) in .*train/b, found .*b, an empty folder"):
        load("folder", "train", tmp_path)


# Wrong paths


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_wrong_path_says_what_was_looked_for_and_found_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    for number in range(6):
        (tmp_path / "other" / f"{number}.txt").write_text("text")
    cases = {
        "missing": f"found nothing at {tmp_path}/missing",
        "empty": f"found {tmp_path}/empty, an empty folder",
        "other": f"found {tmp_path}/other, a folder with 0.txt, 1.txt, 2.txt, 3.txt and 2 more",
        "other/0.txt": f"found {tmp_path}/other/0.txt, a file of 4 bytes",
    }
    for path, found in cases.items():
        assert main(["data", "show", name, "--from", str(tmp_path / path), "--to", str(tmp_path / "a.png")]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"tessella: data: looked for {name} as a prepared folder, ")
        assert said.endswith(f"; {found}\n")
        assert said.count("\n") == 1
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(("module", "said"), [("pyarrow.parquet", "pyarrow"), ("PIL", "Pillow")])
def test_a_missing_extra_is_named_in_one_line(
    module: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = encoded(pixels(1, 8)[0])
    write_parquet(tmp_path / "train-00000-of-00001.parquet", [content], [0], ["a"])
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["data", "show", "parquet", "--from", str(tmp_path), "--to", str(tmp_path / "a.png")]) == 2
    expected = f"tessella: data: {said} is not installed; pip install 'tessella[images]'\n"
    assert capsys.readouterr().err == expected


def test_a_name_that_is_none_and_a_path_that_is_missing_or_too_much_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^data: got 'cifra100', expected one of digits, cifar10, cifar100"):
        load("cifra100", "train", tmp_path)
    with pytest.raises(ValueError, match=r"^data: got no path for cifar100 \(--data PATH\), expected"):
        load("cifar100", "train")
    with pytest.raises(ValueError, match=r"^data: got .* for digits, which come with scikit-learn"):
        load("digits", "train", tmp_path)
    with pytest.raises(ValueError, match=r"^split: got 'dev'"):
        load("cifar100", "dev", tmp_path)
