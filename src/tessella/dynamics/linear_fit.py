"""Training linear rules on Assumption 1, as favourably as possible: on the features themselves, without noise."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import optimize, special


def fit_logistic(points: Float[np.ndarray, "points patches"]) -> Float[np.ndarray, " patches"]:
    """Weights of least mean logistic loss on the margins of z = y s."""

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margin = points @ weights
        slope = -special.expit(-margin) / len(points)
        return float(np.logaddexp(0.0, -margin).mean()), slope @ points

    solved = optimize.minimize(objective, np.zeros(points.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(solved.x)


def fit_errors(
    points: Float[np.ndarray, "points patches"],
    start: Float[np.ndarray, " patches"],
    sharpness: tuple[float, ...] = (2.0, 5.0, 15.0),
) -> Float[np.ndarray, " patches"]:
    """Weights that lower the share of errors itself, smoothed ever less: mean sigmoid(-k margin) for growing k."""
    weights = start / np.abs(start).mean()
    for k in sharpness:

        def objective(w: np.ndarray, k: float = k) -> tuple[float, np.ndarray]:
            wrong = special.expit(-k * (points @ w))
            return float(wrong.mean()), (-k * wrong * (1 - wrong)) @ points / len(points)

        weights = np.asarray(optimize.minimize(objective, weights, jac=True, method="L-BFGS-B").x)
    return weights
