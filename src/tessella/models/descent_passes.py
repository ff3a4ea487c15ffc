"""The parts of a step of descent on (E) that are no matrix product: two passes over X, and what stands between them.

On a CPU they are torch's; on a CUDA device Triton's (`tessella.models.descent_kernels`), in float32 and float64.
"""

from __future__ import annotations

from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.models.kernel_choice import kernels


def along(
    patches: Float[Tensor, "points patches dim"], value: Float[Tensor, " dim"]
) -> Float[Tensor, "points patches"]:
    """u = X v, for contiguous X."""
    found = _kernels(patches)
    if found is not None:
        return found.along(patches, value)
    points, count, dim = patches.shape
    return torch.mv(patches.view(points * count, dim), value).view(points, count)


def weighted_sum(
    patches: Float[Tensor, "points patches dim"], weight: Float[Tensor, "points patches"]
) -> Float[Tensor, " dim"]:
    """The sum over points and patches of weight_nj X_nj, for contiguous X."""
    found = _kernels(patches)
    if found is not None:
        return found.weighted_sum(patches, weight.contiguous())
    # One short product a point, summed after: one long matrix-vector product would run on one core.
    return torch.bmm(weight[:, None, :], patches).sum((0, 1))


def margins(
    mixed: Float[Tensor, "points patches"], label: Float[Tensor, " points"], degree: int, linear: float
) -> tuple[Float[Tensor, "points patches"], Float[Tensor, " points"]]:
    """From h, sigma'(h) dl/dF and l = log(1 + exp(-y F)), where F = sum of sigma(h); `mixed` may be overwritten."""
    found = _kernels(mixed)
    if found is not None:
        return found.margins(mixed.contiguous(), label.contiguous(), degree, linear)
    even = mixed ** (degree - 1)
    output = torch.linalg.vecdot(mixed, even).add_(mixed.sum(1), alpha=linear)
    margin = label * output
    by_output = torch.sigmoid(-margin).mul_(label).neg_()
    # softplus(-margin), which torch rounds to -margin from 20 on.
    loss = -torch.nn.functional.logsigmoid(margin)
    return even.mul_(degree).add_(linear).mul_(by_output[:, None]), loss


def _kernels(tensor: Tensor) -> ModuleType | None:
    if tensor.device.type != "cuda":
        return None
    return kernels("descent_kernels", tensor, (torch.float32, torch.float64))
