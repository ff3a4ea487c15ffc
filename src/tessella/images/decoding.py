"""Encoded images to bytes of one size, by Pillow. It imports neither torch nor what needs it: workers start quickly."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def decode(content: bytes | Path, where: str) -> np.ndarray:
    """Red, green and blue, in the size that the image has."""
    with _opened(content, where) as image:
        return np.asarray(_colours(image, where))


def decode_square(content: bytes | Path, where: str, size: int) -> np.ndarray:
    """The short side brought to `size` pixels, and the middle of the long one kept."""
    with _opened(content, where) as image:
        width, height = image.size
        short = min(width, height)
        left, top = (width - short) / 2, (height - short) / 2
        return _resized(_colours(image, where), (left, top, left + short, top + short), size)


def decoded(content: bytes | Path, where: str, size: int | None) -> np.ndarray:
    """As a square of a size, or as it is."""
    return decode(content, where) if size is None else decode_square(content, where, size)


def same_size(image: np.ndarray, shape: tuple[int, ...], where: str) -> np.ndarray:
    """The image, if it has this shape."""
    if image.shape != shape:
        raise ValueError(
            f"data: {where}: got {image.shape[1]} x {image.shape[0]} pixels, expected {shape[1]} x {shape[0]} as of "
            "the first image; tessella data prepare --size N brings all to one size"
        )
    return image


def write_decoded(
    file: Path, start: int, items: list[tuple[bytes | Path, str]], shape: tuple[int, ...], size: int | None
) -> int:
    """Decodes images to consecutive places of a .npy file, and returns how many; for a process of its own."""
    written = np.load(file, mmap_mode="r+", allow_pickle=False)
    for offset, (content, where) in enumerate(items):
        written[start + offset] = same_size(decoded(content, where, size), shape, where)
    return len(items)


@dataclass(frozen=True)
class Look:
    """Which part of an image is looked at, in how many pixels: the middle, or a part that a seed names."""

    size: int
    smallest: float | None = None
    """The least share of the area that a random part may have; None for the middle."""
    middle: float = 0.875
    """The share of the short side that the middle has: 224 of 256 pixels."""

    def part(self, width: int, height: int, seed: int) -> Box:
        """Left, top, right and bottom, in pixels of an image of this size.

        A random part has a uniform share of the area and a height to width from 3/4 to 4/3, uniform on a logarithmic
        scale. Where ten draws do not fit, it is the largest middle part of such a form.
        """
        if self.smallest is None:
            side = self.middle * min(width, height)
            return _about_the_middle(width, height, side, side)
        draws = np.random.default_rng(seed).random((10, 4))
        for share, form, right, down in draws:
            area = (self.smallest + (1 - self.smallest) * share) * width * height
            ratio = math.exp((2 * form - 1) * math.log(4 / 3))
            across, along = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < across <= width and 0 < along <= height:
                left, top = int(right * (width - across + 1)), int(down * (height - along + 1))
                return left, top, left + across, top + along
        return _about_the_middle(width, height, min(width, height * 4 / 3), min(height, width * 4 / 3))


def _about_the_middle(width: int, height: int, across: float, along: float) -> Box:
    left, top = (width - across) / 2, (height - along) / 2
    return left, top, left + across, top + along


def decode_look(content: bytes | Path, where: str, look: Look, seed: int) -> np.ndarray:
    """A part of the image, as a square.

    A JPEG is decoded at the least of its halvings that still has a pixel for each that is wanted, which saves most of
    the work on large photographs.
    """
    with _opened(content, where) as image:
        width, height = image.size
        left, top, right, bottom = look.part(width, height, seed)
        image.draft(
            "RGB", (math.ceil(look.size * width / (right - left)), math.ceil(look.size * height / (bottom - top)))
        )
        colours = _colours(image, where)
        across, along = colours.size[0] / width, colours.size[1] / height
        return _resized(colours, (left * across, top * along, right * across, bottom * along), look.size)


def write_looks(file: Path, start: int, items: list[tuple[bytes | Path, str, int]], look: Look) -> int:
    """Decodes parts of images to consecutive places of a .npy file, and returns how many; for a process of its own."""
    written = np.load(file, mmap_mode="r+", allow_pickle=False)
    for offset, (content, where, seed) in enumerate(items):
        written[start + offset] = decode_look(content, where, look, seed)
    return len(items)


def _resized(image: Any, box: Box, size: int) -> np.ndarray:
    if box == (0, 0, *image.size) and image.size == (size, size):
        return np.asarray(image)
    return np.asarray(image.resize((size, size), _pillow().Resampling.BICUBIC, box=box))


def _opened(content: bytes | Path, where: str) -> Any:
    pillow = _pillow()
    try:
        held = content if isinstance(content, bytes) else content.read_bytes()
        return pillow.open(io.BytesIO(held), formats=_formats(held))
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"data: {where}: {_reason(error)}, expected an image") from error


def _formats(content: bytes) -> tuple[str, ...] | None:
    """By the first bytes: Pillow would ask format after format, which takes longer than to decode 32 x 32 pixels."""
    return next((formats for first, formats in _FIRST_BYTES.items() if content.startswith(first)), None)


_FIRST_BYTES = {b"\xff\xd8\xff": ("JPEG", "MPO"), b"\x89PNG": ("PNG",), b"RIFF": ("WEBP",)}


def _colours(image: Any, where: str) -> Any:
    try:
        return image.convert("RGB")
    # Pillow's decoders raise these for files that are cut short or damaged.
    except (OSError, ValueError, SyntaxError, IndexError, EOFError, ZeroDivisionError) as error:
        raise ValueError(f"data: {where}: truncated or damaged ({_reason(error)}), expected an image") from error


def _reason(error: Exception) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        return "in no format that Pillow knows"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise ModuleNotFoundError("data: Pillow is not installed; pip install 'tessella[images]'") from error
    return Image
