"""The loss of the idealized process (P) and its gradient, exactly, in the three scalars of Lemmas 4.1 and 4.2.

With A = beta on the diagonal, gamma within sets and rho between them, and v = alpha w*, patch i of a set with sum t
carries D sum_j S_ij <v, X_j> = alpha (a s_i + b t + c T), where

    a = D (Lambda - Gamma),   b = D (Gamma - Xi),   c = D Xi,

so F = sum_i sigma(alpha (a s_i + b t_l(i) + c T)) is linear in the products T^e P_r and T^e R_r of the power sums
(`set_law`), with coefficients that are polynomials in alpha, a, b, c. A loss and its gradient are then two products
with one matrix that has a column for each state and, for p = 3, six rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from tessella.dynamics.set_law import SetLaw, power_sums, set_law


class Scalars(NamedTuple):
    """A point of the idealized process: v = alpha w*, gamma within sets, rho between them."""

    alpha: float
    gamma: float
    rho: float


class Attention(NamedTuple):
    """The three values of S (Section 4.1): Lambda on the diagonal, Gamma within sets, Xi between them."""

    diagonal: float
    within: float
    between: float


class Response(NamedTuple):
    """D (Lambda - Gamma), D (Gamma - Xi) and D Xi: what a patch's own feature, its set's and all features weigh."""

    a: float
    b: float
    c: float


@dataclass(frozen=True)
class IdealizedProblem:
    """Assumption 1 and the model (T), as far as (P) depends on them."""

    patches: int = 1000
    """D."""
    size: int = 4
    """C."""
    spurious: float = 9 / 996
    """q; lambda = q (D - C) is the expected number of spurious features."""
    power: int = 3
    """p of sigma(x) = x^p + nu x, odd."""
    linear: float = 1e-6
    """nu."""
    diagonal: float = 2.0
    """beta = sigma_A."""

    def __post_init__(self) -> None:
        if self.linear < 0:
            raise ValueError(f"linear: got {self.linear}, expected nu >= 0")
        if not math.isfinite(self.diagonal):
            raise ValueError(f"diagonal: got {self.diagonal}, expected a finite sigma_A")

    @property
    def start(self) -> Scalars:
        """Parametrization 3.1, idealized: alpha = nu^(1/(p-1)), gamma = rho = 0."""
        return Scalars(self.linear ** (1 / (self.power - 1)), 0.0, 0.0)


class Idealized:
    """The population loss of (P) over a law of the power sums; the law is built once, when this is."""

    def __init__(self, problem: IdealizedProblem, law: SetLaw | None = None):
        self.problem = problem
        self.law = law or set_law(problem.patches, problem.size, problem.spurious, problem.power)
        expected = (problem.patches, problem.size, problem.spurious, problem.power)
        if (self.law.patches, self.law.size, self.law.spurious, self.law.power) != expected:
            raise ValueError(f"law: got one of another problem, expected D, C, q, p = {expected}")
        self._terms, columns = _terms(problem.patches, problem.size, problem.power)
        self._columns = _state_columns(self.law, columns)

    def attention(self, at: Scalars) -> Attention:
        """Lambda, Gamma and Xi, with the largest logit taken out so that no exponential overflows."""
        within, between = self.problem.size - 1, self.problem.patches - self.problem.size
        top = max(self.problem.diagonal, at.gamma if within else -math.inf, at.rho if between else -math.inf)
        diagonal, gamma, rho = (math.exp(min(z - top, 0.0)) for z in (self.problem.diagonal, at.gamma, at.rho))
        total = diagonal + within * gamma + between * rho
        return Attention(diagonal / total, gamma / total, rho / total)

    def own_set_weight(self, at: Scalars) -> float:
        """G = D (Lambda + (C-1) Gamma)."""
        attention = self.attention(at)
        return self.problem.patches * (attention.diagonal + (self.problem.size - 1) * attention.within)

    def response(self, at: Scalars) -> Response:
        return self._response(self.attention(at))

    def _response(self, attention: Attention) -> Response:
        diagonal, within, between = attention
        patches = self.problem.patches
        return Response(patches * (diagonal - within), patches * (within - between), patches * between)

    def response_slopes(self, at: Scalars) -> tuple[Response, Response]:
        """The derivatives of a, b, c in gamma and in rho, through the softmax."""
        return self._response_slopes(self.attention(at))

    def _response_slopes(self, attention: Attention) -> tuple[Response, Response]:
        diagonal, within, between = attention
        patches, size = self.problem.patches, self.problem.size
        slopes = []
        for entries, weight, gamma, rho in (
            (size - 1, within, within, 0.0),
            (patches - size, between, 0.0, between),
        ):
            # Where no entry of A has this value, changing it changes nothing, exactly.
            shared = entries * weight
            slope = (-diagonal * shared, gamma - within * shared, rho - between * shared) if entries else (0.0,) * 3
            slopes.append(
                Response(patches * (slope[0] - slope[1]), patches * (slope[1] - slope[2]), patches * slope[2])
            )
        return slopes[0], slopes[1]

    def margins(self, at: Scalars) -> Float[np.ndarray, " states"]:
        """y F, one a state."""
        coefficients, _ = self._coefficients(at)
        return coefficients @ self._columns

    def loss(self, at: Scalars) -> float:
        """L(alpha, gamma, rho) = E log(1 + exp(-y F))."""
        return float(self.law.mass @ np.logaddexp(0.0, -self.margins(at)))

    def error(self, at: Scalars) -> float:
        """P[y F <= 0], a tie counted as an error."""
        return float(self.law.mass @ (self.margins(at) <= 0))

    def loss_and_gradient(self, at: Scalars) -> tuple[float, Float[np.ndarray, " 3"]]:
        """The loss and its derivatives in alpha, gamma and rho."""
        coefficients, slopes = self._coefficients(at)
        margins = coefficients @ self._columns
        # log(1 + e^-x) and 1 / (1 + e^x) from one exponential that cannot overflow; log(1 + z) is exact enough, as what
        # it loses beside log1p is below the rounding of the sum.
        size = np.abs(margins)
        faded = np.exp(-size)
        total = 1.0 + faded
        np.copyto(faded, 1.0, where=margins < 0)
        faded /= total
        faded *= self.law.mass
        size -= margins
        loss = self.law.mass @ np.log(total) + (self.law.mass @ size) / 2
        return float(loss), -(slopes @ (self._columns @ faded))

    def standard_errors(self, at: Scalars) -> tuple[float, Float[np.ndarray, " 3"]]:
        """Of the loss and the gradient under a sampled law; zero under an exact one."""
        if self.law.samples is None:
            return 0.0, np.zeros(3)
        coefficients, slopes = self._coefficients(at)
        margins = coefficients @ self._columns
        each = np.column_stack(
            [np.logaddexp(0.0, -margins), -special.expit(-margins)[:, None] * (slopes @ self._columns).T]
        )
        mean = self.law.mass @ each
        deviations = np.sqrt(self.law.mass @ (each - mean) ** 2 / (self.law.samples - 1))
        return float(deviations[0]), deviations[1:]

    def entry_gradient(self, gradient: Float[np.ndarray, " 3"]) -> Float[np.ndarray, " 3"]:
        """The gradient in one entry of A of each kind: gamma stands for D (C-1) of them, rho for D (D-C)."""
        patches, size = self.problem.patches, self.problem.size
        return gradient / np.array([1.0, max(patches * (size - 1), 1), max(patches * (patches - size), 1)])

    def best_alpha(self, gamma: float = 0.0, rho: float = 0.0) -> float:
        """The first minimum of the loss in alpha while A stays where it is: Event I's plateau. Infinite without one."""

        def slope(log_alpha: float) -> float:
            return float(self.loss_and_gradient(Scalars(math.exp(log_alpha), gamma, rho))[1][0])

        low = math.log(1e-3 / self.problem.patches)
        high = low
        while slope(high) < 0:
            high += 0.5
            if high > 10:
                return math.inf
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        return math.exp((low + high) / 2)

    def _coefficients(self, at: Scalars) -> tuple[Float[np.ndarray, " columns"], Float[np.ndarray, "3 columns"]]:
        """F's coefficients on the columns, and their derivatives in alpha, gamma and rho.

        Plain numbers in lists: there are ten terms for p = 3, and numpy would take longer to start than to add them.
        """
        problem = self.problem
        attention = self.attention(at)
        response = self._response(attention)
        a, b, c = ([z**n for n in range(problem.power + 1)] for z in response)
        value, by_a, by_b, by_c = ([0.0] * len(self._columns) for _ in range(4))
        for column, factor, i, j, k in self._terms:
            value[column] += factor * a[i] * b[j] * c[k]
            if i:
                by_a[column] += factor * i * a[i - 1] * b[j] * c[k]
            if j:
                by_b[column] += factor * j * a[i] * b[j - 1] * c[k]
            if k:
                by_c[column] += factor * k * a[i] * b[j] * c[k - 1]
        lead, steep = at.alpha**problem.power, problem.power * at.alpha ** (problem.power - 1)
        by_alpha = [steep * each for each in value]
        value = [lead * each for each in value]
        # The linear part nu alpha (a + C b + D c) T; T is the first column.
        linear = problem.linear * at.alpha
        slope = problem.linear * (response.a + problem.size * response.b + problem.patches * response.c)
        value[0] += at.alpha * slope
        by_alpha[0] += slope
        slopes = [by_alpha]
        for da, db, dc in self._response_slopes(attention):
            along = [lead * (da * x + db * y + dc * z) for x, y, z in zip(by_a, by_b, by_c, strict=True)]
            along[0] += linear * (da + problem.size * db + problem.patches * dc)
            slopes.append(along)
        return np.array(value), np.array(slopes)


