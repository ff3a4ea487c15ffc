import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.dynamics.set_law import LawTooLarge, SetLaw, exact_law, power_sums, sampled_law, set_law, set_types


@pytest.mark.parametrize("spurious", [5e-324, 2.225073858507203e-309, 1e-307, 1e-251])
def test_next_to_no_feature_is_none(spurious: float) -> None:
    law = exact_law(24, 4, spurious)
    assert law.states == 1
    assert law.mass.sum() == pytest.approx(1)
    assert 0 <= law.lost < 1e-200


def as_dictionary(law: SetLaw) -> dict[tuple[int, ...], float]:
    return dict(zip(map(tuple, law.sums.tolist()), law.mass.tolist(), strict=True))


def by_enumeration(sets: int, size: int, spurious: float, power: int) -> dict[tuple[int, ...], float]:
    """Every assignment of 3^(sets * size) features, one at a time."""
    law: dict[tuple[int, ...], float] = {}
    chance = {-1: spurious / 2, 0: 1 - spurious, 1: spurious / 2}
    for features in itertools.product((-1, 0, 1), repeat=sets * size):
        groups = np.array(features).reshape(sets, size)
        t, k = groups.sum(1), np.abs(groups).sum(1)
        key = [int((t**r).sum()) for r in range(1, power + 1)] + [int((t**r * k).sum()) for r in range(power - 1)]
        mass = float(np.prod([chance[s] for s in features]))
        if mass:
            law[tuple(key)] = law.get(tuple(key), 0.0) + mass
    return law


@pytest.mark.parametrize(("size", "spurious", "power"), [(1, 0.3, 3), (2, 0.4, 3), (2, 1.0, 5), (2, 0.15, 7)])
def test_law_is_that_of_all_assignments(size: int, spurious: float, power: int) -> None:
    expected = by_enumeration(3, size, spurious, power)
    found = as_dictionary(exact_law(4 * size, size, spurious, power, lost=0.0))
    assert found.keys() == expected.keys()
    for key, mass in expected.items():
        assert found[key] == pytest.approx(mass, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(sets=st.integers(2, 40), size=st.integers(1, 5), expected=st.floats(0.0, 6.0), lost=st.floats(1e-9, 1e-3))
def test_pruning_loses_no_more_than_it_reports(sets: int, size: int, expected: float, lost: float) -> None:
    spurious = min(1.0, expected / (sets * size))
    law = exact_law(sets * size, size, spurious, 3, lost)
    assert law.lost <= lost * (1 + 1e-9)
    assert 1 - law.mass.sum() <= law.lost + 1e-12


def test_pruned_law_is_the_full_one_less_its_lightest_states() -> None:
    full, pruned = as_dictionary(exact_law(32, 4, 0.1, lost=0.0)), as_dictionary(exact_law(32, 4, 0.1, lost=1e-4))
    assert len(pruned) < len(full) / 4
    assert sum(full[key] - mass for key, mass in pruned.items()) <= 1e-4
    assert all(mass <= full[key] + 1e-12 for key, mass in pruned.items())


def test_first_moments_are_those_of_the_world() -> None:
    law = exact_law(1_000_000, 4, 16 / 999_996, lost=1e-9)
    total, total_squared, features = law.sums[:, 0], law.sums[:, 0] ** 2, law.sums[:, 3]
    assert law.mass @ total == pytest.approx(0.0, abs=1e-6)
    assert law.mass @ total_squared == pytest.approx(16.0, rel=1e-6)
    assert law.mass @ features == pytest.approx(16.0, rel=1e-6)


@pytest.mark.parametrize(("patches", "size", "spurious"), [(16, 4, 0.0), (4, 4, 0.5)])
def test_without_features_or_random_sets_there_is_one_state(patches: int, size: int, spurious: float) -> None:
    law = exact_law(patches, size, spurious)
    assert law.states == 1
    assert law.mass.sum() == pytest.approx(1.0)
    assert not law.sums.any()


def test_sampled_law_agrees_with_the_exact_one_and_says_that_it_is_sampled() -> None:
    exact, sampled = exact_law(64, 4, 0.1, lost=1e-9), sampled_law(64, 4, 0.1, samples=50_000, seed=1)
    assert exact.samples is None
    assert sampled.samples == 50_000
    squares = exact.sums.astype(float) ** 2
    mean, deviation = exact.mass @ squares, np.sqrt(exact.mass @ squares**2 / 50_000)
    assert (np.abs(sampled.mass @ sampled.sums.astype(float) ** 2 - mean) < 4 * deviation).all()


def test_too_large_a_law_is_sampled() -> None:
    with pytest.raises(LawTooLarge, match="most_states: got 500"):
        exact_law(64, 4, 0.25, most_states=500)
    assert set_law(64, 4, 0.25, most_states=500, samples=1_000).samples == 1_000


def test_set_types_are_a_law_even_at_the_edges() -> None:
    for spurious in (0.0, 1e-12, 0.5, 1.0):
        pairs, mass = set_types(4, spurious)
        assert mass.sum() == pytest.approx(1.0)
        assert (np.abs(pairs[:, 0]) <= pairs[:, 1]).all()
    assert power_sums(np.array([[-2, 4]]), 5).tolist() == [[-2, 4, -8, 16, -32, 4, -8, 16, -32]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 4, 0.1), "size: got 4, expected a divisor of 10 patches"),
        ((16, 4, 1.2), "spurious: got 1.2, expected a probability between 0 and 1"),
        ((16, 4, 0.1, 4), "power: got 4, expected an odd integer of at least 3"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exact_law(*arguments)
