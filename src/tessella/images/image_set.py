"""One split of a data set: images as bytes, their labels, and the names of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, UInt8
from torch import Tensor

SPLITS = ("train", "test")
"""What is learnt from, and what is held out; the validation images of a data set without test labels are `test`."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size with a label each. The pixels may lie in a file that is mapped into memory, read-only."""

    images: UInt8[np.ndarray, "n height width channels"]
    labels: Int64[np.ndarray, " n"]
    classes: tuple[str, ...]
    name: str
    split: str

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"split: got {self.split!r}, expected train or test")
        if self.images.ndim != 4 or self.images.dtype != np.uint8 or 0 in self.images.shape:
            raise ValueError(
                f"images: got {self.images.dtype} of shape {self.images.shape}, "
                "expected bytes of shape (n, height, width, channels)"
            )
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != np.int64:
            raise ValueError(
                f"labels: got {self.labels.dtype} of shape {self.labels.shape}, "
                f"expected one int64 for each of {len(self.images)} images"
            )
        if self.labels.min() < 0 or self.labels.max() >= len(self.classes):
            raise ValueError(
                f"labels: got {self.labels.min()} to {self.labels.max()}, expected 0 to {len(self.classes) - 1}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.images.shape[1], self.images.shape[2]

    @property
    def channels(self) -> int:
        """3 for colour, 1 for grey."""
        return int(self.images.shape[3])

    @property
    def class_counts(self) -> Int[np.ndarray, " classes"]:
        """How many images each class has."""
        return np.bincount(self.labels, minlength=len(self.classes))

    def statistics(self) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
        """Mean and standard deviation of each channel, in units in which a full byte is 1.

        From how often each of the 256 values occurs: exact, but for sets of more than 4 GiB, of which every second,
        third, ... image is counted. A channel that never varies has deviation 1, so that it can be divided by.
        """
        counted = self.images[:: 1 + self.images.nbytes // _COUNTED]
        counts = torch.zeros(self.channels, 256, dtype=torch.int64)
        for start in range(0, len(counted), _BLOCK):
            block = torch.from_numpy(np.array(counted[start : start + _BLOCK]))
            for channel in range(self.channels):
                counts[channel] += torch.bincount(block[..., channel].flatten(), minlength=256)
        share = counts.double() / counts.sum(1, keepdim=True)
        values = torch.arange(256, dtype=torch.float64) / 255
        mean = share @ values
        deviation = (share * (values - mean[:, None]) ** 2).sum(1).sqrt()
        return mean.float(), deviation.masked_fill(deviation == 0, 1.0).float()

    def tensors(
        self, device: str | torch.device
    ) -> tuple[UInt8[Tensor, "n height width channels"], Int64[Tensor, " n"]]:
        """Images and labels, copied to a device: a split of small images fits there whole, as bytes."""
        return torch.from_numpy(np.array(self.images)).to(device), torch.from_numpy(np.array(self.labels)).to(device)


_BLOCK = 1024
"""Images counted at a time: what is read stays small beside the split."""

_COUNTED = 4 << 30