class _Column(NamedTuple):
    """The column T^total * P_power, or T^total * R_power where `counted`."""

    total: int
    power: int
    counted: bool


_TOTAL = _Column(0, 1, False)
"""T itself, which the linear part of sigma needs; always the first column."""


class _Term(NamedTuple):
    """factor * a^i b^j c^k, a part of the coefficient of one column."""

    column: int
    factor: float
    i: int
    j: int
    k: int


def _terms(patches: int, size: int, power: int) -> tuple[list[_Term], list[_Column]]:
    """sum_i (a s_i + b t + c T)^p, expanded in c T and then in a s_i and b t.

    Over a set, s_i^m sums to C for m = 0, to t for odd m and to k for even m.
    """
    terms: list[_Term] = []
    numbers: dict[_Column, int] = {_TOTAL: 0}
    for j in range(power + 1):
        for m in range(j + 1):
            factor = float(math.comb(power, j) * math.comb(j, m))
            if j == 0:
                column, factor = _Column(power - 1, 1, False), factor * patches
            elif m == 0:
                column, factor = _Column(power - j, j, False), factor * size
            elif m % 2:
                column = _Column(power - j, j - m + 1, False)
            else:
                column = _Column(power - j, j - m, True)
            terms.append(_Term(numbers.setdefault(column, len(numbers)), factor, m, j - m, power - j))
    return terms, list(numbers)


def _state_columns(law: SetLaw, columns: list[_Column]) -> Float[np.ndarray, "columns states"]:
    """The products of power sums, the signal set's t = k = C included; a row each, so that it is contiguous."""
    signal = power_sums(np.array([[law.size, law.size]], dtype=np.int64), law.power)
    sums = (law.sums + signal).astype(np.float64)
    total = sums[:, 0]
    return np.stack([total**at.total * sums[:, law.power + at.power if at.counted else at.power - 1] for at in columns])
