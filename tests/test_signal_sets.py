import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import BLOCK, SignalSets

PARTITION = Partition.blocks(4, 4, 2, 2)


def unit(dim: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(dim, generator=generator, dtype=torch.float64), dim=0)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(1, 6),
    st.floats(0, 1),
    st.floats(0, 3),
    st.integers(0, 2**32 - 1),
)
def test_patches_are_feature_times_w_plus_orthogonal_noise(
    labels: list[int], dim: int, spurious: float, noise: float, seed: int
) -> None:
    world = SignalSets(Partition.from_labels(labels), dim, spurious, noise, unit(dim, seed % 7))
    batch = world.sample(50, seed, torch.float64)
    along = batch.patches @ world.feature
    torch.testing.assert_close(along, batch.features.double(), atol=1e-12 * (1 + noise), rtol=0)


def test_the_signal_set_carries_the_label() -> None:
    world = SignalSets(PARTITION, 8, 0.4)
    batch = world.sample(3000, 1)
    sets = torch.from_numpy(PARTITION.labels.copy())
    signal = sets[None] == batch.signal_set[:, None]
    assert (batch.features[signal].view(-1, 4) == batch.label[:, None]).all()


def test_marginals_are_those_of_assumption_1() -> None:
    world = SignalSets(PARTITION, 8, 0.3)
    batch = world.sample(40_000, 2)
    sets = torch.from_numpy(PARTITION.labels.copy())
    other = batch.features[sets[None] != batch.signal_set[:, None]]
    counts = [int((other == value).sum()) for value in (-1, 0, 1)]
    expected = [0.15 * len(other), 0.7 * len(other), 0.15 * len(other)]
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    assert stats.chisquare(torch.bincount(batch.signal_set).numpy()).pvalue > 1e-4
    assert stats.binomtest(int((batch.label > 0).sum()), len(batch.label)).pvalue > 1e-4


def test_noise_is_sigma_times_standard_normal_across_w() -> None:
    world = SignalSets(PARTITION, 5, 0.2, noise=0.7, feature=unit(5))
    batch = world.sample(4000, 3, torch.float64)
    noise = batch.patches - batch.features.double()[..., None] * world.feature
    covariance = noise.view(-1, 5).T @ noise.view(-1, 5) / (4000 * 16)
    expected = 0.49 * (torch.eye(5, dtype=torch.float64) - torch.outer(world.feature, world.feature))
    torch.testing.assert_close(covariance, expected, atol=4 * 0.49 * math.sqrt(2 / 64_000), rtol=0)


@settings(max_examples=10)
@given(st.integers(1, 2 * BLOCK + 100), st.integers(1, BLOCK + 500), st.data())
def test_a_stream_gives_the_sample_however_it_is_cut(points: int, batch: int, data: st.DataObject) -> None:
    world = SignalSets(Partition.bands(2, 2), 2, 0.3)
    skip = data.draw(st.integers(0, points - 1))
    whole = world.sample(points, 7)
    parts = list(world.stream(points - skip, max(batch, 40), 7, skip=skip))
    for name in ("patches", "label", "signal_set", "features"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name)[skip:])


def test_a_longer_sample_begins_with_the_shorter() -> None:
    world = SignalSets(PARTITION, 3, 0.3)
    assert torch.equal(world.sample(100, 5).patches, world.sample(3000, 5).patches[:100])


def test_projection_has_the_law_of_the_inner_products() -> None:
    world = SignalSets(PARTITION, 6, 0.3, feature=unit(6))
    value = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    full = world.sample(20_000, 4, torch.float64)
    seen = world.project(20_000, 5, torch.float64)
    # One linear and one non-linear summary of a data point, compared as distributions.
    weights = torch.randn(16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for a, b in (
        ((full.patches @ value) @ weights, seen.along(value) @ weights),
        ((full.patches @ value).pow(3).sum(1) * full.label, seen.along(value).pow(3).sum(1) * seen.label),
    ):
        assert stats.ks_2samp(a.numpy(), b.numpy()).pvalue > 1e-4


def test_projection_along_w_is_the_features() -> None:
    world = SignalSets(PARTITION, 6, 0.3, feature=unit(6))
    seen = world.project(100, 5, torch.float64)
    torch.testing.assert_close(seen.along(world.feature), seen.features.double(), atol=1e-7, rtol=0)


def test_labelling_thresholds_at_nine_tenths_of_a_set() -> None:
    world = SignalSets(PARTITION, 2, 0.0)
    along = torch.zeros(4, 16)
    sets = torch.from_numpy(PARTITION.labels.copy())
    along[0, sets == 1] = -1.0  # a full set counts with its sum
    along[1, sets == 2] = 0.9  # exactly 0.9 C does not exceed the threshold
    along[2, torch.where(sets == 0)[0][:3]] = 1.0  # three of four patches do not
    assert world.labelling_of(along).tolist() == pytest.approx([-4.0, 0.0, 0.0, 0.0])


def test_labelling_agrees_with_y_but_for_full_spurious_sets() -> None:
    world = SignalSets(PARTITION, 4, 0.5)
    batch = world.sample(5000, 6)
    wrong = world.labelling(batch) * batch.label <= 0
    sets = torch.from_numpy(PARTITION.labels.copy())
    sums = torch.zeros(5000, 4).index_add_(1, sets, batch.features.float())
    contradicted = (sums == -4 * batch.label[:, None]).any(1)
    assert bool(wrong.any())
    assert torch.equal(wrong & ~contradicted, torch.zeros_like(wrong))


def test_q_0_and_q_1_are_the_edges() -> None:
    sets = torch.from_numpy(PARTITION.labels.copy())
    for spurious, expected in ((0.0, False), (1.0, True)):
        batch = SignalSets(PARTITION, 2, spurious).sample(200, 0)
        other = batch.features[sets[None] != batch.signal_set[:, None]]
        assert bool((other != 0).all()) is expected
        assert bool((other == 0).all()) is not expected


def test_expected_spurious_is_lambda() -> None:
    assert SignalSets(PARTITION, 2, 0.25).expected_spurious == pytest.approx(0.25 * 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim: got 0"),
        ({"spurious": 1.2}, "spurious: got 1.2, expected a probability"),
        ({"spurious": float("nan")}, "spurious: got nan"),
        ({"noise": -0.1}, "noise: got -0.1"),
        ({"feature": torch.ones(4)}, "feature: got norm 2, expected a unit vector"),
        ({"feature": torch.ones(3)}, r"feature: got shape \(3,\), expected \(4,\)"),
    ],
)
def test_wrong_parameters_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SignalSets(PARTITION, **{"dim": 4, "spurious": 0.2, **arguments})  # type: ignore[arg-type]


def test_wrong_sample_sizes_are_named() -> None:
    world = SignalSets(PARTITION, 2, 0.2)
    with pytest.raises(ValueError, match="points: got 0"):
        world.sample(0, 0)
    with pytest.raises(ValueError, match="batch: got 0"):
        next(world.stream(5, 0, 0))
    with pytest.raises(ValueError, match="seed: got -1"):
        world.sample(1, -1)


def test_seeds_and_uses_of_a_seed_are_independent() -> None:
    world = SignalSets(PARTITION, 4, 0.3)
    labels = {seed: world.sample(256, seed).label for seed in (0, 1, 256, 2**16, 2**32, 2**40)}
    for first, second in itertools.combinations(labels, 2):
        assert not torch.equal(labels[first], labels[second])
    assert not torch.equal(world.project(256, 0).label, labels[0])
