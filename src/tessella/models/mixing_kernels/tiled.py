"""Kernels for many tokens: matrix products over tiles, from and to the layout in which a projection leaves values.

The values of one head are a matrix of tokens by columns, where columns run through the images and, within each,
through the head's numbers: they lie apart in memory, at one stride from image to image. A library's matrix product
knows one stride for a column, and wants a copy first. These kernels compute where a column lies, and copy nothing.
"""

from typing import no_type_check

import triton
import triton.language as tl

from tessella.models.mixing_kernels.columns import head_start, place


@triton.jit
@no_type_check
def mix_tiled(
    scores,
    values,
    mixed,
    columns,
    tokens,
    row_limit,
    inner_limit,
    score_head,
    score_row,
    score_column,
    value_image,
    value_token,
    value_head,
    mixed_image,
    mixed_token,
    mixed_head,
    SIZE: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One tile of S values. Programs that share values, and then those that share scores, run side by side.

    `row_limit` and `inner_limit` say where the scores end that may be read: S is padded with zeros along its
    contiguous side, so that a limit is a multiple of what is loaded at once.
    """
    row_tiles, column_tiles = tl.cdiv(tokens, ROWS), tl.cdiv(columns, COLUMNS)
    program = tl.program_id(0)
    rows = (program % row_tiles) * ROWS + tl.arange(0, ROWS)
    program //= row_tiles
    head, start = program // column_tiles, (program % column_tiles) * COLUMNS
    inside = start + tl.arange(0, COLUMNS) < columns
    inner = tl.arange(0, INNER)
    image, across = place(start, value_image, SIZE, COLUMNS)
    of_scores = scores + head.to(tl.int64) * score_head + rows[:, None] * score_row + inner[None, :] * score_column
    of_values = (
        values
        + image * value_image
        + head_start(head, value_head, UNIT)
        + inner[:, None] * value_token
        + across[None, :]
    )
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for at in tl.range(0, tokens, INNER, num_stages=STAGES):
        in_scores = (rows < row_limit)[:, None] & (at + inner < inner_limit)[None, :]
        in_values = (at + inner < tokens)[:, None] & inside[None, :]
        s = tl.load(of_scores, mask=in_scores, other=0.0)
        v = tl.load(of_values, mask=in_values, other=0.0)
        total = tl.dot(s, v, total)
        of_scores += INNER * score_column
        of_values += INNER * value_token
    image, across = place(start, mixed_image, SIZE, COLUMNS)
    written = (
        mixed + image * mixed_image + head_start(head, mixed_head, UNIT) + rows[:, None] * mixed_token + across[None, :]
    )
    tl.store(written, total.to(mixed.dtype.element_ty), mask=(rows < tokens)[:, None] & inside[None, :])


@triton.jit
@no_type_check
def correlate_tiled(
    outputs,
    values,
    result,
    columns,
    chunk,
    tokens,
    heads,
    output_image,
    output_token,
    output_head,
    value_image,
    value_token,
    value_head,
    result_part,
    SIZE: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One tile of outputs values^T, summed over the columns from program_id(1) x chunk on."""
    row_tiles, column_tiles = tl.cdiv(tokens, ROWS), tl.cdiv(tokens, COLUMNS)
    program = tl.program_id(0)
    rows = (program % row_tiles) * ROWS + tl.arange(0, ROWS)
    program //= row_tiles
    others = (program % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)
    head = program // column_tiles
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = tl.program_id(1) * chunk
    for start in tl.range(first, tl.minimum(first + chunk, columns), INNER, num_stages=STAGES):
        inside = start + tl.arange(0, INNER) < columns
        image, across = place(start, output_image, SIZE, INNER)
        o = tl.load(
            outputs
            + image * output_image
            + head_start(head, output_head, UNIT)
            + rows[:, None] * output_token
            + across[None, :],
            mask=(rows < tokens)[:, None] & inside[None, :],
            other=0.0,
        )
        image, across = place(start, value_image, SIZE, INNER)
        v = tl.load(
            values
            + image * value_image
            + head_start(head, value_head, UNIT)
            + others[:, None] * value_token
            + across[None, :],
            mask=(others < tokens)[:, None] & inside[None, :],
            other=0.0,
        )
        total = tl.dot(o, tl.trans(v), total)
    result += tl.program_id(1).to(tl.int64) * result_part + head.to(tl.int64) * tokens * tokens
    there = (rows < tokens)[:, None] & (others < tokens)[None, :]
    written = result + rows.to(tl.int64)[:, None] * tokens + others[None, :]
    tl.store(written, total.to(result.dtype.element_ty), mask=there)


@triton.jit
@no_type_check
def add_parts(parts, result, numbers, count, BLOCK: tl.constexpr):
    """result = the sum of `count` arrays of `numbers` that lie one behind the other, in that order."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(count):
        total += tl.load(parts + index, mask=index < numbers, other=0.0)
        parts += numbers
    tl.store(result + index, total.to(result.dtype.element_ty), mask=index < numbers)
