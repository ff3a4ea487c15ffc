"""The simplified ViT of Simplification 3.1, model (T): one head of positional attention, one value vector.

    F(X) = sum_i sigma(D sum_j S_ij <v, X_j>),   S = softmax(A / scale) by rows,   sigma(x) = x^p + nu x.

The paper's (T) divides A by sqrt(d), while Lemma 4.3 and the parametrisation sigma_A = polyloglog(d) do not. The two
are one model when the diagonal and the initial A are multiplied by the scale, and the rate of A by its square; `scale`
is 1 by default, and sqrt(d) gives the text's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.models import descent_passes


@dataclass(frozen=True)
class Activation:
    """sigma(x) = x^p + nu x, with p odd so that sigma is, and at least 3 since p = 1 would make (T) linear."""

    degree: int = 3
    linear: float = 1e-2

    def __post_init__(self) -> None:
        if not isinstance(self.degree, int) or self.degree < 3 or self.degree % 2 == 0:
            raise ValueError(f"degree: got {self.degree}, expected an odd number of at least 3")
        if not (self.linear >= 0.0 and math.isfinite(self.linear)):
            raise ValueError(f"linear: got {self.linear}, expected a number of 0 or more")

    def __call__(self, x: Tensor) -> Tensor:
        # x^(p-1) first: for p = 3 it is a square, which torch computes without a power.
        return x * (x ** (self.degree - 1) + self.linear)

    def derivative(self, x: Tensor) -> Tensor:
        """sigma'(x) = p x^(p-1) + nu."""
        return self.degree * x ** (self.degree - 1) + self.linear


