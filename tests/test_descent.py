import dataclasses
import re

import pytest
import torch

from tessella.dynamics.descent import Descent, DivergenceError, Trajectory, Watch, descend, stable_rates
from tessella.dynamics.realistic import Realistic, run
from tessella.dynamics.sample import HeldSample, StreamedSample
from tessella.models.simplified_vit import SimplifiedViT
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets

WORLD = SignalSets(Partition.blocks(4, 4, 2, 2), 6, 0.3)
SMALL = Realistic(
    grid=(4, 4), dim=6, spurious=0.3, points=3000, test_points=500, dtype="float64", descent=Descent(30, 1.5, 0.02)
)


def model(seed: int = 0) -> SimplifiedViT:
    return SimplifiedViT.initialised(16, 6, 2.0, 1e-2, seed, dtype=torch.float64)


def sample(points: int = 600) -> HeldSample:
    batch = WORLD.sample(points, 1, torch.float64)
    return HeldSample(batch.patches, batch.label)


def go(descent: Descent, start: SimplifiedViT | None = None, data: object = None) -> tuple[SimplifiedViT, Trajectory]:
    at = start or model()
    watch = Watch(WORLD, WORLD.project(500, 2, torch.float64))
    return at, descend(at, data or sample(), watch, descent)  # type: ignore[arg-type]


def test_a_step_is_the_papers_gd_with_two_rates() -> None:
    at, data = model(), sample()
    loss = -torch.nn.functional.logsigmoid(data.label * at(data.patches)).mean()
    by_attention, by_value = torch.autograd.grad(loss, [at.attention, at.value])
    expected_attention = at.attention.detach() - 1.5 * by_attention.fill_diagonal_(0.0)
    expected_value = at.value.detach() - 0.02 * by_value
    moved, _ = go(Descent(1, 1.5, 0.02))
    torch.testing.assert_close(moved.attention.detach(), expected_attention, rtol=0, atol=1e-12)
    torch.testing.assert_close(moved.value.detach(), expected_value, rtol=0, atol=1e-12)


