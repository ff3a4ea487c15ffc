"""Every masked patch attends to the unmasked patches of its own area."""

from __future__ import annotations

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.masked_settings import SIX, TWICE, Settings, trained_all


def bars(config: Settings) -> tuple[Bar, ...]:
    return tuple(Bar(f"least_attention_{setting.label}", ">", 0.97, "every run") for setting in config.settings)


def measure(config: Settings, context: Context) -> Findings:
    """The least mean attention over all positions and clusters, given that the area is not fully masked."""
    measured: dict[str, list[float]] = {}
    runs = trained_all(config, context)
    for setting, _, run in runs:
        measured.setdefault(f"least_attention_{setting.label}", []).append(run.least_attention)
    return Findings(measured, {"runs": [run for _, seed, run in runs if seed == 0]})


CLAIM = Claim(
    id="mim.area",
    statement=(
        "After training, every masked patch of every cluster puts nearly all its attention on the unmasked patches of "
        "its own area."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233), attention after convergence; as recalled",
    default=SIX,
    full=TWICE,
    bars=bars,
    measure=measure,
    seeds=3,
    runs="six settings",
)
