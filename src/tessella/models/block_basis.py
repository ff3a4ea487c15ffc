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
import itertools
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
    def own(self) -> Float[Tensor, "settings clusters areas rows"]:
        """1 at the area that the query's own patch lies in."""
        settings, clusters, areas, _ = self.member.shape
        place = self.rows[:, None, None, :].expand(settings, clusters, areas, -1)
        return self.member.gather(3, place)

    @functools.cached_property
    def groups(self) -> Groups:
        """Keys sorted so that few areas share a matrix product."""
        return Groups.of(self.member)


@dataclass(frozen=True)
class Groups:
    """The keys of each cluster, area after area, cut into groups of areas that follow each other.

    An area's sum over its keys needs no other keys. Were every area multiplied with all P keys, most of the work
    would be on zeros; one product for each area would be many small ones. Groups of a few areas lie between.
    """

    keys: Int[Tensor, "settings clusters groups width"]
    """The key at each place of a group; key 0 pads, where `member` is 0."""
    member: Float[Tensor, "settings clusters groups areas width"]
    """1 where a key of the group lies in an area of the group."""
    place: Int[Tensor, "settings clusters patches"]
    """Where each key stands among the groups' places, flattened; any place for padding, whose weight is 0."""

    @classmethod
    def of(cls, member: Float[Tensor, "settings clusters areas patches"]) -> Groups:
        """The grouping with the least work, if bringing a key to a place costs as much as 8 areas there."""
        settings, clusters, areas, patches = member.shape
        where = member.cpu()
        sizes = where.sum(-1).long()

        def width(each: int) -> int:
            return int(sizes.view(settings, clusters, areas // each, each).sum(-1).max())

        divisors = [each for each in range(1, areas + 1) if areas % each == 0]
        each = min(divisors, key=lambda each: areas // each * width(each) * (each + 8))
        group, wide = areas // each, width(each)
        keys = torch.zeros(settings, clusters, group, wide, dtype=torch.long)
        grouped = torch.zeros(settings, clusters, group, each, wide, dtype=member.dtype)
        place = torch.zeros(settings, clusters, patches, dtype=torch.long)
        for s, k, g in itertools.product(range(settings), range(clusters), range(group)):
            areas_of_group = where[s, k, g * each : (g + 1) * each]
            inside = areas_of_group.sum(0).nonzero().flatten()
            keys[s, k, g, : len(inside)] = inside
            grouped[s, k, g, :, : len(inside)] = areas_of_group[:, inside]
            place[s, k, inside] = g * wide + torch.arange(len(inside))
        return cls(keys.to(member.device), grouped.to(member.device), place.to(member.device))

    @property
    def whole(self) -> bool:
        """Whether there is one group of all keys, in their own order, so that none needs to be moved."""
        return self.keys.shape[2] == 1 and self.keys.shape[3] == self.place.shape[2]

    def sums(
        self,
        seen: Float[Tensor, "settings clusters groups areasxsamples width"],
        weights: Float[Tensor, "settings patches rows"],
    ) -> Float[Tensor, "settings clusters groups areasxsamples rows"]:
        """For each area and image, the sum of the weights of the keys that are seen."""
        settings, patches, rows = weights.shape
        if self.whole:
            return (seen.flatten(1, 3) @ weights).view(*seen.shape[:4], rows)
        first = torch.arange(settings, device=weights.device)[:, None, None, None] * patches
        picked = weights.reshape(-1, rows).index_select(0, (self.keys + first).flatten())
        return seen @ picked.view(*self.keys.shape, rows)

    def spread(
        self,
        seen: Float[Tensor, "settings clusters groups areasxsamples width"],
        worth: Float[Tensor, "settings clusters groups areasxsamples rows"],
    ) -> Float[Tensor, "settings patches rows"]:
        """For each key, the sum of what it is worth to the areas and images that see it: the transpose of `sums`."""
        settings, clusters, group, wide = self.keys.shape
        rows = worth.shape[-1]
        if self.whole:
            return seen.flatten(1, 3).transpose(1, 2) @ worth.flatten(1, 3)
        found = (seen.transpose(3, 4) @ worth).reshape(-1, rows)
        first = torch.arange(settings * clusters, device=found.device).view(settings, clusters, 1) * (group * wide)
        picked = found.index_select(0, (self.place + first).flatten())
        return picked.view(settings, clusters, -1, rows).sum(1)


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

    area_attention: Float[Tensor, "settings clusters areas samples rows"]
    """A_m, the attention of each query on the unmasked patches of each area."""
    factor: Float[Tensor, "settings clusters areas samplesorone rows"]
    """exp(z Phi), what an unmasked key of the area gains over a masked one."""
    inverse: Float[Tensor, "settings clusters samples rows"]
    """1/D, with D the softmax's denominator."""
    position: Float[Tensor, "settings patches rows"]
    """exp(Ups), up to a factor for each row that cancels."""
    seen: Float[Tensor, "settings clusters groups areasxsamples width"]
    """1 where an image shows a key that lies in the area, in the groups' order."""


def _by_area(z: Float[Tensor, "settings clusters samples areas"]) -> Float[Tensor, "settings clusters areas samples 1"]:
    return z.transpose(2, 3).contiguous()[..., None]


def forward(theta: Correlations, layout: Layout, sample: Sample, features: bool = True, keys: Keys = "all") -> Forward:
    """Attention of every row on every area. `features=False` is position-only attention: Phi is left out."""
    settings, clusters, areas, _ = layout.member.shape
    samples, rows, groups = sample.unmasked.shape[2], theta.ups.shape[1], layout.groups
    place = groups.keys[:, :, :, None, :].expand(-1, -1, -1, samples, -1)
    shown = sample.unmasked[:, :, None].expand(-1, -1, place.shape[2], -1, -1)
    seen = (shown.gather(-1, place)[:, :, :, None] * groups.member[:, :, :, :, None]).flatten(3, 4)
    top = theta.ups.detach().masked_fill(~layout.real[:, None, :], -torch.inf).amax(-1, keepdim=True)
    position = (torch.exp(theta.ups - top) * layout.real[:, None, :]).transpose(1, 2)
    sums = groups.sums(seen, position).view(settings, clusters, areas, samples, rows)
    phi = theta.phi.permute(0, 2, 3, 1)[:, :, :, None]
    factor = torch.exp(_by_area(sample.z) * phi) if features else torch.ones_like(phi)
    weights = factor * sums
    normaliser = weights.sum(2)
    if keys == "all":
        hidden = position.sum(1)[:, None, None, :] - sums.sum(2)
        normaliser = normaliser + hidden.clamp_min(0)
    inverse = normaliser.clamp_min(torch.finfo(normaliser.dtype).tiny).reciprocal()
    return Forward(weights * inverse[:, :, None], factor, inverse, position, seen)


def query_losses(
    area_attention: Float[Tensor, "settings clusters areas samples rows"], layout: Layout, sample: Sample
) -> Float[Tensor, "settings clusters samples rows"]:
    """1/2 [ (1 - A_n)^2 z_n^2 + sum over m != n of A_m^2 z_m^2 ], as if every row were masked."""
    miss = area_attention - layout.own[:, :, :, None]
    return 0.5 * ((miss * _by_area(sample.z)) ** 2).sum(2)


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
    attention, z = passed.area_attention, _by_area(sample.z)
    # In place from here on: at these sizes fresh memory for each product costs more than the product.
    G = (attention - layout.own[:, :, :, None]).mul_(z**2)
    mean = (attention * G).sum(2)
    weight = counted(layout, sample)
    centred = G.sub_(mean[:, :, None]).mul_(weight[:, :, None])
    phi = torch.zeros_like(theta.phi)
    if features:
        phi = attention.mul_(centred).mul_(z).sum(3).permute(0, 3, 1, 2)
    worth = centred.mul_(passed.inverse[:, :, None]).mul_(passed.factor)
    constant = worth.new_zeros(worth.shape[0], 1, worth.shape[-1])
    if keys == "all":
        # A masked key is worth the same whatever its area: a constant for the row, taken off where a key is seen.
        hidden = -weight * mean * passed.inverse
        worth = worth.sub_(hidden[:, :, None])
        constant = hidden.sum((1, 2))[:, None]
    along = layout.groups.spread(passed.seen, worth.reshape(*passed.seen.shape[:4], -1))
    return Correlations(phi, along.add_(constant).mul_(passed.position).transpose(1, 2))
