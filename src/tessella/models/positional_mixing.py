"""The mixing of positional attention (Definition 3.2, its last line): PA = S V, one S for the whole batch.

    mixed[b, i, h] = sum over j of S[h, i, j] values[b, j, h]

S are the scores after the softmax, as the definition names them: they depend on positions alone, so that their
softmax is taken once a step, and what is left for each image is a product. Values come as a projection leaves them,
(batch, tokens, heads, head size), and the output has the same layout.

The sum is linear in S and in the values, and so are its derivatives. Three operators are registered, whose derivatives
are made of each other, so that autograd may differentiate them as often as it likes:

    tessella::mix(S, V)                the sum above,
    tessella::correlate(O, V)          sum over b and d of O[b, i, h, d] V[b, j, h, d], (heads, tokens, tokens),
    tessella::mix_gradients(S, V, O)   correlate(O, V) and mix(S^T, O): both gradients, where O is that of the output.

They are the one dispatch point. On CUDA devices the kernels of `tessella.models.mixing_kernels` take float16 and
bfloat16; all else, and every other device, runs the matrix products below, one batched product over the heads.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.models.kernel_choice import kernels, transformed


def mix(
    scores: Float[Tensor, "*heads rows columns"], values: Float[Tensor, "batch tokens heads size"]
) -> Float[Tensor, "batch tokens heads size"]:
    """S V for every image and head.

    Scores of (heads, tokens, tokens) are shared by the batch. Scores of (batch, heads, tokens, tokens), one matrix for
    each image as masked tokens need them, are multiplied as any batch of matrices. Under autocast both are brought to
    its dtype, as for a matrix product.

    >>> mix(torch.eye(3).expand(2, 3, 3), torch.ones(5, 3, 2, 4)).shape
    torch.Size([5, 3, 2, 4])
    """
    _check(scores, values)
    kind = values.device.type
    if (
        torch.amp.is_autocast_available(kind)
        and torch.is_autocast_enabled(kind)
        and torch.float64 not in (scores.dtype, values.dtype)
    ):
        scores, values = scores.to(torch.get_autocast_dtype(kind)), values.to(torch.get_autocast_dtype(kind))
    if scores.dtype != values.dtype:
        raise ValueError(f"scores: got {scores.dtype}, expected {values.dtype} as the values have")
    # ONNX knows no operator of ours, and our operators no forward mode; a broadcast product is the same sum.
    if scores.ndim == 4 or torch.onnx.is_in_onnx_export() or transformed():
        return (scores @ values.transpose(1, 2)).transpose(1, 2)
    mixed: Tensor = shared_mix(scores, values)
    return mixed


def _check(scores: Tensor, values: Tensor) -> None:
    if values.ndim != 4:
        raise ValueError(f"values: got shape {tuple(values.shape)}, expected (batch, tokens, heads, head size)")
    batch, tokens, heads, _ = values.shape
    expected = (heads, tokens, tokens) if scores.ndim == 3 else (batch, heads, tokens, tokens)
    if tuple(scores.shape) != expected:
        raise ValueError(
            f"scores: got shape {tuple(scores.shape)}, expected {(heads, tokens, tokens)} for values of "
            f"{tuple(values.shape)}"
        )
    for name, given in (("scores", scores), ("values", values)):
        if given.is_complex():
            raise ValueError(f"{name}: got {given.dtype}, expected a real dtype")


@torch.library.custom_op("tessella::mix", mutates_args=(), schema="(Tensor scores, Tensor values) -> Tensor")
def shared_mix(scores: Tensor, values: Tensor) -> Tensor:
    """The operator behind `mix`, by matrix products."""
    return _product(scores, values)


@torch.library.custom_op("tessella::correlate", mutates_args=(), schema="(Tensor outputs, Tensor values) -> Tensor")
def correlate(outputs: Tensor, values: Tensor) -> Tensor:
    """The derivative of a loss in S, where `outputs` is its derivative in the mixed values; by matrix products."""
    return _correlation(outputs, values)


@torch.library.custom_op(
    "tessella::mix_gradients",
    mutates_args=(),
    schema="(Tensor scores, Tensor values, Tensor by_mixed) -> (Tensor, Tensor)",
)
def mix_gradients(scores: Tensor, values: Tensor, by_mixed: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of a loss in S and in the values, by matrix products."""
    return _correlation(by_mixed, values), _product(scores.transpose(1, 2), by_mixed)


