import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.worlds.counters import uniforms
from tessella.worlds.magnitudes import Law
from tessella.worlds.masked_areas import MaskedAreas


def test_every_patch_shows_the_feature_of_its_area() -> None:
    world = MaskedAreas.paper(20, 3, 10, 5, seed=0, law=Law.uniform(0.5, 2.0))
    images, clusters, unmasked = world.images(40, seed=1)
    assert sorted(clusters.unique().tolist()) == [0, 1, 2]
    assert bool((unmasked.sum(-1) == 10).all())
    for image, k in zip(images, clusters.tolist(), strict=True):
        for members in (world.partitions[k].members(j) for j in range(world.partitions[k].sets)):
            assert bool((image[members] == image[members[0]]).all())
            assert int((image[members[0]] != 0).sum()) == 1
    magnitudes = images.sum(-1)
    assert 0.5 <= float(magnitudes.min()) <= float(magnitudes.max()) <= 2


def test_noise_has_its_standard_deviation() -> None:
    quiet, loud = (MaskedAreas.paper(20, 2, 10, 5, seed=0, noise=noise) for noise in (0.0, 0.3))
    difference = loud.images(200, seed=1)[0] - quiet.images(200, seed=1)[0]
    assert float(difference.std()) == pytest.approx(0.3, rel=0.02)
    assert float(difference.mean()) == pytest.approx(0, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 0.9), st.integers(0, 1000))
def test_uniform_masks_hide_the_same_number_and_bernoulli_the_same_share(ratio: float, seed: int) -> None:
    world = MaskedAreas.paper(40, 1, 20, 5, seed=0, ratio=ratio)
    masks = world.unmasked(200, seed)[0]
    assert bool((masks.sum(-1) == 40 - round(ratio * 40)).all())
    assert float(masks.double().mean(0).std()) < 0.1
    free = MaskedAreas.paper(40, 1, 20, 5, seed=0, ratio=ratio, masking="bernoulli").unmasked(200, seed)[0]
    assert float(free.double().mean()) == pytest.approx(1 - ratio, abs=0.04)


@pytest.mark.parametrize("masking", ["uniform", "bernoulli"])
def test_floor_is_the_loss_of_areas_that_are_fully_masked(masking: str) -> None:
    world = MaskedAreas.paper(24, 2, 12, 3, seed=0, ratio=0.6, masking=masking, law=Law.uniform(0.5, 1.5))
    masks = world.unmasked(20_000, 3, clusters=2).double()
    shown = torch.stack([masks[k] @ torch.nn.functional.one_hot(world.labels[k]).double() for k in range(2)])
    sizes = torch.tensor(world.partitions[0].sizes.tolist())
    sampled = 0.5 * world.law.second_moment * ((shown == 0) * sizes).sum(-1).double().mean()
    assert world.law.second_moment == pytest.approx(1 + 1 / 12)
    assert world.floor == pytest.approx(float(sampled), rel=0.03)


