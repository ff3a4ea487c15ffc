import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tessella.dynamics.masked_draws import Draws, layout_of
from tessella.models.bilinear import attention, orthonormal_basis, reconstruction_loss, tokens
from tessella.models.block_basis import Correlations, Keys, counted, forward, gradient, query_losses
from tessella.worlds.magnitudes import Law
from tessella.worlds.masked_areas import MaskedAreas

LAWS = [Law.constant(1.3), Law.uniform(0.5, 2.0), Law.two_point(0.5, 1.5, 0.3)]


@st.composite
def settings_of_worlds(draw: st.DrawFn) -> dict[str, object]:
    """Random P, K, areas of any sizes (each cluster its own), gamma, masking and law."""
    patches = draw(st.integers(4, 14))
    sizes = []
    for _ in range(draw(st.integers(1, 3))):
        cuts = draw(st.sets(st.integers(1, patches - 1), max_size=4))
        edges = [0, *sorted(cuts), patches]
        sizes.append([b - a for a, b in itertools.pairwise(edges)])
    return {
        "sizes": sizes,
        "seed": draw(st.integers(0, 99)),
        "ratio": draw(st.floats(0.15, 0.85)),
        "masking": draw(st.sampled_from(["uniform", "bernoulli"])),
        "law": draw(st.sampled_from(LAWS)),
    }


def random_correlations(world: MaskedAreas, seed: int, scale: float = 1.0) -> tuple[Correlations, Tensor]:
    """Random (Phi, Ups) for every row, and the d x d matrix that has them, with noise in its other entries."""
    generator = torch.Generator().manual_seed(seed)
    layout = layout_of([world])
    zero = Correlations.zeros(layout)
    phi = scale * torch.randn(zero.phi.shape, generator=generator, dtype=torch.float64)
    ups = scale * torch.randn(zero.ups.shape, generator=generator, dtype=torch.float64)
    rows = torch.cat(
        [phi[0, :, k, : part.sets] for k, part in enumerate(world.partitions)] + [ups[0]], dim=1
    )  # P x (features + P), in the coordinates of the basis
    inner = torch.randn(world.features + world.patches, world.features + world.patches, generator=generator).double()
    inner[world.features :] = rows
    return Correlations(phi, ups), inner


def dense_images(world: MaskedAreas, z: Tensor, unmasked: Tensor) -> tuple[Tensor, Tensor]:
    """The images of a sample in feature coordinates, with their masks, one cluster after the other."""
    images = []
    clusters, samples, patches = unmasked.shape
    for k in range(clusters):
        image = torch.zeros(samples, patches, world.features + patches, dtype=torch.float64)
        for p in range(patches):
            area = int(world.labels[k, p])
            image[:, p, world.feature_offsets[k] + area] = z[k].expand(samples, -1)[:, area]
        images.append(image)
    return torch.cat(images), unmasked.flatten(0, 1).bool()


@settings(max_examples=25, deadline=None)
@given(settings_of_worlds(), st.integers(0, 1000), st.sampled_from([1.0, 30.0]))
def test_block_basis_matches_autograd_of_the_reference(setting: dict[str, object], seed: int, scale: float) -> None:
    world = MaskedAreas.of_sizes(**setting)  # type: ignore[arg-type]
    theta, inner = random_correlations(world, seed, scale)
    layout, sample = layout_of([world]), Draws([world], [3], [seed]).at(0)
    images, unmasked = dense_images(world, sample.z[0], sample.unmasked[0])
    basis = orthonormal_basis(world.features, world.patches, seed)
    positions = basis[:, world.features :].T
    Q = (basis @ inner @ basis.T).requires_grad_()
    loss = reconstruction_loss(Q, images @ basis.T, unmasked, positions)
    (dense,) = torch.autograd.grad(loss, Q)
    in_basis = basis.T @ dense @ basis

    ours = gradient(theta, layout, sample)
    passed = forward(theta, layout, sample)
    our_loss = (query_losses(passed.area_attention, layout, sample) * counted(layout, sample)).sum()
    torch.testing.assert_close(our_loss, loss.detach(), rtol=1e-12, atol=1e-12)
    phi = torch.cat([ours.phi[0, :, k, : part.sets] for k, part in enumerate(world.partitions)], dim=1)
    expected = torch.zeros_like(in_basis)
    expected[world.features :] = torch.cat([phi, ours.ups[0]], dim=1)
    assert float((in_basis - expected).abs().max()) < 1e-10


