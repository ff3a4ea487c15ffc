"""What is measured of every head: each measure's definition and range, and its values from a layer's sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.probe.inspection import Measured
from tessella.probe.layer_sums import LayerSums
from tessella.probe.locality import nearest_adjacent
from tessella.probe.ranks import among_others, effective_rank, rank_correlation
from tessella.structure.association import association
from tessella.structure.partition import Partition


@dataclass(frozen=True)
class Definition:
    """What a measure is, in words, and between which bounds it lies; None where the model's sizes decide."""

    text: str
    low: float
    high: float | None
    unit: str = ""


DEFINITIONS = {
    "attention distance": Definition(
        "How far a patch looks: the distance from it to every patch, weighted by its attention among patches; the mean "
        "over patches and images (Dosovitskiy et al. 2021, Raghu et al. 2021).",
        0.0,
        None,
        "pixels",
    ),
    "entropy": Definition(
        "The entropy of a patch's attention over all tokens; the mean over patches and images. 0 is one token, the "
        "logarithm of the number of tokens is all alike.",
        0.0,
        None,
        "nats",
    ),
    "diversity": Definition(
        "How differently patches attend: one minus the cosine of two patches' attention; the mean over all pairs and "
        "images. 0 is all alike.",
        0.0,
        1.0,
    ),
    "share of position": Definition(
        "How much of the head is position: the share of the variance of patches' attention, over images, patches and "
        "tokens, that its mean over images explains; corrected for the number of images. 1 is attention that no image "
        "changes.",
        0.0,
        1.0,
        "share",
    ),
    "change of the head": Definition(
        "How far attention's mean over images is from doing the head's work: |M V - A V| / |A V|, where A is the "
        "attention on an image, M its mean and V the values; root mean square over images.",
        0.0,
        None,
    ),
    "change of the output": Definition(
        "How far the model's output moves when this head alone attends as its mean over images does: the length of "
        "the difference over the length of the output; root mean square over images.",
        0.0,
        None,
    ),
    "effective rank": Definition(
        "The exponential of the entropy of the shares of the singular values of patches' mean attention (Roy and "
        "Vetterli 2007). 1 is all patches attending alike.",
        1.0,
        None,
    ),
    "locality": Definition(
        "The share of patches whose mean attention to other patches is greatest for one that shares an edge with them.",
        0.0,
        1.0,
        "share",
    ),
    "association": Definition(
        "Patch association (Definition 2.2 of Jelassi et al. 2022) of the mean attention with the partition: of as "
        "many patches as its own set has, those that a patch attends to most, the share that lies in its set.",
        0.0,
        1.0,
        "share",
    ),
    "agreement with encodings": Definition(
        "The positional-only reading: the rank correlation, over other patches, of a patch's mean attention and the "
        "similarity of its encoding to theirs; the mean over patches.",
        -1.0,
        1.0,
    ),
}
"""In the order in which they are shown."""


def streamed(sums: LayerSums) -> dict[str, Float[Tensor, " heads"]]:
    """The measures that images were needed for."""
    distance, entropy, diversity, _ = (sums.per_head / sums.units).cpu()
    found = {"attention distance": distance, "entropy": entropy, "diversity": diversity}
    found["share of position"] = share_of_position(sums)
    if sums.moved_units:
        found["change of the head"] = change_of_the_head(sums)
    return found


def of_mean(
    mean: Float[Tensor, "heads tokens tokens"],
    prefix: int,
    grid: tuple[int, int],
    partition: Partition | None,
    similarities: Float[Tensor, "*heads patches patches"] | None,
) -> dict[str, Float[Tensor, " heads"]]:
    """The measures of mean attention, some of them against a partition or the similarities of encodings."""
    among = mean[:, prefix:, prefix:]
    found = {"effective rank": effective_rank(mean[:, prefix:]), "locality": nearest_adjacent(among, grid)}
    if partition is not None and partition.patches == among.shape[-1]:
        overlaps = [association(each, partition).overlap for each in among.cpu()]
        found["association"] = torch.tensor(overlaps)
    if similarities is not None and similarities.shape[-1] == among.shape[-1]:
        others = among_others(similarities.to(among))
        found["agreement with encodings"] = rank_correlation(among_others(among), others).mean(-1)
    return {name: values.cpu() for name, values in found.items()}


def share_of_position(sums: LayerSums) -> Float[Tensor, " heads"]:
    """B / (B + W): the unbiased variance between and within places; NaN for one image, and for uniform attention."""
    units, tokens = sums.units, sums.place.tokens
    if units < 2:
        return torch.full((sums.place.heads,), math.nan)
    mean = sums.mean_attention()[:, len(sums.place.prefix) :].double()
    explained = (mean - 1 / tokens).square().sum((1, 2))
    # Rounding can leave less than nothing where no image changes anything.
    within = ((sums.per_head[3] - units * explained) / (units - 1)).clamp_min(0.0)
    between = (explained - within / units).clamp_min(0.0)
    total = between + within
    uniform = total < 1e-6 * mean.shape[1] / tokens
    return (between / total).masked_fill(uniform, math.nan).cpu()


def change_of_the_head(sums: LayerSums) -> Float[Tensor, " heads"]:
    """From |M V - A V|^2 = <M, M V V^T> - 2 <M, A V V^T> + |A V|^2, each summed over images."""
    mean = sums.mean_attention()
    moved = (mean * (mean @ sums.value_value - 2 * sums.answer_value)).sum((1, 2), dtype=torch.float64)
    return ((moved + sums.squared_answer).clamp_min(0.0) / sums.squared_answer).sqrt().cpu()


def measured(
    values: Sequence[Mapping[str, Tensor]],
    chance: Sequence[Mapping[str, Tensor]],
    highest: Mapping[str, float],
    images: Mapping[str, int],
    chance_images: Mapping[str, int],
) -> dict[str, Measured]:
    """All measures that any layer has, from one mapping a layer; `images` under "" counts for those not named."""
    wide = max(len(each) for layer in values for each in layer.values())
    found = {}
    for name, definition in DEFINITIONS.items():
        if not any(name in layer for layer in values):
            continue
        found[name] = Measured(
            definition.text,
            definition.low,
            highest.get(name, math.inf) if definition.high is None else definition.high,
            definition.unit,
            _table([layer.get(name) for layer in values], wide),
            _table([layer.get(name) for layer in chance], wide),
            images.get(name, images[""]),
            chance_images.get(name, chance_images[""]),
        )
    return found


def _table(rows: Sequence[Tensor | None], wide: int) -> Float[Tensor, "layers heads"]:
    table = torch.full((len(rows), wide), math.nan)
    for place, row in enumerate(rows):
        if row is not None:
            table[place, : len(row)] = row.float()
    return table


def highest(sums: Sequence[LayerSums]) -> dict[str, float]:
    """The upper bounds that the sizes of a model decide."""
    places = [each.place for each in sums]
    return {
        "attention distance": max(float(place.distances().max()) for place in places),
        "entropy": max(math.log(place.tokens) for place in places),
        "effective rank": float(max(place.grid[0] * place.grid[1] for place in places)),
    }
