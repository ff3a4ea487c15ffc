"""The one-layer masked model in the coordinates that training can reach: (Phi, Ups), row by row.

A masked patch p is zero, so that its token, the query, is e_p alone. Gradients of the reconstruction loss therefore
lie in the span of e_p v^T and e_p e_q^T, and from Q = 0 so does Q: all that there is to know is

    Phi_{p->v} = e_p^T Q v    (feature-position correlation)      and      Ups_{p->q} = e_p^T Q e_q    (position-wise).

Row p of the two is trained by query p alone. The score of key q is 1[q unmasked] z Phi_{p->v} + Ups_{p->q}, so that
its exponential factorises into one factor for each pair (p, q) and one for each (p, area, image): the sums of
attention over areas are a matrix product, and so is their gradient. (Derived here; the gradient agrees with autograd
of `tessella.models.bilinear`.) With A_m the attention on the unmasked patches of area m and n the query's own area,

    loss of a query = 1/2 [ (1 - A_n)^2 z_n^2 + sum over m != n of A_m^2 z_m^2 ].

Shapes: `settings` are independent runs side by side (seeds, worlds of different sizes padded to one shape), `rows`
the query positions that are trained, any subset of the patches.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Keys = Literal["all", "unmasked"]
"""Which tokens the softmax runs over: all of them, as in the model as written, or only the unmasked ones."""


@dataclass(frozen=True)
class Layout:
    """Where things are, for each setting: areas of keys, areas of queries, and what is padding."""

    member: Float[Tensor, "settings clusters areas patches"]
    """1 where a patch lies in an area of a cluster; 0 everywhere for padding."""
    real: Bool[Tensor, "settings patches"]
    """False for padding."""
    rows: Int[Tensor, "settings rows"]
    """The positions whose queries are trained."""

    @functools.cached_property
    def own(self) -> Float[Tensor, "settings rows clusters areas"]:
        """1 at the area that the query's own patch lies in."""
        settings, clusters, areas, _ = self.member.shape
        place = self.rows[:, None, None, :].expand(settings, clusters, areas, -1)
        return self.member.gather(3, place).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Sample:
    """Masks and magnitudes, the same number of images in each cluster."""

    unmasked: Float[Tensor, "settings clusters samples patches"]
    """1 where a patch is seen, 0 where it is masked or padding."""
    z: Float[Tensor, "settings clusters samplesorone areas"]
    weight: Float[Tensor, "settings clusters samples"]
    """What an image counts in the mean; 0 for padding."""


@dataclass(frozen=True)
class Correlations:
    """The parameters."""

    phi: Float[Tensor, "settings rows clusters areas"]
    ups: Float[Tensor, "settings rows patches"]

    @classmethod
    def zeros(cls, layout: Layout) -> Correlations:
        """Q = 0, where training starts."""
        settings, clusters, areas, patches = layout.member.shape
        rows = layout.rows.shape[1]
        return cls(
            layout.member.new_zeros(settings, rows, clusters, areas), layout.member.new_zeros(settings, rows, patches)
        )

    def minus(self, gradient: Correlations, rate: Float[Tensor, " settings"]) -> Correlations:
        """One step of gradient descent."""
        return Correlations(
            self.phi - rate[:, None, None, None] * gradient.phi, self.ups - rate[:, None, None] * gradient.ups
        )


@dataclass(frozen=True)
class Forward:
    """What a pass computes: attention on areas, and the factors of it that the gradient needs again."""

    area_attention: Float[Tensor, "settings rows clusters samples areas"]
    """A_m, the attention of each query on the unmasked patches of each area."""
    per_weight: Float[Tensor, "settings rows clusters samples areas"]
    """exp(z Phi) / D, what one unit of exp(Ups) on an unmasked key of the area is worth."""
    normaliser: Float[Tensor, "settings rows clusters samples"]
    """D, the softmax's denominator."""
    position: Float[Tensor, "settings rows patches"]
    """exp(Ups), up to a factor for each row that cancels."""
    seen: Float[Tensor, "settings clustersxsamplesxareas patches"]
    """1 where an image shows a patch that lies in the area."""


