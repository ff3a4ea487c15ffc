"""The paper's pi_s: cells move whole, one permutation for every image, and the way back is exact."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tessella.images.grid_shuffle import GridShuffle
from tessella.probe import locality

CELLS = (2, 4, 8, 16, 32)


def images(batch: int = 3, side: int = 32) -> Tensor:
    return torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))


def cells_of(image: Tensor, cell: int) -> list[Tensor]:
    """By slices: the cells of one image from left to right and top to bottom."""
    side = image.shape[-1]
    return [
        image[..., row : row + cell, column : column + cell]
        for row in range(0, side, cell)
        for column in range(0, side, cell)
    ]


@pytest.mark.parametrize("cell", CELLS)
def test_place_j_shows_cell_order_j_of_every_image(cell: int) -> None:
    shuffle, given_images = GridShuffle.random(32, cell, seed=1), images()
    before, after = cells_of(given_images, cell), cells_of(shuffle(given_images), cell)
    assert len(after) == (32 // cell) ** 2
    for place, origin in enumerate(shuffle.order.tolist()):
        assert torch.equal(after[place], before[origin])


@given(seed=st.integers(0, 2**31), across=st.integers(1, 6), cell=st.integers(1, 6))
def test_the_inverse_is_exact_both_ways(seed: int, across: int, cell: int) -> None:
    shuffle, given_images = GridShuffle.random(across * cell, cell, seed), images(2, across * cell)
    assert torch.equal(shuffle.inverse(shuffle(given_images)), given_images)
    assert torch.equal(shuffle(shuffle.inverse(given_images)), given_images)
    assert torch.equal(shuffle.shuffle(given_images), shuffle(given_images))


def test_a_cell_as_large_as_the_image_is_the_identity_and_smaller_ones_are_not() -> None:
    given_images = images()
    assert torch.equal(GridShuffle.random(32, 32, seed=5)(given_images), given_images)
    for cell in (2, 4, 8):
        assert not torch.equal(GridShuffle.random(32, cell, seed=5)(given_images), given_images)


def test_a_seed_names_one_permutation_and_all_are_as_likely() -> None:
    assert torch.equal(GridShuffle.random(32, 4, 3).order, GridShuffle.random(32, 4, 3).order)
    assert not torch.equal(GridShuffle.random(32, 4, 3).order, GridShuffle.random(32, 4, 4).order)
    orders = [tuple(GridShuffle.random(4, 2, seed).order.tolist()) for seed in range(2400)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 24
    assert max(abs(count - 100) for count in counts) < 50  # five standard deviations


@pytest.mark.parametrize(("cell", "patch"), [(2, 2), (4, 2), (8, 4), (16, 2), (32, 8)])
def test_patches_of_the_shuffled_image_are_the_images_patches_in_patch_order(cell: int, patch: int) -> None:
    shuffle, given_images = GridShuffle.random(32, cell, seed=2), images()
    before = torch.stack(cells_of(given_images, patch))
    after = torch.stack(cells_of(shuffle(given_images), patch))
    assert torch.equal(after, before[shuffle.patch_order(patch)])
    assert torch.equal(shuffle.shuffle_patches(before, patch), after)
    assert torch.equal(shuffle.restore_patches(after, patch), before)


def test_encodings_learnt_on_shuffled_images_are_local_again_once_restored() -> None:
    places = torch.cartesian_prod(torch.arange(16.0), torch.arange(16.0))
    learnt = torch.cat([torch.cos(places * 0.15), torch.sin(places * 0.15)], dim=1)
    shuffle = GridShuffle.random(32, 2, seed=0)
    on_shuffled = shuffle.shuffle_patches(learnt, 2)
    restored = locality.cosines(shuffle.restore_patches(on_shuffled, 2))
    assert locality.nearest_adjacent(locality.cosines(on_shuffled), (16, 16)) < 0.05
    assert locality.nearest_adjacent(restored, (16, 16)) == 1
    put_back = locality.put_back(locality.cosines(on_shuffled), shuffle.patch_order(2))
    torch.testing.assert_close(put_back, restored)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match=r"^cell: got 5, expected a divisor of the 32 pixels"):
        GridShuffle.random(32, 5, seed=0)
    with pytest.raises(ValueError, match=r"^patch: got 4, expected a divisor of the 2 pixels"):
        GridShuffle.random(32, 2, seed=0).patch_order(4)
    with pytest.raises(ValueError, match=r"^images: got \(16, 16\)"):
        GridShuffle.random(32, 2, seed=0)(images(1, 16))
    with pytest.raises(ValueError, match=r"^order: got \[0, 0, 1, 2\]"):
        GridShuffle(4, 2, torch.tensor([0, 0, 1, 2]))
    with pytest.raises(ValueError, match=r"^rows: got 3, expected one for each of 4 patches"):
        GridShuffle.random(4, 2, seed=0).restore_patches(torch.zeros(3, 2), 2)
