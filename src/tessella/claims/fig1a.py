"""Figure 1a: similarities of encodings before and after training, vanilla and positional, and how local they are.

Positional attention has two things that can become local: the encodings that are added to the input, whose P^T P is
the figure's, and A, which takes the place of P^T P in Simplification 3.1. Both are measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.image_training import EncodingSetup, Job, Record, column, records_grid, run_jobs
from tessella.claims.learnt_locality import checked_vit, encodings, grid_of, prefix_of, read_layers, scores_locality
from tessella.models.positional_attention import PositionalMixing
from tessella.probe.locality import chance, figure_1a, nearest_adjacent, normalised
from tessella.training.loop import Trained
from tessella.training.network import build

SIDES = ("vanilla", "positional")


PARTLY = (
    "on the 16 patches of digits A becomes local in part only, and the labels do not ask for more: this ViT is more "
    "accurate than the vanilla one, whose encodings are local"
)


@dataclass(frozen=True)
class Setup(EncodingSetup):
    attentions: tuple[str, ...] = SIDES


def mean_logits(model: nn.Module) -> Float[Tensor, "patches patches"]:
    """A between patches in the mean over heads and over the layers that are read, as a picture shows it."""
    vit = checked_vit(model)
    layers = [each.scores.logits(vit.positions) for each in vit.modules() if isinstance(each, PositionalMixing)]
    prefix = prefix_of(vit.shape)
    return torch.stack(layers).detach().float().cpu()[: read_layers(vit.shape)].mean((0, 1))[prefix:, prefix:]


def seen(model: nn.Module, attention: str) -> dict[str, Any]:
    """The figure's matrices of a model, and their shares of adjacent nearest neighbours."""
    found: dict[str, Any] = {}
    grid = grid_of(checked_vit(model).shape)
    learnt = encodings(model)
    found["encodings"] = figure_1a(learnt)
    found["locality"] = float(nearest_adjacent(learnt @ learnt.T, grid))
    if attention != "vanilla":
        found["scores"] = normalised(mean_logits(model))
        found["locality_scores"] = scores_locality(model).share
    return found


def measured(records: list[Record]) -> dict[str, list[float]]:
    """Shares before and after, by side; `positional_scores` is A's."""
    found: dict[str, list[float]] = {}
    for side in SIDES:
        for when in ("before", "after"):
            if values := column(records, f"locality_{when}", attention=side):
                found[f"locality_{side}_{when}"] = values
                if side == "positional":
                    found[f"locality_{side}_scores_{when}"] = column(records, f"locality_scores_{when}", attention=side)
        if accuracies := column(records, "accuracy", attention=side):
            found[f"accuracy_{side}"] = accuracies
    return found


def measure(setup: Setup, context: Context) -> Findings:
    kept: dict[str, Any] = {}

    def look(job: Job, trained: Trained) -> dict[str, Any]:
        side = str(job.labels["attention"])
        numbers: dict[str, float] = {}
        for when, model in (("before", build(job.recipe, job.seed)), ("after", trained.model)):
            found = seen(model, job.recipe.attention)
            numbers |= {f"{name}_{when}": value for name, value in found.items() if isinstance(value, float)}
            if job.seed == setup.first_seed:
                pictures = {name: value.numpy() for name, value in found.items() if isinstance(value, Tensor)}
                kept.setdefault(side, {})[when] = pictures
        return numbers

    jobs = [
        Job({"attention": side}, setup.recipe_with(side), seed)
        for seed in setup.seeds(context)
        for side in setup.attentions
    ]
    records = run_jobs("fig1a", setup, context, jobs, look)
    grid = records_grid(records)
    level = chance(grid)
    evidence = {"runs": records, "pictures": kept, "grid": grid, "chance": level}
    return Findings({**measured(records), "chance": [level]}, evidence, {"runs": records})


def bars(setup: Setup) -> tuple[Bar, ...]:
    """Digits have 16 patches, where chance is .2; a grid of 8 x 8 has .056."""
    least, most = (0.4, 0.35) if setup.data == "digits" else (0.5, 0.15)
    listed: list[Bar] = []
    if "vanilla" in setup.attentions:
        listed += [Bar("locality_vanilla_before", "<=", most), Bar("locality_vanilla_after", ">=", least)]
    if "positional" in setup.attentions:
        name = "locality_positional_scores"
        reason = PARTLY if setup.data == "digits" else ""
        listed += [Bar(f"{name}_before", "<=", most), Bar(f"{name}_after", ">=", least, why_not=reason)]
    return tuple(listed)


CLAIM = Claim(
    id="fig1a",
    statement=(
        "Encodings that start at random become local by training on labels alone: those of adjacent patches are the "
        "most similar; and where attention depends on positions alone, it is A that becomes local."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Figure 1a",
    default=Setup(),
    full=Setup(data="cifar100"),
    bars=bars,
    measure=measure,
    seeds=3,
    needs=("sklearn",),
)