def forward(theta: Correlations, layout: Layout, sample: Sample, features: bool = True, keys: Keys = "all") -> Forward:
    """Attention of every row on every area. `features=False` is position-only attention: Phi is left out."""
    settings, clusters, areas, patches = layout.member.shape
    samples, rows = sample.unmasked.shape[2], theta.ups.shape[1]
    seen = sample.unmasked[:, :, :, None, :] * layout.member[:, :, None]
    seen = seen.reshape(settings, clusters * samples * areas, patches)
    top = theta.ups.detach().masked_fill(~layout.real[:, None, :], -torch.inf).amax(-1, keepdim=True)
    position = torch.exp(theta.ups - top) * layout.real[:, None, :]
    sums = (position @ seen.transpose(1, 2)).view(settings, rows, clusters, samples, areas)
    factor = torch.ones_like(theta.phi)[:, :, :, None, :]
    if features:
        factor = torch.exp(sample.z[:, None] * theta.phi[:, :, :, None, :])
    weights = factor * sums
    normaliser = weights.sum(-1)
    if keys == "all":
        hidden = position.sum(-1)[:, :, None, None] - sums.sum(-1)
        normaliser = normaliser + hidden.clamp_min(0)
    normaliser = normaliser.clamp_min(torch.finfo(normaliser.dtype).tiny)
    inverse = 1 / normaliser[..., None]
    return Forward(weights * inverse, factor * inverse, normaliser, position, seen)


def query_losses(
    area_attention: Float[Tensor, "settings rows clusters samples areas"], layout: Layout, sample: Sample
) -> Float[Tensor, "settings rows clusters samples"]:
    """1/2 [ (1 - A_n)^2 z_n^2 + sum over m != n of A_m^2 z_m^2 ], as if every row were masked."""
    miss = area_attention - layout.own[:, :, :, None, :]
    return 0.5 * ((miss * sample.z[:, None]) ** 2).sum(-1)


def counted(layout: Layout, sample: Sample) -> Float[Tensor, "settings rows clusters samples"]:
    """The weight of each query in the loss: its image's where the mask hides it, 0 where it is seen or padding."""
    settings, clusters, samples, _ = sample.unmasked.shape
    place = layout.rows[:, None, None, :].expand(settings, clusters, samples, -1)
    hidden = 1 - sample.unmasked.gather(3, place)
    hidden = hidden * layout.real.gather(1, layout.rows)[:, None, None, :]
    return (hidden * sample.weight[..., None]).permute(0, 3, 1, 2)


def gradient(
    theta: Correlations, layout: Layout, sample: Sample, features: bool = True, keys: Keys = "all"
) -> Correlations:
    """The gradient of the mean loss of the sample, in closed form.

    With G_m = dloss/dA_m and Gbar = sum over m of A_m G_m: d/dPhi_m = z_m A_m (G_m - Gbar), and
    d/dUps_q = attn_q (G_{area of q} - Gbar) for an unmasked key, -attn_q Gbar for a masked one.
    """
    passed = forward(theta, layout, sample, features, keys)
    attention, z = passed.area_attention, sample.z[:, None]
    G = (attention - layout.own[:, :, :, None, :]) * z**2
    weight = counted(layout, sample)[..., None]
    mean = (attention * G).sum(-1, keepdim=True)
    centred = weight * (G - mean)
    phi = (z * attention * centred).sum(3) if features else torch.zeros_like(theta.phi)
    worth = passed.per_weight * centred
    settings, rows = theta.ups.shape[:2]
    if keys == "all":
        # A masked key is worth the same to every area's query: a constant for the row, taken off where keys are seen.
        hidden = -weight * mean / passed.normaliser[..., None]
        constant = hidden.sum((2, 3, 4))[:, :, None]
        worth = worth - hidden
    else:
        constant = worth.new_zeros(settings, rows, 1)
    ups = passed.position * (constant + worth.reshape(settings, rows, -1) @ passed.seen)
    return Correlations(phi, ups)
