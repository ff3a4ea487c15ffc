"""Attention in few bytes: every weight as a small whole number, relative to the largest of its query.

A query's weights are its largest times (k / levels)^2 for whole numbers k: square roots are stored, because small
weights are many and large ones few. No weight is then further from what the model gave than 1 / levels of the largest
weight of its query, and fewer levels compress better. Where fewer levels are not enough, the queries of every second
(third, ...) row and column of patches are kept, and those of all prefix tokens.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np

from tessella.probe.inspection import Layer

SAMPLED = 12
"""Of how many queries one is compressed to foretell a size."""

NEIGHBOURS = 5
"""How many of these stand together."""


@dataclass(frozen=True)
class Coarseness:
    """How finely a page's attention is kept: levels of the means over images, of single images, and the stride."""

    mean: int
    single: int
    stride: int = 1


LADDER = (
    *(Coarseness(*levels) for levels in ((255, 255), (255, 127), (127, 63), (127, 31), (63, 31), (31, 31), (31, 15))),
    *(Coarseness(*levels, stride) for stride in (2, 3, 4, 6, 8) for levels in ((255, 127), (127, 63), (31, 31))),
)
"""From fine to coarse."""


def strided(layer: Layer, stride: int) -> int:
    """The stride that a layer's grid bears: at least two rows and columns are left where there are two."""
    return max(1, min(stride, min(layer.grid) // 2))


def kept_queries(layer: Layer, stride: int) -> np.ndarray:
    """The tokens whose rows are kept, in order."""
    rows, columns = layer.grid
    first = (strided(layer, stride) - 1) // 2
    patches = np.arange(rows * columns).reshape(rows, columns)
    kept = patches[first :: strided(layer, stride), first :: strided(layer, stride)]
    return np.concatenate([np.arange(len(layer.prefix)), len(layer.prefix) + kept.ravel()])


def levels_of(attention: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (heads, queries, tokens) as the largest of each query, float32, and whole numbers up to `levels`."""
    weights = attention.astype(np.float32)
    tops = weights.max(axis=-1, initial=0.0)
    shares = weights / np.where(tops > 0, tops, 1.0)[..., None]
    return tops, np.rint(np.sqrt(shares) * levels).astype(np.uint8)


def weights_of(tops: np.ndarray, numbers: np.ndarray, levels: int) -> np.ndarray:
    """What the numbers stand for: the inverse of `levels_of`, as the page's script computes it."""
    return tops[..., None] * (numbers.astype(np.float64) / levels) ** 2


def block(attention: np.ndarray, levels: int) -> str:
    """One layer's attention as a compressed block: the queries' largest weights, then the numbers."""
    tops, numbers = levels_of(attention, levels)
    return packed(tops.astype("<f4").tobytes() + numbers.tobytes())


def packed(content: bytes) -> str:
    """Bytes as a page carries them: deflated, as base64."""
    return base64.b64encode(zlib.compress(content, 6)).decode()


def foretold(attention: np.ndarray, levels: int) -> float:
    """About how many characters a block will have, from queries here and there, each beside its neighbours."""
    queries = attention.shape[1]
    sample = np.arange(queries) // NEIGHBOURS % SAMPLED == SAMPLED // 2
    if queries < 2 * NEIGHBOURS * SAMPLED:
        sample[:] = True
    return len(block(attention[:, sample], levels)) * queries / int(sample.sum())
