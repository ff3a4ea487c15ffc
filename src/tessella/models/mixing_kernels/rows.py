"""A kernel for 81 to 272 tokens: a block of S's rows stays on chip while images stream past.

Between few tokens, where all of S fits the registers, and many, where arithmetic decides, the traffic between the cache
and the multiprocessors decides: a tile of a plain product reads as much of S as of the values. Here a program owns a
head, a block of rows and a chunk of the batch. It reads its rows of S once, and then only values. The programs of one
chunk, which read the same values, run side by side, so that memory gives each number once and the cache the rest.

The tensor cores take powers of two. 197 tokens would fill 256 by three quarters, so that the sum over tokens has up to
three parts: 128 + 64 + 16 for 197 tokens, 256 + 16 for 257.
"""

from typing import no_type_check

import triton
import triton.language as tl

from tessella.models.mixing_kernels.columns import head_start, place


@triton.jit
@no_type_check
def _scores(scores, rows, start, row_stride, column_stride, tokens, PART: tl.constexpr):
    columns = start + tl.arange(0, PART)
    inside = (rows < tokens)[:, None] & (columns < tokens)[None, :]
    return tl.load(scores + rows[:, None] * row_stride + columns[None, :] * column_stride, mask=inside, other=0.0)


@triton.jit
@no_type_check
def _values(read, start, token_stride, inside, tokens, PART: tl.constexpr):
    token = start + tl.arange(0, PART)
    return tl.load(read + token[:, None] * token_stride, mask=(token < tokens)[:, None] & inside[None, :], other=0.0)


@triton.jit
@no_type_check
def mix_rows(
    scores,
    values,
    mixed,
    columns,
    chunk,
    tokens,
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
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    THIRD: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """ROWS rows of S values, for one head and the columns from program_id(2) x chunk on."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)
    scores += head * score_head
    s_1 = _scores(scores, rows, 0, score_row, score_column, tokens, FIRST)
    if SECOND:
        s_2 = _scores(scores, rows, FIRST, score_row, score_column, tokens, SECOND)
    if THIRD:
        s_3 = _scores(scores, rows, FIRST + SECOND, score_row, score_column, tokens, THIRD)
    begin = tl.program_id(2) * chunk
    for start in tl.range(begin, tl.minimum(begin + chunk, columns), BLOCK, num_stages=STAGES):
        inside = start + tl.arange(0, BLOCK) < columns
        image, across = place(start, value_image, SIZE, BLOCK)
        read = values + image * value_image + head_start(head, value_head, UNIT) + across[None, :]
        total = tl.dot(s_1, _values(read, 0, value_token, inside, tokens, FIRST))
        if SECOND:
            total = tl.dot(s_2, _values(read, FIRST, value_token, inside, tokens, SECOND), total)
        if THIRD:
            total = tl.dot(s_3, _values(read, FIRST + SECOND, value_token, inside, tokens, THIRD), total)
        image, across = place(start, mixed_image, SIZE, BLOCK)
        written = (
            mixed
            + image * mixed_image
            + head_start(head, mixed_head, UNIT)
            + rows[:, None] * mixed_token
            + across[None, :]
        )
        tl.store(written, total.to(mixed.dtype.element_ty), mask=(rows < tokens)[:, None] & inside[None, :])
