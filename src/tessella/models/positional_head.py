"""One head of positional attention whose logits are made in one of three ways, read out as (T) is.

    free:       A itself is trained off its fixed diagonal, as in Simplification 3.1
    gram:       A = P^T P with P trained, as Figure 2 shows it
    query-key:  A = P^T W_Q W_K^T P with all three trained (Definition 3.2)

Definition 2.2 ranks the similarities of positional encodings <p_i, p_j>, which are A itself in the first two.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.models.simplified_vit import Activation

Kind = Literal["free", "gram", "query-key"]
KINDS: tuple[Kind, ...] = ("free", "gram", "query-key")


class PositionalHead(nn.Module):
    """F(X) = sum_i sigma(reach * sum_j S_ij <v, X_j>); the paper's (T) has reach D, Gaussian patches want sqrt(D)."""

    def __init__(
        self,
        patches: int,
        dim: int,
        kind: Kind,
        diagonal: float,
        init: float,
        reach: float,
        generator: torch.Generator,
        activation: Activation | None = None,
    ):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(KINDS)}")
        if kind != "free" and diagonal < 0:
            raise ValueError(f"diagonal: got {diagonal:g}, expected at least 0, as <p_i, p_i> is")
        self.kind = kind
        self.reach = reach
        self.activation = activation or Activation(3, 1e-2)
        self.value = nn.Parameter(init * torch.randn(dim, generator=generator))
        self.weights = nn.ParameterList()
        if kind == "free":
            self.weights.append(init * torch.randn(patches, patches, generator=generator))
            self.register_buffer("fixed", diagonal * torch.eye(patches))
            self.register_buffer("trained", 1 - torch.eye(patches))
            return
        # |p_i|^2 is about `diagonal`, as below Parametrization 3.1.
        self.weights.append((diagonal / patches) ** 0.5 * torch.randn(patches, patches, generator=generator))
        if kind == "query-key":
            self.weights.extend(torch.randn(patches, patches, generator=generator) / patches**0.5 for _ in range(2))

    def logits(self) -> Float[Tensor, "patches patches"]:
        """A."""
        if self.kind == "free":
            return self.fixed + self.trained * self.weights[0]
        encodings = self.weights[0]
        if self.kind == "gram":
            return encodings.T @ encodings
        return encodings.T @ self.weights[1] @ self.weights[2].T @ encodings

    def similarities(self) -> Float[Tensor, "patches patches"]:
        """<p_i, p_j>: what Definition 2.2 ranks; A where there are no encodings apart from it."""
        return self.logits() if self.kind == "free" else self.weights[0].T @ self.weights[0]

    def forward(self, patches: Float[Tensor, "points patches dim"]) -> Float[Tensor, " points"]:
        """F(X)."""
        scores = torch.softmax(self.logits(), dim=1)
        return self.activation(self.reach * (patches @ self.value @ scores.T)).sum(1)
