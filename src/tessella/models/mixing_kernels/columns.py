"""Where the columns of a head's values lie in memory: they run through the images and, in each, through its numbers.

The values of one head, tokens by columns, are no matrix that a library knows: numbers of one image and head lie side
by side, and the next image's are a whole image further on.
"""

import triton
import triton.language as tl


@triton.jit
def place(start, image_stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Of BLOCK columns from `start` on: the image of the first, and the offsets of all from that image's beginning.

    `start` is a multiple of BLOCK, so that its place within an image is a multiple of what BLOCK and SIZE share; said
    to the compiler, that lets it load 16 bytes at a time.
    """
    if BLOCK % SIZE == 0:
        column = tl.arange(0, BLOCK)
    else:
        column = start % SIZE + tl.arange(0, BLOCK)
    return tl.cast(start // SIZE, tl.int64), (column // SIZE) * image_stride + column % SIZE
