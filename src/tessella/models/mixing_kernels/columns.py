"""Where the columns of a head's values lie in memory: they run through the images and, in each, through its numbers.

The values of one head, tokens by columns, are no matrix that a library knows: numbers of one image and head lie side
by side, and the next image's are a whole image further on.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def place(start, image_stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Of BLOCK columns from `start` on: the image of the first, and the offsets of all from that image's beginning.

    `start` is a multiple of BLOCK. A tile then holds whole images, or lies in one, or is cut into runs of what BLOCK
    and SIZE share: the compiler has to know how long runs are, or it loads one number at a time and copies nothing
    ahead.
    """
    if BLOCK % SIZE == 0:
        column = tl.arange(0, BLOCK)
        across = (column // SIZE) * image_stride + column % SIZE
    elif SIZE % BLOCK == 0:
        across = tl.multiple_of(start % SIZE, BLOCK) + tl.arange(0, BLOCK)
    else:
        # BLOCK is a power of two, so that what it shares with SIZE is SIZE's lowest bit.
        run: tl.constexpr = SIZE & -SIZE
        column = tl.multiple_of(start % SIZE, run) + tl.arange(0, BLOCK)
        across = tl.max_contiguous((column // SIZE) * image_stride + column % SIZE, run)
    return tl.cast(start // SIZE, tl.int64), across


@triton.jit
@no_type_check
def head_start(head, head_stride, UNIT: tl.constexpr):
    """Where a head's numbers begin in a row. UNIT divides the stride; Triton by itself sees that of multiples of 16."""
    return tl.multiple_of(head * head_stride, UNIT)
