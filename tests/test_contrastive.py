import pytest
import torch

from tessella.dynamics.contrastive import (
    Contrast,
    attention_to_global,
    contrast,
    contrastive_loss,
    representation,
    widened,
)
from tessella.worlds.masked_areas import MaskedAreas

WORLD = MaskedAreas.paper(36, 3, 18, 6, 0)


def test_representation_at_the_start_is_the_mean_of_unmasked_patches() -> None:
    images, _, unmasked = WORLD.images(5, 0)
    wide = widened(WORLD, images)
    size = wide.shape[-1]
    f = representation(torch.zeros(size, size, dtype=torch.float64), wide, unmasked)
    torch.testing.assert_close(f, (wide * unmasked[..., None]).mean(1))


@pytest.mark.parametrize("similarity", ["inner", "cosine"])
def test_loss_is_the_cross_entropy_of_picking_the_other_view(similarity: str) -> None:
    images, _, first = WORLD.images(6, 0)
    second = WORLD.unmasked(6, 1)[0]
    wide = widened(WORLD, images)
    generator = torch.Generator().manual_seed(0)
    Q = 0.3 * torch.randn(wide.shape[-1], wide.shape[-1], generator=generator, dtype=torch.float64)
    config = Contrast(similarity, 0.3)
    f, g = representation(Q, wide, first), representation(Q, wide, second)
    if similarity == "cosine":
        f, g = f / f.norm(dim=-1, keepdim=True), g / g.norm(dim=-1, keepdim=True)
    expected = 0.0
    for i in range(6):
        scores = torch.stack([f[i] @ g[j] / 0.3 for j in range(6)])
        expected -= float(scores[i] - scores.logsumexp(0)) / 6
    assert float(contrastive_loss(Q, wide, first, second, config)) == pytest.approx(expected, rel=1e-10)


def test_gradient_stops_at_the_second_view() -> None:
    images, _, first = WORLD.images(6, 0)
    second = WORLD.unmasked(6, 1)[0]
    wide = widened(WORLD, images)
    Q = torch.zeros(wide.shape[-1], wide.shape[-1], dtype=torch.float64, requires_grad=True)
    (through,) = torch.autograd.grad(contrastive_loss(Q, wide, first, second, Contrast()), Q)
    fixed = representation(Q, wide, second).detach()
    logits = representation(Q, wide, first) @ fixed.T / 0.5
    (expected,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, torch.arange(6)), Q)
    torch.testing.assert_close(through, expected)


def test_inner_product_draws_attention_to_the_global_area() -> None:
    run = contrast(WORLD, Contrast(rate=300.0, steps=60), seed=0)
    assert run.to_global[0] < 0.35
    assert run.to_global[-1] > 0.7
    assert float(attention_to_global(run.Q, WORLD, 0).mean()) == pytest.approx(run.to_global[-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Contrast(temperature=0.0), "temperature: got 0, expected"),
        (lambda: Contrast(rate=-1.0), "rate: got -1"),
        (lambda: Contrast(rate=float("inf")), "rate: got inf"),
        (lambda: Contrast(steps=0), "steps: got 0, expected at least 1"),
        (lambda: Contrast(batch=1), "batch: got 1, expected at least two"),
    ],
)
def test_what_cannot_be_is_one_clear_line(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
