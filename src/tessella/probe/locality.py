"""Locality: how far what a model has learnt between patches agrees with their places on the grid.

The number is the share of patches whose nearest neighbour, by similarity of encodings or by attention, is adjacent on
the grid: shares an edge with it. Its chance level is exact, so that a share can be read without another run. The
picture is Figure 1a's: all similarities between -1 and 1, and those above .55.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

THRESHOLD = 0.55
"""Figure 1a's, on similarities between -1 and 1."""

TIED = 1e-6
"""Similarities that differ by less of their spread count as equal: symmetric encodings tie in all but rounding."""


def adjacency(grid: tuple[int, int]) -> Bool[Tensor, "patches patches"]:
    """Which patches of a grid of (rows, columns) share an edge, from left to right and top to bottom."""
    rows, columns = grid
    if rows < 1 or columns < 1 or rows * columns < 2:
        raise ValueError(f"grid: got {rows} x {columns}, expected at least two patches")
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    return (places[:, None] - places[None]).abs().sum(-1) == 1


def chance(grid: tuple[int, int]) -> float:
    """The expected share of adjacent nearest neighbours where each is drawn at random among the other patches.

    A grid has rows (columns - 1) + columns (rows - 1) edges, and each makes two of the D (D - 1) pairs adjacent.

    >>> chance((2, 2)) == 2 / 3
    True
    """
    return float(adjacency(grid).sum()) / (grid[0] * grid[1] * (grid[0] * grid[1] - 1))


def cosines(encodings: Float[Tensor, "*batch patches dim"]) -> Float[Tensor, "*batch patches patches"]:
    """The cosine of every two encodings, which their lengths do not sway. Zero encodings have cosine 0 with all."""
    unit = torch.nn.functional.normalize(encodings, dim=-1)
    return unit @ unit.transpose(-1, -2)


def figure_1a(encodings: Float[Tensor, "patches dim"]) -> Float[Tensor, "patches patches"]:
    """P^T P with its values normalised between -1 and 1."""
    return normalised(encodings @ encodings.T)


def normalised(similarities: Float[Tensor, "patches patches"]) -> Float[Tensor, "patches patches"]:
    """Values between -1 and 1, as Figure 1a shows them.

    The paper does not say how. Here the least value becomes -1 and the greatest 1, along a line. Where all values are
    equal they become 0.
    """
    low, high = similarities.min(), similarities.max()
    if low == high:
        return torch.zeros_like(similarities)
    return 2 * (similarities - low) / (high - low) - 1


def nearest_adjacent(
    similarities: Float[Tensor, "*batch patches patches"], grid: tuple[int, int]
) -> Float[Tensor, "*batch"]:
    """The share of patches whose most similar other patch is adjacent; of several tied ones each counts its part.

    Similarities may be attention: then the nearest neighbour of i is the other patch that i attends to most.

    >>> float(nearest_adjacent(torch.ones(4, 4), (2, 2))) - chance((2, 2)) < 1e-6
    True
    """
    patches = grid[0] * grid[1]
    if similarities.shape[-2:] != (patches, patches):
        shape = tuple(similarities.shape)
        raise ValueError(f"similarities: got shape {shape}, expected {patches} x {patches}, as the grid has patches")
    adjacent = adjacency(grid).to(similarities.device)
    others = similarities.double().masked_fill(
        torch.eye(patches, dtype=torch.bool, device=similarities.device), -torch.inf
    )
    best = others.amax(-1, keepdim=True)
    spread = best - others.masked_fill(others == -torch.inf, torch.inf).amin(-1, keepdim=True)
    nearest = others >= best - TIED * spread
    return ((nearest & adjacent).sum(-1).double() / nearest.sum(-1)).mean(-1)


def by_distance(
    similarities: Float[Tensor, "patches patches"], grid: tuple[int, int]
) -> tuple[list[float], list[float]]:
    """Distances between patches on the grid, ascending, and the mean similarity at each."""
    places = torch.cartesian_prod(*(torch.arange(side, dtype=torch.float64) for side in grid))
    apart = torch.cdist(places, places).cpu()
    distances, which = apart.mul(1e6).round().div(1e6).unique(return_inverse=True)
    flat = similarities.double().cpu().flatten()
    total = torch.zeros(len(distances), dtype=torch.float64).index_add(0, which.flatten(), flat)
    means = total / which.flatten().bincount()
    return distances.tolist(), means.tolist()


def put_back(
    similarities: Float[Tensor, "*batch patches patches"], order: Int[Tensor, " patches"]
) -> Float[Tensor, "*batch patches patches"]:
    """Similarities of shuffled patches, with every patch back in its place: Figure 5c from (1, 2) to (1', 2').

    `order[j]` is the place from which shuffling took what now stands at j.
    """
    if sorted(order.tolist()) != list(range(similarities.shape[-1])):
        raise ValueError(f"order: got {len(order)} places, expected each of {similarities.shape[-1]} once")
    back = torch.argsort(order).to(similarities.device)
    return similarities[..., back, :][..., back]
