import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from tessella.structure.association import adjusted_rand_index, association, cluster
from tessella.structure.partition import Partition


def top_sets(matrix: np.ndarray, partition: Partition) -> float:
    """Definition 2.2 word by word, for a matrix without ties."""
    exact = 0
    for row, label in enumerate(partition.labels):
        own = set(np.flatnonzero(partition.labels == label).tolist())
        exact += set(np.argsort(-matrix[row])[: len(own)].tolist()) == own
    return exact / len(matrix)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 3), min_size=2, max_size=16), st.floats(0, 4))
def test_exact_rows_are_those_of_definition_2_2(seed: int, labels: list[int], signal: float) -> None:
    partition = Partition.from_labels(labels)
    noise = np.random.default_rng(seed).normal(size=(len(labels), len(labels)))
    matrix = noise + signal * partition.same_set.numpy()
    assert association(matrix, partition).exact_rows == top_sets(matrix, partition)


def test_a_matrix_of_the_sets_performs_association() -> None:
    partition = Partition.random(24, 3, 1)
    found = association(partition.same_set.double(), partition)
    assert found.performs
    assert (found.overlap, found.rand_index, found.tied_rows) == (1.0, 1.0, 0.0)


def test_the_diagonal_counts_as_any_other_entry() -> None:
    partition = Partition.bands(3, 3)
    matrix = partition.same_set.double().fill_diagonal_(-1.0)
    found = association(matrix, partition)
    assert found.exact_rows == 0.0
    assert found.tied_rows == 1.0  # the third place of each row goes to one of six equal entries
    assert found.overlap == pytest.approx(2 / 3)


def test_ties_are_reported_and_never_exact() -> None:
    partition = Partition.bands(4, 4)
    found = association(torch.zeros(16, 16), partition)
    assert (found.exact_rows, found.tied_rows) == (0.0, 1.0)
    assert found.overlap == pytest.approx(4 / 16)


def test_a_tie_inside_the_set_is_no_tie() -> None:
    partition = Partition([0, 0, 1, 1])
    matrix = torch.tensor([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]])
    assert association(matrix, partition).performs


@pytest.mark.parametrize("diagonal", [5.0, 0.0, -5.0])
def test_chance_is_the_mean_overlap_of_shuffled_rows(diagonal: float) -> None:
    partition = Partition.from_labels([0, 0, 0, 1, 1, 2, 2, 2, 2])
    generator = np.random.default_rng(0)
    overlaps, chances = [], []
    for _ in range(4000):
        matrix = generator.normal(size=(9, 9))
        np.fill_diagonal(matrix, diagonal)
        found = association(matrix, partition)
        overlaps.append(found.overlap)
        chances.append(found.chance)
    error = np.std(np.subtract(overlaps, chances)) / np.sqrt(len(overlaps))
    assert abs(np.mean(overlaps) - np.mean(chances)) < 4 * error


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5), st.integers(1, 5))
def test_rand_index_is_that_of_scikit_learn(seed: int, patches: int, first: int, second: int) -> None:
    generator = np.random.default_rng(seed)
    a, b = generator.integers(0, first, patches), generator.integers(0, second, patches)
    assert adjusted_rand_index(a, b) == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(2, 5))
def test_clustering_finds_sets_that_stand_out(seed: int, sets: int, size: int) -> None:
    partition = Partition.random(sets * size, size, seed)
    noise = np.random.default_rng(seed).normal(size=(partition.patches, partition.patches))
    found = cluster(10.0 * partition.same_set.numpy() + 0.5 * noise, sets)
    assert adjusted_rand_index(found, partition.labels) == 1.0


def test_clustering_does_not_look_at_the_diagonal() -> None:
    matrix = np.random.default_rng(0).normal(size=(12, 12))
    other = matrix.copy()
    np.fill_diagonal(other, 99.0)
    assert cluster(matrix, 3).tolist() == cluster(other, 3).tolist()


@pytest.mark.parametrize("patches", [1, 2])
def test_the_smallest_partitions_work(patches: int) -> None:
    assert association(torch.eye(patches), Partition(list(range(patches)))).performs


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.zeros(3, 3), r"matrix: got shape \(3, 3\), expected \(4, 4\)"),
        (torch.full((4, 4), float("nan")), "matrix: got 16 entries not finite"),
    ],
)
def test_wrong_input_is_named(matrix: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        association(matrix, Partition.bands(2, 2))


def test_matrices_in_short_precision_and_at_the_edge_of_long_are_read() -> None:
    partition = Partition.bands(4, 4)
    assert association(partition.same_set.to(torch.bfloat16), partition).performs
    assert association(partition.same_set.double() * 1.5e308 - 1e308, partition).rand_index == 1.0
    with pytest.raises(ValueError, match="complex64, expected real numbers"):
        association(torch.zeros(16, 16, dtype=torch.complex64), partition)
