"""The second paper's claims at sizes of seconds: what they measure, and that they can fail."""

from dataclasses import replace

import numpy as np
import pytest

from tessella.claims import (
    mim_area,
    mim_contrastive,
    mim_diversity,
    mim_features,
    mim_floor,
    mim_mae,
    mim_phases,
    mim_positions,
    mim_rate,
)
from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.masked_settings import SIX, Setting, Settings
from tessella.dynamics.contrastive import Contrast
from tessella.dynamics.vit_twins import Recipe
from tessella.models.compact_vit import Shape

SMALL = Settings((Setting(36, 2, 18, 6, rate=10.0, batch=32, steps=500),))
CONTRAST = Contrast("inner", 0.5, rate=300.0, steps=40)
TINY = {
    mim_floor: SMALL,
    mim_area: SMALL,
    mim_features: SMALL,
    mim_phases: mim_phases.Sweep(patches=100, global_sizes=(52, 68, 84), negative=(20, 10), batch=16, first_images=200),
    mim_positions: mim_positions.Setup(patches=36, global_size=18, local_size=6, steps=60, batch=8, rows=6),
    mim_rate: mim_rate.Setup(
        steps=150,
        by_patches=(mim_rate.Case(24, 12, 6), mim_rate.Case(36, 18, 6)),
        by_local_size=(mim_rate.Case(36, 18, 6), mim_rate.Case(36, 18, 9)),
        by_global_size=(mim_rate.Case(36, 18, 6), mim_rate.Case(36, 24, 6)),
        by_spread=(mim_rate.Case(36, 18, 6), mim_rate.Case(36, 18, 6, 2.0)),
        by_far_patches=(mim_rate.Case(48, 24, 6), mim_rate.Case(96, 48, 6)),
        far_steps=80,
    ),
    mim_contrastive: mim_contrastive.Setup(
        Setting(36, 2, 18, 6), Setting(36, 2, 12, 6), CONTRAST, (replace(CONTRAST, similarity="cosine"),)
    ),
    mim_diversity: mim_diversity.Setup(
        Setting(36, 2, 18, 6, rate=100.0, steps=40), Setting(36, 2, 12, 6, rate=100.0, steps=40), CONTRAST
    ),
    mim_mae: mim_mae.Setup(recipe=Recipe(shape=Shape(dim=16, depth=2, heads=2), steps=20, batch=16), images=50),
}


@pytest.mark.parametrize("module", TINY, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_every_bar_is_measured_and_so_is_every_seed(module) -> None:  # type: ignore[no-untyped-def]
    claim: Claim = module.CLAIM
    told: list[float] = []
    found: Findings = claim.measure(TINY[module], Context(2, progress=lambda fraction, text: told.append(fraction)))
    for bar in claim.bars(TINY[module]):
        values = found.measured[bar.measurement]
        assert len(values) == 2
        assert np.isfinite(values).all(), bar
    assert told
    assert all(0 <= fraction <= 1 for fraction in told)


def test_small_areas_are_found_and_features_carry_them() -> None:
    context = Context(1)
    area, features = mim_area.measure(SMALL, context).measured, mim_features.measure(SMALL, context).measured
    (label,) = (setting.label for setting in SMALL.settings)
    assert area[f"least_attention_{label}"][0] > 0.9
    assert features[f"greatest_other_{label}"][0] < 0 < features[f"least_own_{label}"][0]
    assert features[f"position_mean_share_{label}"][0] < features[f"position_max_share_{label}"][0]


def test_runs_are_shared_between_claims() -> None:
    first, second = (module.measure(SMALL, Context(1)).evidence["runs"][0] for module in (mim_floor, mim_area))
    assert first is second
    assert first.maps.shape[1:] == (2, 4, 4)


def test_untrained_models_miss_the_bars() -> None:
    barely = Settings((replace(SMALL.settings[0], steps=2),))
    for module in (mim_floor, mim_area, mim_features):
        measured = module.measure(barely, Context(1)).measured
        assert not all(bar.accepts(measured[bar.measurement]) for bar in module.bars(barely))


def test_derived_time_integrates_the_odds_it_states() -> None:
    config = mim_rate.Setup(clusters=3, rate=12.0)
    case, pace, step = mim_rate.Case(64, 32, 16), 12.0 * 0.5 / 3, 1e-4
    odds, time = 0.125 / 0.875, 0.0
    while odds < 9:  # attention .9
        middle = odds + 0.5 * step * pace * odds**2 / (1 + odds) ** 3
        odds += step * pace * middle**2 / (1 + middle) ** 3
        time += step
    assert mim_rate.derived_time(config, case, 0.9) == pytest.approx(time, rel=1e-3)


def test_derived_time_is_what_descent_takes() -> None:
    config, case = mim_rate.Setup(), mim_rate.Case(256, 128, 8)
    steps, attention, _ = mim_rate._descent(config, case, 120, 0, "cpu", lambda fraction, text: None)
    for level in (0.5, 0.95):
        taken = mim_rate._crossing(steps, attention, level)
        assert taken == pytest.approx(mim_rate.derived_time(config, case, level), rel=0.35)


def test_bars_are_those_that_were_fixed() -> None:
    label = SIX.settings[0].label
    assert Bar(f"remaining_{label}", "<", 1e-3, "every run") in mim_floor.bars(SIX)
    assert Bar(f"least_attention_{label}", ">", 0.97, "every run") in mim_area.bars(SIX)
    assert Bar(f"least_own_{label}", ">", 4.0, "every run") in mim_features.bars(SIX)
    assert Bar(f"greatest_other_{label}", "<", 0.0, "every run") in mim_features.bars(SIX)
    assert Bar(f"position_mean_share_{label}", "<", 0.1, "every run") in mim_features.bars(SIX)
    assert len(SIX.settings) == 6
