import itertools

import pytest
import torch

from tessella.dynamics.bernoulli_population import population_gradient, population_loss
from tessella.dynamics.masked_draws import Draws, layout_of
from tessella.models.block_basis import Correlations, Sample, counted, forward, gradient, query_losses
from tessella.worlds.magnitudes import Law
from tessella.worlds.masked_areas import MaskedAreas


def random_theta(world: MaskedAreas, rows: list[int], scale: float = 1.0) -> Correlations:
    generator = torch.Generator().manual_seed(0)
    zero = Correlations.zeros(layout_of([world], rows))
    return Correlations(
        scale * torch.randn(zero.phi.shape, generator=generator, dtype=torch.float64),
        scale * torch.randn(zero.ups.shape, generator=generator, dtype=torch.float64),
    )


def every_mask_and_magnitude(world: MaskedAreas) -> Sample:
    """All 2^P masks with all combinations of a discrete law's values, weighted by their probability."""
    patches, areas = world.patches, world.areas
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=patches)), dtype=torch.float64)
    combos = list(itertools.product(world.law.atoms, repeat=areas))
    z = torch.tensor([[value for value, _ in combo] for combo in combos], dtype=torch.float64)
    chance_z = torch.tensor([[p for _, p in combo] for combo in combos], dtype=torch.float64).prod(-1)
    chance = (masks * (1 - world.ratio) + (1 - masks) * world.ratio).prod(-1)
    clusters = world.clusters
    unmasked = masks.repeat_interleave(len(combos), 0).repeat(1, clusters, 1, 1)
    weight = (chance[:, None] * chance_z).flatten() / clusters
    return Sample(unmasked, z.repeat(len(masks), 1).repeat(1, clusters, 1, 1), weight.repeat(1, clusters, 1))


@pytest.mark.parametrize("law", [Law.constant(1.2), Law.two_point(0.5, 1.5, 0.3)])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_population_is_the_sum_over_all_masks(law: Law, scale: float) -> None:
    world = MaskedAreas.of_sizes([[3, 2, 2], [4, 3]], 0, ratio=0.6, masking="bernoulli", law=law)
    rows = [0, 2, 5]
    theta, layout, sample = random_theta(world, rows, scale), layout_of([world], rows), every_mask_and_magnitude(world)
    attention = forward(theta, layout, sample).area_attention
    expected_loss = (query_losses(attention, layout, sample) * counted(layout, sample)).sum()
    loss = population_loss(theta, layout, world).mean()
    assert float((loss - expected_loss).abs()) < 1e-12
    expected = gradient(theta, layout, sample)
    ours = population_gradient(theta, world, rows)
    assert float((ours.phi - expected.phi).abs().max()) < 1e-12
    assert float((ours.ups - expected.ups).abs().max()) < 1e-12


def test_stochastic_gradients_average_to_the_population_gradient() -> None:
    world = MaskedAreas.paper(20, 2, 8, 4, 0, masking="bernoulli", law=Law.uniform(0.5, 1.5))
    rows = [0, 7]
    theta = random_theta(world, rows)
    parts = [gradient(theta, layout_of([world], rows), Draws([world], [2000], [seed]).at(0)).phi for seed in range(30)]
    stack = torch.stack(parts)
    error = (stack.mean(0) - population_gradient(theta, world, rows).phi).abs()
    assert bool((error <= 5 * stack.std(0) / 30**0.5 + 1e-12).all())


def test_population_needs_bernoulli_masks() -> None:
    world = MaskedAreas.paper(20, 2, 8, 4, 0)
    with pytest.raises(ValueError, match="masking: got 'uniform', expected 'bernoulli'"):
        population_gradient(random_theta(world, [0]), world, [0])
