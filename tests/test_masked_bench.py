import pytest
import torch

from tessella.bench import masked
from tessella.dynamics.masked_draws import layout_of
from tessella.models.bilinear import reconstruction_loss
from tessella.models.block_basis import Correlations, gradient
from tessella.worlds.masked_areas import MaskedAreas


def test_both_sides_of_the_step_take_the_gradient_of_the_same_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked, "BATCH", 7)  # 3, 3 and 1 images in the clusters: padding
    world = MaskedAreas.paper(24, 3, 12, 4, seed=0)
    sample = masked._sample(world, "cpu", torch.float64)
    images, unmasked = masked._dense(world, sample)
    size = images.shape[-1]
    Q = torch.zeros(size, size, dtype=torch.float64, requires_grad=True)
    positions = torch.eye(size, dtype=torch.float64)[world.features :]
    (dense,) = torch.autograd.grad(reconstruction_loss(Q, images, unmasked, positions), Q)
    layout = layout_of([world])
    ours = gradient(Correlations.zeros(layout), layout, sample)
    phi = torch.cat([ours.phi[0, :, k, : part.sets] for k, part in enumerate(world.partitions)], dim=1)
    torch.testing.assert_close(dense[world.features :], torch.cat([phi, ours.ups[0]], dim=1))


def test_a_case_has_the_shared_form() -> None:
    (case,) = [masked.step_case("C1 = 200, Cs = 8", torch.float32, "cpu", repeats=1)]
    shared = {"case", "ours_ms", "peer", "peer_ms", "ratio", "floor_ms", "share_of_floor"}
    assert set(case.as_json()) == shared
