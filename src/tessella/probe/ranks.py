"""Ranks: of numbers, for their rank correlation, and of matrices, as how many directions they really use."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def ranked(values: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """The place of each number among those of its row, from 1; equal ones share the mean of their places.

    >>> ranked(torch.tensor([0.5, 2.0, 0.5])).tolist()
    [1.5, 3.0, 1.5]
    """
    ordered, order = values.sort(-1)
    places = torch.arange(values.shape[-1], device=values.device).expand_as(order)
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    # The first and the last place of the run of equal numbers that each place lies in.
    first = places.where(begins, 0).cummax(-1).values
    ends = begins.roll(-1, -1).index_fill(-1, places.new_tensor([values.shape[-1] - 1]), True)
    last = places.where(ends, values.shape[-1]).flip(-1).cummin(-1).values.flip(-1)
    shared = (first + last).to(values.dtype) / 2 + 1
    return torch.empty_like(values).scatter_(-1, order, shared)


def rank_correlation(first: Float[Tensor, "*batch n"], second: Float[Tensor, "*batch2 n"]) -> Float[Tensor, "*batch"]:
    """Spearman's: the correlation of the ranks, row by row; NaN where all of a row are equal.

    Rows of `second` may serve several of `first`.

    >>> float(rank_correlation(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([0.1, 0.2, 0.3])))
    1.0
    """
    a, b = (ranked(each).double() for each in (first, second))
    a, b = (each - each.mean(-1, keepdim=True) for each in (a, b))
    return (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()


def among_others(matrix: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n others"]:
    """The rows without the diagonal: what each says of the others."""
    n = matrix.shape[-1]
    # In a matrix laid out in a row, the diagonal recurs every n + 1 entries.
    flat = matrix.flatten(-2)[..., 1:].unflatten(-1, (n - 1, n + 1))
    return flat[..., :-1].flatten(-2).unflatten(-1, (n, n - 1))


def effective_rank(matrices: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """The exponential of the entropy of the singular values' shares (Roy and Vetterli, 2007): 1 to the full rank.

    >>> round(float(effective_rank(torch.eye(5))), 4)
    5.0
    """
    values = torch.linalg.svdvals(matrices)
    shares = values / values.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp()
