"""Preparing: what is kept equals what was read, a kill or a damaged image leaves nothing, and damage is found later."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import encoded, pixels, write_cifar100, write_parquet, write_tree

from tessella.cli.main import main
from tessella.images import cache
from tessella.images.catalogue import load
from tessella.images.preparing import prepare

pytestmark = pytest.mark.filterwarnings("error")


def parquet_source(folder: Path, number: int = 150) -> tuple[Path, np.ndarray]:
    """More images than one process is given at a time."""
    images = pixels(number, 8)
    contents = [encoded(image) for image in images]
    labels = [place % 3 for place in range(number)]
    write_parquet(folder / "train-00000-of-00001.parquet", contents, labels, ["a", "b", "c"], group=16)
    write_parquet(folder / "test-00000-of-00001.parquet", contents[:5], labels[:5], ["a", "b", "c"])
    return folder, images


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    folder = tmp_path_factory.mktemp("prepared")
    source, images = parquet_source(folder / "source")
    told: list[float] = []
    prepare("parquet", source, folder / "made", workers=2, progress=lambda fraction, detail: told.append(fraction))
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    return folder / "made", images


def test_a_prepared_folder_holds_what_was_read(prepared: tuple[Path, np.ndarray]) -> None:
    path, images = prepared
    train, test = (load("parquet", split, path) for split in ("train", "test"))
    assert isinstance(train.images, np.memmap)
    assert not train.images.flags.writeable
    assert np.array_equal(train.images, images)
    assert np.array_equal(test.images, images[:5])
    assert train.labels.tolist() == [place % 3 for place in range(150)]
    assert train.classes == ("a", "b", "c")
    assert sorted(each.name for each in path.parent.iterdir()) == ["made", "source"]


def test_the_manifest_says_what_sha256sum_would(prepared: tuple[Path, np.ndarray]) -> None:
    path, images = prepared
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["shapes"] == {"test": [5, 8, 8, 3], "train": [150, 8, 8, 3]}
    for kept in manifest["files"]:
        content = (path / kept["name"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (kept["bytes"], kept["sha256"])
    assert len(manifest["files"]) == 4
    assert cache.verify(path).data == "parquet"
    assert np.array_equal(np.load(path / "train-images.npy"), images)  # a plain .npy file


def test_archives_that_need_no_decoding_are_prepared_too(tmp_path: Path) -> None:
    images = pixels(10)
    write_cifar100(tmp_path / "source", images[:6], images[6:], list(range(10)))
    manifest = prepare("cifar100", tmp_path / "source", tmp_path / "made")
    assert manifest.classes[3] == "fine3"
    held = load("cifar100", "test", tmp_path / "made")
    assert np.array_equal(held.images, images[6:])
    assert held.name == "cifar100"
    with pytest.raises(ValueError, match=r"^size: got 16, expected none: cifar100 has 32 x 32 pixels"):
        prepare("cifar100", tmp_path / "source", tmp_path / "smaller", size=16)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["made", "source"]


def test_a_size_brings_the_short_side_to_it_and_keeps_the_middle(tmp_path: Path) -> None:
    ramp = np.zeros((24, 48, 3), dtype=np.uint8)
    ramp[..., 0] = np.arange(48) * 5
    write_tree(tmp_path / "source" / "train", {"a": [ramp, ramp.transpose(1, 0, 2)]})
    prepare("folder", tmp_path / "source", tmp_path / "made", size=12, workers=1)
    wide, tall = load("folder", "train", tmp_path / "made").images
    assert np.array_equal(wide, tall.transpose(1, 0, 2))
    middle = ramp[0, 12:36, 0].reshape(12, 2).mean(1)
    assert np.abs(wide[3, 1:-1, 0].astype(float) - middle[1:-1]).max() <= 1
    with pytest.raises(ValueError, match=r"1\.png: got 24 x 48 pixels, expected 48 x 24 as of the first image"):
        prepare("folder", tmp_path / "source", tmp_path / "other", workers=1)


@pytest.mark.parametrize("damage", ["truncated", "mislabelled", "of another size", "no image"])
def test_a_damaged_image_is_named_and_nothing_is_left(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = [encoded(image) for image in pixels(100, 8)]
    labels = [0] * 100
    if damage == "mislabelled":
        labels[70] = 5
    else:
        contents[70] = {"truncated": contents[70][:70], "of another size": encoded(pixels(1, 9)[0]), "no image": b"!"}[
            damage
        ]
    write_parquet(tmp_path / "source" / "train-00000-of-00001.parquet", contents, labels, ["a"])
    given = ["--from", str(tmp_path / "source"), "--to", str(tmp_path / "new" / "made"), "--workers", "1"]
    assert main(["data", "prepare", "parquet", *given]) == 2
    said = capsys.readouterr().err
    assert "train-00000-of-00001.parquet: row 70" in said
    assert said.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_a_failure_leaves_no_folder_above_it_but_those_of_others(tmp_path: Path) -> None:
    def fail(name: str, beside: str = "") -> None:
        with cache.drafted(tmp_path / name):
            if beside:
                (tmp_path / beside).mkdir()
            raise OSError("no room")

    (tmp_path / "there").mkdir()
    for name in ("new/sets/made", "there/sets/made"):
        with pytest.raises(OSError, match="no room"):
            fail(name)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "there"]
    with pytest.raises(OSError, match="no room"):
        fail("shared/made", beside="shared/other")
    assert [each.name for each in (tmp_path / "shared").iterdir()] == ["other"]


_PROGRAM = """
import sys, time
from pathlib import Path
from tessella.images import cache
with cache.drafted(Path(sys.argv[1])) as draft:
    draft.images_file("train", (4, 8, 8, 3))
    print("half", flush=True)
    time.sleep(60)
