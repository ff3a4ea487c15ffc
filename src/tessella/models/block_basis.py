"""The one-layer masked model in the coordinates that training can reach: (Phi, Ups), row by row.

A masked patch p is zero, so that its token, the query, is e_p alone. Gradients of the reconstruction loss therefore
lie in the span of e_p v^T and e_p e_q^T, and from Q = 0 so does Q: all that there is to know is

    Phi_{p->v} = e_p^T Q v    (feature-position correlation)      and      Ups_{p->q} = e_p^T Q e_q    (position-wise).

Row p of the two is trained by query p alone. The score of key q is 1[q unmasked] z Phi_{p->v} + Ups_{p->q}, so that
its exponential factorises into one factor for each pair (p, q), the same for all images, and one for each (p, area)
and magnitude. What is left are sums of the first over the unmasked keys of each area, and their gradient the other way
round: sums of rows, each key read once for each image. (Derived here; the gradient agrees with autograd of
`tessella.models.bilinear`.) With A_m the attention on the unmasked patches of area m and n the query's own area,

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

_embedding_bag = torch.nn.functional.embedding_bag
"""Sums of weighted rows of a table, one for each bag of indices."""

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
    def own(self) -> Float[Tensor, "settings clusters areas rows"]:
        """1 at the area that the query's own patch lies in."""
        settings, clusters, areas, _ = self.member.shape
        place = self.rows[:, None, None, :].expand(settings, clusters, areas, -1)
        return self.member.gather(3, place)

    @functools.cached_property
    def area(self) -> Int[Tensor, "settings clusters patches"]:
        """The area of each patch. Padding counts to area 0, where no mask shows it."""
        return self.member.argmax(2)

    @functools.cached_property
    def by_area(self) -> Int[Tensor, "settings clusters patches"]:
        """The patches of each cluster, area after area."""
        return self.area.argsort(dim=-1, stable=True)

    @functools.cached_property
    def starts(self) -> Int[Tensor, "settings clusters areas"]:
        """Where each area starts in `by_area`."""
        sizes = torch.nn.functional.one_hot(self.area, self.member.shape[2]).sum(2)
        return sizes.cumsum(-1) - sizes

    def sums(
        self,
        unmasked: Float[Tensor, "settings clusters samples patches"],
        weights: Float[Tensor, "settings patches rows"],
    ) -> Float[Tensor, "settings clusters samples areas rows"]:
        """For each image and area, the sum of the weights of the keys that are seen."""
        settings, clusters, samples, patches = unmasked.shape
        first = torch.arange(settings, device=weights.device)[:, None, None] * patches
        keys = (self.by_area + first)[:, :, None].expand_as(unmasked)
        shown = unmasked.gather(-1, self.by_area[:, :, None].expand_as(unmasked))
        images = torch.arange(settings * clusters * samples, device=weights.device) * patches
        starts = images.view(settings, clusters, samples, 1) + self.starts[:, :, None]
        table = weights.reshape(-1, weights.shape[-1])
        found = _embedding_bag(keys.flatten(), table, starts.flatten(), mode="sum", per_sample_weights=shown.flatten())
        return found.view(*starts.shape, -1)

    def spread(
        self,
        unmasked: Float[Tensor, "settings clusters samples patches"],
        worth: Float[Tensor, "settings clusters samples areasandmasked rows"],
    ) -> Float[Tensor, "settings patches rows"]:
        """For each key, the sum over images of what its area is worth there, or, where it is masked, the last entry."""
        settings, _, _, patches = unmasked.shape
        kinds, rows = worth.shape[3:]
        images = torch.arange(unmasked[..., 0].numel(), device=worth.device).view(*unmasked.shape[:3], 1)
        place = torch.where(unmasked > 0, self.area[:, :, None], kinds - 1).add_(images * kinds)
        bags = place.permute(0, 3, 1, 2).reshape(settings * patches, -1)
        return _embedding_bag(bags, worth.view(-1, rows), mode="sum").view(settings, patches, rows)


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
    """The parameters. In memory the rows stand last, in `zeros` and in every gradient: passes run along them."""

    phi: Float[Tensor, "settings rows clusters areas"]
    ups: Float[Tensor, "settings rows patches"]

    @classmethod
    def zeros(cls, layout: Layout) -> Correlations:
        """Q = 0, where training starts."""
        settings, clusters, areas, patches = layout.member.shape
        rows = layout.rows.shape[1]
        phi = layout.member.new_zeros(settings, clusters, areas, rows).permute(0, 3, 1, 2)
        return cls(phi, layout.member.new_zeros(settings, patches, rows).transpose(1, 2))

    def minus(self, gradient: Correlations, rate: Float[Tensor, " settings"]) -> Correlations:
        """One step of gradient descent."""
        return Correlations(
            self.phi - rate[:, None, None, None] * gradient.phi, self.ups - rate[:, None, None] * gradient.ups
        )


