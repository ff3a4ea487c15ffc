"""An image set knows its own statistics, and names what is no image set."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessella.images import image_set
from tessella.images.digits import digits
from tessella.images.image_set import ImageSet


def made(images: np.ndarray, labels: list[int] | None = None) -> ImageSet:
    given_labels = np.array([0] * len(images) if labels is None else labels, dtype=np.int64)
    return ImageSet(images, given_labels, ("a", "b"), "made", "train")


@given(
    seed=st.integers(0, 2**31), number=st.integers(1, 2100), side=st.integers(1, 3), channels=st.sampled_from([1, 3])
)
def test_statistics_are_numpys_of_all_pixels(seed: int, number: int, side: int, channels: int) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (number, side, side, channels), dtype=np.uint8)
    mean, deviation = made(images).statistics()
    torch.testing.assert_close(mean.double(), torch.from_numpy((images / 255).mean((0, 1, 2))), atol=1e-6, rtol=1e-6)
    expected = torch.from_numpy((images / 255).std((0, 1, 2)))
    expected[expected < 1e-12] = 1
    torch.testing.assert_close(deviation.double(), expected, atol=1e-6, rtol=1e-5)


def test_of_a_very_large_set_images_spread_over_all_of_it_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((1000, 2, 2, 1), dtype=np.uint8)
    images[500:] = 255
    monkeypatch.setattr(image_set, "_COUNTED", 1000)
    mean, deviation = made(images).statistics()
    assert mean.item() == pytest.approx(0.5)
    assert deviation.item() == pytest.approx(0.5)


def test_what_is_no_image_set_is_named() -> None:
    images = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match=r"^labels: got 0 to 2, expected 0 to 1"):
        made(images, [0, 2])
    with pytest.raises(ValueError, match=r"^split: got 'val', expected train or test"):
        ImageSet(images, np.zeros(2, dtype=np.int64), ("a",), "made", "val")


def test_digits_are_split_by_class_and_the_split_is_fixed() -> None:
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1347, 450)
    assert abs(train.class_counts / 1347 - test.class_counts / 450).max() < 2e-3
    assert np.array_equal(digits("test").images, test.images)
    seen = {image.tobytes() for image in train.images}
    assert sum(image.tobytes() in seen for image in test.images) == 0