class SimplifiedViT(nn.Module):
    """Model (T). `attention` is A with its fixed diagonal, `value` is v; called with X it returns F(X).

    >>> model = SimplifiedViT.initialised(patches=16, dim=8, diagonal=2.0, init=1e-2, seed=0)
    >>> model(torch.zeros(5, 16, 8)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        attention: Float[Tensor, "patches patches"],
        value: Float[Tensor, " dim"],
        activation: Activation | None = None,
        scale: float = 1.0,
    ):
        super().__init__()
        if attention.ndim != 2 or attention.shape[0] != attention.shape[1]:
            raise ValueError(f"attention: got shape {tuple(attention.shape)}, expected a square matrix")
        if value.ndim != 1:
            raise ValueError(f"value: got shape {tuple(value.shape)}, expected a vector")
        if not (scale > 0.0 and math.isfinite(scale)):
            raise ValueError(f"scale: got {scale}, expected a number above 0")
        if attention.dtype != value.dtype:
            raise ValueError(f"value: got {value.dtype}, expected {attention.dtype} as the attention has")
        self.attention = nn.Parameter(attention.detach().clone())
        self.value = nn.Parameter(value.detach().clone())
        self.activation = activation or Activation()
        self.scale = scale

    @classmethod
    def initialised(
        cls,
        patches: int,
        dim: int,
        diagonal: float,
        init: float,
        seed: int,
        activation: Activation | None = None,
        scale: float = 1.0,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> SimplifiedViT:
        """Parametrization 3.1, realistic case: A_ii = sigma_A, the rest of A and v normal with deviation omega."""
        if not (init >= 0.0 and math.isfinite(init)):
            raise ValueError(f"init: got {init}, expected a standard deviation of 0 or more")
        # Drawn on the CPU in float64, so that a seed names one model whatever the device and dtype.
        generator = torch.Generator().manual_seed(seed)
        attention = torch.randn(patches, patches, generator=generator, dtype=torch.float64) * init
        value = torch.randn(dim, generator=generator, dtype=torch.float64) * init
        attention.fill_diagonal_(diagonal)
        return cls(attention.to(device, dtype), value.to(device, dtype), activation, scale)

    @property
    def patches(self) -> int:
        """D."""
        return self.attention.shape[0]

    @property
    def scores(self) -> Float[Tensor, "patches patches"]:
        """S of (T)."""
        return torch.softmax(self.attention / self.scale, dim=1)

    def forward(self, patches: Float[Tensor, "points patches dim"]) -> Float[Tensor, " points"]:
        """F(X)."""
        if patches.ndim != 3 or patches.shape[1:] != (self.patches, len(self.value)):
            expected = f"(points, {self.patches}, {len(self.value)})"
            raise ValueError(f"patches: got shape {tuple(patches.shape)}, expected {expected}")
        return self.output(patches @ self.value)

    def output(self, along: Float[Tensor, "points patches"]) -> Float[Tensor, " points"]:
        """F(X) from the inner products <v, X_j>, which are all that it reads of X."""
        return self.activation(self.patches * (along @ self.scores.T)).sum(1)


@dataclass(frozen=True)
class Gradient:
    """The logistic loss and its gradient in A (zero on the diagonal, which is not trained) and v."""

    loss: Float[Tensor, ""]
    attention: Float[Tensor, "patches patches"]
    value: Float[Tensor, " dim"]


class LossGradient:
    """The gradient of the mean logistic loss log(1 + exp(-y F(X))) in closed form, accumulated over slices of X.

    With u = X v, h = D u S^T, g = dL/dF = -y sigmoid(-y F) / N and e = D g sigma'(h):

        dL/dS = e^T u,   dL/dv = sum over points and patches of (e S)_nj X_nj,
        dL/dA = S * (dL/dS - rowsum(S * dL/dS)) / scale,   0 on the diagonal.

    A slice is read from memory once for u and, small enough to be still in the cache, again for dL/dv. Nothing of
    the size of X is written.
    """

    def __init__(self, model: SimplifiedViT, points: int):
        self._activation = model.activation
        self._scale = model.scale
        self._points = points
        self._value = model.value.detach()
        self._scores = model.scores.detach()
        # D is folded into S once instead of into every h and e.
        self._mixing = model.patches * self._scores
        self._mixing_t = self._mixing.T.contiguous()
        self._by_scores = torch.zeros_like(self._scores)
        self._by_value = torch.zeros_like(self._value)
        self._loss = torch.zeros((), dtype=torch.float64, device=self._value.device)

    def add(self, patches: Float[Tensor, "points patches dim"], label: Float[Tensor, " points"]) -> None:
        """Accumulates a slice of the sample; `patches` is contiguous."""
        along = descent_passes.along(patches, self._value)
        # D sigma'(h) dl/dF, without D: it stands in both of the products below, as 1/N does in all three sums.
        by_mixed, loss = descent_passes.margins(
            along @ self._mixing_t, label, self._activation.degree, self._activation.linear
        )
        self._by_scores.addmm_(by_mixed.T, along)
        self._by_value += descent_passes.weighted_sum(patches, by_mixed @ self._mixing)
        self._loss += loss.sum(dtype=torch.float64)

    def total(self) -> Gradient:
        """The loss and gradient over all slices added, which together hold `points` data points."""
        by_scores = self._by_scores * (len(self._scores) / self._points)
        inner = (self._scores * by_scores).sum(1, keepdim=True)
        attention = (self._scores * (by_scores - inner) / self._scale).fill_diagonal_(0.0)
        return Gradient(self._loss / self._points, attention, self._by_value / self._points)


def loss_gradient(model: SimplifiedViT, patches: Tensor, label: Tensor) -> Gradient:
    """The loss of (E) on one sample and its gradient, in slices that stay in the processor's cache."""
    if patches.ndim != 3 or patches.shape[1:] != (model.patches, len(model.value)):
        expected = f"(points, {model.patches}, {len(model.value)})"
        raise ValueError(f"patches: got shape {tuple(patches.shape)}, expected {expected}")
    if label.shape != patches.shape[:1] or label.dtype != patches.dtype:
        got = f"{label.dtype} of shape {tuple(label.shape)}"
        raise ValueError(f"label: got {got}, expected {patches.dtype} of shape ({len(patches)},), one for each point")
    if len(patches) == 0:
        raise ValueError(f"patches: got shape {tuple(patches.shape)}, expected at least one point")
    if label.device.type == "cpu":  # elsewhere each step would wait for the device; `HeldSample` has looked once
        check_signs(label)
    patches = patches.contiguous()
    accumulated = LossGradient(model, len(patches))
    rows = slice_length(model.patches, len(model.value), patches.dtype, patches.device.type)
    for start in range(0, len(patches), rows):
        accumulated.add(patches[start : start + rows], label[start : start + rows])
    return accumulated.total()


def check_signs(label: Tensor) -> None:
    """Labels are -1 and 1, as Assumption 1 has them."""
    if not ((label == 1) | (label == -1)).all():
        raise ValueError(f"label: got {label[(label != 1) & (label != -1)][0]:g}, expected -1 or 1")


def slice_length(patches: int, dim: int, dtype: torch.dtype, device_type: str) -> int:
    """How many points to read at a time: about 4 MB of X on a CPU, whose cache it must fit; 1 GB on a GPU.

    On a GPU a slice that fits the cache would be too little work for a kernel launch, so X is read twice; the limit
    there only bounds the memory for h and e.
    """
    budget = 4_000_000 if device_type == "cpu" else 1_000_000_000
    return max(1, budget // (patches * dim * dtype.itemsize))