"""


def test_a_kill_leaves_nothing_that_looks_finished_and_the_next_run_clears_it_away(tmp_path: Path) -> None:
    made = tmp_path / "made"
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(made)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not made.exists()
    assert len(list(tmp_path.glob("made.partial-*"))) == 1
    source, _ = parquet_source(tmp_path / "source", 6)
    prepare("parquet", source, made, workers=1)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["made", "source"]
    cache.verify(made)


def test_a_worker_that_is_killed_ends_in_one_line_and_nothing_is_left(tmp_path: Path) -> None:
    source, _ = parquet_source(tmp_path / "source", 20_000)

    def kill(fraction: float, detail: str) -> None:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        workers = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        if workers:
            os.kill(workers[-1], signal.SIGKILL)
            time.sleep(0.2)

    with pytest.raises(ValueError, match=r"^data: a process that decoded images was killed"):
        prepare("parquet", source, tmp_path / "made", workers=2, progress=kill)
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_a_full_disk_ends_in_one_line_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = parquet_source(tmp_path / "source", 6)

    def full(descriptor: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert main(["data", "prepare", "parquet", "--from", str(source), "--to", str(tmp_path / "made")]) == 2
    said = capsys.readouterr().err
    assert said.endswith("train-images.npy: No space left on device\n")
    assert said.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_what_is_there_already_is_not_written_over(prepared: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    source, _ = parquet_source(tmp_path / "source", 6)
    with pytest.raises(ValueError, match=r"^to: got .*made, which is there already, expected a new name"):
        prepare("parquet", source, prepared[0])
    with pytest.raises(ValueError, match=r"^from: got .*made, which is prepared already"):
        prepare("parquet", prepared[0], tmp_path / "again")
    cache.verify(prepared[0])


def test_damage_to_a_prepared_folder_is_found(tmp_path: Path) -> None:
    source, _ = parquet_source(tmp_path / "source", 6)
    made = tmp_path / "made"
    prepare("parquet", source, made, workers=1)
    images = made / "train-images.npy"
    whole = images.read_bytes()

    images.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert len(load("parquet", "train", made)) == 6  # of the same length: only its checksum is another
    with pytest.raises(ValueError, match=r"train-images\.npy: got the SHA-256 checksum"):
        cache.verify(made)
    images.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"train-images\.npy: got 1,279 bytes, expected 1,280; prepare it anew"):
        load("parquet", "train", made)
    images.unlink()
    with pytest.raises(ValueError, match=r"looked for .*train-images\.npy, found nothing; prepare it anew"):
        load("parquet", "train", made)
    images.write_bytes(whole)
    cache.verify(made)
    manifest = (made / "manifest.json").read_text()
    for content in ("", "[]", "{}", manifest[:200]):
        (made / "manifest.json").write_text(content)
        with pytest.raises(ValueError, match=r"manifest\.json is damaged"):
            load("parquet", "train", made)
    (made / "manifest.json").write_text(manifest.replace("tessella images 1", "tessella images 9"))
    with pytest.raises(ValueError, match=r"manifest\.json is of another format, expected 'tessella images 1'"):
        load("parquet", "train", made)


def test_a_prepared_folder_of_another_data_set_is_named(prepared: tuple[Path, np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"^data: looked for cifar100, found parquet, prepared in .*made"):
        load("cifar100", "train", prepared[0])


def test_a_prepared_folder_without_test_images_says_so(tmp_path: Path) -> None:
    write_tree(tmp_path / "source" / "train", {"a": pixels(2, 8), "b": pixels(2, 8)})
    prepare("folder", tmp_path / "source", tmp_path / "made", workers=1)
    with pytest.raises(ValueError, match=r"^data: looked for test in .*made, found train"):
        load("folder", "test", tmp_path / "made")


def test_checking_from_the_command_line(
    prepared: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", str(prepared[0])]) == 0
    assert "train-images.npy: 28,928 bytes, as they were prepared" in capsys.readouterr().out
    assert main(["data", "check", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("tessella: data: looked for a prepared folder, found ")


@pytest.mark.parametrize("ending", [".png", ".svg"])
@pytest.mark.parametrize("name", ["digits", "parquet"])
def test_a_contact_sheet_is_drawn(
    name: str, ending: str, prepared: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / f"sheet{ending}"
    source = [] if name == "digits" else ["--from", str(prepared[0])]
    assert main(["data", "show", name, *source, "--to", str(to)]) == 0
    assert to.read_bytes().startswith(b"\x89PNG" if ending == ".png" else b"<?xml")
    said = capsys.readouterr().out
    assert ("1,347 in all" if name == "digits" else "train: 50 images of every class; 150 in all") in said
    assert main(["data", "show", name, *source, "--to", str(tmp_path / "sheet.gif")]) == 2
    assert "expected a name that ends in .png, .svg or .pdf" in capsys.readouterr().err


def test_mapped_images_reach_a_device_as_they_are(prepared: tuple[Path, np.ndarray]) -> None:
    images, labels = load("parquet", "train", prepared[0]).tensors("cpu")
    assert torch.equal(images, torch.from_numpy(prepared[1]))
    assert labels.dtype == torch.int64
