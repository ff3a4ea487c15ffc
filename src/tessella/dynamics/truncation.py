"""What the mass that was pruned from an exact law can do to the loss and the gradient of (P), at most.

Let B be the states that were pruned, of mass at most m, and |X|_r the r-th norm of a random variable under the full
law. By Hoelder's inequality E[|X| 1_B] <= |X|_r m^(1 - 1/r). The loss is at most log 2 + |F|, and its derivative in a
parameter at most |dF| in size, since that of log(1 + exp(-F)) lies between -1 and 0. F and dF are sums over patches of
sigma(h_i) and sigma'(h_i) dh_i with h_i = alpha (a s_i + b t + c T), so Minkowski's inequality bounds their norms by
those of s_i, t and T, which are exact moments of trinomial sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from tessella.dynamics.idealized import Idealized, Response, Scalars


@dataclass(frozen=True)
class TruncationBound:
    """The most that pruning can have changed."""

    loss: float
    gradient: Float[np.ndarray, " 3"]
    """In alpha, gamma and rho."""


def truncation_bound(idealized: Idealized, at: Scalars, orders: tuple[int, ...] = (2, 4, 6, 8, 12)) -> TruncationBound:
    """The best of Hoelder's bounds over the given even orders r."""
    if idealized.law.samples is not None:
        raise ValueError("law: got a sampled one, expected an exact one; its standard errors say how far it is off")
    lost = idealized.law.lost
    bounds = []
    for order in orders:
        output, slopes = _norms(idealized, at, order)
        share = lost ** (1 - 1 / order)
        bounds.append(np.concatenate([[lost * math.log(2) + share * output], share * slopes]))
    least = np.min(bounds, axis=0)
    return TruncationBound(float(least[0]), least[1:])


def _norms(idealized: Idealized, at: Scalars, order: int) -> tuple[float, Float[np.ndarray, " 3"]]:
    """|F|_r and the |dF|_r in alpha, gamma and rho."""
    problem = idealized.problem
    power, inner = problem.power, problem.power * order
    response = idealized.response(at)
    by_gamma, by_rho = idealized.response_slopes(at)
    total = problem.size + trinomial_norm(problem.patches - problem.size, problem.spurious, inner)
    own = trinomial_norm(1, problem.spurious, inner)
    in_set = trinomial_norm(problem.size, problem.spurious, inner)

    def norm(weights: Response, signal: bool) -> float:
        a, b, c = (at.alpha * abs(z) for z in weights)
        return a + b * problem.size + c * total if signal else a * own + b * in_set + c * total

    output, slopes = 0.0, np.zeros(3)
    for patches, signal in ((problem.size, True), (problem.patches - problem.size, False)):
        h = norm(response, signal)
        sigma, steep = h**power + problem.linear * h, power * h ** (power - 1) + problem.linear
        output += patches * sigma
        slopes += (
            patches
            * steep
            * np.array([h / at.alpha if at.alpha else 0.0, norm(by_gamma, signal), norm(by_rho, signal)])
        )
    return output, slopes


def trinomial_norm(count: int, spurious: float, order: int) -> float:
    """(E |n_+ - n_-|^r)^(1/r) for `count` features that are 1 or -1 with probability q/2 each; r is even.

    Given k features in all, n_+ - n_- is a sum of k signs. Where k is far beyond its mean its mass is below 1e-30.
    """
    if count == 0 or spurious == 0.0:
        return 0.0
    law = stats.binom(count, spurious)
    mean = count * spurious
    features = np.arange(min(count, int(mean + 12 * math.sqrt(mean) + 80)) + 1, dtype=np.float64)
    return float((law.pmf(features) @ sign_sum_moments(features, order)) ** (1 / order))


def sign_sum_moments(counts: Float[np.ndarray, " counts"], order: int) -> Float[np.ndarray, " counts"]:
    """E (sum of k signs)^r for each k: by E S^r = sum over even j of binom(r, j) E S_(k-1)^(r-j), unrolled over k."""
    moments = np.zeros((order // 2 + 1, len(counts)))
    moments[:, 0] = [1.0] + [0.0] * (order // 2)
    for k in range(1, len(counts)):
        for half in range(order // 2 + 1):
            moments[half, k] = sum(math.comb(2 * half, 2 * i) * moments[i, k - 1] for i in range(half + 1))
    return moments[-1]
