"""Linear rules on Assumption 1: exact errors, and the best rule that there is where a world can be written out.

A rule g(X) = phi(sum_j <w_j, X_j>) with phi odd errs when y sum_j <w_j, X_j> <= 0. Noise is orthogonal to w*, so a
part of w_j outside span(w*) only adds noise: what remains is a weight for each patch, and z = y s with the signal set
at 1. Uniform weights give T = C + N with N a sum of D - C features that are 1 or -1 with probability q/2 each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import optimize, sparse, special, stats


@dataclass(frozen=True)
class LinearError:
    """Errors of one rule, with ties left out, counted as half an error, and counted as errors."""

    strict: float
    """P[margin < 0]: no way to break ties can be better."""
    tied: float
    """P[margin = 0]."""

    @property
    def half(self) -> float:
        return self.strict + self.tied / 2

    @property
    def with_ties(self) -> float:
        """P[f* g <= 0], as Theorem 3.1 counts."""
        return self.strict + self.tied


def uniform_error(patches: int, size: int, spurious: float) -> LinearError:
    """The error of sign(T), exactly: given k features among the D - C, N is a sum of k signs."""
    others = patches - size
    counts = np.arange(others + 1)
    # In logarithms, since scipy's own binomial overflows where q is next to nothing.
    ways = special.gammaln(others + 1) - special.gammaln(counts + 1) - special.gammaln(others - counts + 1)
    mass = np.exp(ways + special.xlogy(counts, spurious) + special.xlog1py(others - counts, -spurious))
    likely = mass > 1e-18
    counts, mass = counts[likely], mass[likely]
    # N = 2 B - k with B ~ Bin(k, 1/2): N < -C when B < (k - C) / 2, and N = -C when B = (k - C) / 2.
    half = (counts - size) / 2
    strict = mass @ stats.binom.cdf(np.ceil(half) - 1, counts, 0.5)
    whole = (counts - size) % 2 == 0
    tied = mass[whole] @ stats.binom.pmf(half[whole], counts[whole], 0.5)
    return LinearError(float(strict), float(tied))


def error_of(
    weights: Float[np.ndarray, " patches"],
    points: Float[np.ndarray, "points patches"],
    mass: Float[np.ndarray, " points"],
) -> LinearError:
    """The error of given weights over the points z = y s of a world, with their probabilities."""
    margin = points @ weights
    small = 1e-9 * np.abs(weights).sum()
    return LinearError(float(mass[margin < -small].sum()), float(mass[np.abs(margin) <= small].sum()))


def best_weights(
    points: Float[np.ndarray, "points patches"], mass: Float[np.ndarray, " points"], seconds: float = 60.0
) -> tuple[Float[np.ndarray, " patches"], float]:
    """The weights of least error over written-out points, and a proven lower bound on the error of any weights.

    A mixed-integer program: a point that is not marked as an error must have a margin of at least 1. Weights are
    bounded by 10 in this scale, so the bound holds for rules whose weights do not differ by more than that.
    """
    distinct, place = np.unique(points, axis=0, return_inverse=True)
    weight = np.bincount(place.ravel(), mass)
    patches = points.shape[1]
    largest = 1 + 10 * np.abs(distinct).sum(axis=1)
    rows = sparse.hstack([sparse.csr_array(distinct), sparse.diags_array(largest)])
    solved = optimize.milp(
        np.concatenate([np.zeros(patches), weight]),
        constraints=optimize.LinearConstraint(rows.tocsr(), lb=1.0),
        integrality=np.concatenate([np.zeros(patches), np.ones(len(weight))]),
        bounds=optimize.Bounds(
            np.concatenate([np.full(patches, -10.0), np.zeros(len(weight))]),
            np.concatenate([np.full(patches, 10.0), np.ones(len(weight))]),
        ),
        options={"time_limit": seconds},
    )
    if solved.x is None:
        raise ValueError(f"seconds: got {seconds:g}, expected enough to find any weights for {len(weight)} points")
    return solved.x[:patches], float(solved.mip_dual_bound)
