"""Attention is learnt through feature-position correlations; position-wise ones stay small on average."""

from __future__ import annotations

import numpy as np

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.masked_settings import SIX, TWICE, Settings, trained_all


def bars(config: Settings) -> tuple[Bar, ...]:
    return tuple(
        bar
        for setting in config.settings
        for bar in (
            Bar(f"least_own_{setting.label}", ">", 4.0, "every run"),
            Bar(f"greatest_other_{setting.label}", "<", 0.0, "every run"),
            Bar(f"position_mean_share_{setting.label}", "<", 0.1, "every run"),
        )
    )


def measure(config: Settings, context: Context) -> Findings:
    """The maximum of |Ups| over own Phi is reported without a bar: it is not an order smaller.

    A position-wise correlation adds up what each cluster wants of it. The largest belong to the few pairs of positions
    that lie in one local area in several clusters (`by_shared_areas` in the evidence), for which all of these pull the
    same way; over all pairs the wishes differ and the mean stays small.
    """
    measured: dict[str, list[float]] = {}
    runs = trained_all(config, context)
    for setting, _, run in runs:
        own = float(np.mean(run.own))
        for name, value in (
            ("least_own", float(run.own.min())),
            ("greatest_other", float(run.other.max())),
            ("position_mean_share", run.position_mean / own),
            ("position_max_share", run.position_max / own),
        ):
            measured.setdefault(f"{name}_{setting.label}", []).append(value)
    return Findings(measured, {"runs": [run for _, seed, run in runs if seed == 0]})


CLAIM = Claim(
    id="mim.features",
    statement=(
        "The correlation of each position with the feature of its own area dominates: it grows large, the "
        "correlations with all other features end negative, and position-wise correlations stay small on average."
    ),
    source="Huang, Wen, Chi, Liang (arXiv 2403.02233), feature-position correlations; as recalled",
    default=SIX,
    full=TWICE,
    bars=bars,
    measure=measure,
    seeds=3,
    runs="six settings",
)
