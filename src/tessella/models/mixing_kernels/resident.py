"""Kernels for few tokens, where memory decides: S of one head stays in registers while images stream past.

A program owns a head and a chunk of the batch. It reads S once, and then, for each tile of values, multiplies and
writes. The backward pass does both of its products while a tile is on chip, so that the gradient of the outputs and
the values are read once; dL/dS grows in registers, one partial sum a chunk, added up afterwards in a fixed order.

Rows of a tile are tokens; its columns run through the images and, within each, through the head's numbers. The
tensor cores take blocks of 16, 32 or 64 tokens. 65 tokens, 64 patches and a class token, would fill half of a block
of 128, so that tokens are split in a main block and a rest of 16: S has four parts, of which three are thin.
"""

from typing import no_type_check

import triton
import triton.language as tl

from tessella.models.mixing_kernels.columns import head_start, place


@triton.jit
@no_type_check
def _part(scores, rows, columns, row_stride, column_stride, tokens):
    """A block of S, with zeros beyond the last token."""
    inside = (rows < tokens)[:, None] & (columns < tokens)[None, :]
    return tl.load(scores + rows[:, None] * row_stride + columns[None, :] * column_stride, mask=inside, other=0.0)


@triton.jit
@no_type_check
def _tile(start, columns, image_stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Of a tile that begins at column `start`: its first image, its offsets from there, and which columns exist."""
    image, across = place(start, image_stride, SIZE, BLOCK)
    return image, across, start + tl.arange(0, BLOCK) < columns


@triton.jit
@no_type_check
def mix_resident(
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
    MAIN: tl.constexpr,
    REST: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """mixed = S values, for one head and the columns from program_id(1) x chunk on."""
    head = tl.program_id(0)
    main = tl.arange(0, MAIN)
    rest = MAIN + tl.arange(0, 16)
    scores += head * score_head
    s_mm = _part(scores, main, main, score_row, score_column, tokens)
    if REST:
        s_mr = _part(scores, main, rest, score_row, score_column, tokens)
        s_rm = _part(scores, rest, main, score_row, score_column, tokens)
        s_rr = _part(scores, rest, rest, score_row, score_column, tokens)
    first = tl.program_id(1) * chunk
    for start in tl.range(first, tl.minimum(first + chunk, columns), BLOCK, num_stages=STAGES):
        image, across, inside = _tile(start, columns, value_image, SIZE, BLOCK)
        read = values + image * value_image + head_start(head, value_head, UNIT) + across[None, :]
        v_m = tl.load(read + main[:, None] * value_token, mask=(main < tokens)[:, None] & inside[None, :], other=0.0)
        if REST:
            there = (rest < tokens)[:, None] & inside[None, :]
            v_r = tl.load(read + rest[:, None] * value_token, mask=there, other=0.0)
        o_m = tl.dot(s_mm, v_m)
        image, across, inside = _tile(start, columns, mixed_image, SIZE, BLOCK)
        written = mixed + image * mixed_image + head_start(head, mixed_head, UNIT) + across[None, :]
        if REST:
            o_m = tl.dot(s_mr, v_r, o_m)
            o_r = tl.dot(s_rr, v_r, tl.dot(s_rm, v_m))
            there = (rest < tokens)[:, None] & inside[None, :]
            tl.store(written + rest[:, None] * mixed_token, o_r.to(mixed.dtype.element_ty), mask=there)
        there = (main < tokens)[:, None] & inside[None, :]
        tl.store(written + main[:, None] * mixed_token, o_m.to(mixed.dtype.element_ty), mask=there)


@triton.jit
@no_type_check
def gradients_resident(
    scores,
    values,
    by_mixed,
    by_values,
    partial,
    columns,
    chunk,
    tokens,
    score_head,
    score_row,
    score_column,
    value_image,
    value_token,
    value_head,
    by_image,
    by_token,
    by_head,
    out_image,
    out_token,
    out_head,
    SIZE: tl.constexpr,
    UNIT: tl.constexpr,
    MAIN: tl.constexpr,
    REST: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """by_values = S^T by_mixed, and this chunk's part of dL/dS = sum of by_mixed values^T."""
    head = tl.program_id(0)
    main = tl.arange(0, MAIN)
    rest = MAIN + tl.arange(0, 16)
    scores += head * score_head
    # Blocks of S^T: rows are the tokens whose values are differentiated.
    t_mm = _part(scores, main, main, score_column, score_row, tokens)
    d_mm = tl.zeros((MAIN, MAIN), tl.float32)
    if REST:
        t_mr = _part(scores, main, rest, score_column, score_row, tokens)
        t_rm = _part(scores, rest, main, score_column, score_row, tokens)
        t_rr = _part(scores, rest, rest, score_column, score_row, tokens)
        d_mr = tl.zeros((MAIN, 16), tl.float32)
        d_rm = tl.zeros((16, MAIN), tl.float32)
        d_rr = tl.zeros((16, 16), tl.float32)
    first = tl.program_id(1) * chunk
    for start in tl.range(first, tl.minimum(first + chunk, columns), BLOCK, num_stages=STAGES):
        image, across, inside = _tile(start, columns, value_image, SIZE, BLOCK)
        in_main = (main < tokens)[:, None] & inside[None, :]
        in_rest = (rest < tokens)[:, None] & inside[None, :]
        read = values + image * value_image + head_start(head, value_head, UNIT) + across[None, :]
        v_m = tl.load(read + main[:, None] * value_token, mask=in_main, other=0.0)
        if REST:
            v_r = tl.load(read + rest[:, None] * value_token, mask=in_rest, other=0.0)
        image, across, inside = _tile(start, columns, by_image, SIZE, BLOCK)
        read = by_mixed + image * by_image + head_start(head, by_head, UNIT) + across[None, :]
        g_m = tl.load(read + main[:, None] * by_token, mask=in_main, other=0.0)
        if REST:
            g_r = tl.load(read + rest[:, None] * by_token, mask=in_rest, other=0.0)
        o_m = tl.dot(t_mm, g_m)
        d_mm = tl.dot(g_m, tl.trans(v_m), d_mm)
        image, across, inside = _tile(start, columns, out_image, SIZE, BLOCK)
        written = by_values + image * out_image + head_start(head, out_head, UNIT) + across[None, :]
        if REST:
            o_m = tl.dot(t_mr, g_r, o_m)
            o_r = tl.dot(t_rr, g_r, tl.dot(t_rm, g_m))
            d_mr = tl.dot(g_m, tl.trans(v_r), d_mr)
            d_rm = tl.dot(g_r, tl.trans(v_m), d_rm)
            d_rr = tl.dot(g_r, tl.trans(v_r), d_rr)
            tl.store(written + rest[:, None] * out_token, o_r.to(by_values.dtype.element_ty), mask=in_rest)
        tl.store(written + main[:, None] * out_token, o_m.to(by_values.dtype.element_ty), mask=in_main)
    partial += (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + head) * tokens * tokens
    _keep(partial, d_mm, main, main, tokens)
    if REST:
        _keep(partial, d_mr, main, rest, tokens)
        _keep(partial, d_rm, rest, main, tokens)
        _keep(partial, d_rr, rest, rest, tokens)


@triton.jit
@no_type_check
def _keep(partial, block, rows, columns, tokens):
    inside = (rows < tokens)[:, None] & (columns < tokens)[None, :]
    tl.store(partial + rows[:, None] * tokens + columns[None, :], block, mask=inside)