@dataclass(frozen=True)
class Forward:
    """What a pass computes: attention on areas, and the factors of it that the gradient needs again."""

    area_attention: Float[Tensor, "settings clusters samples areas rows"]
    """A_m, the attention of each query on the unmasked patches of each area."""
    factor: Float[Tensor, "settings clusters samplesorone areas rows"]
    """exp(z Phi), what an unmasked key of the area gains, over the greatest of them and of a masked key's 1."""
    masked_factor: Float[Tensor, "settings clusters samplesorone rows"] | None
    """The 1 of a masked key, over the same; None where masked keys are dropped."""
    inverse: Float[Tensor, "settings clusters samples rows"]
    """1/D, with D the softmax's denominator over that greatest factor."""
    position: Float[Tensor, "settings patches rows"]
    """exp(Ups), over the greatest of a row."""


def forward(theta: Correlations, layout: Layout, sample: Sample, features: bool = True, keys: Keys = "all") -> Forward:
    """Attention of every row on every area. `features=False` is position-only attention: Phi is left out.

    Factors are taken relative to the greatest of a row, so that none overflows. In turn a product of the two underflows
    where scores of one row are more than about 700 apart in float64, or 80 in float32.
    """
    ups = theta.ups.transpose(1, 2).contiguous()
    position = (ups - ups.detach().amax(1, keepdim=True)).exp_() * layout.real[..., None]
    phi = theta.phi.permute(0, 2, 3, 1).contiguous()[:, :, None]
    score = sample.z[..., None] * phi if features else torch.zeros_like(phi)
    greatest = score.detach().amax(3, keepdim=True)
    if keys == "all":
        greatest = greatest.clamp_min(0)
    factor = (score - greatest).exp_()
    # In place where it can be: at these sizes fresh memory for each product costs more than the product.
    weights = layout.sums(sample.unmasked, position).mul_(factor)
    normaliser = weights.sum(3)
    masked_factor = None
    if keys == "all":
        masked_factor = (-greatest[:, :, :, 0]).exp()
        masked = ((1 - sample.unmasked).flatten(1, 2) @ position).view_as(normaliser)
        normaliser = normaliser + masked * masked_factor
    inverse = normaliser.clamp_min(torch.finfo(normaliser.dtype).tiny).reciprocal()
    return Forward(weights.mul_(inverse[:, :, :, None]), factor, masked_factor, inverse, position)


def query_losses(
    area_attention: Float[Tensor, "settings clusters samples areas rows"], layout: Layout, sample: Sample
) -> Float[Tensor, "settings clusters samples rows"]:
    """1/2 [ (1 - A_n)^2 z_n^2 + sum over m != n of A_m^2 z_m^2 ], as if every row were masked."""
    miss = area_attention - layout.own[:, :, None]
    return 0.5 * ((miss * sample.z[..., None]) ** 2).sum(3)


def counted(layout: Layout, sample: Sample) -> Float[Tensor, "settings clusters samples rows"]:
    """The weight of each query in the loss: its image's where the mask hides it, 0 where it is seen or padding."""
    settings, clusters, samples, _ = sample.unmasked.shape
    place = layout.rows[:, None, None, :].expand(settings, clusters, samples, -1)
    hidden = 1 - sample.unmasked.gather(3, place)
    hidden = hidden * layout.real.gather(1, layout.rows)[:, None, None, :]
    return hidden * sample.weight[..., None]


def gradient(
    theta: Correlations, layout: Layout, sample: Sample, features: bool = True, keys: Keys = "all"
) -> Correlations:
    """The gradient of the mean loss of the sample, in closed form.

    With G_m = dloss/dA_m and Gbar = sum over m of A_m G_m: d/dPhi_m = z_m A_m (G_m - Gbar), and
    d/dUps_q = attn_q (G_{area of q} - Gbar) for an unmasked key, -attn_q Gbar for a masked one.
    """
    passed = forward(theta, layout, sample, features, keys)
    attention, z = passed.area_attention, sample.z[..., None]
    G = (attention - layout.own[:, :, None]).mul_(z**2)
    mean = (attention * G).sum(3)
    weight = counted(layout, sample)
    centred = G.sub_(mean[:, :, :, None]).mul_(weight[:, :, :, None])
    phi = torch.zeros_like(theta.phi)
    if features:
        phi = attention.mul_(centred).mul_(z).sum(2).permute(0, 3, 1, 2)
    # What a key is worth: that of its area where it is seen, of its own kind where it is masked.
    worth = centred.new_empty(*mean.shape[:3], centred.shape[3] + 1, mean.shape[3])
    torch.mul(centred.mul_(passed.inverse[:, :, :, None]), passed.factor, out=worth[:, :, :, :-1])
    if passed.masked_factor is None:
        worth[:, :, :, -1] = 0
    else:
        torch.mul(mean.mul_(weight).mul_(passed.inverse).neg_(), passed.masked_factor, out=worth[:, :, :, -1])
    along = layout.spread(sample.unmasked, worth)
    return Correlations(phi, along.mul_(passed.position).transpose(1, 2))
