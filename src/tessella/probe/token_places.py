"""Where the tokens of every layer stand: which are class, distillation or register tokens, and the grid of the others.

Read off a trial run: how many tokens each attention had, and the grid that the patch embedding made of the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.probe.attention_calls import Call, Unreadable, watched
from tessella.probe.layer_sums import Place
from tessella.probe.tower import Tower

Pair = tuple[int, int]

_PREFIX = {
    "class": ("cls_token", "class_token", "class_embedding"),
    "distillation": ("dist_token", "distillation_token"),
    "register": ("reg_token", "register_tokens", "storage_tokens"),
}
"""What libraries call their tokens that are not patches, in the order in which they stand ahead of the patches."""

_BEHIND = ("detection_tokens", "mask_tokens_behind")
"""Tokens that stand behind the patches, which is not read here."""

MOST_PREFIX = 16


@dataclass
class _Trial:
    """What a run of one image showed."""

    calls: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Module, windows, heads, tokens."""
    embedded: tuple[Pair, Pair] | None = None
    """The grid that the first convolution made of the image, and its stride."""


def places(tower: Tower, image: Float[Tensor, "batch channels height width"]) -> tuple[list[Place], int]:
    """A place for every self-attention, and how many numbers the model gives for an image of a batch."""
    trial = _Trial()
    height, width = int(image.shape[2]), int(image.shape[3])

    def convolved(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if trial.embedded is None and isinstance(output, Tensor) and output.dim() == 4:
            trial.embedded = (output.shape[2], output.shape[3]), _stride(module)

    def seen(call: Call) -> None:
        units, heads, tokens = call.shape
        trial.calls.append((call.module, units // len(image), heads, tokens))

    hooks = [part.register_forward_hook(convolved) for part in tower.model.modules() if isinstance(part, nn.Conv2d)]
    try:
        with watched(tower.model, seen):
            answer = tower(image)
    except Unreadable:
        raise
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"model: it does not take images of {height} x {width} pixels: {reason[0]}") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not trial.calls:
        raise ValueError(
            f"model: no self-attention was seen to run in {type(tower.model).__name__}; expected softmax attention "
            "of (images, heads, tokens, tokens), fused or not"
        )
    return _laid_out(tower.model, trial, (height, width)), answer[0].numel()


def _stride(module: Any) -> Pair:
    down, across = module.stride
    return int(down), int(across)


def _laid_out(model: nn.Module, trial: _Trial, image: Pair) -> list[Place]:
    prefix = prefix_tokens(model)
    grid, patch = _first_grid(model, trial, len(prefix), image)
    found = []
    for index, (name, windows, heads, tokens) in enumerate(trial.calls):
        shared = "" if not name or sum(name == other for other, *_ in trial.calls) == 1 else f" (run {index + 1})"
        placed = _placed(tokens, windows, grid, prefix, _window(model, name, tokens))
        if placed is None:
            raise ValueError(
                f"model: {name} attends among {tokens} tokens"
                + (f" in {windows} windows, which are not known to hold neighbours of" if windows > 1 else ", not")
                + f" the {grid[0]} x {grid[1]} patches of the image and {len(prefix)} other tokens"
            )
        names, own, times = placed
        apart = (patch[0] * times, patch[1] * times)
        found.append(Place(index, (name or f"attention {index + 1}") + shared, heads, names, own, apart, windows))
    return found


def prefix_tokens(model: nn.Module) -> tuple[str, ...]:
    """The names of the tokens ahead of the patches, from the names of the model's parameters."""
    counts: dict[str, int] = {}
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        last = name.rsplit(".", 1)[-1]
        if last in _BEHIND:
            raise ValueError(f"model: its {last} stand behind the patches, which is not supported")
        for kind, known in _PREFIX.items():
            if last in known:
                counts.setdefault(kind, value.shape[-2] if value.dim() > 1 else 1)
        if last == "prefix_tokens":  # this project's own ViT
            counts |= {"class": 1, "register": value.shape[0] - 1}
    return tuple(name for kind in _PREFIX for name in _numbered(kind, counts.get(kind, 0)))


def _numbered(kind: str, count: int) -> tuple[str, ...]:
    return tuple(f"{kind} {number + 1}" for number in range(count)) if count > 1 else (kind,) * count


def _first_grid(model: nn.Module, trial: _Trial, prefix: int, image: Pair) -> tuple[Pair, Pair]:
    """The grid of the patch embedding and the pixels between patches."""
    if trial.embedded is not None:
        grid, patch = trial.embedded
        if image[0] % patch[0] or image[1] % patch[1]:
            raise ValueError(
                f"images: got {image[0]} x {image[1]} pixels, which do not divide into patches of "
                f"{patch[0]} x {patch[1]}; expected multiples"
            )
        return grid, patch
    # Without a convolution the grid follows from square patches; the fewest tokens that are not patches come first.
    name, windows, _, tokens = trial.calls[0]
    candidates = [prefix] if prefix else range(MOST_PREFIX + 1)
    for others in candidates if windows == 1 else [0]:
        side = math.sqrt(image[0] * image[1] / max(1, tokens * windows - others))
        if side >= 1 and side.is_integer() and image[0] % side == 0 == image[1] % side:
            return (image[0] // int(side), image[1] // int(side)), (int(side), int(side))
    raise ValueError(
        f"model: {tokens} tokens in {name or type(model).__name__} are no grid of square patches of an image of "
        f"{image[0]} x {image[1]} pixels with up to {MOST_PREFIX} other tokens"
    )


def _placed(
    tokens: int, windows: int, grid: Pair, prefix: tuple[str, ...], window: Pair | None
) -> tuple[tuple[str, ...], Pair, int] | None:
    """Prefix, grid and how many first patches a patch spans along a side; None where no reading fits."""
    for times in (1, 2, 4, 8, 16, 32):
        rows, columns = math.ceil(grid[0] / times), math.ceil(grid[1] / times)
        if windows == 1:
            for names in (prefix, (), *(_unnamed(tokens - rows * columns, prefix) if times == 1 else ())):
                if len(names) + rows * columns == tokens:
                    return names, (rows, columns), times
        # The last windows of a row or column may be filled up with nothing.
        if window is not None and math.ceil(rows / window[0]) * math.ceil(columns / window[1]) == windows:
            return (), window, times
        if min(rows, columns) == 1:
            break
    return None


def _unnamed(count: int, prefix: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
    """Tokens of a model whose names for them are not known."""
    if prefix or not 0 < count <= MOST_PREFIX:
        return ()
    return (_numbered("token", count),)


def _window(model: nn.Module, name: str, tokens: int) -> Pair | None:
    """The window of so many tokens that the module, a part of it, or a module around it says it attends within.

    Patches of a window lie side by side, which counts alone do not tell: MaxViT's grids and MobileViT's groups take
    patches from all over the image.
    """
    if "grid" in name:
        return None
    steps = name.split(".") if name else []
    around = [model.get_submodule(".".join(steps[:length])) for length in range(len(steps), -1, -1)]
    for part in (around[0], *around[0].children(), *around[1:]):
        for size in (getattr(part, "window_size", None), getattr(part, "partition_size", None)):
            pair = (size, size) if isinstance(size, int) else size
            if isinstance(pair, Sequence | torch.Size) and len(pair) == 2 and pair[0] * pair[1] == tokens:
                return int(pair[0]), int(pair[1])
    return None
