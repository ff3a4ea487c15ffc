"""What is measured of encodings: how local they are, and whether they associate patches as a partition does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.probe.default_partition import small_blocks
from tessella.probe.inspection import Encodings
from tessella.probe.locality import nearest_adjacent
from tessella.probe.positional_encodings import Found
from tessella.probe.ranks import among_others, rank_correlation
from tessella.structure.association import association
from tessella.structure.partition import Partition

DEFINITIONS = {
    "locality": "The share of patches whose most similar encoding is that of a patch that shares an edge with them; "
    "0 to 1.",
    "decay with distance": "The rank correlation, over other patches, of the similarity of encodings and the patches' "
    "nearness; the mean over patches; -1 to 1.",
    "association": "Patch association (Definition 2.2 of Jelassi et al. 2022) with the partition: of as many patches "
    "as its own set has, those most similar to a patch, the share that lies in its set; 0 to 1.",
    "exact rows": "The share of patches for which these are exactly its set; 0 to 1.",
    "Rand index": "The adjusted Rand index between the partition and the clusters of the similarities; 1 is equal, "
    "0 is chance.",
}


def encodings(found: Sequence[Found], fresh: Sequence[Found], partition: Partition | None) -> Encodings:
    """What acts on attention itself first; other encodings that the model has beside it stand in `others`."""
    first, *others = (
        _measured(each, next((other for other in fresh if other.kind == each.kind), None), partition) for each in found
    )
    return dataclasses.replace(first, others=tuple(others))


def _measured(found: Found, fresh: Found | None, partition: Partition | None) -> Encodings:
    if found.similarities is None:
        return Encodings(found.kind, found.note, found.grid)
    values = measures(found.similarities, found.grid, partition)
    chance = {}
    if fresh is not None and fresh.similarities is not None:
        chance = measures(fresh.similarities, fresh.grid, partition)
    note = found.note
    if values == chance:
        note += "; with random weights they are the same"
    definitions = {name: DEFINITIONS[name] for name in values}
    return Encodings(found.kind, note, found.grid, found.similarities.float(), values, chance, definitions)


def measures(
    similarities: Float[Tensor, "patches patches"], grid: tuple[int, int], partition: Partition | None = None
) -> dict[str, float]:
    """By name, of one matrix of similarities; the partition is small blocks where none fits."""
    if partition is None or partition.patches != len(similarities):
        partition = small_blocks(grid)
    rows, columns = (torch.arange(side, dtype=torch.float64) for side in grid)
    places = torch.cartesian_prod(rows, columns)
    nearness = -torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")
    decay = rank_correlation(among_others(similarities), among_others(nearness)).nanmean()
    found = association(similarities, partition)
    return {
        "locality": float(nearest_adjacent(similarities, grid)),
        "decay with distance": float(decay),
        "association": found.overlap,
        "exact rows": found.exact_rows,
        "Rand index": found.rand_index,
    }
