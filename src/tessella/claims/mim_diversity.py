"""Masked training leaves attention diverse across queries, contrastive training does not."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.masked_settings import Setting
from tessella.claims.mim_contrastive import trained
from tessella.dynamics.contrastive import Contrast, attention_maps
from tessella.dynamics.masked_process import Run, descend, matrix
from tessella.probe.diversity import cosine_diversity, total_variation_diversity


@dataclass(frozen=True)
class Setup:
    positive: Setting = field(default_factory=lambda: Setting(100, 3, 60, 8, rate=100.0, steps=60))
    negative: Setting = field(default_factory=lambda: Setting(100, 3, 20, 10, rate=100.0, steps=60))
    contrast: Contrast = field(default_factory=lambda: Contrast("inner", 0.5, rate=300.0, steps=150))


def bars(config: Setup) -> tuple[Bar, ...]:
    return tuple(
        Bar(f"{measure}_masked_over_contrastive_{gap}", ">", 3.0, "every run")
        for gap in ("positive_gap", "negative_gap")
        for measure in ("variation", "cosine")
    )


def measure(config: Setup, context: Context) -> Findings:
    """Diversity across the masked queries of held-out images; the start of training is uniform attention, 0."""
    measured: dict[str, list[float]] = {}
    maps = {}
    for number, (gap, setting) in enumerate((("positive_gap", config.positive), ("negative_gap", config.negative))):
        for seed in range(context.seeds):
            context.progress((number + seed / context.seeds) / 2, f"{gap}, seed {seed}")
            world = setting.world(seed)
            run = Run(world, setting.rate, setting.batch, seed)
            masked = matrix(descend([run], setting.steps, device=context.device))
            same = Setting(setting.patches, setting.clusters, setting.global_size, setting.local_size)
            contrastive = trained(same, config.contrast, seed, context.device).Q
            found = {"masked": _diversity(masked, setting, seed), "contrastive": _diversity(contrastive, setting, seed)}
            for name, (variation, cosine) in found.items():
                measured.setdefault(f"variation_{name}_{gap}", []).append(variation)
                measured.setdefault(f"cosine_{name}_{gap}", []).append(cosine)
            for place, kind in enumerate(("variation", "cosine")):
                ratio = found["masked"][place] / found["contrastive"][place]
                measured.setdefault(f"{kind}_masked_over_contrastive_{gap}", []).append(ratio)
            if seed == 0:
                for name, Q in (("masked", masked), ("contrastive", contrastive)):
                    maps[f"{name}, {gap}"] = _example(Q, setting, seed)
    return Findings(measured, {"maps": maps})


def _diversity(Q: Tensor, setting: Setting, seed: int) -> tuple[float, float]:
    maps, _, unmasked = attention_maps(Q, setting.world(seed), seed)
    found = [
        (float(total_variation_diversity(each[hidden])), float(cosine_diversity(each[hidden])))
        for each, hidden in zip(maps, (~unmasked).to(maps.device), strict=True)
    ]
    variation, cosine = np.mean(found, axis=0)
    return float(variation), float(cosine)


def _example(Q: Tensor, setting: Setting, seed: int) -> np.ndarray:
    """Attention of the masked queries of one image of cluster 0, queries and keys sorted by area."""
    world = setting.world(seed)
    maps, which, unmasked = attention_maps(Q, world, seed)
    image = int(torch.nonzero(which == 0)[0])
    order = torch.from_numpy(world.partitions[0].order)
    queries = order[~unmasked[image][order]]
    return np.asarray(maps[image][queries][:, order].cpu(), dtype=np.float64)


CLAIM = Claim(
    id="mim.diversity",
    statement=(
        "Across queries of one image attention is diverse after masked training, and alike after contrastive training "
        "with an inner product, by two measures of this project's own."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233 v2, v3), diverse attention; metrics defined here",
    default=Setup(),
    full=Setup(
        positive=Setting(100, 3, 60, 8),
        negative=Setting(100, 3, 20, 10),
        contrast=Contrast("inner", 0.5, rate=300.0, steps=1000),
    ),
    bars=bars,
    measure=measure,
    seeds=3,
    runs="contrastive",
)
