"""A second pass: how far the model's output moves when one head at a time attends as its mean over images does.

All heads of a layer are replaced in one batch, each in a copy of the image of its own, beside a copy that stays as it
is. Blocks ahead of the layer are the same in every copy, so that what they gave on the plain image is taken for them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tessella.probe.attention_calls import Call, watched
from tessella.probe.layer_sums import Place
from tessella.probe.tower import Tower

MOST_COPIES = 32
"""Copies of an image in one batch."""


def change_of_output(
    tower: Tower,
    places: Sequence[Place],
    means: Sequence[Float[Tensor, "_ _ _"]],
    images: Iterable[Float[Tensor, "batch channels height width"]],
    tell: Callable[[float], None] = lambda _: None,
) -> list[Float[Tensor, " _"]]:
    """For every head of the layers at `places`: |f' - f| / |f|, root mean square over images."""
    moved = [torch.zeros(place.heads, dtype=torch.float64) for place in places]
    whole = 0.0
    blocks = _blocks(tower.model, [place.name.partition(" (run")[0] for place in places])
    singles = [image for batch in images for image in batch.split(1)]
    for number, image in enumerate(singles):
        kept: dict[str, Any] = {}
        with _noting(tower.model, blocks, kept):
            whole += float(tower(image).double().square().sum())
        for layer, (place, mean) in enumerate(zip(places, means, strict=True)):
            for start in range(0, place.heads, MOST_COPIES):
                heads = range(start, min(start + MOST_COPIES, place.heads))
                plain, *replaced = _with_replaced(tower, place, mean, image, heads, blocks, kept).unbind()
                for head, other in zip(heads, replaced, strict=True):
                    moved[layer][head] += float((other - plain).square().sum())
            tell((number + (layer + 1) / len(places)) / len(singles))
    return [(each / whole).sqrt().float() for each in moved]


def _with_replaced(
    tower: Tower,
    place: Place,
    mean: Tensor,
    image: Tensor,
    heads: range,
    blocks: Sequence[str],
    kept: dict[str, Any],
) -> Float[Tensor, "copies ..."]:
    """The output on the plain image, and then with each of these heads replaced."""
    copies = 1 + len(heads)
    run = 0

    def seen(call: Call) -> Tensor | None:
        nonlocal run
        here, run = run == place.index, run + 1
        if not here:
            return None
        every = slice(None)
        values = call.values
        answer = call.answer if call.answer is not None else call.probabilities(every, every).to(values.dtype) @ values
        answer = answer.clone()
        for copy, head in enumerate(heads, start=1):
            windows = slice(copy * place.windows, (copy + 1) * place.windows)
            answer[windows, head] = (mean[head] @ values[windows, head].float()).to(answer.dtype)
        return answer

    name = place.name.partition(" (run")[0]
    ahead = blocks[: next((number for number, block in enumerate(blocks) if _holds(block, name)), 0)]
    with _standing_in(tower.model, ahead, kept, copies) as skipped:
        run = skipped
        with watched(tower.model, seen):
            return tower(image.expand(copies, -1, -1, -1)).double()


def _blocks(model: nn.Module, names: Sequence[str]) -> list[str]:
    """The largest modules that hold one attention each, where every attention has such a block; else none.

    Only what stands in a list or sequence of modules is a block: there, what one gives goes into the next.
    """
    if any(count > 1 for count in Counter(names).values()):
        return []
    found = []
    for name in names:
        steps = name.split(".")
        for length in range(1, len(steps) + 1):
            path = ".".join(steps[:length])
            around = model.get_submodule(".".join(steps[: length - 1]))
            if isinstance(around, nn.ModuleList | nn.Sequential) and sum(_holds(path, other) for other in names) == 1:
                found.append(path)
                break
    return found if len(found) == len(names) else []


def _holds(block: str, name: str) -> bool:
    return name == block or name.startswith(f"{block}.")


@contextlib.contextmanager
def _noting(model: nn.Module, blocks: Sequence[str], kept: dict[str, Any]) -> Iterator[None]:
    """Notes what every block gives."""

    def noting(name: str) -> Callable[[Any, Any, Any], None]:
        return lambda module, inputs, output: kept.__setitem__(name, output)

    hooks = [model.get_submodule(name).register_forward_hook(noting(name)) for name in blocks]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _standing_in(model: nn.Module, blocks: Sequence[str], kept: dict[str, Any], copies: int) -> Iterator[int]:
    """Blocks give what was noted, once for every copy, without running; says how many attentions are left out."""

    def copied(value: Any) -> Any:
        return value.expand(copies, *value.shape[1:]) if isinstance(value, Tensor) and len(value) == 1 else value

    parts: list[nn.Module] = []
    try:
        for name in blocks:
            part = model.get_submodule(name)
            given = tree_map(copied, kept[name])
            part.forward = lambda *_, given=given, **__: given
            parts.append(part)
        yield len(parts)
    finally:
        for part in parts:
            del part.forward
