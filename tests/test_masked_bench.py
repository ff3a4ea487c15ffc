import pytest
import torch

from tessella.bench import masked
from tessella.dynamics.masked_draws import layout_of
from tessella.models.block_basis import Correlations, gradient
from tessella.worlds.masked_areas import MaskedAreas


def test_all_sides_of_the_step_take_the_gradient_of_the_same_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked, "BATCH", 7)  # 3, 3 and 1 images in the clusters: padding
    world = MaskedAreas.paper(24, 3, 12, 4, seed=0)
    sample, layout = masked._sample(world, "cpu", torch.float64), layout_of([world])
    ours = gradient(Correlations.zeros(layout), layout, sample)
    phi = torch.cat([ours.phi[0, :, k, : part.sets] for k, part in enumerate(world.partitions)], dim=1)
    expected = -torch.cat([phi, ours.ups[0]], dim=1)
    peers = masked._peers(world, sample)
    assert set(peers) == {"all queries", "masked queries"}
    for step in peers.values():
        torch.testing.assert_close(step()[world.features :], expected)


def test_a_case_has_the_shared_form() -> None:
    (case,) = [masked.step_case("C1 = 200, Cs = 8", torch.float32, "cpu", repeats=1)]
    shared = {"case", "ours_ms", "peer", "peer_ms", "ratio", "floor_ms", "share_of_floor"}
    more = {"all_queries_ms", "ratio_to_all_queries"}
    assert set(case.as_json()) == shared | more
    assert case.peer in {f"autograd on the d x d model, {which} queries" for which in ("all", "masked")}


def test_the_sweep_is_set_against_one_setting_after_the_other() -> None:
    found = masked.sweep_case("cpu", settings=4, steps=2)
    assert found.case == "sweep of 4 settings, 2 steps, float64"
    assert found.peer == "one setting after the other"
    assert "ratio" in found.as_json()
