import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.probe.diversity import attention_distance, cosine_diversity, total_variation_diversity


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 7), st.integers(2, 9), st.integers(0, 99))
def test_diversities_are_means_over_pairs_of_queries(queries: int, keys: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(3, queries, keys, generator=generator, dtype=torch.float64).softmax(-1)
    pairs = list(itertools.combinations(range(queries), 2))
    variation = torch.stack([(maps[:, i] - maps[:, j]).abs().sum(-1) / 2 for i, j in pairs]).mean(0)
    cosine = torch.stack([1 - torch.cosine_similarity(maps[:, i], maps[:, j], dim=-1) for i, j in pairs]).mean(0)
    torch.testing.assert_close(total_variation_diversity(maps), variation)
    torch.testing.assert_close(cosine_diversity(maps), cosine)


def test_queries_that_attend_alike_have_no_diversity_and_disjoint_ones_all() -> None:
    alike = torch.full((5, 4), 0.25)
    assert float(total_variation_diversity(alike)) == 0
    assert float(cosine_diversity(alike)) == pytest.approx(0, abs=1e-6)
    assert float(total_variation_diversity(torch.eye(4))) == float(cosine_diversity(torch.eye(4))) == 1


def test_attention_distance_of_the_next_patch_is_one() -> None:
    places = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    assert float(attention_distance(torch.eye(2).flip(0), places)) == 1
    assert float(attention_distance(torch.eye(2), places)) == 0


def test_one_query_cannot_be_diverse() -> None:
    with pytest.raises(ValueError, match="maps: got 1 queries"):
        total_variation_diversity(torch.ones(1, 3))
