import pytest
import torch

from tessella.dynamics.masked_draws import Draws, layout_of
from tessella.dynamics.masked_process import Run, descend, evaluate
from tessella.worlds.magnitudes import Law
from tessella.worlds.masked_areas import MaskedAreas

MIXED = [
    Run(MaskedAreas.paper(24, 2, 12, 4, 0), rate=5.0, batch=8, seed=3),
    Run(MaskedAreas.of_sizes([[6, 5, 1], [4, 4, 2, 2], [8, 4]], 1, ratio=0.7, law=Law.uniform(0.5, 1.5)), 9.0, 5, 4),
    Run(MaskedAreas.paper(16, 1, 8, 4, 2, masking="bernoulli", law=Law.two_point(0.8, 1.2)), 2.0, 12, 3),
]


@pytest.mark.parametrize("keys", ["all", "unmasked"])
def test_batched_sweep_equals_one_after_the_other(keys: str) -> None:
    together = descend(MIXED, 40, keys=keys)
    measured = evaluate(together)
    for s, run in enumerate(MIXED):
        alone = descend([run], 40, keys=keys)
        K, N, P = run.world.clusters, run.world.areas, run.world.patches
        torch.testing.assert_close(together.theta.phi[s, :P, :K, :N], alone.theta.phi[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(together.theta.ups[s, :P, :P], alone.theta.ups[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(measured.excess[s], evaluate(alone).excess[0], rtol=1e-9, atol=1e-9)


def test_a_subset_of_rows_trains_as_it_does_among_all() -> None:
    whole, part = descend(MIXED[:1], 30), descend(MIXED[:1], 30, rows=[2, 19])
    torch.testing.assert_close(part.theta.phi[0], whole.theta.phi[0, [2, 19]])
    torch.testing.assert_close(part.theta.ups[0], whole.theta.ups[0, [2, 19]])


def test_masked_reconstruction_learns_the_areas() -> None:
    world = MaskedAreas.paper(36, 2, 18, 6, 0)
    learnt = descend([Run(world, rate=30.0, batch=32, seed=0)], 150)
    after, before = evaluate(learnt), evaluate(learnt, learnt.snapshots[0].theta)
    assert float(after.excess[0]) < 0.02 * float(before.excess[0])
    assert float(after.own_attention.min()) > 0.9
    assert float((after.loss - after.excess)[0]) == pytest.approx(world.floor, abs=0.15)


def test_positions_alone_cannot_serve_three_clusters() -> None:
    run = Run(MaskedAreas.paper(36, 3, 18, 6, 0), rate=30.0, batch=32, seed=0)
    full, positions = (evaluate(descend([run], 100, features=features)) for features in (True, False))
    assert float(positions.excess[0]) > 5 * float(full.excess[0])


@pytest.mark.gpu
def test_descent_agrees_on_the_gpu() -> None:
    here, there = descend(MIXED, 40), descend(MIXED, 40, device="cuda")
    torch.testing.assert_close(here.theta.phi, there.theta.phi.cpu(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: descend(MIXED, 0), "steps: got 0"),
        (lambda: descend(MIXED[:1], 5, rows=[24]), "rows: got 24 to 24, expected positions from 0 to 23"),
        (lambda: Run(MIXED[0].world, -1.0, 8, 0), "rate: got -1"),
        (lambda: Draws([MIXED[0].world], [0], [0]), "batch: got 0"),
        (lambda: Draws([MIXED[0].world], [4], [0, 1]), "seeds: got 2"),
        (lambda: Draws([MaskedAreas.paper(16, 1, 8, 4, 2, noise=0.1)], [4], [0]), "noise: got 0.1, expected 0"),
        (lambda: layout_of([]), "worlds: got none"),
    ],
)
def test_what_cannot_be_is_one_clear_line(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
