"""Attention by positions alone cannot serve clusters with different areas."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.dynamics.masked_process import Run, Trajectory, descend, evaluate
from tessella.models.block_basis import Keys
from tessella.worlds.masked_areas import MaskedAreas

TREATMENTS: dict[str, Keys] = {"visible": "all", "dropped": "unmasked"}
"""Masked keys stay in the softmax, as in the model as written, or are dropped from it."""


@dataclass(frozen=True)
class Setup:
    patches: int = 100
    global_size: int = 60
    local_size: int = 8
    clusters: tuple[int, ...] = (1, 2, 3, 10)
    full_model_at: int = 3
    rate: float = 10.0
    """For each cluster: the step's rate is this times K, for the loss is a mean over clusters."""
    batch: int = 16
    steps: int = 500
    rows: int = 20
    """Query positions that are trained; the excess is scaled up to all P."""


def bars(config: Setup) -> tuple[Bar, ...]:
    return (
        Bar("least_rise_visible", ">", 0.0, "every run"),
        Bar("least_rise_dropped", ">", 0.0, "every run"),
        Bar("over_full_model_visible", ">", 10.0, "every run"),
        Bar("over_full_model_dropped", ">", 10.0, "every run"),
    )


def measure(config: Setup, context: Context) -> Findings:
    """Excess over the floor after training; `least_rise` is the least of its rises from one K to the next."""
    measured: dict[str, list[float]] = {}
    curves: dict[str, tuple[list[int], list[float]]] = {}
    parts = context.seeds * (1 + len(TREATMENTS) * len(config.clusters))
    done = 0
    for seed in range(context.seeds):
        tell = context.part(done, parts, f"full model, seed {seed}")
        full, curve = _excess(config, config.full_model_at, seed, None, context.device, tell)
        measured.setdefault("excess_full_model", []).append(full)
        if seed == 0:
            curves["full model"] = curve
        done += 1
        for name, keys in TREATMENTS.items():
            excess = []
            for clusters in config.clusters:
                tell = context.part(done, parts, f"{name}, K = {clusters}, seed {seed}")
                value, curve = _excess(config, clusters, seed, keys, context.device, tell)
                excess.append(value)
                measured.setdefault(f"excess_{name}_K{clusters}", []).append(value)
                if seed == 0:
                    curves[f"{name}, K = {clusters}"] = curve
                done += 1
            rises = [later - earlier for earlier, later in itertools.pairwise(excess)]
            measured.setdefault(f"least_rise_{name}", []).append(min(rises))
            at = excess[config.clusters.index(config.full_model_at)]
            measured.setdefault(f"over_full_model_{name}", []).append(at / full)
    return Findings(measured, {"curves": curves})


def _excess(
    config: Setup, clusters: int, seed: int, keys: Keys | None, device: str, tell: object
) -> tuple[float, tuple[list[int], list[float]]]:
    """Excess after training, and over time. `keys` None is the full model, else positions alone."""
    world = MaskedAreas.paper(config.patches, clusters, config.global_size, config.local_size, seed)
    chosen = torch.randperm(config.patches, generator=torch.Generator().manual_seed(seed))[: config.rows].tolist()
    run = Run(world, config.rate * clusters, config.batch, seed)
    places = sorted({round(config.steps * share) for share in (0.02, 0.06, 0.15, 0.3, 0.5, 0.75)})
    path: Trajectory = descend(
        [run], config.steps, chosen, places, features=keys is None, keys=keys or "all", device=device
    )
    scale = config.patches / config.rows
    excess = [float(evaluate(path, shot.theta).excess[0]) * scale for shot in path.snapshots]
    if callable(tell):
        tell(1.0, "")
    return excess[-1], ([shot.step for shot in path.snapshots], excess)


CLAIM = Claim(
    id="mim.positions",
    statement=(
        "Attention by positions alone stays above the floor, the more so the more clusters with areas of their own "
        "there are; feature-position correlations are needed."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233), role of features in attention; comparison derived here",
    default=Setup(),
    full=Setup(batch=64, steps=2000, rows=100),
    bars=bars,
    measure=measure,
    seeds=3,
)
