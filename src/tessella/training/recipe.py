"""What a training run is: data, model, optimisation and augmentation, as one frozen dataclass."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from tessella.images.augmentation import Augmentation
from tessella.models.vit import Attention, ViTShape


@runtime_checkable
class Images(Protocol):
    """What a recipe asks of the images that it is for."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def size(self) -> tuple[int, int]: ...

    @property
    def channels(self) -> int: ...


POSITIONAL: Attention = "matrix"
"""What `positional` stands for: the parametrisation that learns best, A itself."""


@dataclass(frozen=True)
class Recipe:
    """One way to train one model on one data set.

    The model is `vit` with the given shape and attention, one of the networks of `tessella.models.convolutional`, or
    `timm:NAME`. Epochs are whole batches: images that do not fill a last one wait for the next epoch's order.
    """

    name: str
    data: str
    shape: ViTShape = field(default_factory=ViTShape)
    model: str = "vit"
    attention: Attention = "vanilla"
    diagonal: float = 2.0
    """sigma_A at initialisation, for positional attention."""
    score_rate: float = 50.0
    """The rate of positional attention's scores, in times of the base rate."""
    added: bool = True
    """Whether encodings are added to the input."""
    spread: float | None = None
    """The deviation of a ViT's encodings at initialisation; None for what suits its attention."""
    epochs: int = 300
    batch: int = 512
    """Images a step, over all processes together."""
    rate: float = 1e-3
    final_rate: float = 0.0
    """Where the cosine ends, in times of the base rate."""
    warmup: float = 10.0
    """Epochs of a rate that rises along a line."""
    weight_decay: float = 0.05
    momentum: float = 0.9
    """AdamW's beta_1."""
    second_moment: float = 0.999
    """AdamW's beta_2."""
    clip: float = 0.0
    """The greatest norm of the gradient; 0 for any."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    drop_path: float = 0.0
    """Stochastic depth: the chance that the last block's branches are left out; a ViT's alone."""
    ema: float = 0.0
    """How much of their average the averaged weights keep at each step, at most; 0 for no average. Step t keeps no more
    than (1 + t) / (10 + t), so that the average soon forgets where training began."""
    precision: Literal["bfloat16", "autocast", "float32"] = "bfloat16"
    """What a GPU computes in: bfloat16 throughout, or in products alone (torch's autocast), or float32. A CPU computes
    in float32. Weights are kept and changed in float32 in any case."""
    compile_mode: Literal["none", "default", "max-autotune-no-cudagraphs"] = "default"
    """How torch compiles a GPU's step; a CPU's is never compiled."""
    captured: bool = True
    """Whether a GPU's step is captured in a CUDA graph and replayed."""
    sdpa: Literal["auto", "cudnn", "flash", "efficient", "math"] = "auto"
    """Which of torch's kernels vanilla attention runs on a GPU; where one cannot, torch takes another."""
    draws: Literal["batch", "process"] = "batch"
    """With several processes: each draws the augmentation of the whole batch and takes its share, so that their number
    changes nothing; or each draws its own share alone, which is cheaper, and another number is then another run."""
    evaluate_every: int = 10
    """Epochs between two evaluations; the last epoch is followed by one in any case."""
    log_every: int = 50
    snapshots: int = 0
    """How many states of encodings and attention to keep, the more of them the earlier; 0 for none, else at least 2."""
    shuffle_cell: int = 0
    """The side, in pixels, of the cells that one fixed permutation moves in every image; 0 for images as they are."""
    shuffle_seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("evaluate_every", 1), ("log_every", 1), ("shuffle_cell", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least {least}")
        for name in ("rate", "score_rate"):
            number = getattr(self, name)
            if not (number > 0.0 and math.isfinite(number)):
                raise ValueError(f"{name}: got {number}, expected a number above 0")
        for name in ("warmup", "weight_decay", "clip", "final_rate"):
            number = getattr(self, name)
            if not (number >= 0.0 and math.isfinite(number)):
                raise ValueError(f"{name}: got {number}, expected a number of 0 or more")
        for name in ("drop_path", "ema", "momentum", "second_moment"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 0 and below 1")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected {', '.join(allowed)}")
        if self.snapshots < 0 or self.snapshots == 1:
            raise ValueError(f"snapshots: got {self.snapshots}, expected 0, or 2 or more")
        if self.batch % self.augmentation.repeats:
            raise ValueError(f"batch: got {self.batch}, expected a multiple of {self.augmentation.repeats} repeats")

    @property
    def distinct(self) -> int:
        """Different images a step; the rest of a batch repeats them."""
        return self.batch // self.augmentation.repeats

    def with_attention(self, attention: str) -> Recipe:
        """The same recipe with vanilla attention, a parametrisation of positional attention, or the best of these."""
        chosen = POSITIONAL if attention == "positional" else attention
        if chosen not in ("vanilla", "projections", "gram", "matrix"):
            raise ValueError(f"attention: got {attention!r}, expected vanilla, positional, projections, gram or matrix")
        return dataclasses.replace(self, attention=chosen)  # type: ignore[arg-type]

    def fitted(self, images: Images) -> Recipe:
        """The recipe with the images' side, channels and classes; the shape is a ViT's, the classes any model's."""
        height, width = images.size
        if height != width:
            raise ValueError(f"images: got {height} x {width} pixels, expected squares")
        shape = dataclasses.replace(self.shape, image=height, channels=images.channels, classes=len(images.classes))
        return dataclasses.replace(self, shape=shape)

    def steps_per_epoch(self, images: int) -> int:
        """Whole batches among so many images."""
        if images < self.batch:
            raise ValueError(f"batch: got {self.batch}, expected at most the {images} images of an epoch")
        return images // self.batch

    def rate_at(self, step: int, steps_per_epoch: int) -> float:
        """The share of the base rate at a step: a line over the warm-up, then half a cosine to `final_rate`."""
        warm, total = self.warmup * steps_per_epoch, self.epochs * steps_per_epoch
        if step < warm:
            return (step + 1) / (warm + 1)
        through = min(1.0, (step - warm) / max(1.0, total - warm))
        return self.final_rate + (1 - self.final_rate) * 0.5 * (1 + math.cos(math.pi * through))

    def kept_at(self, step: int) -> float:
        """The share of their average that the averaged weights keep at a step."""
        return min(self.ema, (1 + step) / (10 + step))

    def snapshot_steps(self, steps_per_epoch: int) -> list[int]:
        """The steps whose states are kept: first, last, and between them growing apart as squares do."""
        if not self.snapshots:
            return []
        total, last = self.epochs * steps_per_epoch, self.snapshots - 1
        return sorted({round(total * (number / last) ** 2) for number in range(self.snapshots)})


_CHOICES = {
    "attention": ("vanilla", "projections", "gram", "matrix"),
    "precision": ("bfloat16", "autocast", "float32"),
    "compile_mode": ("none", "default", "max-autotune-no-cudagraphs"),
    "sdpa": ("auto", "cudnn", "flash", "efficient", "math"),
    "draws": ("batch", "process"),
}