def _product(scores: Tensor, values: Tensor) -> Tensor:
    mixed = values.new_empty(values.shape)
    tokens, heads, size = values.shape[1:]
    images = max(1, _slice_length(values))
    for some, into in zip(values.split(images), mixed.split(images), strict=True):
        product = torch.bmm(scores, _head_major(some)).view(heads, tokens, len(some), size)
        into.copy_(product.permute(2, 1, 0, 3))
    return mixed


def _correlation(outputs: Tensor, values: Tensor) -> Tensor:
    # One product over batch and head size together: a sum in pieces would round to a short dtype at each piece.
    return torch.bmm(_head_major(outputs), _head_major(values).transpose(1, 2))


def _slice_length(values: Tensor) -> int:
    """How many images to multiply at a time: all on a GPU; on a CPU 2.5 MB of values, whose copies stay in the cache.

    Smaller slices gain nothing, and each costs the threads a wait for each other, which on a busy machine is long.
    """
    if values.device.type != "cpu":
        return len(values)
    return 2_500_000 // max(1, values[:1].numel() * values.element_size())


def _head_major(values: Tensor) -> Tensor:
    """(heads, tokens, batch x head size): the one copy that a single product for each head needs."""
    batch, tokens, heads, size = values.shape
    return values.permute(2, 1, 0, 3).reshape(heads, tokens, batch * size)


def _kernels(values: Tensor) -> ModuleType | None:
    """float32 and float64 stay with matrix products: torch's own setting says there how exact float32 is to be."""
    return kernels("mixing_kernels.launch", values, (torch.float16, torch.bfloat16))


@shared_mix.register_kernel("cuda")
def _(scores: Tensor, values: Tensor) -> Tensor:
    found = _kernels(values)
    if found is None:
        return _product(scores, values)
    # Triton launches on the current device, which need not be that of the values.
    with torch.cuda.device_of(values):
        return found.mix(scores, values)


@correlate.register_kernel("cuda")
def _(outputs: Tensor, values: Tensor) -> Tensor:
    found = _kernels(values)
    if found is None:
        return _correlation(outputs, values)
    with torch.cuda.device_of(values):
        return found.correlate(outputs, values)


@mix_gradients.register_kernel("cuda")
def _(scores: Tensor, values: Tensor, by_mixed: Tensor) -> tuple[Tensor, Tensor]:
    found = _kernels(values)
    if found is None:
        return _correlation(by_mixed, values), _product(scores.transpose(1, 2), by_mixed)
    with torch.cuda.device_of(values):
        return found.gradients(scores, values, by_mixed)


@shared_mix.register_fake
def _(scores: Tensor, values: Tensor) -> Tensor:
    return values.new_empty(values.shape)


@correlate.register_fake
def _(outputs: Tensor, values: Tensor) -> Tensor:
    return values.new_empty(values.shape[2], values.shape[1], values.shape[1])


@mix_gradients.register_fake
def _(scores: Tensor, values: Tensor, by_mixed: Tensor) -> tuple[Tensor, Tensor]:
    return values.new_empty(values.shape[2], values.shape[1], values.shape[1]), values.new_empty(values.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _mix_backward(ctx: Any, by_mixed: Tensor) -> tuple[Tensor | None, Tensor | None]:
    scores, values = ctx.saved_tensors
    if all(ctx.needs_input_grad):
        return mix_gradients(scores, values, by_mixed)
    by_scores = correlate(by_mixed, values) if ctx.needs_input_grad[0] else None
    by_values = shared_mix(scores.transpose(1, 2), by_mixed) if ctx.needs_input_grad[1] else None
    return by_scores, by_values


def _correlate_backward(ctx: Any, by_total: Tensor) -> tuple[Tensor | None, Tensor | None]:
    outputs, values = ctx.saved_tensors
    by_outputs = shared_mix(by_total, values) if ctx.needs_input_grad[0] else None
    by_values = shared_mix(by_total.transpose(1, 2), outputs) if ctx.needs_input_grad[1] else None
    return by_outputs, by_values


def _gradients_backward(
    ctx: Any, of_scores: Tensor, of_values: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """From the derivatives in both gradients: in S, in the values, and in the gradient that they were made from."""
    scores, values, by_mixed = ctx.saved_tensors
    by_scores = correlate(by_mixed, of_values) if ctx.needs_input_grad[0] else None
    by_values = shared_mix(of_scores.transpose(1, 2), by_mixed) if ctx.needs_input_grad[1] else None
    both = shared_mix(of_scores, values) + shared_mix(scores, of_values) if ctx.needs_input_grad[2] else None
    return by_scores, by_values, both


shared_mix.register_autograd(_mix_backward, setup_context=_keep)
correlate.register_autograd(_correlate_backward, setup_context=_keep)
mix_gradients.register_autograd(_gradients_backward, setup_context=_keep)
