"""Which kernel mixes on a CUDA device, with which tiles, and the launch of it.

tokens <= 80    resident: S in registers, values stream past; memory decides
tokens <= 272   rows: a block of S's rows on chip, values stream past; the cache decides
more            tiled: matrix products in place

dL/dS comes with the resident kernel, and beyond it from tiles, split over the batch where they are too few to fill a
device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from tessella.models.mixing_kernels import resident, rows, tiled

RESIDENT_TOKENS = 80
ROWS_TOKENS = 272


@dataclass(frozen=True)
class Streaming:
    """How a resident kernel streams: columns a tile, tiles in flight, warps, and programs for each multiprocessor."""

    block: int
    stages: int
    warps: int
    programs: int


@dataclass(frozen=True)
class RowBlocks:
    """How a kernel of row blocks streams: rows of S, columns a tile, tiles in flight, warps, and programs in all for
    each multiprocessor."""

    rows: int
    block: int
    stages: int
    warps: int
    programs: int


@dataclass(frozen=True)
class Tiling:
    """The tile of a matrix product: rows and columns of its result, what is summed at a time, and what is in flight."""

    rows: int
    columns: int
    inner: int
    stages: int
    warps: int


def streaming(tokens: int, backward: bool) -> Streaming:
    if backward:
        return Streaming(block=32, stages=3 if tokens <= 64 else 4, warps=4, programs=2)
    if tokens <= 64:
        return Streaming(block=256, stages=4, warps=4, programs=3)
    return Streaming(block=64, stages=3, warps=4, programs=2)


def row_blocks(tokens: int) -> RowBlocks:
    """All rows in one block where S and the values in flight fit a multiprocessor's shared memory together.

    From 225 tokens on the sum over them takes a block of 256, which fits the registers beside 256 rows where rows can
    be read 16 bytes at a time, as those of 256 tokens can.
    """
    if tokens <= 128:
        return RowBlocks(rows=128, block=64, stages=3, warps=8, programs=2)
    if tokens <= 224:
        return RowBlocks(rows=256, block=64, stages=3, warps=8, programs=1)
    if tokens == 256:
        return RowBlocks(rows=256, block=64, stages=2, warps=8, programs=1)
    return RowBlocks(rows=128, block=64, stages=3, warps=8, programs=1)


def product_tiling(tokens: int) -> Tiling:
    return Tiling(rows=128, columns=256, inner=64, stages=4 if tokens <= 2048 else 3, warps=8)


def correlation_tiling(tokens: int) -> Tiling:
    if tokens <= 512:
        return Tiling(rows=128, columns=128, inner=64, stages=3, warps=4)
    return Tiling(rows=256, columns=128, inner=64, stages=3, warps=8)


def mix(scores: Tensor, values: Tensor, plan: Streaming | RowBlocks | Tiling | None = None) -> Tensor:
    """S values."""
    values = _rowwise(values)
    mixed = torch.empty(values.shape, device=values.device, dtype=values.dtype)
    if mixed.numel() == 0:
        return mixed
    plan = plan or _plan(values.shape[1])
    if isinstance(plan, Streaming):
        _mix_resident(scores, values, mixed, plan)
    elif isinstance(plan, RowBlocks):
        _mix_rows(scores, values, mixed, plan)
    else:
        _mix_tiled(scores, values, mixed, plan)
    return mixed


def _plan(tokens: int) -> Streaming | RowBlocks | Tiling:
    if tokens <= RESIDENT_TOKENS:
        return streaming(tokens, backward=False)
    return row_blocks(tokens) if tokens <= ROWS_TOKENS else product_tiling(tokens)


def correlate(outputs: Tensor, values: Tensor, plan: Tiling | None = None) -> Tensor:
    """The sum over images and numbers of outputs values^T."""
    outputs, values = _rowwise(outputs), _rowwise(values)
    batch, tokens, heads, size = values.shape
    result = torch.empty(heads, tokens, tokens, device=values.device, dtype=values.dtype)
    if values.numel() == 0:
        return result.zero_()
    plan = plan or correlation_tiling(tokens)
    tiles = triton.cdiv(tokens, plan.rows) * triton.cdiv(tokens, plan.columns) * heads
    parts = _parts(2 * _multiprocessors(values.device), tiles, batch * size, plan.inner)
    chunk = _chunk(batch * size, parts, plan.inner)
    parts = triton.cdiv(batch * size, chunk)
    into = result if parts == 1 else torch.empty(parts, *result.shape, device=values.device, dtype=torch.float32)
    tiled.correlate_tiled[(tiles, parts)](
        outputs,
        values,
        into,
        batch * size,
        chunk,
        tokens,
        heads,
        *_strides(outputs),
        *_strides(values),
        heads * tokens * tokens,
        SIZE=size,
        UNIT=_unit(outputs, values),
        ROWS=plan.rows,
        COLUMNS=plan.columns,
        INNER=plan.inner,
        STAGES=plan.stages,
        num_warps=plan.warps,
    )
    return result if parts == 1 else _added(into, result)


def gradients(scores: Tensor, values: Tensor, by_mixed: Tensor, plan: Streaming | None = None) -> tuple[Tensor, Tensor]:
    """dL/dS and dL/dvalues from dL/dmixed: in one pass where tokens are few, else by the two products."""
    batch, tokens, heads, size = values.shape
    if tokens > RESIDENT_TOKENS or values.numel() == 0:
        return correlate(by_mixed, values), mix(scores.transpose(1, 2), by_mixed)
    values, by_mixed = _rowwise(values), _rowwise(by_mixed)
    plan = plan or streaming(tokens, backward=True)
    by_values = torch.empty(values.shape, device=values.device, dtype=values.dtype)
    by_scores = torch.empty(heads, tokens, tokens, device=values.device, dtype=values.dtype)
    wanted = plan.programs * _multiprocessors(values.device)
    chunk = _chunk(batch * size, max(1, wanted // heads), plan.block)
    parts = triton.cdiv(batch * size, chunk)
    partial = torch.empty(parts, *by_scores.shape, device=values.device, dtype=torch.float32)
    resident.gradients_resident[(heads, parts)](
        scores,
        values,
        by_mixed,
        by_values,
        partial,
        batch * size,
        chunk,
        tokens,
        *scores.stride(),
        *_strides(values),
        *_strides(by_mixed),
        *_strides(by_values),
        SIZE=size,
        UNIT=_unit(values, by_mixed, by_values),
        **_blocks(tokens),
        BLOCK=plan.block,
        STAGES=plan.stages,
        num_warps=plan.warps,
    )
    return _added(partial, by_scores), by_values


def _mix_resident(scores: Tensor, values: Tensor, mixed: Tensor, plan: Streaming) -> None:
    batch, tokens, heads, size = values.shape
    wanted = plan.programs * _multiprocessors(values.device)
    chunk = _chunk(batch * size, max(1, wanted // heads), plan.block)
    resident.mix_resident[(heads, triton.cdiv(batch * size, chunk))](
        scores,
        values,
        mixed,
        batch * size,
        chunk,
        tokens,
        *scores.stride(),
        *_strides(values),
        *_strides(mixed),
        SIZE=size,
        UNIT=_unit(values, mixed),
        **_blocks(tokens),
        BLOCK=plan.block,
        STAGES=plan.stages,
        num_warps=plan.warps,
    )


def _mix_rows(scores: Tensor, values: Tensor, mixed: Tensor, plan: RowBlocks) -> None:
    batch, tokens, heads, size = values.shape
    blocks = triton.cdiv(tokens, plan.rows)
    wanted = plan.programs * _multiprocessors(values.device)
    chunk = _chunk(batch * size, max(1, wanted // (blocks * heads)), plan.block)
    first, second, third = sum_parts(tokens)
    rows.mix_rows[(blocks, heads, triton.cdiv(batch * size, chunk))](
        scores,
        values,
        mixed,
        batch * size,
        chunk,
        tokens,
        *scores.stride(),
        *_strides(values),
        *_strides(mixed),
        SIZE=size,
        UNIT=_unit(values, mixed),
        ROWS=plan.rows,
        FIRST=first,
        SECOND=second,
        THIRD=third,
        BLOCK=plan.block,
        STAGES=plan.stages,
        num_warps=plan.warps,
    )


def sum_parts(tokens: int) -> tuple[int, int, int]:
    """Powers of two from 16 on whose sum covers the tokens, falling, 0 where fewer than three will do.

    >>> sum_parts(197), sum_parts(257), sum_parts(250)
    ((128, 64, 16), (256, 16, 0), (256, 0, 0))
    """
    left = triton.cdiv(tokens, 16)
    parts: list[int] = []
    while left > 0 and len(parts) < 2:
        parts.append(1 << (left.bit_length() - 1))
        left -= parts[-1]
    parts.append(triton.next_power_of_2(left) if left > 0 else 0)
    whole = triton.next_power_of_2(triton.cdiv(tokens, 16))
    first, second, third = (*parts, 0, 0)[:3] if sum(parts) < whole else (whole, 0, 0)
    return 16 * first, 16 * second, 16 * third


def _mix_tiled(scores: Tensor, values: Tensor, mixed: Tensor, plan: Tiling) -> None:
    batch, tokens, heads, size = values.shape
    scores, row_limit, inner_limit = _padded(scores)
    tiles = triton.cdiv(tokens, plan.rows) * triton.cdiv(batch * size, plan.columns) * heads
    tiled.mix_tiled[(tiles,)](
        scores,
        values,
        mixed,
        batch * size,
        tokens,
        row_limit,
        inner_limit,
        *scores.stride(),
        *_strides(values),
        *_strides(mixed),
        SIZE=size,
        UNIT=_unit(values, mixed),
        ROWS=plan.rows,
        COLUMNS=plan.columns,
        INNER=plan.inner,
        STAGES=plan.stages,
        num_warps=plan.warps,
    )


def _padded(scores: Tensor) -> tuple[Tensor, int, int]:
    """S with its contiguous side padded by zeros to a multiple of 16, to load 16 bytes at a time; and its limits."""
    tokens = scores.shape[-1]
    by_column = scores.stride(1) == 1 and scores.stride(2) != 1
    matrix = scores.transpose(1, 2) if by_column else scores
    room = triton.cdiv(tokens, 16) * 16
    aligned = matrix.stride(2) == 1 and not (matrix.stride(1) % 8 or matrix.stride(0) % 8 or matrix.data_ptr() % 16)
    if room != tokens or not aligned:
        padded = matrix.new_zeros(matrix.shape[0], tokens, room)
        padded[:, :, :tokens] = matrix
        matrix = padded
    return (matrix.transpose(1, 2), room, tokens) if by_column else (matrix, tokens, room)


def _blocks(tokens: int) -> dict[str, int | bool]:
    """The main block of tokens, and whether a rest of 16 follows."""
    if 64 < tokens <= RESIDENT_TOKENS:
        return {"MAIN": 64, "REST": True}
    return {"MAIN": max(16, triton.next_power_of_2(tokens)), "REST": False}


def _rowwise(values: Tensor) -> Tensor:
    """With the numbers of a head side by side, as a projection leaves them; anything else is copied."""
    return values if values.stride(3) == 1 else values.contiguous()


def _strides(values: Tensor) -> tuple[int, int, int]:
    return values.stride(0), values.stride(1), values.stride(2)


def _unit(*tensors: Tensor) -> int:
    """What all strides from head to head share, up to 8 numbers: 16 bytes, the most that a thread loads at once."""
    return math.gcd(8, *(each.stride(2) for each in tensors))


def _parts(programs: int, tiles: int, columns: int, inner: int) -> int:
    """In how many parts a sum is to be taken: enough to fill the device, each of some length."""
    return max(1, min(programs // tiles, columns // (4 * inner)))


def _chunk(columns: int, parts: int, block: int) -> int:
    """The columns of a part: a multiple of a tile's."""
    return triton.cdiv(triton.cdiv(columns, parts), block) * block


def _added(parts: Tensor, result: Tensor) -> Tensor:
    numbers = result.numel()
    tiled.add_parts[(triton.cdiv(numbers, 512),)](parts, result, numbers, len(parts), BLOCK=512, num_warps=4)
    return result


def _multiprocessors(device: torch.device) -> int:
    """As the driver says through which Triton launches."""
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    return int(properties["multiprocessor_count"])
