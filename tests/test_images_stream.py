"""Streams: the same bytes as decoding by hand, in the order that was asked for, whoever decodes them."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import encoded, write_parquet, write_tree

from tessella.cli.main import main
from tessella.images.catalogue import open_split
from tessella.images.decoding import Look, decode, decode_look
from tessella.images.encoded import EncodedSplit
from tessella.images.image_set import ImageSet
from tessella.images.stream import Stream, for_training

LOOK = Look(16, 0.2)


def photograph(width: int, height: int, seed: int) -> np.ndarray:
    """Smooth, so that JPEG and resizing change little."""
    places = np.random.default_rng(seed).random((4, 3))
    x, y = np.linspace(0, 1, width)[None, :, None], np.linspace(0, 1, height)[:, None, None]
    waves = np.sin(6 * (places[0] * x + places[1] * y) + 6 * places[2])
    return np.round(127.5 + 127 * waves).astype(np.uint8)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    images = [photograph(60 + 7 * number, 90 - 5 * number, number) for number in range(9)]
    write_tree(folder / "train", {"a": images[:4], "b": images[4:]}, "JPEG", quality=95)
    return folder


@pytest.fixture
def split(tree: Path) -> EncodedSplit:
    found = open_split("imagenet", "train", tree)
    assert isinstance(found, EncodedSplit)
    return found


@pytest.fixture
def stream(split: EncodedSplit) -> Iterator[Stream]:
    made = Stream(split, LOOK, seed=3, workers=2)
    yield made
    made.close()


ORDER = np.array([[3, 1, 4, 0], [5, 8, 2, 6], [7, 7, 7, 7]] * 12)
"""More batches than are under way at a time."""


def test_batches_are_what_decoding_by_hand_gives_in_order(split: EncodedSplit) -> None:
    middle = Look(16)
    made = Stream(split, middle, workers=2)
    batches = list(made.batches(ORDER))
    made.close()
    assert len(batches) == len(ORDER)
    for row, (images, labels) in zip(ORDER, batches, strict=True):
        expected = [decode_look(split.item(index), "", middle, 0) for index in row.tolist()]
        assert np.array_equal(images.numpy(), np.stack(expected))
        assert labels.tolist() == split.labels[row].tolist()


def test_one_seed_and_order_give_the_same_bytes_whoever_decodes(split: EncodedSplit, stream: Stream) -> None:
    first = [images for images, _ in stream.batches(ORDER)]
    again = [images for images, _ in stream.batches(ORDER)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    alone, other = Stream(split, LOOK, seed=3, workers=1), Stream(split, LOOK, seed=4, workers=1)
    assert all(torch.equal(a, b) for a, (b, _) in zip(first, alone.batches(ORDER), strict=True))
    assert not any(torch.equal(a, b) for a, (b, _) in zip(first, other.batches(ORDER), strict=True))
    alone.close()
    other.close()
    # From the middle of an epoch on, as after a resume.
    rest = [images for images, _ in stream.batches(ORDER[20:])]
    assert all(torch.equal(a, b) for a, b in zip(first[20:], rest, strict=True))


def test_each_copy_of_an_image_has_a_part_of_its_own(stream: Stream) -> None:
    images, _ = next(iter(stream.batches(np.full((1, 30), 2))))
    assert len(torch.unique(images.flatten(1), dim=0)) > 25


def test_an_epoch_that_is_left_early_leaves_the_next_one_whole(stream: Stream) -> None:
    whole = [images for images, _ in stream.batches(ORDER)]
    left = iter(stream.batches(ORDER[::-1].copy()))
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert all(torch.equal(a, b) for a, (b, _) in zip(whole, stream.batches(ORDER), strict=True))


def test_all_images_are_collected_for_an_evaluation(split: EncodedSplit) -> None:
    made = Stream(split, Look(16), workers=1)
    held = made.collected()
    made.close()
    assert held.images.shape == (9, 16, 16, 3)
    assert held.labels.tolist() == [0] * 4 + [1] * 5
    mean, std = made.statistics()
    made.close()
    torch.testing.assert_close(mean, held.statistics()[0])
    torch.testing.assert_close(std, held.statistics()[1])


def test_random_parts_are_drawn_as_torchvision_draws_them() -> None:
    transforms = pytest.importorskip("torchvision.transforms.v2")
    theirs = transforms.RandomResizedCrop(16, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    width, height, number = 500, 375, 2000
    blank = torch.zeros(1, height, width)
    torch.manual_seed(0)
    drawn = [theirs.make_params([blank]) for _ in range(number)]
    expected = np.array(
        [(each["left"], each["top"], each["left"] + each["width"], each["top"] + each["height"]) for each in drawn]
    )
    look = Look(16, 0.08)
    ours = np.array([look.part(width, height, seed) for seed in range(number)])
    for parts in (ours, expected):
        assert parts.min() >= 0
        assert parts[:, 2].max() <= width
        assert parts[:, 3].max() <= height
    for measure in (
        lambda p: (p[:, 2] - p[:, 0]) * (p[:, 3] - p[:, 1]) / (width * height),
        lambda p: np.log((p[:, 2] - p[:, 0]) / (p[:, 3] - p[:, 1])),
        lambda p: p[:, 0] / width,
        lambda p: p[:, 1] / height,
    ):
        # The largest gap between two samples of one law exceeds this once in a thousand times.
        first, second = np.sort(measure(ours)), np.sort(measure(expected))
        every = np.concatenate([first, second])
        gap = np.abs(np.searchsorted(first, every, "right") - np.searchsorted(second, every, "right")).max() / number
        assert gap < 1.95 * (2 / number) ** 0.5


def test_a_part_that_never_fits_is_the_largest_middle_part() -> None:
    left, top, right, bottom = Look(16, 0.9).part(1000, 10, seed=0)
    assert (top, bottom) == (0, 10)
    assert right - left == pytest.approx(10 * 4 / 3)
    assert left + right == pytest.approx(1000)


def test_a_large_jpeg_is_decoded_small_and_looks_the_same() -> None:
    content = encoded(photograph(1200, 900, 0), "JPEG", quality=95)
    look = Look(64)
    quick = decode_look(content, "", look, 0).astype(int)
    whole = decode_look(encoded(decode(content, ""), "PNG"), "", look, 0)
    assert np.abs(quick - whole).mean() < 1.5


def test_a_damaged_image_is_named(tree: Path, tmp_path: Path) -> None:
    content = encoded(photograph(60, 60, 0), "JPEG")
    contents = [content, content[: len(content) // 2], content]
    write_parquet(tmp_path / "train-00000-of-00001.parquet", contents, [0, 0, 0], ["a"], "image", "label")
    found = open_split("imagenet", "train", tmp_path)
    assert isinstance(found, EncodedSplit)
    made = Stream(found, LOOK, workers=1)
    with pytest.raises(ValueError, match=r"^data: .*\.parquet: row 1: [Tt]runcated"):
        list(made.batches(np.array([[0, 2], [1, 0], [2, 2]])))
    assert len(list(made.batches(np.array([[0, 2]])))) == 1
    made.close()


def test_a_dead_worker_ends_in_one_line_and_the_next_epoch_has_new_ones(stream: Stream) -> None:
    batches = iter(stream.batches(np.tile(ORDER, (50, 1))))
    next(batches)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    workers = [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    os.kill(int(workers[-1]), signal.SIGKILL)
    time.sleep(0.2)
    with pytest.raises(ValueError, match=r"^data: a process that decoded images of imagenet was killed"):
        list(batches)
    assert len(list(stream.batches(ORDER))) == len(ORDER)


def test_nothing_is_left_when_a_stream_is_closed_or_forgotten(
    split: EncodedSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessella.images.stream._memory", lambda: str(tmp_path))
    made = Stream(split, LOOK, workers=1)
    next(iter(made.batches(ORDER)))
    assert len(list(tmp_path.iterdir())) == 1
    made.close()
    assert list(tmp_path.iterdir()) == []
    made = Stream(split, LOOK, workers=1)
    list(made.batches(ORDER))
    del made
    assert list(tmp_path.iterdir()) == []


def test_photographs_are_streamed_into_a_training_run(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    for name in ("train", "val"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).symlink_to(tree / "train")
    fields = {
        "shape.dim": 12, "shape.depth": 1, "shape.heads": 2, "shape.hidden": 12, "epochs": 2, "batch": 4,
        "warmup": 0, "ema": 0, "augmentation.randaugment": 0, "augmentation.resized": 0.3,
    }  # fmt: skip
    changes = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    folder = tmp_path / "run"
    assert main(["train", "tiny_imagenet", "--data", str(source), "--folder", str(folder), *changes]) == 0
    assert "tiny_imagenet, vanilla, seed 0:" in capsys.readouterr().out
    recipe = json.loads((folder / "config.json").read_text())
    assert '"resized": 0.0' in json.dumps(recipe)
    assert '"classes": 2' in json.dumps(recipe)


def test_prepared_and_small_images_are_not_streamed(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write_tree(tmp_path / name, {"a": [photograph(16, 16, 0)], "b": [photograph(16, 16, 1)]})
    train, test = for_training("folder", tmp_path, 16, 0.3)
    assert isinstance(train, ImageSet)
    assert train.images.shape == test.images.shape == (2, 16, 16, 3)


def test_a_number_of_workers_that_cannot_be_is_named(split: EncodedSplit) -> None:
    with pytest.raises(ValueError, match=re.escape("workers: got 0, expected at least 1")):
        Stream(split, LOOK, workers=0)
