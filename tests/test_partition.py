import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessella.structure.partition import Partition

labels_of_any_partition = st.lists(st.integers(0, 5), min_size=1, max_size=40)


def test_blocks_are_the_example_of_section_2() -> None:
    expected = Partition.from_sets([[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]], (4, 4))
    assert Partition.blocks(4, 4, 2, 2) == expected


def test_bands_are_whole_rows() -> None:
    assert Partition.bands(4, 3, 2).labels.tolist() == [0] * 6 + [1] * 6


@given(labels_of_any_partition)
def test_sets_are_disjoint_and_cover(labels: list[int]) -> None:
    partition = Partition.from_labels(labels)
    members = np.concatenate([partition.members(number) for number in range(partition.sets)])
    assert sorted(members.tolist()) == list(range(len(labels)))
    assert partition.sizes.sum() == partition.patches


@given(labels_of_any_partition)
def test_same_set_compares_labels(labels: list[int]) -> None:
    same = Partition.from_labels(labels).same_set
    assert all(bool(same[i, j]) == (a == b) for i, a in enumerate(labels) for j, b in enumerate(labels))


@given(labels_of_any_partition)
def test_order_makes_sets_contiguous(labels: list[int]) -> None:
    partition = Partition.from_labels(labels)
    assert (np.diff(partition.labels[partition.order]) >= 0).all()


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_random_sets_have_one_size(sets: int, size: int, seed: int) -> None:
    partition = Partition.random(sets * size, size, seed)
    assert partition.size == size
    assert partition.sets == sets


def test_random_sets_name_a_seed_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="seed: got -1, expected a whole number of at least 0"):
        Partition.random(16, 4, -1)


def test_random_sets_depend_on_the_seed_alone() -> None:
    assert Partition.random(64, 4, 3) == Partition.random(64, 4, 3)
    assert Partition.random(64, 4, 3) != Partition.random(64, 4, 4)


def test_partition_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Partition.bands(2, 2).labels[0] = 1


def test_unequal_sets_have_no_single_size() -> None:
    with pytest.raises(ValueError, match="sets of 1 to 2 patches"):
        _ = Partition([0, 0, 1]).size


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Partition([]), "labels: got shape"),
        (lambda: Partition(np.zeros(3)), "labels: got dtype float64"),
        (lambda: Partition([0, 2]), "labels: got the values 0, 2"),
        (lambda: Partition([0, 1, 2], (2, 2)), "grid: got 2 x 2, expected a product of 3"),
        (lambda: Partition.from_sets([[0, 1], [1]]), "patch 1 in sets 0 and 1"),
        (lambda: Partition.from_sets([[0, 5]]), "got patch 5, expected sets that cover 0 to 1"),
        (lambda: Partition.from_sets([[0], []]), "empty set"),
        (lambda: Partition.blocks(4, 4, 3, 2), "block_height: got 3, expected a divisor of 4"),
        (lambda: Partition.random(10, 3, 0), "size: got 3, expected a divisor of 10"),
        (lambda: Partition.bands(2, 2).members(2), "number: got 2, expected a set from 0 to 1"),
    ],
)
def test_wrong_input_is_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


def test_same_set_is_boolean_and_reflexive() -> None:
    same = Partition.random(12, 3, 0).same_set
    assert same.dtype == torch.bool
    assert same.diagonal().all()


def test_labels_may_be_a_tensor() -> None:
    assert Partition.from_labels(torch.tensor([5, 5, 2, 2])) == Partition([0, 0, 1, 1])


def test_a_grid_has_no_negative_sides() -> None:
    with pytest.raises(ValueError, match="grid: got"):
        Partition([0, 0, 1, 1], (-2, -2))