def test_finite_size_gap_approaches_the_information_gap() -> None:
    distances = []
    for patches, first, local in ((64, 32, 8), (1024, 256, 32), (16384, 2048, 128)):  # kc = 5/6, .8, 11/14; ks = 1/2
        world = MaskedAreas.of_sizes([[first] + [local] * ((patches - first) // local)], 0)
        distances.append(abs(world.finite_size_gap - world.information_gap))
    assert distances == sorted(distances, reverse=True)


def test_finite_size_gap_is_the_exponent_of_the_rate_ratio() -> None:
    world = MaskedAreas.paper(100, 3, 60, 8, seed=0)
    assert 100**world.finite_size_gap == pytest.approx(world.initial_rate_ratio)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((64, 32, 8), 0.1667), ((100, 60, 8), 0.3266), ((256, 200, 8), 0.5360), ((256, 32, 16), -0.25)],
)
def test_information_gap_of_known_sizes(sizes: tuple[int, int, int], expected: float) -> None:
    patches, first, local = sizes
    assert MaskedAreas.paper(patches, 2, first, local, seed=0).information_gap == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaskedAreas.paper(16, 2, 8, 4, 0, ratio=0.0), "ratio: got 0, expected"),
        (lambda: MaskedAreas.paper(16, 2, 8, 4, 0, ratio=1.0), "ratio: got 1, expected"),
        (lambda: MaskedAreas.paper(16, 2, 8, 4, 0, ratio=math.nan), "ratio: got nan, expected"),
        (lambda: MaskedAreas.paper(16, 2, 8, 4, 0, ratio=0.01), "masks 0 of 16"),
        (lambda: MaskedAreas.paper(16, 2, 17, 4, 0), "global_size: got 17, expected an area of 1 to P = 16"),
        (lambda: MaskedAreas.paper(16, 2, 8, 17, 0), "local_size: got 17, expected an area of 1 to P = 16"),
        (lambda: MaskedAreas.paper(16, 0, 8, 4, 0), "clusters: got K = 0"),
        (lambda: MaskedAreas(()), "K = 0"),
        (lambda: MaskedAreas.of_sizes([], 0), "K = 0"),
        (lambda: MaskedAreas.paper(16, 2, 8, 3, 0), "local_size: got 3, expected a divisor of the 8 patches"),
        (lambda: MaskedAreas.of_sizes([[4, 0, 4]], 0), "sizes: got"),
        (lambda: MaskedAreas.paper(0, 2, 1, 1, 0), "patches: got P = 0"),
        (lambda: MaskedAreas.of_sizes([[4, 4], [4, 5]], 0), "expected one P"),
        (lambda: MaskedAreas.paper(16, 2, 8, 4, 0, noise=-1.0), "noise: got -1"),
        (lambda: Law.two_point(0.5, 1.0, 1.5), "probability: got 1.5"),
        (lambda: Law.uniform(0.0, 1.0), "expected 0 < low <= high"),
        (lambda: Law(0.5, 1.0, torch.ones_like, ((2.0, 1.0),)), "z: got 2, expected a value in"),
        (lambda: Law(0.5, 1.0, lambda u: 2 * u), "z: got .* expected values in"),
        (lambda: Law(0.5, 1.0, lambda u: 0.5 + u / 2 * (u > 1e-4)).draw(torch.tensor([2.0])), "z: got 1.5 to 1.5"),
        (lambda: Law(0.5, 1.0, torch.ones_like, ((0.5, 0.7), (1.0, 0.7))), "atoms: got probabilities that sum to 1.4"),
        (lambda: Law(0.5, 1.0, torch.ones_like, ((0.5, -0.5), (1.0, 1.5))), "probability: got -0.5"),
    ],
)
def test_what_cannot_be_is_one_clear_line(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_counters_do_not_depend_on_the_shape_around_them() -> None:
    wide = uniforms([5, 6], 1, 7, (3, 4, 9))
    assert torch.equal(uniforms([6], 1, 7, (2, 3, 5))[0], wide[1, :2, :3, :5])


def test_counters_are_uniform_and_uncorrelated() -> None:
    draws = uniforms([0, 1], 0, 0, (4, 500, 100))
    flat = torch.cat([draws.flatten(1), uniforms([0], 1, 0, (4, 500, 100)).flatten(1)])
    flat = torch.cat([flat, uniforms([0], 0, 1, (4, 500, 100)).flatten(1), draws[:1].flatten(1).roll(1)])
    correlations = torch.corrcoef(flat) - torch.eye(5)
    assert float(correlations.abs().max()) < 0.01
    counts = torch.histc(draws[0].flatten(), 50, 0, 1)
    assert float(((counts - 4000) ** 2 / 4000).sum()) < 90  # chi-square with 49 degrees of freedom


def test_quadrature_integrates_the_law() -> None:
    values, weights = Law.uniform(0.5, 2.0).quadrature(12)
    assert float((weights * values.exp()).sum()) == pytest.approx((math.exp(2) - math.exp(0.5)) / 1.5, rel=1e-12)
