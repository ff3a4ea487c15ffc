"""Images on their way into a model: tensors, a folder, a file, a prepared set, or the digits, a batch at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from tessella.images import cache
from tessella.images.image_set import ImageSet

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
"""What counts as an image in a folder."""


@dataclass(frozen=True)
class Sight:
    """What a model wants to see: the size in pixels, the channels, and their mean and deviation."""

    size: tuple[int, int] = (224, 224)
    channels: int = 3
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    deviation: tuple[float, ...] = (0.5, 0.5, 0.5)
    known: bool = True
    """Whether the model says so, or this is what is taken where it does not."""

    def normalised(self, pixels: UInt8[Tensor, "n height width colours"]) -> Float[Tensor, "n channels height2 width2"]:
        """Bytes as the model takes them."""
        images = pixels.permute(0, 3, 1, 2).float() / 255
        if images.shape[1] != self.channels:
            images = images.mean(1, keepdim=True).expand(-1, self.channels, -1, -1)
        if tuple(images.shape[2:]) != self.size:
            images = torch.nn.functional.interpolate(images, self.size, mode="bicubic", antialias=True).clamp(0, 1)
        return (images - self._column(self.mean)) / self._column(self.deviation)

    def shown(self, image: Float[Tensor, "channels height width"]) -> UInt8[Tensor, "height width three"]:
        """What the model saw, as bytes in three colours."""
        plain = image.float().cpu() * self._column(self.deviation)[0] + self._column(self.mean)[0]
        return (plain.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).expand(-1, -1, 3).contiguous()

    def _column(self, numbers: Sequence[float]) -> Float[Tensor, "one channels 1 1"]:
        return torch.tensor(numbers)[: self.channels].view(1, -1, 1, 1)


@dataclass(frozen=True, eq=False)
class Pictures:
    """A stream that can be begun anew. `batches(n)` gives at most n images at a time, as the model takes them."""

    batches: Callable[[int], Iterator[Float[Tensor, "batch channels height width"]]]
    count: int | None = None
    """None where it is not known before the end."""
    names: Sequence[str] = ()
    labels: Sequence[str | None] = ()
    source: str = "a tensor"

    def first(self, count: int, at_once: int) -> Iterator[Float[Tensor, "batch channels height width"]]:
        """The first images, in batches."""
        left = count
        for batch in self.batches(at_once):
            if left <= 0:
                return
            yield batch[:left]
            left -= len(batch)

    def at_most(self, count: int) -> Pictures:
        """The first images alone."""
        known = count if self.count is None else min(count, self.count)
        first = functools.partial(self.first, count)
        return Pictures(lambda at_once: first(at_once), known, self.names, self.labels, self.source)

    def name(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else f"image {number + 1}"

    def label(self, number: int) -> str | None:
        return self.labels[number] if number < len(self.labels) else None


def pictures(images: Any, sight: Sight) -> Pictures:
    """From a float tensor as the model takes it, batches of such, a folder or a file, a prepared set, or `digits`."""
    if isinstance(images, Pictures):
        return images
    if isinstance(images, Tensor):
        return of_tensor(images)
    if isinstance(images, str) and images == "digits":
        return of_digits(sight)
    if isinstance(images, str | Path):
        path = Path(images)
        return of_prepared(path, sight) if cache.is_cache(path) else of_files(path, sight)
    if isinstance(images, Iterable) and not isinstance(images, Iterator):
        return of_batches(images)
    raise ValueError(
        f"images: got {type(images).__name__}, expected a tensor, a folder, a file, 'digits', or batches that can be "
        "gone through more than once"
    )


def of_tensor(images: Tensor) -> Pictures:
    _check(images)

    def batches(at_once: int) -> Iterator[Tensor]:
        yield from images.split(at_once)

    return Pictures(batches, len(images))


def of_batches(loader: Iterable[Any]) -> Pictures:
    """Batches as a data loader gives them: images, or images first."""

    def batches(at_once: int) -> Iterator[Tensor]:
        for batch in loader:
            images = batch if isinstance(batch, Tensor) else batch[0]
            _check(images)
            yield from images.split(at_once)

    return Pictures(batches, source="batches")


def of_digits(sight: Sight) -> Pictures:
    """scikit-learn's held-out digits."""
    from tessella.images.digits import digits

    held_out = digits("test")
    return _of_set(held_out, [f"digit {number + 1}" for number in range(len(held_out))], sight)


def of_prepared(path: Path, sight: Sight) -> Pictures:
    """The held-out images of a folder that `tessella data prepare` made."""
    held_out = cache.load(path, "test")
    names = [f"{number}: {held_out.classes[label]}" for number, label in enumerate(held_out.labels, start=1)]
    return _of_set(held_out, names, sight)


def _of_set(images: ImageSet, names: Sequence[str], sight: Sight) -> Pictures:
    def batches(at_once: int) -> Iterator[Tensor]:
        for start in range(0, len(images), at_once):
            # A copy, since what is mapped into memory is not to be written to.
            yield sight.normalised(torch.from_numpy(np.array(images.images[start : start + at_once])))

    labels = [images.classes[label] for label in images.labels]
    return Pictures(batches, len(images), names, labels, f"{images.name}, held out")


def of_files(path: Path, sight: Sight) -> Pictures:
    """A file, or all images of a folder and its folders; what stands for the label is the folder that it lies in."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ModuleNotFoundError("images: Pillow is not installed; pip install 'tessella[vision]'") from error
    if not path.exists():
        raise ValueError(f"images: got {str(path)!r}, which is not there; expected a folder, an image, or 'digits'")
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
    if not files:
        raise ValueError(f"images: got {path}, which holds no images, expected files such as {', '.join(SUFFIXES[:4])}")

    def loaded(file: Path) -> UInt8[Tensor, "1 height width colours"]:
        try:
            with Image.open(file) as opened:
                picture = opened.convert("RGB" if sight.channels == 3 else "L")
                return _cropped(picture, sight.size)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"images: {file} cannot be read as an image ({error})") from error

    def batches(at_once: int) -> Iterator[Tensor]:
        for start in range(0, len(files), at_once):
            yield sight.normalised(torch.cat([loaded(file) for file in files[start : start + at_once]]))

    names = [str(file.relative_to(path)) if path.is_dir() else file.name for file in files]
    labels = [file.parent.name if path.is_dir() and file.parent != path else None for file in files]
    return Pictures(batches, len(files), names, labels, path.name)


def _cropped(picture: Any, size: tuple[int, int]) -> UInt8[Tensor, "1 height width colours"]:
    """The middle of the picture, as large as fits, at the size wanted."""
    from PIL import Image

    height, width = size
    scale = max(height / picture.height, width / picture.width)
    wide, high = width / scale, height / scale
    # Rounding may take a side that just fits beyond the picture.
    left, top = max(0.0, (picture.width - wide) / 2), max(0.0, (picture.height - high) / 2)
    box = (left, top, min(left + wide, picture.width), min(top + high, picture.height))
    resized = picture.resize((width, height), Image.Resampling.BICUBIC, box=box)
    pixels = torch.from_numpy(np.array(resized))
    return pixels.view(1, height, width, -1)


def _check(images: Any) -> None:
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        what = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images: got {what}, expected floating point numbers (images, channels, height, width)")
    if len(images) == 0:
        raise ValueError("images: got none, expected at least one")
    if not torch.isfinite(images).all():
        raise ValueError("images: got numbers that are not finite, expected finite ones")
