import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tessella.dynamics.idealized import Idealized, IdealizedProblem, Scalars
from tessella.dynamics.linear_fit import fit_errors, fit_logistic
from tessella.dynamics.set_law import exact_law
from tessella.dynamics.transfer import (
    Ladder,
    Tuning,
    both_classes,
    climb,
    downstream,
    fine_tune,
    from_scratch,
    set_attention,
    uniform_attention,
)
from tessella.dynamics.whole_process import population, population_gradient, sampled_gradient, start
from tessella.models.deep_positional import DeepPositional
from tessella.models.linear_rules import best_weights, error_of, uniform_error
from tessella.models.misplaced_attention import (
    misplaced_attention,
    nearest_gram,
    own_attention,
    rows_that_hold_themselves,
)
from tessella.models.positional_head import PositionalHead
from tessella.models.simplified_vit import Activation, SimplifiedViT
from tessella.structure.association import association
from tessella.structure.partition import Partition
from tessella.worlds.gaussian_filters import GaussianFilters
from tessella.worlds.signal_sets import SignalSets


@settings(max_examples=20, deadline=None)
@given(sets=st.integers(2, 3), size=st.integers(1, 3), spurious=st.floats(0.0, 1.0))
@example(sets=2, size=2, spurious=1e-308)
def test_uniform_error_is_that_of_all_assignments(sets: int, size: int, spurious: float) -> None:
    whole = population(Partition(np.repeat(np.arange(sets), size)), spurious)
    listed = error_of(np.ones(sets * size), whole.features.numpy(), whole.mass.numpy())
    exact = uniform_error(sets * size, size, spurious)
    assert exact.strict == pytest.approx(listed.strict, abs=1e-9)
    assert exact.tied == pytest.approx(listed.tied, abs=1e-9)


def test_best_weights_reach_their_own_bound() -> None:
    whole = population(Partition([0, 0, 1, 1, 2, 2]), 1.0)
    points, mass = whole.features.numpy(), whole.mass.numpy()
    weights, bound = best_weights(points, mass)
    assert error_of(weights, points, mass).with_ties == pytest.approx(bound, abs=1e-9)


def test_training_a_linear_rule_beats_guessing() -> None:
    world = SignalSets(Partition.blocks(4, 4, 2, 2), 1, 0.3, noise=0.0)
    drawn = world.project(2_000, 0)
    points = (drawn.features * drawn.label[:, None]).numpy().astype(float)
    weights = fit_logistic(points)
    mass = np.full(len(points), 1 / len(points))
    assert error_of(weights, points, mass).half < 0.1
    assert error_of(fit_errors(points, weights), points, mass).half < 0.1


def test_population_sums_to_one_and_its_gradient_is_the_engine_s() -> None:
    partition = Partition([0, 1, 0, 1, 2, 2])
    whole = population(partition, 0.3)
    assert float(whole.mass.sum()) == pytest.approx(1.0)
    attention, value = start(partition, torch.ones(1), 0.2, 1.5)
    model = SimplifiedViT(attention, value, Activation(3, 0.01))
    slope = population_gradient(model, whole)
    idealized = Idealized(IdealizedProblem(6, 2, 0.3, 3, 0.01, 1.5), exact_law(6, 2, 0.3, lost=0.0))
    loss, gradient = idealized.loss_and_gradient(Scalars(0.2, 0.0, 0.0))
    assert float(slope.loss) == pytest.approx(loss, rel=1e-12)
    assert float(slope.value[0]) == pytest.approx(gradient[0], rel=1e-10)
    assert float(slope.attention[partition.same_set].sum()) == pytest.approx(gradient[1], rel=1e-9)
    assert float(slope.attention[~partition.same_set].sum()) == pytest.approx(gradient[2], rel=1e-9)


def test_a_world_too_large_to_write_out_is_refused() -> None:
    with pytest.raises(ValueError, match="partition: got 64 patches"):
        population(Partition.blocks(8, 8, 2, 2), 0.1)


def test_mirrored_gradient_lies_in_the_span_of_the_feature() -> None:
    feature = torch.nn.functional.normalize(torch.arange(1.0, 6.0, dtype=torch.float64), dim=0)
    partition = Partition.blocks(4, 4, 2, 2)
    world = SignalSets(partition, 5, 0.3, feature=feature)
    attention, value = start(partition, feature, 0.2, 2.0)
    model = SimplifiedViT(attention, value)
    for mirrored, off in ((True, 0.0), (False, 1e-3)):
        slope = sampled_gradient(model, world, 200, 0, mirrored).value
        across = float(torch.linalg.vector_norm(slope - (slope @ feature) * feature))
        assert across < 1e-14 if mirrored else across > off


