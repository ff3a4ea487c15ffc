"""A partition of the patches of an image into sets (Definition 2.1)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Partition:
    """[D] as the disjoint union of L sets S_1, ..., S_L. Sets may differ in size; none is empty.

    `labels[i]` is the set that patch i belongs to. Two partitions are equal when their labels and grids are.

    >>> Partition.blocks(4, 4, 2, 2).members(0).tolist()
    [0, 1, 4, 5]
    """

    def __init__(self, labels: Sequence[int] | np.ndarray, grid: tuple[int, int] | None = None):
        given = np.asarray(labels)
        if given.ndim != 1 or given.size == 0:
            raise ValueError(f"labels: got shape {given.shape}, expected one label for each patch")
        if not np.issubdtype(given.dtype, np.integer):
            raise ValueError(f"labels: got dtype {given.dtype}, expected integers")
        distinct, ranks, sizes = np.unique(given, return_inverse=True, return_counts=True)
        if distinct[0] != 0 or distinct[-1] != len(distinct) - 1:
            raise ValueError(f"labels: got the values {_shortened(distinct)}, expected 0 to L-1, each at least once")
        if grid is not None and (len(grid) != 2 or not all(isinstance(side, int) and side > 0 for side in grid)):
            raise ValueError(f"grid: got {grid}, expected a height and a width, whole numbers of at least 1")
        if grid is not None and grid[0] * grid[1] != given.size:
            raise ValueError(f"grid: got {grid[0]} x {grid[1]}, expected a product of {given.size} patches")
        self.labels: Int[np.ndarray, " patches"] = ranks.astype(np.int64)
        self.sizes: Int[np.ndarray, " sets"] = sizes.astype(np.int64)
        self.grid = None if grid is None else (grid[0], grid[1])
        self.labels.flags.writeable = False
        self.sizes.flags.writeable = False

    @classmethod
    def from_labels(cls, labels: Iterable[object], grid: tuple[int, int] | None = None) -> Partition:
        """A partition from labels of any hashable kind, numbered in order of first appearance."""
        if isinstance(labels, Tensor | np.ndarray):
            labels = labels.tolist()
        numbers: dict[object, int] = {}
        return cls([numbers.setdefault(label, len(numbers)) for label in labels], grid)

    @classmethod
    def from_sets(cls, sets: Sequence[Iterable[int]], grid: tuple[int, int] | None = None) -> Partition:
        """A partition from its sets of patch indices, which must be disjoint and cover 0 to D-1."""
        listed = [list(members) for members in sets]
        patches = sum(len(members) for members in listed)
        labels = np.full(patches, -1, dtype=np.int64)
        for number, members in enumerate(listed):
            for patch in members:
                if not 0 <= patch < patches:
                    raise ValueError(f"sets: got patch {patch}, expected sets that cover 0 to {patches - 1} once each")
                if labels[patch] >= 0:
                    raise ValueError(f"sets: got patch {patch} in sets {labels[patch]} and {number}, expected it once")
                labels[patch] = number
        if any(not members for members in listed):
            raise ValueError("sets: got an empty set, expected every set to have a patch")
        return cls(labels, grid)

    @classmethod
    def blocks(cls, height: int, width: int, block_height: int, block_width: int) -> Partition:
        """Spatially localized sets: a grid of patches cut into rectangular blocks (Figure 1b, left)."""
        for name, side, block in (("block_height", height, block_height), ("block_width", width, block_width)):
            if block < 1 or side < 1 or side % block:
                raise ValueError(f"{name}: got {block}, expected a divisor of {side}")
        rows, columns = np.divmod(np.arange(height * width), width)
        labels = (rows // block_height) * (width // block_width) + columns // block_width
        return cls(labels, (height, width))

    @classmethod
    def bands(cls, height: int, width: int, thickness: int = 1) -> Partition:
        """Horizontal bands of `thickness` rows each."""
        return cls.blocks(height, width, thickness, width)

    @classmethod
    def random(cls, patches: int, size: int, seed: int, grid: tuple[int, int] | None = None) -> Partition:
        """Sets of `size` patches drawn at random, in general not contiguous (Figure 1b, right)."""
        if size < 1 or patches < 1 or patches % size:
            raise ValueError(f"size: got {size}, expected a divisor of {patches} patches")
        if seed < 0:
            raise ValueError(f"seed: got {seed}, expected a whole number of at least 0")
        order = np.random.default_rng(seed).permutation(patches)
        labels = np.empty(patches, dtype=np.int64)
        labels[order] = np.arange(patches) // size
        return cls.from_labels(labels.tolist(), grid)

    @property
    def patches(self) -> int:
        """D."""
        return int(self.labels.size)

    @property
    def sets(self) -> int:
        """L."""
        return int(self.sizes.size)

    @property
    def size(self) -> int:
        """C, where all sets have the same size, as Definition 2.1 wants them."""
        if self.sizes.min() != self.sizes.max():
            raise ValueError(
                f"partition: got sets of {self.sizes.min()} to {self.sizes.max()} patches, expected one size"
            )
        return int(self.sizes[0])

    def members(self, number: int) -> Int[np.ndarray, " size"]:
        """S_l, ascending."""
        if not 0 <= number < self.sets:
            raise ValueError(f"number: got {number}, expected a set from 0 to {self.sets - 1}")
        return np.flatnonzero(self.labels == number)

    @functools.cached_property
    def same_set(self) -> Bool[Tensor, "patches patches"]:
        """Which pairs (i, j) lie in one set; the diagonal does."""
        labels = torch.from_numpy(self.labels.copy())
        return labels[:, None] == labels[None, :]

    @functools.cached_property
    def order(self) -> Int[np.ndarray, " patches"]:
        """The patches sorted by set: in this order a matrix that has found the sets is block diagonal."""
        return np.argsort(self.labels, kind="stable")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return self.grid == other.grid and np.array_equal(self.labels, other.labels)

    def __hash__(self) -> int:
        return hash((self.grid, self.labels.tobytes()))

    def __repr__(self) -> str:
        sizes = (
            f"{self.sizes.min()}" if self.sizes.min() == self.sizes.max() else f"{self.sizes.min()}-{self.sizes.max()}"
        )
        on = f" on a {self.grid[0]} x {self.grid[1]} grid" if self.grid else ""
        return f"Partition({self.patches} patches in {self.sets} sets of {sizes}{on})"


def _shortened(values: Int[np.ndarray, " values"]) -> str:
    shown = values.tolist() if len(values) <= 6 else [*values[:3].tolist(), "...", *values[-2:].tolist()]
    return ", ".join(map(str, shown))
