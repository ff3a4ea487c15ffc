"""Model (T) with several layers of positional attention, for the question of depth.

    H_0 = X;   H_k = H_(k-1) + S_k H_(k-1) W_k for k = 1..K-1;   F = sum_i sigma(D sum_j (S_K)_ij <v, (H_(K-1))_j>).

Each layer has an A of its own, as Parametrization 3.1 initialises it, and a value matrix W_k; the residual connection
is that of a transformer. With one layer this is (T).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.models.simplified_vit import Activation


class DeepPositional(nn.Module):
    """(T) on the output of further layers of positional attention."""

    def __init__(
        self,
        patches: int,
        dim: int,
        layers: int,
        diagonal: float,
        init: float,
        generator: torch.Generator,
        activation: Activation | None = None,
    ):
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers: got {layers}, expected at least 1")
        self.activation = activation or Activation()
        self.attention = nn.ParameterList(
            init * torch.randn(patches, patches, generator=generator) for _ in range(layers)
        )
        self.mixing = nn.ParameterList(
            torch.randn(dim, dim, generator=generator) * 0.5 * dim**-0.5 for _ in range(layers - 1)
        )
        self.value = nn.Parameter(init * torch.randn(dim, generator=generator))
        self.register_buffer("fixed", diagonal * torch.eye(patches))
        self.register_buffer("trained", 1 - torch.eye(patches))

    def logits(self, layer: int) -> Float[Tensor, "patches patches"]:
        """A of one layer, with its fixed diagonal."""
        return self.fixed + self.trained * self.attention[layer]

    def forward(self, patches: Float[Tensor, "points patches dim"]) -> Float[Tensor, " points"]:
        hidden = patches
        for layer, mixing in enumerate(self.mixing):
            hidden = hidden + torch.softmax(self.logits(layer), dim=1) @ (hidden @ mixing)
        scores = torch.softmax(self.logits(len(self.mixing)), dim=1)
        return self.activation(patches.shape[1] * ((hidden @ self.value) @ scores.T)).sum(1)
