"""Patch association (Definition 2.2): has a matrix of similarities found the sets of a partition?

Row i associates when Top_C of (M_i1, ..., M_iD) is the set that patch i belongs to; the diagonal entry competes like
any other, as the definition counts it. C is the size of patch i's own set, so sets may differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster import hierarchy
from scipy.spatial import distance
from torch import Tensor

from tessella.structure.partition import Partition


@dataclass(frozen=True)
class Association:
    """How far a matrix performs patch association on a partition."""

    exact_rows: float
    """Share of rows whose Top_C is exactly their own set. A row that is exact only by breaking a tie is not."""
    tied_rows: float
    """Share of rows whose Top_C is not unique: the C-th and the (C+1)-th largest entries are equal."""
    overlap: float
    """Mean over rows of |Top_C and own set| / C; where entries tie, its mean over the ways to break the tie."""
    chance: float
    """What `overlap` would be on average if each row's off-diagonal entries were shuffled."""
    rand_index: float
    """Adjusted Rand index between the partition and the one that clustering the matrix yields: 1 equal, 0 chance."""

    @property
    def performs(self) -> bool:
        """Definition 2.2: every row is exact."""
        return self.exact_rows == 1.0


def association(matrix: Tensor | np.ndarray, partition: Partition) -> Association:
    """Measures Definition 2.2 on a matrix of similarities: P^T P, the learnt A, or any other.

    >>> import torch
    >>> association(torch.eye(4) + Partition.bands(2, 2).same_set, Partition.bands(2, 2)).performs
    True
    """
    similarities = _checked(matrix, partition)
    exact, tied, overlap, chance = _rows(similarities, partition)
    found = cluster(similarities, partition.sets)
    return Association(
        exact_rows=float(exact.mean()),
        tied_rows=float(tied.mean()),
        overlap=float(overlap.mean()),
        chance=float(chance.mean()),
        rand_index=adjusted_rand_index(found, partition.labels),
    )


def exact_rows(matrix: Float[Tensor, "patches patches"] | np.ndarray, partition: Partition) -> float:
    """The share of rows that associate, alone: what a training loop can afford at every step that it logs."""
    return float(_rows(_checked(matrix, partition), partition)[0].mean())


def _checked(matrix: Tensor | np.ndarray, partition: Partition) -> np.ndarray:
    if isinstance(matrix, Tensor):
        matrix = matrix.detach().cpu()
        # numpy has no bfloat16.
        values = matrix.numpy() if matrix.is_complex() else matrix.double().numpy()
    else:
        values = np.asarray(matrix)
    if np.iscomplexobj(values):
        raise ValueError(f"matrix: got {values.dtype}, expected real numbers")
    if values.shape != (partition.patches, partition.patches):
        raise ValueError(f"matrix: got shape {values.shape}, expected {(partition.patches,) * 2} for {partition}")
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"matrix: got {np.count_nonzero(~np.isfinite(values))} entries not finite, expected none")
    return values


def _rows(values: np.ndarray, partition: Partition) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each row: exact, tied, expected overlap, and expected overlap after shuffling off the diagonal."""
    patches = partition.patches
    own = partition.labels[:, None] == partition.labels[None, :]
    sizes = partition.sizes[partition.labels]
    rows = np.arange(patches)
    threshold = -np.sort(-values, axis=1)[rows, sizes - 1]
    above = values > threshold[:, None]
    level = values == threshold[:, None]
    # The entries at the threshold share the places that those above it leave.
    share = (sizes - above.sum(1)) / level.sum(1)
    tied = share < 1
    inside = np.where(above, 1.0, np.where(level, share[:, None], 0.0))
    overlap = (inside * own).sum(1) / sizes
    exact = (overlap == 1.0) & ~tied
    diagonal = inside[rows, rows]
    others = np.maximum(patches - 1, 1)
    shuffled = (sizes - diagonal) * (sizes - 1) / others
    return exact, tied, overlap, (diagonal + shuffled) / sizes


def cluster(matrix: np.ndarray, sets: int) -> Int[np.ndarray, " patches"]:
    """Labels of at most `sets` clusters of patches: average linkage on the symmetrised similarities.

    The diagonal plays no part: it compares a patch with itself, and in the simplified ViT it is set by hand.
    """
    patches = len(matrix)
    if patches == 1:
        return np.zeros(1, dtype=np.int64)
    largest = np.abs(matrix).max()
    # Scaled to at most 1, so that no difference overflows.
    symmetric = (matrix / largest + matrix.T / largest) / 2 if largest > 0 else matrix
    off_diagonal = symmetric[~np.eye(patches, dtype=bool)]
    # Average linkage needs a dissimilarity that is at least 0: the distance to the greatest similarity.
    dissimilarity = off_diagonal.max() - symmetric
    np.fill_diagonal(dissimilarity, 0.0)
    tree = hierarchy.linkage(distance.squareform(dissimilarity, checks=False), method="average")
    return hierarchy.fcluster(tree, sets, criterion="maxclust").astype(np.int64) - 1


def adjusted_rand_index(first: Int[np.ndarray, " patches"], second: Int[np.ndarray, " patches"]) -> float:
    """Agreement of two partitions of the same patches, corrected for chance (Hubert and Arabie, 1985)."""
    _, first = np.unique(first, return_inverse=True)
    _, second = np.unique(second, return_inverse=True)
    table = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(table, (first, second), 1)
    both, in_first, in_second = _pairs(table), _pairs(table.sum(1)), _pairs(table.sum(0))
    expected = in_first * in_second / max(_pairs(np.array([len(first)])), 1.0)
    ceiling = (in_first + in_second) / 2
    return 1.0 if ceiling == expected else (both - expected) / (ceiling - expected)


def _pairs(counts: np.ndarray) -> float:
    """How many pairs there are within groups of these sizes."""
    return float((counts * (counts - 1) / 2).sum())
