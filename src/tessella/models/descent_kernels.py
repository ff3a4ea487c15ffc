"""Kernels for a step of descent on (E): its two passes over X, and the arithmetic between its products with S.

X has N D d numbers and all else a d-th of that, so that a step on a GPU takes as long as its reads of X. Matrix-vector
libraries split such tall thin products badly; here every program reads whole tiles of X, next to each other in memory,
16 bytes a thread. Sums run in a fixed order, first within a program and then over programs: a run repeats bit for bit.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Numbers of X that a program holds at a time."""
PROGRAMS = 2048
"""In how many parts the sum over all patches is taken: enough to fill a device several times over."""


@triton.jit
@no_type_check
def _along(patches, value, along, rows, DIM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """<v, X_j> for ROWS patches; a row's columns come WIDTH at a time, so that one warp has them all."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = patches + row[:, None] * DIM
    total = tl.zeros((ROWS, WIDTH), patches.dtype.element_ty)
    for start in tl.static_range(0, DIM, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row < rows)[:, None] & (column < DIM)[None, :]
        read = tl.load(here + column[None, :], mask=inside, other=0.0)
        total += read * tl.load(value + column, mask=column < DIM, other=0.0)[None, :]
    tl.store(along + row, tl.sum(total, 1), mask=row < rows)


@triton.jit
@no_type_check
def _weighted(patches, weight, parts, rows, tiles, DIM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The sum of weight_j X_j over `tiles` tiles of ROWS patches and over WIDTH columns."""
    first = tl.program_id(0).to(tl.int64) * tiles * ROWS
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), patches.dtype.element_ty)
    for tile in range(tiles):
        row = first + tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < DIM)[None, :]
        read = tl.load(patches + row[:, None] * DIM + column[None, :], mask=inside, other=0.0)
        total += read * tl.load(weight + row, mask=row < rows, other=0.0)[:, None]
    tl.store(parts + tl.program_id(0) * DIM + column, tl.sum(total, 0), mask=column < DIM)


@triton.jit
@no_type_check
def _margins(
    mixed,
    label,
    by_mixed,
    loss,
    points,
    PATCHES: tl.constexpr,
    DEGREE: tl.constexpr,
    LINEAR: tl.constexpr,
    POINTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """From h to log(1 + exp(-y F)) and its derivative in h, but for the factors D and 1/N."""
    point = tl.program_id(0).to(tl.int64) * POINTS + tl.arange(0, POINTS)
    column = tl.arange(0, WIDTH)
    inside = (point < points)[:, None] & (column < PATCHES)[None, :]
    place = point[:, None] * PATCHES + column[None, :]
    h = tl.load(mixed + place, mask=inside, other=0.0)
    even = h * h
    for _ in tl.static_range(3, DEGREE, 2):
        even *= h * h
    y = tl.load(label + point, mask=point < points, other=0.0)
    margin = y * tl.sum(h * (even + LINEAR), 1)
    # Both from exp(-|margin|), which cannot overflow.
    small = tl.exp(-tl.abs(margin))
    by_output = -y * tl.where(margin > 0, small, 1.0) / (1.0 + small)
    tl.store(by_mixed + place, (DEGREE * even + LINEAR) * by_output[:, None], mask=inside)
    tl.store(loss + point, tl.maximum(-margin, 0.0) + tl.log(1.0 + small), mask=point < points)


def along(patches: Tensor, value: Tensor) -> Tensor:
    """u = X v, for contiguous X of shape (points, patches, dim)."""
    points, count, dim = patches.shape
    width = min(128, triton.next_power_of_2(dim))
    rows = TILE // width
    result = patches.new_empty(points, count)
    _along[(triton.cdiv(points * count, rows),)](
        patches, value, result, points * count, DIM=dim, ROWS=rows, WIDTH=width, num_warps=4
    )
    return result


def weighted_sum(patches: Tensor, weight: Tensor) -> Tensor:
    """The sum over points and patches of weight_nj X_nj, for contiguous X of shape (points, patches, dim)."""
    points, count, dim = patches.shape
    width = min(256, triton.next_power_of_2(dim))
    rows = TILE // width
    tiles = triton.cdiv(triton.cdiv(points * count, rows), PROGRAMS)
    programs = triton.cdiv(points * count, rows * tiles)
    parts = patches.new_empty(programs, dim)
    _weighted[(programs, triton.cdiv(dim, width))](
        patches, weight, parts, points * count, tiles, DIM=dim, ROWS=rows, WIDTH=width, num_warps=4
    )
    return parts.sum(0)


def margins(mixed: Tensor, label: Tensor, degree: int, linear: float) -> tuple[Tensor, Tensor]:
    """sigma'(h) dl/dF for each h, and l = log(1 + exp(-y F)), for each of the points."""
    points, count = mixed.shape
    width = triton.next_power_of_2(count)
    each = max(1, 2048 // width)
    by_mixed, loss = torch.empty_like(mixed), torch.empty_like(label)
    _margins[(triton.cdiv(points, each),)](
        mixed,
        label,
        by_mixed,
        loss,
        points,
        PATCHES=count,
        DEGREE=degree,
        LINEAR=linear,
        POINTS=each,
        WIDTH=width,
        num_warps=4,
    )
    return by_mixed, loss
