"""Softmax by rows and its backward pass, in one read and one write: a program keeps whole rows on chip.

At thousands of tokens A has more numbers than the values, and a library's softmax, which reads a long row twice, takes
as long as the mixing.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 16384
"""Numbers of a row that a program can keep."""


@triton.jit
@no_type_check
def softmax_forward(logits, scores, rows, length, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < length)[None, :]
    place = row[:, None] * length + column[None, :]
    x = tl.load(logits + place, mask=inside, other=float("-inf")).to(tl.float32)
    # Rows beyond the last are all -inf; any finite top keeps them from 0/0.
    top = tl.maximum(tl.max(x, 1), -3.0e38)
    e = tl.exp(x - top[:, None])
    total = tl.sum(e, 1)
    s = e / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(scores + place, s.to(scores.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def softmax_backward(scores, by_scores, by_logits, rows, length, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < length)[None, :]
    place = row[:, None] * length + column[None, :]
    s = tl.load(scores + place, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(by_scores + place, mask=inside, other=0.0).to(tl.float32)
    inner = tl.sum(s * g, 1)
    tl.store(by_logits + place, (s * (g - inner[:, None])).to(by_logits.dtype.element_ty), mask=inside)


def forward(logits: Tensor) -> Tensor:
    """S from A, along the last dimension."""
    logits = logits.contiguous()
    scores = torch.empty_like(logits)
    _launch(softmax_forward, logits, scores)
    return scores


def backward(scores: Tensor, by_scores: Tensor) -> Tensor:
    """S (dL/dS - rowsum(S dL/dS))."""
    scores, by_scores = scores.contiguous(), by_scores.contiguous()
    by_logits = torch.empty_like(scores)
    _launch(softmax_backward, scores, by_scores, by_logits)
    return by_logits


def _launch(kernel: triton.KernelInterface, *tensors: Tensor) -> None:
    length = tensors[0].shape[-1]
    rows = tensors[0].numel() // max(1, length)
    if rows == 0 or length == 0:
        return
    width = triton.next_power_of_2(length)
    each = max(1, 2048 // width)
    warps = min(16, max(4, width * each // 512))
    kernel[(triton.cdiv(rows, each),)](*tensors, rows, length, ROWS=each, WIDTH=width, num_warps=warps)
