"""The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels: real images that need no download."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Digits:
    """Images with pixels from -1 to 1, their labels, and a split into what is learnt from and what is held out."""

    train: Float[Tensor, "train 8 8"]
    train_labels: Int[Tensor, " train"]
    held_out: Float[Tensor, "held_out 8 8"]
    held_out_labels: Int[Tensor, " held_out"]

    @classmethod
    def load(cls, seed: int, held_out: int = 300) -> Digits:
        """The split of this seed."""
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise ModuleNotFoundError("digits: sklearn is not installed; pip install 'tessella[digits]'") from error
        found = load_digits()
        images = torch.from_numpy(found.images).float() / 8 - 1
        labels = torch.from_numpy(found.target).long()
        if not 0 < held_out < len(images):
            raise ValueError(f"held_out: got {held_out}, expected 1 to {len(images) - 1} images")
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        test, train = order[:held_out], order[held_out:]
        return cls(images[train], labels[train], images[test], labels[test])
