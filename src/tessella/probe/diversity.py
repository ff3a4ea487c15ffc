"""How different the attention maps of different queries are. Both measures are this project's own definitions.

The paper assesses "whether different patches concentrate on similar areas"; its formula was not found. Here it is
the mean over pairs of queries of the distance between their attention maps: total variation, which is the share of
attention that would have to be moved to turn one map into the other, and cosine distance.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def total_variation_diversity(maps: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch"]:
    """The mean over pairs of different queries of sum |a - b| / 2: 0 where all attend alike, 1 where none overlap.

    >>> float(total_variation_diversity(torch.eye(4)))
    1.0
    """
    queries = _several(maps)
    distances = torch.cdist(maps, maps, p=1) / 2
    return distances.sum((-1, -2)) / (queries * (queries - 1))


def cosine_diversity(maps: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch"]:
    """The mean over pairs of different queries of one minus the cosine of their maps.

    The cosines of all pairs add up to the squared length of the sum of the unit maps, so that no pair is looked at.
    """
    return cosine_diversity_of(maps, torch.linalg.vector_norm(maps, dim=-1))


def cosine_diversity_of(
    maps: Float[Tensor, "*batch queries keys"], lengths: Float[Tensor, "*batch queries"]
) -> Float[Tensor, "*batch"]:
    """The same, where the maps' lengths are known."""
    queries = _several(maps)
    scales = lengths.clamp_min(torch.finfo(maps.dtype).tiny).reciprocal().unsqueeze(-2)
    together = (scales @ maps).squeeze(-2)
    return (queries**2 - together.square().sum(-1)) / (queries * (queries - 1))


def _several(maps: Tensor) -> int:
    queries = maps.shape[-2]
    if queries < 2:
        raise ValueError(f"maps: got {queries} queries, expected at least two to compare")
    return queries


def attention_distance(
    maps: Float[Tensor, "*batch queries keys"], places: Float[Tensor, "keys coordinates"]
) -> Float[Tensor, "*batch"]:
    """How far attention reaches: the mean over queries of the expected distance to the attended patch.

    Queries and keys are the same patches, whose places are given in patches.
    """
    return (maps * torch.cdist(places, places)).sum(-1).mean(-1)
