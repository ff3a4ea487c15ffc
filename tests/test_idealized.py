import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.dynamics.idealized import Idealized, IdealizedProblem, Scalars
from tessella.dynamics.set_law import exact_law, sampled_law
from tessella.dynamics.truncation import sign_sum_moments, truncation_bound
from tessella.models.simplified_vit import Activation, SimplifiedViT
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets


def full_model(problem: IdealizedProblem, at: Scalars, partition: Partition, dim: int) -> SimplifiedViT:
    """(T) with all D^2 entries of A and v = alpha w*, w* the first basis vector."""
    same = partition.same_set.double()
    attention = (at.gamma * same + at.rho * (1 - same)).fill_diagonal_(problem.diagonal)
    value = torch.zeros(dim, dtype=torch.float64)
    value[0] = at.alpha
    return SimplifiedViT(attention, value, Activation(problem.power, problem.linear))


def autograd(problem: IdealizedProblem, at: Scalars, seed: int, points: int) -> np.ndarray:
    """Loss and gradient in alpha, gamma, rho from all of X, by automatic differentiation."""
    partition = Partition.random(problem.patches, problem.size, seed)
    world = SignalSets(partition, 5, problem.spurious)
    batch = world.sample(points, seed, torch.float64)
    model = full_model(problem, at, partition, 5)
    loss = torch.nn.functional.softplus(-batch.label * model(batch.patches)).mean()
    loss.backward()
    by_entry = model.attention.grad.clone().fill_diagonal_(0.0)
    within = by_entry[partition.same_set].sum()
    between = by_entry[~partition.same_set].sum()
    return np.array([float(loss.detach()), float(model.value.grad[0]), float(within), float(between)])


@pytest.mark.parametrize(
    ("problem", "at"),
    [
        (IdealizedProblem(16, 4, 0.4, 3, 1e-2, 2.0), Scalars(0.15, 0.3, -0.05)),
        (IdealizedProblem(24, 3, 0.2, 5, 1e-2, 1.0), Scalars(0.2, 0.8, 0.1)),
        (IdealizedProblem(12, 1, 0.3, 3, 0.1, 2.0), Scalars(0.2, 0.0, 0.1)),
        (IdealizedProblem(6, 6, 0.3, 3, 0.1, 0.5), Scalars(0.2, 0.4, 0.0)),
    ],
)
def test_loss_and_gradient_are_those_of_full_x_within_four_standard_errors(
    problem: IdealizedProblem, at: Scalars
) -> None:
    loss, gradient = Idealized(problem).loss_and_gradient(at)
    runs = np.array([autograd(problem, at, seed, 2_000) for seed in range(20)])
    error = runs.std(axis=0, ddof=1) / math.sqrt(len(runs))
    assert (np.abs(runs.mean(axis=0) - [loss, *gradient]) <= 4 * error + 1e-12).all()


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 4),
    sets=st.integers(1, 6),
    spurious=st.floats(0.0, 1.0),
    power=st.sampled_from([3, 5]),
    linear=st.sampled_from([0.0, 1e-2]),
    alpha=st.floats(0.01, 0.3),
    gamma=st.floats(-1.0, 3.0),
    rho=st.floats(-1.0, 1.0),
)
def test_gradient_matches_finite_differences(
    size: int, sets: int, spurious: float, power: int, linear: float, alpha: float, gamma: float, rho: float
) -> None:
    problem = IdealizedProblem(size * sets, size, spurious, power, linear, 1.0)
    idealized = Idealized(problem, exact_law(size * sets, size, spurious, power, 1e-4))
    at = np.array([alpha, gamma, rho])
    loss, gradient = idealized.loss_and_gradient(Scalars(*at))
    assert loss == pytest.approx(idealized.loss(Scalars(*at)), abs=1e-12)
    for index, width in enumerate((1e-6, 1e-5, 1e-5)):
        step = np.zeros(3)
        step[index] = width
        slope = (idealized.loss(Scalars(*(at + step))) - idealized.loss(Scalars(*(at - step)))) / (2 * width)
        assert gradient[index] == pytest.approx(slope, rel=1e-4, abs=1e-6 * (1 + abs(gradient).max()))


