import math

import numpy as np
import pytest

from tessella.dynamics.idealized import Idealized, IdealizedProblem, Scalars
from tessella.dynamics.idealized_flow import descend, events, flow, velocity

SMALL = IdealizedProblem(16, 4, 0.2, 3, 1e-2, 2.0)


def test_flow_is_the_limit_of_descent() -> None:
    idealized = Idealized(SMALL)
    until = 4.0
    ends = [np.array(descend(idealized, until / steps, steps).at(-1)) for steps in (500, 2_000)]
    limit = np.array(flow(idealized, until, target=1e-9).at(-1))
    coarse, fine = (np.abs(end - limit).max() for end in ends)
    assert fine < coarse / 3
    assert fine < 1e-3


def test_descent_moves_each_scalar_as_the_entries_of_a_move() -> None:
    idealized = Idealized(SMALL)
    path = descend(idealized, 0.01, 1, Scalars(0.2, 0.1, -0.1))
    gradient = idealized.loss_and_gradient(path.at(0))[1]
    moved = np.array(path.at(1)) - np.array(path.at(0))
    assert moved == pytest.approx(-0.01 * gradient / np.array([1, 16 * 3, 16 * 12]), rel=1e-9)


def test_the_flow_ends_where_attention_never_leaves_its_saddle() -> None:
    """At D = 10^4 the solver's own differences of the speeds measured rounding, and its steps never grew again."""
    idealized = Idealized(IdealizedProblem(10_000, 4, 16 / 9_996, 3, 1e-8, 0.0))
    path = flow(idealized, points=50)
    assert np.abs([path.gamma[-1], path.rho[-1]]).max() == 0
    with pytest.raises(ValueError, match="target: got 0, expected a loss above 0"):
        flow(idealized, target=0.0)


def test_the_three_events_happen_in_order() -> None:
    idealized = Idealized(IdealizedProblem(1_000, 4, 9 / 996, 3, 1e-6, 2.0))
    path = flow(idealized, target=1e-3)
    found = events(idealized, path, 1.1e-3)
    assert found.in_order
    assert found.association < found.clear_association < found.fit
    assert found.peak_alpha > found.plateau_alpha
    assert path.loss[-1] == pytest.approx(1e-3, rel=1e-3)
    assert (np.diff(path.time) > 0).all()


def test_velocity_of_a_set_of_one_patch_leaves_gamma_alone() -> None:
    idealized = Idealized(IdealizedProblem(16, 1, 0.2, 3, 1e-2, 2.0))
    assert velocity(idealized, Scalars(0.2, 0.0, 0.0))[1] == 0.0


def test_from_the_saddle_at_nu_zero_nothing_moves() -> None:
    idealized = Idealized(IdealizedProblem(16, 4, 0.2, 3, 0.0, 2.0))
    path = flow(idealized, until=1e4)
    assert path.at(-1) == Scalars(0.0, 0.0, 0.0)
    assert events(idealized, path).plateau == math.inf


def test_a_rate_that_diverges_is_named() -> None:
    with pytest.raises(ValueError, match=r"rate: got 1e\+300, expected a lower one"):
        descend(Idealized(SMALL), 1e300, 50)
    with pytest.raises(ValueError, match=r"rate: got 0\.0, expected a positive learning rate"):
        descend(Idealized(SMALL), 0.0, 5)
