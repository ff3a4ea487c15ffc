"""Contrastive training on the same data collapses attention to the global area, for one similarity and not another."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.masked_settings import Setting
from tessella.dynamics.contrastive import Contrast, ContrastiveRun, attention_maps, contrast


@dataclass(frozen=True)
class Setup:
    positive: Setting = field(default_factory=lambda: Setting(100, 3, 60, 8))
    negative: Setting = field(default_factory=lambda: Setting(100, 3, 20, 10))
    collapsing: Contrast = field(default_factory=lambda: Contrast("inner", 0.5, rate=300.0, steps=150))
    others: tuple[Contrast, ...] = (
        Contrast("cosine", 0.5, rate=300.0, steps=150),
        Contrast("inner", 0.05, rate=300.0, steps=150),
    )


def label(contrast: Contrast) -> str:
    return f"{contrast.similarity}_{contrast.temperature:g}"


def bars(config: Setup) -> tuple[Bar, ...]:
    made = []
    for gap in ("positive_gap", "negative_gap"):
        made.append(Bar(f"global_attention_{label(config.collapsing)}_{gap}", ">=", 0.9))
        made += [Bar(f"global_attention_{label(other)}_{gap}", "<=", 0.5) for other in config.others]
    return tuple(made)


@functools.lru_cache(maxsize=64)
def trained(setting: Setting, config: Contrast, seed: int, device: str) -> ContrastiveRun:
    """A run, made once a process: the claim on diversity reads the collapsing one again."""
    places = tuple(sorted({round(config.steps * share) for share in (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)}))
    return contrast(setting.world(seed), config, seed, device, record=places)


def measure(config: Setup, context: Context) -> Findings:
    """Mean attention of masked queries on the unmasked patches of the global area, on held-out images."""
    measured: dict[str, list[float]] = {}
    curves, maps = {}, {}
    jobs = [
        (name, setting, variant, seed)
        for name, setting in (("positive_gap", config.positive), ("negative_gap", config.negative))
        for variant in (config.collapsing, *config.others)
        for seed in range(context.seeds)
    ]
    for number, (name, setting, variant, seed) in enumerate(jobs):
        context.progress(number / len(jobs), f"{label(variant)}, {name}, seed {seed}")
        run = trained(setting, variant, seed, context.device)
        measured.setdefault(f"global_attention_{label(variant)}_{name}", []).append(run.to_global[-1])
        if seed == 0:
            curves[f"{label(variant)}, {name}"] = (list(run.steps), list(run.to_global))
            maps[f"{label(variant)}, {name}"] = area_map(run.Q, setting, seed)
    for name, setting in (("positive_gap", config.positive), ("negative_gap", config.negative)):
        run = trained(setting, config.collapsing, 0, context.device)
        measured[f"global_attention_at_start_{name}"] = [run.to_global[0]]
    return Findings(measured, {"curves": curves, "maps": maps})


def area_map(Q: Tensor, setting: Setting, seed: int) -> np.ndarray:
    """(areas, areas): mean attention of the masked queries of an area on the unmasked patches of another, cluster 0."""
    world = setting.world(seed)
    maps, which, unmasked = attention_maps(Q, world, seed)
    picked = (which == 0).to(maps.device)
    member = torch.nn.functional.one_hot(world.labels[0], world.areas).to(maps)
    seen = unmasked.to(maps)[picked]
    queries, keys = member * (1 - seen)[..., None], member * seen[..., None]
    total = (queries.transpose(1, 2) @ maps[picked] @ keys).sum(0)
    return np.asarray((total / queries.sum((0, 1)).clamp_min(1)[:, None]).cpu(), dtype=np.float64)


CLAIM = Claim(
    id="mim.contrastive",
    statement=(
        "Contrastive training on the same data collapses attention to the global area, whatever the gap, with an inner "
        "product at temperature .5; with a cosine similarity, or at temperature .05, it does not at this length."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233 v3), contrastive comparison; objective inferred here",
    default=Setup(),
    full=Setup(
        collapsing=Contrast("inner", 0.5, rate=300.0, steps=1000),
        others=(
            Contrast("cosine", 0.5, rate=300.0, steps=1000),
            Contrast("inner", 0.05, rate=300.0, steps=1000),
            Contrast("cosine", 0.05, rate=300.0, steps=1000),
        ),
    ),
    bars=bars,
    measure=measure,
    seeds=3,
    runs="contrastive",
)
