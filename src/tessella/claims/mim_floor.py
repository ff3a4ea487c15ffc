"""The loss of masked reconstruction reaches the least loss that masks leave possible."""

from __future__ import annotations

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.masked_settings import SIX, TWICE, Settings, trained_all


def bars(config: Settings) -> tuple[Bar, ...]:
    return tuple(Bar(f"remaining_{setting.label}", "<", 1e-3, "every run") for setting in config.settings)


def measure(config: Settings, context: Context) -> Findings:
    """(L - L*) / (L0 - L*), with the floor taken off image by image, and the floor computed against the sampled one."""
    measured: dict[str, list[float]] = {}
    runs = trained_all(config, context)
    for setting, _, run in runs:
        measured.setdefault(f"remaining_{setting.label}", []).append(run.remaining)
    for setting, _, run in runs:
        measured.setdefault(f"floor_{setting.label}", []).append(run.floor)
        measured.setdefault(f"sampled_floor_{setting.label}", []).append(run.sampled_floor)
    return Findings(measured, {"runs": [run for _, seed, run in runs if seed == 0]})


CLAIM = Claim(
    id="mim.floor",
    statement=(
        "Gradient descent on masked reconstruction from Q = 0 drives the loss of the one-layer softmax transformer to "
        "its floor, the loss of patches whose whole area is masked."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233), convergence; setting as recalled, floor derived here",
    default=SIX,
    full=TWICE,
    bars=bars,
    measure=measure,
    seeds=3,
    runs="six settings",
)
