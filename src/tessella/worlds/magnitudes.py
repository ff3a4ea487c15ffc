"""Laws of the magnitudes z_j with which an area shows its feature: any law on an interval [L, U]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Law:
    """A law on [low, high], given by its quantile function, and by atoms where it has finitely many values."""

    low: float
    high: float
    quantile: Callable[[Float[Tensor, "*any"]], Float[Tensor, "*any"]]
    """Maps a uniform number in (0, 1) to a draw."""
    atoms: tuple[tuple[float, float], ...] = ()
    """(value, probability) of each value of a discrete law; empty for a continuous one."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and 0 < self.low <= self.high):
            raise ValueError(f"law: got the interval [{self.low:g}, {self.high:g}], expected 0 < low <= high")
        for value, probability in self.atoms:
            if not self.low <= value <= self.high:
                raise ValueError(f"z: got {value:g}, expected a value in [{self.low:g}, {self.high:g}]")
            if not 0 <= probability <= 1:
                raise ValueError(f"probability: got {probability:g}, expected a probability between 0 and 1")
        total = math.fsum(probability for _, probability in self.atoms)
        if self.atoms and abs(total - 1) > 1e-9:
            raise ValueError(f"atoms: got probabilities that sum to {total:g}, expected 1")
        self.draw(torch.linspace(0, 1, 103, dtype=torch.float64)[1:-1])

    @classmethod
    def constant(cls, value: float = 1.0) -> Law:
        """z = value always."""
        return cls(value, value, lambda u: torch.full_like(u, value), ((value, 1.0),))

    @classmethod
    def uniform(cls, low: float, high: float) -> Law:
        """z uniform on [low, high]."""
        return cls(low, high, lambda u: low + (high - low) * u)

    @classmethod
    def two_point(cls, low: float, high: float, probability: float = 0.5) -> Law:
        """z = high with this probability, else low."""
        if not 0 <= probability <= 1:
            raise ValueError(f"probability: got {probability:g}, expected a probability between 0 and 1")

        def quantile(u: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
            return low + (high - low) * (u < probability).to(u.dtype)

        return cls(low, high, quantile, ((low, 1 - probability), (high, probability)))

    @property
    def is_constant(self) -> bool:
        return len(self.atoms) == 1

    def draw(self, uniforms: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """One draw for each uniform number; a quantile function that leaves [L, U] is an error."""
        z = self.quantile(uniforms)
        low, high = (float(z.min()), float(z.max())) if z.numel() else (self.low, self.high)
        slack = 1e-6 * self.high
        if not (low >= self.low - slack and high <= self.high + slack):
            raise ValueError(f"z: got {low:g} to {high:g}, expected values in [{self.low:g}, {self.high:g}]")
        return z

    def quadrature(self, nodes: int = 12) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
        """Values and weights that integrate smooth functions of z: the atoms, or Gauss-Legendre in the quantile."""
        if self.atoms:
            values, weights = (torch.tensor(column, dtype=torch.float64) for column in zip(*self.atoms, strict=True))
            return values, weights
        places, weights_of_places = np.polynomial.legendre.leggauss(nodes)
        return self.draw(torch.from_numpy((places + 1) / 2)), torch.from_numpy(weights_of_places / 2)

    @property
    def second_moment(self) -> float:
        """E[z^2]."""
        values, weights = self.quadrature(64)
        return float((weights * values**2).sum())
