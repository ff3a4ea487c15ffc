"""Figure 5: a ViT and convolutional networks on images whose cells were moved by one permutation.

The permutation pi_s is applied after augmentation, as a fixed map of pixels, so that what the networks are shown is the
permuted data set, augmented as the plain one is. With cells as large as the image it is the identity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.image_training import EncodingSetup, Job, Record, column, run_jobs, splits
from tessella.claims.learnt_locality import encodings, grid_of
from tessella.images.grid_shuffle import GridShuffle
from tessella.probe.locality import chance, cosines, nearest_adjacent, put_back
from tessella.training.loop import Trained
from tessella.training.network import build
from tessella.training.recipe import Recipe

SMALL = "on 8 x 8 pixels both networks read more than 97 % of the digits either way, and little can fall"


@dataclass(frozen=True)
class Setup(EncodingSetup):
    networks: tuple[str, ...] = ("vit", "small_resnet", "small_vgg")
    """`vit`, `positional` (the same with positional attention), or names of `tessella.models.convolutional`."""
    cells: tuple[int, ...] = (2, 8)
    """The shuffle's s, in pixels; the last one is the image's side, which leaves images as they are."""
    patch: int = 2
    """The ViT's, which divides every s."""


def recipe_of(setup: Setup, network: str, cell: int, seed: int) -> Recipe:
    """The set-up's recipe for one network; each seed has permutations of its own."""
    shape = dataclasses.replace(setup.recipe.shape, patch=setup.patch)
    changes: dict[str, Any] = {"shape": shape, "shuffle_cell": cell, "shuffle_seed": seed}
    if network in ("vit", "positional"):
        return dataclasses.replace(setup.recipe_with("vanilla" if network == "vit" else network), **changes)
    return dataclasses.replace(setup.recipe.with_attention("vanilla"), model=network, drop_path=0.0, **changes)


def measured(setup: Setup, records: Sequence[Record]) -> dict[str, list[float]]:
    """Accuracies by network and s, how far each falls from the largest s to the least, and the localities."""
    found: dict[str, list[float]] = {}
    least, most = min(setup.cells), max(setup.cells)
    for network in setup.networks:
        for cell in setup.cells:
            found[f"accuracy_{network}_{cell}"] = column(records, "accuracy", network=network, cell=cell)
        if least != most:
            ends = (found[f"accuracy_{network}_{cell}"] for cell in (most, least))
            found[f"fall_{network}"] = [whole - shuffled for whole, shuffled in zip(*ends, strict=True)]
    for network in setup.networks:
        for cell in setup.cells:
            for name in ("shuffled", "restored"):
                chosen = [each for each in records if (each["network"], each["cell"]) == (network, cell)]
                values = [each[f"locality_{name}"] for each in chosen if f"locality_{name}" in each]
                if values:
                    found[f"locality_{name}_{network}_{cell}"] = values
    return found


def localities(model: torch.nn.Module, recipe: Recipe) -> tuple[Mapping[str, float], Mapping[str, Any]]:
    """Shares of adjacent nearest neighbours of encodings where they stand and with patches put back.

    With them come both maps, and the order that patches stand in.
    """
    similarities = cosines(encodings(model))
    shape = recipe.shape
    order = GridShuffle.random(shape.image, recipe.shuffle_cell, recipe.shuffle_seed).patch_order(shape.patch)
    maps = {"shuffled": similarities, "restored": put_back(similarities, order)}
    numbers = {f"locality_{name}": float(nearest_adjacent(each, grid_of(shape))) for name, each in maps.items()}
    return numbers, {**{name: each.numpy() for name, each in maps.items()}, "order": order.numpy()}


def measure(setup: Setup, context: Context) -> Findings:
    images = splits(setup, context)[0]
    side = images.size[0]
    wrong = [cell for cell in setup.cells if cell < 1 or side % cell or cell % setup.patch]
    if wrong or not setup.cells:
        raise ValueError(
            f"cells: got {setup.cells}, expected divisors of the {side} pixels of a side, and multiples of the patch, "
            f"{setup.patch}"
        )
    for network in setup.networks:
        # What cannot be built is told before hours of training, and not after them.
        build(recipe_of(setup, network, setup.cells[0], 0).fitted(images), 0)
    kept: dict[tuple[str, int], Any] = {}

    def look(job: Job, trained: Trained) -> Mapping[str, float]:
        if job.recipe.model != "vit":
            return {}
        numbers, maps = localities(trained.model, job.recipe)
        if job.seed == setup.first_seed:
            kept[str(job.labels["network"]), job.recipe.shuffle_cell] = maps
        return numbers

    jobs = [
        Job({"network": network, "cell": cell}, recipe_of(setup, network, cell, seed), seed)
        for seed in setup.seeds(context)
        for network in setup.networks
        for cell in setup.cells
    ]
    records = run_jobs("fig5", setup, context, jobs, look)
    across = side // setup.patch
    level = chance((across, across))
    image = splits(setup, context)[1].images[0]
    evidence = {
        "runs": records, "maps": kept, "grid": (across, across), "chance": level, "example": image,
        "seed": setup.first_seed,
    }  # fmt: skip
    return Findings({**measured(setup, records), "chance": [level]}, evidence, {"runs": records})


def bars(setup: Setup) -> tuple[Bar, ...]:
    """Falls are in percent points, from images as they are to the smallest cells. With digits little falls."""
    digits = setup.data == "digits"
    least = min(setup.cells)
    listed: list[Bar] = []
    for network in setup.networks:
        transformer = network in ("vit", "positional")
        if len(setup.cells) > 1:
            steady, steep = (1.5, 1.0) if digits else (2.0, 10.0)
            if transformer:
                listed.append(Bar(f"fall_{network}", "<=", steady))
            else:
                listed.append(Bar(f"fall_{network}", ">=", steep, why_not=SMALL if digits else ""))
        if network == "vit":
            listed.append(Bar(f"locality_restored_vit_{least}", ">=", 0.4 if digits else 0.5))
            if not digits:
                listed.append(Bar(f"locality_shuffled_vit_{least}", "<=", 0.1))
    return tuple(listed)


CLAIM = Claim(
    id="fig5",
    statement=(
        "Convolutional networks lose accuracy when the cells of all images are shuffled, the more the smaller the "
        "cells; a ViT does not, and once patches are put back its encodings are local again."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Figure 5",
    default=Setup(epochs=30),
    full=Setup(
        data="cifar100",
        epochs=60,
        networks=("vit", "resnet18", "vgg19"),
        cells=(2, 4, 8, 16, 32),
    ),
    bars=bars,
    measure=measure,
    seeds=3,
    needs=("sklearn",),
)