def test_area_attention_is_the_softmax_of_the_reference_summed() -> None:
    world = MaskedAreas.paper(12, 2, 6, 3, seed=1)
    theta, inner = random_correlations(world, 4)
    layout, sample = layout_of([world]), Draws([world], [5], [0]).at(0)
    images, unmasked = dense_images(world, sample.z[0], sample.unmasked[0])
    positions = torch.eye(world.features + 12, dtype=torch.float64)[world.features :]
    weights = attention(inner, tokens(images, unmasked, positions)) * unmasked[:, None, :]
    ours = forward(theta, layout, sample).area_attention[0]
    for k in range(2):
        for b in range(5):
            hidden = ~unmasked[5 * k + b]
            member = layout.member[0, k]
            torch.testing.assert_close(ours[k, b][:, hidden].T, (weights[5 * k + b] @ member.T)[hidden])


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("keys", ["all", "unmasked"])
def test_gradient_matches_autograd_of_its_own_loss(features: bool, keys: Keys) -> None:
    world = MaskedAreas.of_sizes([[5, 2, 3], [4, 4, 1, 1]], 0, ratio=0.6, law=LAWS[1])
    theta, _ = random_correlations(world, 0)
    layout, sample = layout_of([world], rows=[0, 3, 9]), Draws([world], [8], [1]).at(0)
    phi, ups = (part[:, [0, 3, 9]].clone().requires_grad_() for part in (theta.phi, theta.ups))
    passed = forward(Correlations(phi, ups), layout, sample, features, keys)
    loss = (query_losses(passed.area_attention, layout, sample) * counted(layout, sample)).sum()
    by_autograd = torch.autograd.grad(loss, (phi, ups), allow_unused=True)
    ours = gradient(Correlations(phi.detach(), ups.detach()), layout, sample, features, keys)
    expected = by_autograd[0] if features else torch.zeros_like(phi)
    assert float((ours.phi - expected).abs().max()) < 1e-12
    assert float((ours.ups - by_autograd[1]).abs().max()) < 1e-12


@pytest.mark.parametrize("keys", ["all", "unmasked"])
def test_correlations_past_the_range_of_exp_do_not_overflow(keys: Keys) -> None:
    world = MaskedAreas.paper(12, 1, 6, 3, seed=1)
    layout, sample = layout_of([world]), Draws([world], [4], [0]).at(0)
    theta, _ = random_correlations(world, 0)
    large = Correlations(theta.phi * 2000, theta.ups)
    step = gradient(large, layout, sample, keys=keys)
    assert bool(step.phi.isfinite().all() and step.ups.isfinite().all())
    # The softmax picks the area of the greatest Phi wherever the mask leaves a patch of it.
    attention = forward(large, layout, sample, keys=keys).area_attention[0, 0]
    best = large.phi[0, :, 0].argmax(-1)
    left = (sample.unmasked[0, 0] @ layout.member[0, 0].T)[:, best] > 0
    picked = attention.gather(1, best.expand(4, 1, -1))[:, 0]
    greatest = large.phi[0, :, 0].amax(-1) > 100
    assert bool((left & greatest).any())
    torch.testing.assert_close(picked[left & greatest], torch.ones_like(picked[left & greatest]))


def test_single_precision_matches_double() -> None:
    world = MaskedAreas.of_sizes([[9, 2, 3], [4, 5, 4, 1]], 0, ratio=0.6, law=LAWS[1])
    theta, _ = random_correlations(world, 3, scale=5.0)
    double = gradient(theta, layout_of([world]), Draws([world], [8], [1]).at(0))
    short = Correlations(theta.phi.float(), theta.ups.float())
    sample = Draws([world], [8], [1], dtype=torch.float32).at(0)
    single = gradient(short, layout_of([world], dtype=torch.float32), sample)
    torch.testing.assert_close(single.phi, double.phi.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(single.ups, double.ups.float(), rtol=1e-4, atol=1e-5)


def test_sums_and_spread_are_products_with_the_masks() -> None:
    worlds = [MaskedAreas.of_sizes([[5, 2, 3], [4, 4, 1, 1]], 0), MaskedAreas.paper(8, 2, 4, 2, 1)]
    layout, unmasked = layout_of(worlds), Draws(worlds, [3, 2], [0, 1]).at(0).unmasked
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2, 10, 6, generator=generator, dtype=torch.float64)
    seen = torch.einsum("skbq,skmq->skbmq", unmasked, layout.member)
    torch.testing.assert_close(layout.sums(unmasked, weights), torch.einsum("skbmq,sqp->skbmp", seen, weights))
    worth = torch.rand(2, 2, 3, 5, 6, generator=generator, dtype=torch.float64)
    masked = torch.einsum("skbq,skbp->sqp", 1 - unmasked, worth[:, :, :, -1])
    expected = torch.einsum("skbmq,skbmp->sqp", seen, worth[:, :, :, :-1]) + masked
    torch.testing.assert_close(layout.spread(unmasked, worth), expected)
