"""S = softmax(A) by rows (Definition 3.2), computed in float32 and rounded once to the dtype of A.

Registered as `tessella::row_softmax`. On CUDA devices a Triton kernel takes rows of up to 16,384 numbers in short
dtypes; compiled and exported programs get torch's own softmax, which their compilers fuse with what is around it, and
so do forward-mode derivatives, which the operator has none of.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.models.kernel_choice import kernels, transformed

SHORT = (torch.float16, torch.bfloat16)


def row_softmax(logits: Float[Tensor, "*heads rows columns"]) -> Float[Tensor, "*heads rows columns"]:
    """Softmax along the last dimension.

    >>> row_softmax(torch.zeros(2, 4))[0, 0].item()
    0.25
    """
    own = logits.device.type == "cuda" and logits.dtype in SHORT
    if own and not torch.compiler.is_compiling() and not transformed():
        scores: Tensor = softmax_rows(logits)
        return scores
    return _by_torch(logits)


def _by_torch(logits: Tensor) -> Tensor:
    if logits.dtype in SHORT:
        return torch.softmax(logits, -1, dtype=torch.float32).to(logits.dtype)
    return torch.softmax(logits, -1)


@torch.library.custom_op("tessella::row_softmax", mutates_args=(), schema="(Tensor logits) -> Tensor")
def softmax_rows(logits: Tensor) -> Tensor:
    """The operator behind `row_softmax`."""
    return _by_torch(logits).clone(memory_format=torch.contiguous_format)


@torch.library.custom_op(
    "tessella::row_softmax_backward", mutates_args=(), schema="(Tensor scores, Tensor by_scores) -> Tensor"
)
def softmax_rows_backward(scores: Tensor, by_scores: Tensor) -> Tensor:
    """dL/dA, by the formula of `_gradient`."""
    return _gradient(scores, by_scores).contiguous()


def _gradient(scores: Tensor, by_scores: Tensor) -> Tensor:
    """dL/dA = S (dL/dS - rowsum(S dL/dS)), of plain operations, which have derivatives of their own."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    s, g = scores.to(wide), by_scores.to(wide)
    return (s * (g - (s * g).sum(-1, keepdim=True))).to(scores.dtype)


def _kernels(tensor: Tensor) -> ModuleType | None:
    found = kernels("mixing_kernels.softmax", tensor, SHORT)
    return found if found is not None and tensor.shape[-1] <= found.LONGEST else None


@softmax_rows.register_kernel("cuda")
def _(logits: Tensor) -> Tensor:
    found = _kernels(logits)
    if found is None:
        return _by_torch(logits).contiguous()
    # Triton launches on the current device, which need not be that of A.
    with torch.cuda.device_of(logits):
        return found.forward(logits)


@softmax_rows_backward.register_kernel("cuda")
def _(scores: Tensor, by_scores: Tensor) -> Tensor:
    found = _kernels(scores)
    if found is None:
        return _gradient(scores, by_scores).contiguous()
    with torch.cuda.device_of(scores):
        return found.backward(scores, by_scores)


@softmax_rows.register_fake
def _(logits: Tensor) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@softmax_rows_backward.register_fake
def _(scores: Tensor, by_scores: Tensor) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, by_scores: Tensor) -> Tensor:
    (scores,) = ctx.saved_tensors
    # Gradients are recorded here only where a second derivative is wanted.
    return _gradient(scores, by_scores) if torch.is_grad_enabled() else softmax_rows_backward(scores, by_scores)


softmax_rows.register_autograd(_backward, setup_context=_keep)