def test_misplaced_attention_looks_at_one_other_set() -> None:
    partition = Partition.random(24, 4, 0)
    attention = misplaced_attention(partition, shift=2)
    assert association(attention, partition).overlap == 0.0
    assert association(own_attention(partition), partition).performs
    with pytest.raises(ValueError, match="shift: got 6, expected one that moves every one of 6 sets"):
        misplaced_attention(partition, shift=6)


def test_nearest_gram_is_positive_semidefinite_and_holds_its_own_rows() -> None:
    partition = Partition.blocks(4, 4, 2, 2)
    gram, added = nearest_gram(misplaced_attention(partition))
    assert added > 1
    assert float(torch.linalg.eigvalsh(gram).min()) > -1e-9
    assert rows_that_hold_themselves(gram, 4) == 1.0
    assert rows_that_hold_themselves(misplaced_attention(partition), 4) == 0.0
    already, nothing = nearest_gram(own_attention(partition))
    assert nothing < 1e-9
    assert torch.allclose(already, own_attention(partition))


def test_gaussian_filters_label_by_cubed_set_sums() -> None:
    world = GaussianFilters(Partition([0, 0, 1, 1]), 2)
    patches = torch.tensor([[[1.0, 9], [1, 9], [-1, 9], [-2, 9]]])
    assert world.labelling(patches).tolist() == [8 - 27]
    points, label = world.sample(500, torch.Generator().manual_seed(0))
    assert torch.equal(label, torch.sign(world.labelling(points)))
    assert abs(float(label.mean())) < 0.15
    with pytest.raises(ValueError, match="feature: got norm 0"):
        GaussianFilters(Partition([0, 1]), 2, torch.zeros(2))


def test_positional_heads_make_their_logits_as_they_say() -> None:
    generator = torch.Generator().manual_seed(0)
    free = PositionalHead(4, 3, "free", 2.0, 0.1, 2.0, generator)
    assert free.logits().diagonal().tolist() == [2.0] * 4
    gram = PositionalHead(4, 3, "gram", 1.0, 0.1, 2.0, generator)
    assert float(torch.linalg.eigvalsh(gram.logits().detach()).min()) > -1e-6
    query = PositionalHead(4, 3, "query-key", 1.0, 0.1, 2.0, generator)
    assert not torch.allclose(query.logits(), query.similarities())
    with pytest.raises(ValueError, match="diagonal: got -1, expected at least 0"):
        PositionalHead(4, 3, "gram", -1.0, 0.1, 2.0, generator)


def test_one_layer_of_the_deep_model_is_the_simplified_vit() -> None:
    deep = DeepPositional(6, 4, 1, 2.0, 0.1, torch.Generator().manual_seed(0))
    flat = SimplifiedViT(deep.logits(0).detach(), deep.value.detach())
    patches = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(deep(patches), flat(patches), atol=1e-6)
    with pytest.raises(ValueError, match="layers: got 0"):
        DeepPositional(6, 4, 0, 2.0, 0.1, torch.Generator())


def test_transfer_keeps_the_sets_and_changes_the_feature() -> None:
    world = SignalSets(Partition.blocks(4, 4, 2, 2), 8, 0.4)
    other = downstream(world, 3)
    assert other.partition == world.partition
    assert not torch.allclose(other.feature, world.feature)
    for points in (2, 3, 10):
        label = both_classes(other, points, 5).label
        assert len(label) == points
        assert label.min() == -1
        assert label.max() == 1
    with pytest.raises(ValueError, match="points: got 1, expected at least 2"):
        both_classes(other, 1, 0)


def test_a_kept_attention_fits_from_ten_samples_where_a_uniform_one_and_training_from_scratch_do_not() -> None:
    world = SignalSets(Partition.blocks(8, 8, 2, 2), 16, 0.15)
    worlds, seeds = [downstream(world, 70 + i) for i in range(3)], [0, 1, 2]
    kept = set_attention(world.partition, Scalars(0.1, 4.0, 0.0), 2.0)
    errors = {
        "kept": fine_tune(kept, worlds, 10, seeds, Tuning(), 2_000),
        "uniform": fine_tune(uniform_attention(world.partition), worlds, 10, seeds, Tuning(), 2_000),
        "scratch": [
            from_scratch(each, 10, seed, Tuning(steps=100), 2_000) for each, seed in zip(worlds, seeds, strict=True)
        ],
    }
    assert np.median(errors["kept"]) < 0.05
    assert np.median(errors["uniform"]) > 0.08
    assert np.median(errors["scratch"]) > 0.08


def test_a_ladder_stops_at_the_first_size_that_is_enough() -> None:
    asked: list[int] = []

    def errors_at(size: int) -> list[float]:
        asked.append(size)
        return [1 / size, 2 / size, 9.0]

    ladder = climb((10, 20, 40, 80), 0.06, errors_at)
    assert asked == [10, 20, 40]
    assert ladder.need == 40
    assert Ladder({10: [0.5]}, 0.1).need == math.inf