def test_margins_are_the_model_s_output_on_every_state() -> None:
    problem = IdealizedProblem(8, 2, 0.3, 5, 0.2, 1.5)
    at = Scalars(0.3, 0.7, -0.2)
    idealized = Idealized(problem, exact_law(8, 2, 0.3, 5, 0.0))
    partition = Partition.blocks(2, 4, 2, 1)
    features = torch.tensor([[1, 1, s, t, u, v, w, x]
        for s in (-1, 0, 1) for t in (-1, 0, 1) for u in (-1, 0, 1)
        for v in (-1, 0, 1) for w in (-1, 0, 1) for x in (-1, 0, 1)], dtype=torch.float64)  # fmt: skip
    order = torch.from_numpy(np.argsort(partition.order))
    model = full_model(problem, at, partition, 1)
    outputs = model.output(at.alpha * features[:, order]).detach().numpy()
    margins = idealized.margins(at)
    distance = np.abs(outputs[:, None] - margins[None, :])
    assert distance.min(axis=1).max() < 1e-9
    assert distance.min(axis=0).max() < 1e-9


def test_without_spurious_features_the_loss_is_that_of_one_point() -> None:
    problem = IdealizedProblem(8, 2, 0.0, 3, 0.0, 0.0)
    idealized = Idealized(problem)
    # S is uniform, so every patch carries 8 * alpha * 2 / 8, and F = 8 * (2 alpha)^3.
    assert idealized.loss(Scalars(0.5, 0.0, 0.0)) == pytest.approx(math.log1p(math.exp(-8.0)), rel=1e-12)
    assert idealized.error(Scalars(0.5, 0.0, 0.0)) == 0.0


def test_nu_zero_starts_on_a_stationary_point() -> None:
    idealized = Idealized(IdealizedProblem(16, 4, 0.2, 3, 0.0, 2.0))
    loss, gradient = idealized.loss_and_gradient(idealized.problem.start)
    assert loss == pytest.approx(math.log(2), rel=1e-6)
    assert not gradient.any()


@pytest.mark.parametrize(("size", "index"), [(1, 1), (16, 2)])
def test_a_scalar_that_no_entry_stands_for_has_no_gradient(size: int, index: int) -> None:
    _, gradient = Idealized(IdealizedProblem(16, size, 0.2, 3, 0.1, 2.0)).loss_and_gradient(Scalars(0.2, 0.1, 0.1))
    assert gradient[index] == 0.0


def test_beta_zero_is_a_saddle_in_gamma_and_rho() -> None:
    idealized = Idealized(IdealizedProblem(64, 4, 0.1, 3, 1e-3, 0.0))
    gradient = idealized.loss_and_gradient(Scalars(0.1, 0.0, 0.0))[1]
    assert not gradient[1:].any()
    near = idealized.loss_and_gradient(Scalars(0.1, 1e-9, -1e-9))[1]
    assert 0 < np.abs(near[1:]).max() < 1e-7


def test_huge_logits_and_margins_do_not_overflow() -> None:
    idealized = Idealized(IdealizedProblem(16, 4, 0.5, 3, 1e-2, 2.0))
    for at in (Scalars(50.0, 0.0, 0.0), Scalars(0.1, 2_000.0, -2_000.0)):
        loss, gradient = idealized.loss_and_gradient(at)
        assert math.isfinite(loss)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 2.0])
