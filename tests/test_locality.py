"""Locality of encodings, against closed forms and counts by hand."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessella.probe.locality import (
    adjacency,
    by_distance,
    chance,
    cosines,
    figure_1a,
    nearest_adjacent,
    put_back,
)

GRIDS = st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda grid: grid[0] * grid[1] > 1)


def sin_cos(rows: int, columns: int, frequencies: int = 4) -> torch.Tensor:
    """Half of the dimensions code the row and half the column, so that cosines depend on both distances alone."""
    rates = 0.5 ** torch.arange(frequencies, dtype=torch.float64)

    def coded(count: int) -> torch.Tensor:
        angles = torch.arange(count, dtype=torch.float64)[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], 1)

    row, column = coded(rows), coded(columns)
    return torch.cat([row[:, None].expand(-1, columns, -1), column[None].expand(rows, -1, -1)], -1).flatten(0, 1)


@given(GRIDS)
def test_chance_is_the_share_of_adjacent_pairs_counted_one_by_one(grid: tuple[int, int]) -> None:
    places = list(itertools.product(range(grid[0]), range(grid[1])))
    pairs = list(itertools.permutations(places, 2))
    adjacent = sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for a, b in pairs)
    assert chance(grid) == pytest.approx(adjacent / len(pairs), abs=1e-12)


def test_chance_on_a_grid_of_two_by_three_is_the_mean_over_every_choice_of_neighbours() -> None:
    # Each of 6 patches picks one of the 5 others: the mean over all picks, not over a sample of them.
    adjacent = adjacency((2, 3))
    shares = []
    for picks in itertools.product(range(5), repeat=6):
        chosen = [pick + (pick >= patch) for patch, pick in enumerate(picks)]
        shares.append(sum(bool(adjacent[patch, other]) for patch, other in enumerate(chosen)) / 6)
    assert chance((2, 3)) == pytest.approx(math.fsum(shares) / len(shares), abs=1e-12)


@given(st.integers(2, 8), st.integers(2, 8))
def test_cosines_of_sin_cos_encodings_are_their_closed_form_and_wholly_local(rows: int, columns: int) -> None:
    found = cosines(sin_cos(rows, columns))
    rates = 0.5 ** torch.arange(4, dtype=torch.float64)
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    apart = places[:, None] - places[None]
    expected = (apart[..., None] * rates).cos().mean((-1, -2))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    assert float(nearest_adjacent(found, (rows, columns))) == 1.0


@given(GRIDS, st.integers(0, 1000))
def test_equal_similarities_are_at_chance_and_random_ones_are_counted_as_by_hand(
    grid: tuple[int, int], seed: int
) -> None:
    patches = grid[0] * grid[1]
    assert float(nearest_adjacent(torch.full((patches, patches), 0.3), grid)) == pytest.approx(chance(grid), abs=1e-6)
    drawn = torch.rand(patches, patches, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    hits = 0
    for patch in range(patches):
        nearest = max((other for other in range(patches) if other != patch), key=lambda j, i=patch: drawn[i, j])
        (row, column), (other_row, other_column) = divmod(patch, grid[1]), divmod(nearest, grid[1])
        hits += abs(row - other_row) + abs(column - other_column) == 1
    assert float(nearest_adjacent(drawn, grid)) == pytest.approx(hits / patches, abs=1e-9)


def test_random_encodings_are_near_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = nearest_adjacent(cosines(torch.randn(200, 64, 32, generator=generator)), (8, 8))
    assert shares.shape == (200,)
    assert float(shares.mean()) == pytest.approx(chance((8, 8)), abs=0.01)


@given(st.integers(2, 6), st.integers(0, 1000))
def test_shuffled_encodings_are_local_again_once_put_back(side: int, seed: int) -> None:
    order = torch.randperm(side * side, generator=torch.Generator().manual_seed(seed))
    plain = sin_cos(side, side)
    shuffled = cosines(plain[order])
    torch.testing.assert_close(put_back(shuffled, order), cosines(plain))
    assert float(nearest_adjacent(put_back(shuffled, order), (side, side))) == 1.0


def test_figure_1a_fills_the_range_from_minus_one_to_one_and_keeps_the_order() -> None:
    encodings = torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shown = figure_1a(encodings)
    assert (float(shown.min()), float(shown.max())) == (-1.0, 1.0)
    above = torch.ones(9, 9, dtype=torch.bool).triu()  # each pair once: equal values have no order
    assert torch.equal(shown[above].argsort(), (encodings @ encodings.T)[above].argsort())
    assert not figure_1a(torch.zeros(4, 3)).any()


def test_similarity_by_distance_is_a_mean_over_pairs() -> None:
    distances, means = by_distance(torch.tensor([[1.0, 0.5], [0.3, 0.8]]), (1, 2))
    assert distances == [0.0, 1.0]
    assert means == pytest.approx([0.9, 0.4])


def test_what_does_not_fit_the_grid_is_named() -> None:
    with pytest.raises(ValueError, match=r"similarities: got shape \(4, 4\), expected 6 x 6"):
        nearest_adjacent(torch.zeros(4, 4), (2, 3))
    with pytest.raises(ValueError, match=r"grid: got 1 x 1, expected at least two patches"):
        chance((1, 1))
    with pytest.raises(ValueError, match=r"order: got 4 places, expected each of 4 once"):
        put_back(torch.zeros(4, 4), torch.tensor([0, 0, 1, 2]))
