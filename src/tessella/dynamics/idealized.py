"""The loss of the idealized process (P) and its gradient, exactly, in the three scalars of Lemmas 4.1 and 4.2.

With A = beta on the diagonal, gamma within sets and rho between them, and v = alpha w*, patch i of a set with sum t
carries D sum_j S_ij <v, X_j> = alpha (a s_i + b t + c T), where

    a = D (Lambda - Gamma),   b = D (Gamma - Xi),   c = D Xi,

so F = sum_i sigma(alpha (a s_i + b t_l(i) + c T)) is linear in the products T^e P_r and T^e R_r of the power sums
(`set_law`), with coefficients that are polynomials in alpha, a, b, c. A loss and its gradient are then two products
with one matrix that has a column for each state and, for p = 3, six rows; between the two stand one exponential and
one logarithm a state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from tessella.dynamics.set_law import SetLaw, power_sums, set_law

_AT_A_TIME = 8192
"""States in a slice: what a pass over them makes stays in the cache, and a large law is read from memory once."""
_OVERFLOWING = 700.0
"""The exponential of more than 709 is no longer a number."""


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
        self._expansion = _expansion(problem)
        self._columns = _state_columns(self.law, self._expansion.columns)
        slices = [slice(first, first + _AT_A_TIME) for first in range(0, self.law.states, _AT_A_TIME)]
        self._parts = [(self._columns[:, part], self.law.mass[part]) for part in slices]

    def attention(self, at: Scalars) -> Attention:
        """Lambda, Gamma and Xi, with the largest logit taken out so that no exponential overflows.

        Where no entry of A has a value, its weight is 0, so that changing it changes nothing, exactly.
        """
        problem, exp = self.problem, math.exp
        within, between = problem.size - 1, problem.patches - problem.size
        top = max(problem.diagonal, at.gamma if within else -math.inf, at.rho if between else -math.inf)
        diagonal = exp(problem.diagonal - top)
        gamma = exp(at.gamma - top) if within else 0.0
        rho = exp(at.rho - top) if between else 0.0
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
        attention = self.attention(at)
        return self._response_slopes(attention, self._response(attention))

    def _response_slopes(self, attention: Attention, response: Response) -> tuple[Response, Response]:
        a, b, c = response
        patches, size = self.problem.patches, self.problem.size
        inside, gained = (size - 1) * attention.within, patches * attention.within
        outside, spread = (patches - size) * attention.between, patches * attention.between
        return (
            Response(-inside * a - gained, -inside * b + gained, -inside * c),
            Response(-outside * a, -outside * b - spread, -outside * c + spread),
        )

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
        downwards = -coefficients
        loss, pull = 0.0, np.zeros(len(coefficients))
        for columns, mass in self._parts:
            against = downwards @ columns
            # log(1 + e^x) and 1 / (1 + e^-x) from one exponential, unless it would overflow; what log(1 + z) loses
            # beside log1p is below the rounding of the sum.
            if against.max() < _OVERFLOWING:
                share = np.exp(against, out=against)
                total = 1.0 + share
                share /= total
                losses = np.log(total, out=total)
            else:
                losses, share = np.logaddexp(0.0, against), special.expit(against)
            loss += float(mass @ losses)
            share *= mass
            pull += columns @ share
        gradient = -(slopes @ pull)
        if at.gamma == at.rho == self.problem.diagonal:
            gradient[1:] = 0.0  # Uniform attention is an exact saddle: what the two slopes have left is rounding.
        return loss, gradient

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

        F = alpha^p V(a, b, c) + alpha nu (a + C b + D c) T with V homogeneous of degree p: dF/dalpha times alpha / p
        is F itself but for what it misses of the second part.
        """
        problem = self.problem
        attention = self.attention(at)
        response = self._response(attention)
        by_gamma, by_rho = self._response_slopes(attention, response)
        chain = [response, [at.alpha * each for each in by_gamma], [at.alpha * each for each in by_rho]]
        slopes = np.array(chain) @ self._expansion.slopes(at.alpha, response)
        value = slopes[0] * (at.alpha / problem.power)
        linear = problem.linear * (response.a + problem.size * response.b + problem.patches * response.c)
        value[0] += (1 - 1 / problem.power) * at.alpha * linear
        return value, slopes


class _Column(NamedTuple):
    """The column T^total * P_power, or T^total * R_power where `counted`."""

    total: int
    power: int
    counted: bool


_TOTAL = _Column(0, 1, False)
"""T itself, which the linear part of sigma needs; always the first column."""


class _Expansion(NamedTuple):
    """F / alpha = sum_i alpha^(p-1) (a s_i + b t + c T)^p + nu (a s_i + b t + c T) as a combination of columns."""

    power: int
    columns: list[_Column]
    monomials: list[list[int]]
    """The powers of a, b and c in each product of degree p - 1."""
    weights: Float[np.ndarray, "slopes monomials"]
    """Of alpha^(p-1) times the monomials, and of 1, in the slopes in a of the columns' coefficients, in b, and in c."""

    def slopes(self, alpha: float, response: Response) -> Float[np.ndarray, "3 columns"]:
        """The derivatives of the coefficients of F / alpha in a, b and c."""
        # Plain numbers in lists: for p = 3 there are six monomials, and numpy would take longer to start.
        a, b, c = ([z**n for n in range(self.power)] for z in response)
        steep = alpha ** (self.power - 1)
        products = [steep * a[i] * b[j] * c[k] for i, j, k in self.monomials]
        return (self.weights @ np.array([*products, 1.0])).reshape(3, -1)


def _expansion(problem: IdealizedProblem) -> _Expansion:
    """sum_i (a s_i + b t + c T)^p, expanded in c T and then in a s_i and b t.

    Over a set, s_i^m sums to C for m = 0, to t for odd m and to k for even m.
    """
    power = problem.power
    numbers: dict[_Column, int] = {_TOTAL: 0}
    monomials = [[i, j, power - 1 - i - j] for i in range(power) for j in range(power - i)]
    terms: list[tuple[int, float, list[int]]] = []
    for j in range(power + 1):
        for m in range(j + 1):
            factor = float(math.comb(power, j) * math.comb(j, m))
            if j == 0:
                column, factor = _Column(power - 1, 1, False), factor * problem.patches
            elif m == 0:
                column, factor = _Column(power - j, j, False), factor * problem.size
            elif m % 2:
                column = _Column(power - j, j - m + 1, False)
            else:
                column = _Column(power - j, j - m, True)
            terms.append((numbers.setdefault(column, len(numbers)), factor, [m, j - m, power - j]))
    weights = np.zeros((3, len(numbers), len(monomials) + 1))
    weights[:, 0, -1] = problem.linear * np.array([1.0, problem.size, problem.patches])
    for number, factor, exponents in terms:
        for letter, exponent in enumerate(exponents):
            if exponent:
                lowered = [n - (which == letter) for which, n in enumerate(exponents)]
                weights[letter, number, monomials.index(lowered)] += factor * exponent
    return _Expansion(power, list(numbers), monomials, weights.reshape(-1, len(monomials) + 1))


def _state_columns(law: SetLaw, columns: list[_Column]) -> Float[np.ndarray, "columns states"]:
    """The products of power sums, the signal set's t = k = C included; a row each, so that it is contiguous."""
    signal = power_sums(np.array([[law.size, law.size]], dtype=np.int64), law.power)
    sums = (law.sums + signal).astype(np.float64)
    total = sums[:, 0]
    return np.stack([total**at.total * sums[:, law.power + at.power if at.counted else at.power - 1] for at in columns])
