"""Shuffled grids, the paper's pi_s: an image cut into cells of s x s pixels, and the cells moved by one permutation."""

from __future__ import annotations

import torch
from jaxtyping import Int, Int64, Shaped
from torch import Tensor, nn


class GridShuffle(nn.Module):
    """One fixed permutation of the cells of every image; what lies within a cell stays as it is.

    The place `j` of a shuffled image shows the cell `order[j]` of the image, from left to right and top to bottom. The
    permutation is a buffer: moved to a device once, it is applied there by one gather, within a CUDA graph too.

    >>> shuffle = GridShuffle(side=2, cell=1, order=torch.tensor([3, 0, 1, 2]))
    >>> shuffle(torch.tensor([[1, 2], [3, 4]])).tolist()
    [[4, 1], [2, 3]]
    >>> shuffle.inverse(shuffle(torch.eye(2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    order: Tensor
    _pixels: Tensor
    _pixels_back: Tensor

    def __init__(self, side: int, cell: int, order: Int64[Tensor, " cells"]):
        super().__init__()
        if cell < 1 or side < 1 or side % cell:
            raise ValueError(f"cell: got {cell}, expected a divisor of the {side} pixels of a side")
        cells = (side // cell) ** 2
        if not torch.equal(order.sort().values, torch.arange(cells)):
            raise ValueError(f"order: got {order.tolist()}, expected the numbers 0 to {cells - 1} in some order")
        self.side = side
        self.cell = cell
        pixels = _refined(order, side // cell, cell)
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("_pixels", pixels, persistent=False)
        self.register_buffer("_pixels_back", pixels.argsort(), persistent=False)

    @classmethod
    def random(cls, side: int, cell: int, seed: int) -> GridShuffle:
        """Every permutation of the cells is as likely; with cells as large as the image there is one, the identity."""
        if cell < 1 or side < 1 or side % cell:
            raise ValueError(f"cell: got {cell}, expected a divisor of the {side} pixels of a side")
        return cls(side, cell, torch.randperm((side // cell) ** 2, generator=torch.Generator().manual_seed(seed)))

    def forward(self, images: Shaped[Tensor, "*leading side side"]) -> Shaped[Tensor, "*leading side side"]:
        """As `shuffle`."""
        return self.shuffle(images)

    def shuffle(self, images: Shaped[Tensor, "*leading side side"]) -> Shaped[Tensor, "*leading side side"]:
        """pi_s of each image; rows and columns are the last two axes."""
        return self._moved(images, self._pixels)

    def inverse(self, images: Shaped[Tensor, "*leading side side"]) -> Shaped[Tensor, "*leading side side"]:
        """The images that `shuffle` makes these of."""
        return self._moved(images, self._pixels_back)

    def patch_order(self, patch: int) -> Int64[Tensor, " patches"]:
        """Which patch of the image each patch of the shuffled image is, where cells are whole patches."""
        if patch < 1 or self.cell % patch:
            raise ValueError(f"patch: got {patch}, expected a divisor of the {self.cell} pixels of a cell's side")
        return _refined(self.order, self.side // self.cell, self.cell // patch)

    def shuffle_patches(self, rows: Shaped[Tensor, "patches ..."], patch: int) -> Shaped[Tensor, "patches ..."]:
        """What belongs to the patches of an image, such as encodings, in the order of the shuffled image's patches."""
        return rows[self._checked(self.patch_order(patch), rows)]

    def restore_patches(self, rows: Shaped[Tensor, "patches ..."], patch: int) -> Shaped[Tensor, "patches ..."]:
        """What was learnt for the patches of shuffled images, in the order of the image's own patches."""
        return rows[self._checked(self.patch_order(patch), rows).argsort()]

    def extra_repr(self) -> str:
        return f"side={self.side}, cell={self.cell}"

    def _moved(self, images: Tensor, pixels: Int64[Tensor, " pixels"]) -> Tensor:
        if images.shape[-2:] != (self.side, self.side):
            raise ValueError(
                f"images: got {tuple(images.shape[-2:])} for the last two axes, expected {(self.side, self.side)}"
            )
        return images.flatten(-2).index_select(-1, pixels).unflatten(-1, (self.side, self.side))

    def _checked(self, order: Int64[Tensor, " patches"], rows: Tensor) -> Int64[Tensor, " patches"]:
        if len(rows) != len(order):
            raise ValueError(f"rows: got {len(rows)}, expected one for each of {len(order)} patches")
        return order


def _refined(order: Int64[Tensor, " coarse"], across: int, parts: int) -> Int[Tensor, " fine"]:
    """The order of the parts of cells: each of `across` x `across` cells has `parts` x `parts` that move with it."""
    side = across * parts
    places = torch.arange(side, device=order.device)
    cells = order.view(across, across).repeat_interleave(parts, 0).repeat_interleave(parts, 1)
    rows = (cells // across) * parts + (places % parts)[:, None]
    columns = (cells % across) * parts + places % parts
    return (rows * side + columns).flatten()