def test_adam_is_torchs_adam_on_both() -> None:
    twin, data = model(), sample()
    optimizer = torch.optim.Adam([{"params": [twin.attention], "lr": 0.1}, {"params": [twin.value], "lr": 0.01}])
    for _ in range(5):
        optimizer.zero_grad()
        (-torch.nn.functional.logsigmoid(data.label * twin(data.patches)).mean()).backward()
        assert twin.attention.grad is not None
        twin.attention.grad.fill_diagonal_(0.0)
        optimizer.step()
    moved, _ = go(Descent(5, 0.1, 0.01, optimizer="adam"))
    torch.testing.assert_close(moved.attention, twin.attention, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(moved.value, twin.value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("optimizer", ["gd", "adam"])
def test_the_diagonal_is_never_trained(optimizer: str) -> None:
    moved, _ = go(Descent(7, 1.5, 0.02, optimizer=optimizer))  # type: ignore[arg-type]
    assert torch.equal(moved.attention.detach().diagonal(), torch.full((16,), 2.0, dtype=torch.float64))


def test_minibatches_run_through_the_sample_in_order() -> None:
    whole = sample(600)
    by_batch, _ = go(Descent(3, 1.5, 0.02, batch=200), data=whole)
    twin = model()
    for start in (0, 200, 400):
        part = HeldSample(whole.patches[start : start + 200], whole.label[start : start + 200])
        go(Descent(1, 1.5, 0.02), twin, part)
    torch.testing.assert_close(by_batch.attention, twin.attention, rtol=1e-12, atol=1e-14)


def test_a_streamed_sample_gives_the_descent_of_a_held_one() -> None:
    held = WORLD.sample(5000, 3, torch.float64)
    streamed = StreamedSample(WORLD, 5000, 3, torch.float64, "cpu")
    for batch in (None, 1500):
        descent = Descent(4, 1.5, 0.02, batch=batch)
        first, _ = go(descent, data=HeldSample(held.patches, held.label))
        second, _ = go(descent, data=streamed)
        torch.testing.assert_close(first.attention, second.attention, rtol=1e-11, atol=1e-13)


def test_the_trajectory_measures_what_it_says() -> None:
    at, trajectory = go(Descent(20, 1.5, 0.02, log_every=7))
    assert trajectory.column("step") == [0, 7, 14, 20]
    final, attention = trajectory.final, at.attention.detach()
    same = WORLD.partition.same_set
    within = attention[same & ~torch.eye(16, dtype=torch.bool)]
    between = attention[~same]
    value, feature = at.value.detach(), WORLD.feature
    assert final.alpha == pytest.approx(float(value @ feature))
    assert final.cosine == pytest.approx(float(value @ feature / value.norm()))
    assert (final.within_min, final.within_max) == (float(within.min()), float(within.max()))
    assert final.within_mean == pytest.approx(float(within.mean()))
    assert (final.between_min, final.between_max) == (float(between.min()), float(between.max()))
    loss = -torch.nn.functional.logsigmoid(sample().label * at(sample().patches).detach()).mean()
    assert final.loss == pytest.approx(float(loss))
    assert torch.equal(trajectory.snapshots[20], attention)


def test_test_errors_are_those_of_a_fresh_sample() -> None:
    _, trajectory = go(Descent(60, 1.5, 0.02, log_every=60))
    at, _ = go(Descent(60, 1.5, 0.02, log_every=60))
    fresh = WORLD.sample(40_000, 99, torch.float64)
    with torch.no_grad():
        output = at(fresh.patches)
    error = float((output * fresh.label <= 0).double().mean())
    rule = float((output * WORLD.labelling(fresh) <= 0).double().mean())
    spread = 4 * (0.5 / 500**0.5)
    assert abs(trajectory.final.error - error) < spread
    assert abs(trajectory.final.error_rule - rule) < spread


def test_snapshots_are_spread_and_include_both_ends() -> None:
    descent = Descent(100, log_every=10, snapshots=4)
    assert descent.kept == {0, 30, 70, 100}
    assert Descent(7, log_every=10).logged == [0, 7]


def test_it_associates_and_fits_at_a_small_size() -> None:
    problem = Realistic(grid=(4, 4), dim=8, spurious=0.4, points=6000, descent=Descent(400, 6.0, 0.02))
    for sets in ("blocks", "random", "bands"):
        outcome = run(dataclasses.replace(problem, sets=sets, block=(1, 4) if sets == "bands" else (2, 2)), 0)  # type: ignore[arg-type]
        assert outcome.association.performs
        assert outcome.association.rand_index == 1.0
        assert outcome.final.error < 0.05


def test_without_a_diagonal_nothing_associates() -> None:
    outcome = run(dataclasses.replace(SMALL, diagonal=0.0, init=0.0), 0)
    assert outcome.association.exact_rows == 0.0


def test_the_softmax_scale_is_a_change_of_units() -> None:
    """(T) divides by sqrt(d): with sigma_A and A^(0) times the scale and the rate of A times its square, A scales."""
    scale = 6**0.5
    plain = model()
    scaled = SimplifiedViT(plain.attention.detach() * scale, plain.value.detach().clone(), scale=scale)
    first, _ = go(Descent(40, 1.5, 0.02), plain)
    second, _ = go(Descent(40, 1.5 * scale**2, 0.02), scaled)
    torch.testing.assert_close(second.attention.detach(), scale * first.attention.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(second.value, first.value, rtol=1e-9, atol=1e-12)


def test_a_seed_names_a_run() -> None:
    first, second, other = run(SMALL, 3), run(SMALL, 3), run(SMALL, 4)
    assert torch.equal(first.model.attention, second.model.attention)
    assert not torch.equal(first.model.attention, other.model.attention)


@pytest.mark.parametrize(
    ("descent", "name"), [(Descent(60, 1.5, 50.0), "rate_value"), (Descent(60, 1e4, 0.02), "rate_attention")]
)
def test_divergence_names_the_rate_to_lower(descent: Descent, name: str) -> None:
    with pytest.raises(DivergenceError, match=f"^{name}: got .* expected a lower rate"):
        go(descent)


def test_the_rates_called_stable_are() -> None:
    for partition in (Partition.blocks(4, 4, 2, 2), Partition.blocks(6, 6, 2, 2)):
        world = SignalSets(partition, 6, 4.0 / (partition.patches - 4))
        attention, value = stable_rates(partition)
        batch = world.sample(1000, 0)
        at = SimplifiedViT.initialised(partition.patches, 6, 2.0, 1e-2, 0)
        watch = Watch(world, world.project(200, 1))
        descend(at, HeldSample(batch.patches, batch.label), watch, Descent(150, attention / 2, value / 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Descent(steps=0), "steps: got 0"),
        (lambda: Descent(rate_value=-1.0), "rate_value: got -1.0"),
        (lambda: Descent(rate_attention=float("nan")), "rate_attention: got nan"),
        (lambda: Descent(batch=0), "batch: got 0"),
        (lambda: go(Descent(2, batch=601)), "batch: got 601, expected at most the 600 points"),
        (lambda: HeldSample(torch.zeros(3, 2, 2), torch.ones(4)), r"label: got shape \(4,\), expected \(3,\)"),
        (lambda: HeldSample(torch.zeros(3, 2, 2), torch.zeros(3)), "label: got 0, expected -1 or 1"),
        (lambda: go(Descent(1), data=HeldSample(torch.zeros(3, 2, 2), torch.ones(3))), r"sample: got \(2, 2\)"),
        (lambda: run(dataclasses.replace(SMALL, block=(3, 2)), 0), "block_height: got 3"),
        (lambda: run(SMALL, -1), "seed: got -1"),
    ],
)
def test_wrong_input_is_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


def test_nan_in_x_names_the_data_point() -> None:
    patches = torch.zeros(5, 2, 2)
    patches[3, 1, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinity in data point 3"):
        HeldSample(patches, torch.ones(5))


def test_a_streamed_sample_gives_the_same_bits_as_a_held_one() -> None:
    batch = WORLD.sample(12_000, 3)
    at = [SimplifiedViT.initialised(16, 6, 2.0, 1e-2, 0) for _ in range(2)]
    samples = (HeldSample(batch.patches, batch.label), StreamedSample(WORLD, 12_000, 3, torch.float32, "cpu"))
    for model_of_this, data in zip(at, samples, strict=True):
        descend(model_of_this, data, Watch(WORLD, WORLD.project(100, 2)), Descent(3, 1.5, 0.02))
    assert torch.equal(at[0].attention, at[1].attention)
    assert torch.equal(at[0].value, at[1].value)


@pytest.mark.parametrize("noise", [3.0, 10.0])
def test_the_advice_is_never_a_higher_rate(noise: float) -> None:
    with pytest.raises(DivergenceError) as stopped:
        run(dataclasses.replace(SMALL, noise=noise, descent=Descent(200, 0.5, 0.02)), 0)
    found = re.search(r"got ([\d.e+-]+), .* such as ([\d.e+-]+)", str(stopped.value))
    assert found
    assert float(found[2]) < float(found[1])


def test_a_loss_that_is_not_finite_before_any_step_blames_no_rate() -> None:
    with pytest.raises(DivergenceError, match=r"^init: got a model with which the loss is"):
        run(dataclasses.replace(SMALL, init=1e200), 0)


def test_a_model_keeps_the_tensors_that_it_was_made_from() -> None:
    given = torch.eye(16, dtype=torch.float64)
    go(Descent(2, 1.5, 0.02), SimplifiedViT(given, torch.ones(6, dtype=torch.float64) / 100))
    assert torch.equal(given, torch.eye(16, dtype=torch.float64))
