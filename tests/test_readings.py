"""How the paper's text has to be read for its statements to hold: three facts."""

import math

import numpy as np
import torch

from tessella.dynamics.idealized import Idealized, IdealizedProblem, Scalars
from tessella.dynamics.idealized_flow import events, flow
from tessella.models.simplified_vit import SimplifiedViT, loss_gradient
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets


def trained(scale: float, steps: int = 30) -> SimplifiedViT:
    """(T) dividing A by `scale`, with sigma_A and the initial A multiplied by it and the rate of A by its square."""
    world = SignalSets(Partition.blocks(4, 4, 2, 2), 16, 0.4)
    batch = world.sample(500, 0, torch.float64)
    start = SimplifiedViT.initialised(16, 16, 2.0, 1e-2, 1, dtype=torch.float64)
    model = SimplifiedViT(start.attention.detach() * scale, start.value.detach().clone(), scale=scale)
    for _ in range(steps):
        slope = loss_gradient(model, batch.patches, batch.label)
        with torch.no_grad():
            model.attention -= 1.5 * scale**2 * slope.attention
            model.value -= 0.02 * slope.value
    return model


def test_the_softmax_scale_of_the_text_is_a_choice_of_units() -> None:
    plain, scaled = trained(1.0), trained(math.sqrt(16))
    assert torch.allclose(scaled.attention / math.sqrt(16), plain.attention, atol=1e-12)
    assert torch.allclose(scaled.value, plain.value, atol=1e-12)


def test_with_the_literal_scale_and_no_change_of_units_association_takes_far_longer() -> None:
    # Dividing A by sqrt(d) = 4 and keeping sigma_A = 2 starts at an effective beta of 1/2, at a 16th of the rate.
    times = [
        events(idealized, flow(idealized, points=50, tolerance=1e-5)).clear_association
        for idealized in (Idealized(IdealizedProblem(10_000, 4, 4 / 9_996, 3, 1e-6, beta)) for beta in (2.0, 0.5))
    ]
    assert 16 * times[1] > 10 * times[0]


def test_without_sigma_a_the_idealized_process_never_leaves_uniform_attention() -> None:
    idealized = Idealized(IdealizedProblem(196, 4, 4 / 192, 3, 1e-3, 0.0))
    path = flow(idealized, until=1e8, points=50, tolerance=1e-5)
    assert np.abs(path.gamma).max() < 1e-6
    assert path.loss[-1] > 0.05


def test_the_smaller_sigma_a_the_later_the_sets_are_found() -> None:
    times = []
    for beta in (0.5, 1.0, 2.0):
        idealized = Idealized(IdealizedProblem(10_000, 4, 4 / 9_996, 3, 1e-6, beta))
        times.append(events(idealized, flow(idealized, points=50, tolerance=1e-5)).clear_association)
    assert times[0] > times[1] > times[2]
    assert math.isfinite(times[0])


def test_one_learning_rate_is_enough_at_sixteen_patches_and_takes_ten_times_the_steps_at_two_hundred() -> None:
    """How many steps gamma takes to pass 1 at the largest rate that alpha's plateau is stable with."""
    steps = {}
    for patches, spurious, linear in ((16, 0.4, 1e-2), (200, 4 / 196, 1e-3)):
        idealized = Idealized(IdealizedProblem(patches, 4, spurious, 3, linear, 2.0))
        largest_rate = 2 / _curvature(idealized, idealized.best_alpha())
        steps[patches] = events(idealized, flow(idealized, points=50, tolerance=1e-5)).clear_association / largest_rate
    assert steps[16] < 60_000
    assert steps[200] > 10 * steps[16]


def _curvature(idealized: Idealized, alpha: float) -> float:
    """The second derivative of the loss in alpha: descent in alpha is unstable above 2 over it."""
    step = 1e-5 * alpha
    above, below = (idealized.loss_and_gradient(Scalars(alpha + s, 0.0, 0.0))[1][0] for s in (step, -step))
    return float(above - below) / (2 * step)