def test_a_law_of_several_slices_has_the_loss_of_the_whole_and_its_slopes(alpha: float) -> None:
    # At alpha = 2 the exponential of some margins overflows and of others it does not.
    idealized = Idealized(IdealizedProblem(1_000, 4, 9 / 996, 3, 1e-6, 2.0))
    at = np.array([alpha, 0.5, -0.01])
    assert idealized.law.states > 10_000
    loss, gradient = idealized.loss_and_gradient(Scalars(*at))
    assert loss == pytest.approx(idealized.loss(Scalars(*at)), rel=1e-12)
    for index, step in enumerate(np.diag([1e-6 * alpha, 1e-5, 1e-5])):
        slope = (idealized.loss(Scalars(*(at + step))) - idealized.loss(Scalars(*(at - step)))) / (2 * step[index])
        assert gradient[index] == pytest.approx(slope, rel=1e-4, abs=1e-9)


def test_a_world_with_hugely_many_spurious_features_is_sampled_within_its_standard_errors() -> None:
    problem = IdealizedProblem(64, 4, 1.0, 3, 1e-2, 2.0)
    at = Scalars(0.05, 0.2, 0.0)
    sampled = [Idealized(problem, sampled_law(64, 4, 1.0, samples=20_000, seed=seed)) for seed in range(2)]
    (first, one), (second, two) = (each.loss_and_gradient(at) for each in sampled)
    loss_error, gradient_error = sampled[0].standard_errors(at)
    assert 0 < loss_error < 0.05 * first
    assert abs(first - second) < 4 * math.sqrt(2) * loss_error
    assert (np.abs(one - two) < 4 * math.sqrt(2) * gradient_error).all()


def test_sampled_law_s_standard_error_covers_the_exact_value() -> None:
    problem, at = IdealizedProblem(32, 4, 0.2, 3, 1e-2, 2.0), Scalars(0.1, 0.3, -0.1)
    exact_loss, exact_gradient = Idealized(problem, exact_law(32, 4, 0.2, lost=1e-9)).loss_and_gradient(at)
    sampled = Idealized(problem, sampled_law(32, 4, 0.2, samples=50_000, seed=3))
    loss, gradient = sampled.loss_and_gradient(at)
    loss_error, gradient_error = sampled.standard_errors(at)
    assert abs(loss - exact_loss) < 4 * loss_error
    assert (np.abs(gradient - exact_gradient) < 4 * gradient_error).all()
    assert Idealized(problem).standard_errors(at)[0] == 0.0


def test_what_pruning_changes_is_within_its_bound() -> None:
    problem, at = IdealizedProblem(64, 4, 0.05, 3, 1e-2, 2.0), Scalars(0.09, 0.4, -0.1)
    truth, true_gradient = Idealized(problem, exact_law(64, 4, 0.05, lost=1e-12)).loss_and_gradient(at)
    for lost in (1e-2, 1e-4, 1e-6):
        pruned = Idealized(problem, exact_law(64, 4, 0.05, lost=lost))
        loss, gradient = pruned.loss_and_gradient(at)
        bound = truncation_bound(pruned, at)
        assert 0 < abs(loss - truth) <= bound.loss
        assert (np.abs(gradient - true_gradient) <= bound.gradient).all()
    assert bound.loss < 0.01


def test_sign_sum_moments_are_the_known_ones() -> None:
    assert sign_sum_moments(np.arange(5.0), 2).tolist() == [0, 1, 2, 3, 4]
    assert sign_sum_moments(np.arange(5.0), 4).tolist() == [0, 1, 8, 21, 40]


def test_a_bound_for_a_sampled_law_is_refused() -> None:
    sampled = Idealized(IdealizedProblem(16, 4, 0.2), sampled_law(16, 4, 0.2, samples=10))
    with pytest.raises(ValueError, match="law: got a sampled one"):
        truncation_bound(sampled, Scalars(0.1, 0.0, 0.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"power": 4}, "power: got 4, expected an odd integer of at least 3"),
        ({"linear": -1.0}, "linear: got -1.0, expected nu >= 0"),
        ({"spurious": 1.5}, "spurious: got 1.5"),
        ({"size": 3}, "size: got 3, expected a divisor of 16 patches"),
    ],
)
def test_nonsense_is_refused_in_one_line(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Idealized(IdealizedProblem(**{"patches": 16, "spurious": 0.1, **change}))
