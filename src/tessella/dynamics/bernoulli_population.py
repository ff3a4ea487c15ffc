"""The exact population loss and gradient of the masked model under Bernoulli masks and independent magnitudes.

Attention on an area is a ratio, A_m = F_m S_m / D, with S_m = sum over unmasked q in m of exp(Ups_q), F_m = exp(z_m
Phi_m) and D the softmax's denominator, a sum over keys that are masked independently. Ratios do not factorise over
keys, exponentials do, and

    1/D = int_0^inf exp(-s D) ds,      1/D^2 = int_0^inf s exp(-s D) ds.

Under the integral every expectation is a product over areas of one-dimensional expectations over z_m, and within an
area a product over keys. In u = log s the integrands are analytic in the strip |Im u| < pi/2 and fall off
exponentially to the left and doubly exponentially to the right: the trapezoid rule converges geometrically, and a
step of .25 leaves an error near exp(-pi^2 / .25), below rounding. (Derived here; no sampling, no approximation.)
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tessella.dynamics.masked_draws import layout_of
from tessella.models.block_basis import Correlations, Layout
from tessella.worlds.masked_areas import MaskedAreas

STEP = 0.25
LEFT, RIGHT = 36.0, 4.0
"""How far past -log D the nodes go on either side: exp(-36) and exp(-exp(4)) are below double rounding."""


def population_loss(
    theta: Correlations, layout: Layout, world: MaskedAreas, nodes: int = 12
) -> Float[Tensor, " clusters"]:
    """The expected loss of the rows in each cluster, differentiable in theta; the model's loss is the mean over k.

    `theta` and `layout` hold one setting; `nodes` integrate over a continuous law of z.
    """
    if world.masking != "bernoulli":
        raise ValueError(f"masking: got {world.masking!r}, expected 'bernoulli', under which the population is exact")
    return torch.stack([_cluster_loss(theta, layout, world, k, nodes) for k in range(world.clusters)])


def population_gradient(theta: Correlations, world: MaskedAreas, rows: list[int], nodes: int = 12) -> Correlations:
    """The gradient of the population loss (the mean over clusters) for these rows."""
    phi, ups = theta.phi.detach().requires_grad_(), theta.ups.detach().requires_grad_()
    layout = layout_of([world], rows, phi.device, phi.dtype)
    loss = population_loss(Correlations(phi, ups), layout, world, nodes).mean()
    return Correlations(*torch.autograd.grad(loss, (phi, ups)))


def _cluster_loss(theta: Correlations, layout: Layout, world: MaskedAreas, k: int, nodes: int) -> Float[Tensor, ""]:
    labels = world.labels[k].to(theta.phi.device)
    areas = world.partitions[k].sets
    values, chances = (part.to(theta.phi) for part in world.law.quadrature(nodes))
    rows = layout.rows[0]
    position = torch.exp(theta.ups[0] - theta.ups[0].detach().amax(-1, keepdim=True))
    factor = torch.exp(values * theta.phi[0, :, k, :areas, None])
    s, width = _nodes(position, factor, labels)
    at_query = torch.arange(world.patches, device=rows.device) == rows[:, None]
    parts = [
        _area_moments(s, position, factor[:, m], labels == m, at_query, world.ratio, values, chances)
        for m in range(areas)
    ]
    plain, first, second = (torch.stack(column) for column in zip(*parts, strict=True))
    total = plain.log().sum(0)
    rest = torch.exp(total - plain.log())  # the product over the other areas
    own = torch.nn.functional.one_hot(labels[rows], areas).to(s).T
    linear = (own[..., None] * first * rest * s * width).sum((0, 2))
    square = (second * rest * s**2 * width).sum((0, 2))
    moment = (chances * values**2).sum()
    return world.ratio * (0.5 * moment - linear + 0.5 * square).sum()


def _nodes(
    position: Float[Tensor, "rows patches"],
    factor: Float[Tensor, "rows areas values"],
    labels: Int[Tensor, " patches"],
) -> tuple[Float[Tensor, "rows nodes"], float]:
    """s at the nodes of the trapezoid rule in log s, for each row, and the rule's width.

    D lies between the sums of each key's lesser and greater weight; the nodes reach past both.
    """
    highest = position.detach() * factor.detach().amax(-1).clamp_min(1)[:, labels]
    lowest = position.detach() * factor.detach().amin(-1).clamp_max(1)[:, labels]
    start = -highest.sum(-1).log() - LEFT
    stop = float((-lowest.sum(-1).log() + RIGHT - start).max())
    steps = torch.arange(0, stop + STEP, STEP, dtype=position.dtype, device=position.device)
    return torch.exp(start[:, None] + steps), STEP


def _area_moments(
    s: Float[Tensor, "rows nodes"],
    position: Float[Tensor, "rows patches"],
    factor: Float[Tensor, "rows values"],
    member: Bool[Tensor, " patches"],
    at_query: Bool[Tensor, "rows patches"],
    ratio: float,
    values: Float[Tensor, " values"],
    chances: Float[Tensor, " values"],
) -> tuple[Float[Tensor, "rows nodes"], Float[Tensor, "rows nodes"], Float[Tensor, "rows nodes"]]:
    """E[exp(-s D_m)], E[z^2 F S exp(-s D_m)] and E[z^2 F^2 S^2 exp(-s D_m)] over the masks and z of one area.

    D_m is the area's part of the denominator. The query's own key is masked for certain.
    """
    keys = position[:, member]
    sure = at_query[:, member]
    shown_chance = (1 - ratio) * (~sure).to(keys.dtype)[:, None, None, :]
    E = keys[:, None, None, :]  # rows, nodes, values, keys
    F = factor[:, None, :, None]
    shown = shown_chance * torch.exp(-s[:, :, None, None] * E * F)
    either = shown + (1 - shown_chance) * torch.exp(-s[:, :, None, None] * E)
    # Far to the right both terms underflow together; so does the product over keys, and 0/0 must count as 0.
    share = E * shown / either.clamp_min(torch.finfo(E.dtype).tiny)
    product = either.prod(-1)
    once = share.sum(-1)
    twice = once**2 - (share**2).sum(-1) + (E * share).sum(-1)
    weighted = chances * product
    scale = values**2 * factor[:, None, :]
    plain = weighted.sum(-1).clamp_min(torch.finfo(E.dtype).tiny)
    return (
        plain,
        (weighted * scale * once).sum(-1),
        (weighted * scale * factor[:, None, :] * twice).sum(-1),
    )
