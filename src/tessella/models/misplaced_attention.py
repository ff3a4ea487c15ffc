"""Theorem 3.2's transformer: it fits f* and attends only to sets that are not a patch's own.

Every patch of S_l attends to all of S_pi(l), where pi moves every set. As l runs through the sets so does pi(l), so
each set's sum is read by C patches, just as if they read their own. Nothing in the labelling function says which.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tessella.models.simplified_vit import Activation, SimplifiedViT
from tessella.structure.partition import Partition


def misplaced_attention(
    partition: Partition, shift: int = 1, diagonal: float = 1.0, margin: float = 4.0
) -> Float[Tensor, "patches patches"]:
    """A with log D + margin where i in S_l and j in S_pi(l), pi(l) = l + shift mod L; the diagonal; else 0."""
    if partition.sets < 2 or shift % partition.sets == 0:
        raise ValueError(f"shift: got {shift}, expected one that moves every one of {partition.sets} sets")
    labels = torch.from_numpy(partition.labels.copy())
    aimed = (labels[:, None] + shift) % partition.sets == labels[None, :]
    level = math.log(partition.patches) + margin
    return (level * aimed.double()).fill_diagonal_(diagonal)


def own_attention(partition: Partition, margin: float = 4.0) -> Float[Tensor, "patches patches"]:
    """The same with every patch attending to its own set: what patch association would give."""
    return (math.log(partition.patches) + margin) * partition.same_set.double()


def model_on(
    attention: Float[Tensor, "patches patches"], feature: Float[Tensor, " dim"], degree: int = 3
) -> SimplifiedViT:
    """(T) with this attention and v = w* / D."""
    return SimplifiedViT(attention, feature.double() / len(attention), Activation(degree, 0.0))


def nearest_gram(
    attention: Float[Tensor, "patches patches"],
) -> tuple[Float[Tensor, "patches patches"], float]:
    """The least multiple of the identity that makes the symmetrised A a Gram matrix P^T P, added; and that multiple."""
    symmetric = (attention + attention.T) / 2
    least = float(torch.linalg.eigvalsh(symmetric).min())
    added = max(-least, 0.0)
    return symmetric + added * torch.eye(len(attention), dtype=symmetric.dtype), added


def rows_that_hold_themselves(gram: Float[Tensor, "patches patches"], size: int) -> float:
    """The share of rows i with i in Top_C of row i, when ties are broken against i.

    In a Gram matrix the patch of largest norm is always one: <p_i, p_j> <= |p_i|^2 there, by Cauchy and Schwarz.
    """
    values = gram.numpy()
    at_least = (values >= np.diagonal(values)[:, None] - 1e-12).sum(axis=1) - 1
    return float((at_least < size).mean())
