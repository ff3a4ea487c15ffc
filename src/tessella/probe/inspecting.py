"""`tessella.inspect`: what spatial structure a model has learnt, from its attention on images and its encodings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.probe import measures, positional_encodings
from tessella.probe.attention_calls import Call, watched
from tessella.probe.default_partition import small_blocks
from tessella.probe.encoding_measures import encodings
from tessella.probe.inspection import Example, Inspection, Layer
from tessella.probe.layer_sums import LayerSums, Place
from tessella.probe.mean_replacement import change_of_output
from tessella.probe.pictures import Pictures, pictures
from tessella.probe.positional_encodings import Found
from tessella.probe.random_weights import randomised
from tessella.probe.subject import Subject, subject
from tessella.probe.token_places import places
from tessella.probe.tower import Tower
from tessella.structure.partition import Partition

Tell = Callable[[float, str], None]


@dataclass(frozen=True)
class Extent:
    """How much is looked at. None leaves it to the number of images and the size of the model."""

    layers: tuple[int, ...] | None = None
    """Which self-attentions, in the order in which they run; negative ones count from the end."""
    examples: int | None = None
    """Images whose whole attention is kept; as a rule 4, fewer for large models."""
    chance_images: int | None = None
    """Images that random weights are shown; as a rule an eighth of them, at least 2 and at most 64."""
    head_images: int = 32
    """Images for `change of the head`."""
    output_images: int | None = None
    """Images for `change of the output`, which takes a run of half the model for every head; 0 leaves it out."""
    batch: int | None = None
    """Images at a time: as a rule 8, or 64 on a GPU."""

    def __post_init__(self) -> None:
        for name in ("examples", "chance_images", "head_images", "output_images", "batch"):
            number, least = getattr(self, name), int(name in ("chance_images", "batch"))
            if number is not None and number < least:
                raise ValueError(f"{name}: got {number}, expected at least {least}")


MOST_EXAMPLE_WEIGHTS = 5e7
"""Numbers in all examples together, at two bytes each."""


def inspect(
    model: nn.Module | str | Path | Subject,
    images: Tensor | str | Path | Pictures | Any,
    *,
    name: str | None = None,
    weights: str | Path | None = None,
    partition: Partition | None = None,
    extent: Extent | None = None,
    device: str | torch.device | None = None,
    seed: int = 1,
    tell: Tell | None = None,
) -> Inspection:
    """What a model attends to, what its encodings say, and what the same architecture gives with random weights.

    `model` is a module, or what `tessella inspect` takes: a timm or torchvision name, a folder of transformers, a run
    folder, an exported program. `images` is a float tensor as the model takes it, batches of such, a folder, a file, or
    "digits"; they are gone through once, the first of them again. `seed` is that of the random weights to compare with.
    The model is left as it was.

    >>> from tessella import ViT, ViTShape
    >>> seen = inspect(ViT(ViTShape(image=16, dim=8, depth=2, heads=2)), torch.rand(3, 3, 16, 16))
    >>> seen.layers[0].mean_attention.shape
    torch.Size([2, 17, 17])
    """
    asked = extent or Extent()
    looked_at = model if isinstance(model, Subject) else subject(model, weights)
    if device is not None:
        looked_at.tower.model.to(device)
    with looked_at.tower.reading():
        return _Reading(looked_at, images, partition, asked, seed, tell or (lambda _, __: None)).result(name)


class _Reading:
    """One inspection under way."""

    def __init__(
        self, looked_at: Subject, images: Any, partition: Partition | None, asked: Extent, seed: int, tell: Tell
    ):
        self.subject, self.tower, self.tell, self.seed = looked_at, looked_at.tower, tell, seed
        self.stream = pictures(images, looked_at.sight)
        usual = 64 if self.tower.device.type == "cuda" else 8
        self.batch = looked_at.batch or asked.batch or usual
        self.asked = asked
        single = looked_at.batch or 1
        first = next(iter(self.stream.first(single, single)), None)
        if first is None or len(first) < single:
            got = "none" if first is None else len(first)
            raise ValueError(f"images: got {got}, expected at least {single}")
        self.image = first
        self.all_places, self.outputs = places(self.tower, first)
        self.places = _chosen(self.all_places, asked.layers)
        self.found = positional_encodings.read(self.tower.model, self.all_places)
        main = self.places[0]
        self.partition = partition
        if partition is not None and partition.patches != main.grid[0] * main.grid[1]:
            raise ValueError(
                f"partition: got {partition.patches} patches, expected the model's {main.grid[0]} x {main.grid[1]}"
            )

    def result(self, name: str | None) -> Inspection:
        count = self.stream.count
        chance_count, output_count = self._subsets(count)
        chance, fresh = self._chance(chance_count, output_count)
        examples = self._example_count()
        sums, outputs = self._passed(self.tower, self.stream.batches(self.batch), examples, "attention", count)
        values = self._values(sums, self.found)
        images = sums[0].units // sums[0].place.windows
        if output_count:
            moved = self._moved(self.tower, [each.mean_attention() for each in sums], output_count, "replacing heads")
            for row, change in zip(values, moved, strict=True):
                row["change of the output"] = change
        seen = self._seen_by(images, min(output_count, images))
        seen_by_chance = self._seen_by(min(images, chance_count), min(output_count, 1))
        first = self.places[0]
        return Inspection(
            name=name or self.subject.name,
            library=self.tower.library,
            details=self._details(images, chance_count),
            grid=_image_grid(self.all_places[0], self.image),
            patch=self.all_places[0].patch,
            image=(int(self.image.shape[2]), int(self.image.shape[3])),
            prefix=self.all_places[0].prefix,
            layers=tuple(
                Layer(
                    each.place.index,
                    each.place.name,
                    each.place.heads,
                    each.mean_attention().float().cpu(),
                    each.place.grid,
                    each.place.patch,
                    each.place.prefix,
                    each.place.windows,
                )
                for each in sums
            ),
            encodings=encodings(self.found, fresh, self.partition if first.windows == 1 else None),
            measures=measures.measured(values, chance, measures.highest(sums), seen, seen_by_chance),
            examples=self._examples(sums, outputs, examples),
            images=images,
            step=self.subject.step,
        )

    def _seen_by(self, images: int, replaced: int) -> dict[str, int]:
        """How many images each measure comes from; "" stands for those that are not named."""
        return {"": images, "change of the head": min(images, self.asked.head_images), "change of the output": replaced}

    def _subsets(self, count: int | None) -> tuple[int, int]:
        """How many images random weights see, and how many heads are replaced on."""
        chance_count = self.asked.chance_images or (16 if count is None else min(64, max(2, count // 8)))
        if self.subject.batch is not None:
            # A program for batches of one size takes whole ones, and no other number of copies.
            return math.ceil(chance_count / self.batch) * self.batch, 0
        output_count = self.asked.output_images
        if output_count is None:
            heads = sum(place.heads for place in self.places)
            output_count = 1 if count is None else min(16, max(1, round(count / heads)))
        return chance_count, output_count

    def _chance(self, count: int, outputs: int) -> tuple[list[dict[str, Tensor]], list[Found]]:
        """The measures of random weights; their sums are gone before the model's own are made."""
        kept = [each.parameter for each in self.found if each.kind == "sin-cos" and each.parameter is not None]
        model = self.subject.fresh(self.seed) if self.subject.fresh else randomised(self.tower.model, self.seed, kept)
        fresh = Tower(model.to(self.tower.device, self.tower.dtype), self.tower.library)
        with fresh.reading():
            found = positional_encodings.read(model, self.all_places)
            sums, _ = self._passed(fresh, self.stream.first(count, self.batch), 0, "random weights", count)
            values = self._values(sums, found)
            if outputs:
                means = [each.mean_attention() for each in sums]
                moved = self._moved(fresh, means, 1, "random weights, replacing heads")
                for row, change in zip(values, moved, strict=True):
                    row["change of the output"] = change
        return values, found

    def _passed(
        self, tower: Tower, batches: Iterator[Tensor], examples: int, what: str, count: int | None
    ) -> tuple[list[LayerSums], Tensor]:
        """One pass over images: the sums of every layer, and the model's answers to the examples."""
        moved = self.asked.head_images
        sums = {place.index: LayerSums(place, tower.device, examples, moved) for place in self.places}
        runs = 0

        def seen(call: Call) -> None:
            nonlocal runs
            if runs in sums:
                sums[runs].add(call)
            runs += 1

        answers: list[Tensor] = []
        done = 0
        with watched(tower.model, seen):
            for images in batches:
                if images.shape[1:] != self.image.shape[1:]:
                    shapes = tuple(images.shape[1:]), tuple(self.image.shape[1:])
                    raise ValueError(f"images: got one of shape {shapes[0]} after {shapes[1]}, expected one shape")
                if self.subject.batch is not None and len(images) < self.subject.batch:
                    break
                runs = 0
                answer = tower(images)
                if done < examples:
                    answers.append(answer[: examples - done].float().cpu())
                done += len(images)
                if count:
                    self.tell(min(1.0, done / count), what)
        return list(sums.values()), torch.cat(answers) if answers else torch.zeros(0)

    def _values(self, sums: Sequence[LayerSums], found: Sequence[Found]) -> list[dict[str, Tensor]]:
        rows = []
        for each in sums:
            place = each.place
            similar = found[0].by_layer.get(place.index, found[0].similarities)
            if similar is not None and found[0].grid != place.grid:
                similar = None
            row = measures.streamed(each)
            each.drop_products()
            blocks = self.partition if self.partition is not None and place.windows == 1 else small_blocks(place.grid)
            rows.append(row | measures.of_mean(each.mean_attention(), len(place.prefix), place.grid, blocks, similar))
        return rows

    def _moved(self, tower: Tower, means: Sequence[Tensor], count: int, what: str) -> list[Tensor]:
        images = self.stream.first(count, self.batch)
        return change_of_output(tower, self.places, means, images, lambda share: self.tell(share, what))

    def _example_count(self) -> int:
        if self.asked.examples is not None:
            return self.asked.examples if self.stream.count is None else min(self.asked.examples, self.stream.count)
        each = sum(place.heads * place.tokens**2 for place in self.places)
        fitting = max(1, int(MOST_EXAMPLE_WEIGHTS // each))
        return min(4, fitting, self.stream.count or 4)

    def _examples(self, sums: Sequence[LayerSums], answers: Tensor, count: int) -> tuple[Example, ...]:
        seen = itertools.islice((image for batch in self.stream.first(count, self.batch) for image in batch), count)
        made = []
        for number, image in enumerate(seen):
            attention = tuple(each.examples[number] for each in sums)
            label, prediction = self.stream.label(number), self.subject.prediction(answers[number])
            pixels = self.subject.sight.shown(image)
            made.append(Example(self.stream.name(number), pixels, attention, label, prediction))
        return tuple(made)

    def _details(self, images: int, chance_count: int) -> dict[str, str]:
        parameters = sum(each.numel() for each in self.tower.model.parameters())
        details = {"parameters": f"{parameters / 1e6:.1f} million", **self.subject.details}
        details["images"] = f"{images} from {self.stream.source}"
        details["random weights"] = f"the same architecture, seed {self.seed}, on the first {min(images, chance_count)}"
        if self.subject.batch is not None:
            details["batches"] = f"of {self.subject.batch}, as the program takes no others; heads cannot be replaced"
        if len(self.places) < len(self.all_places):
            details["layers"] = f"{len(self.places)} of {len(self.all_places)}"
        return details


def _chosen(found: Sequence[Place], layers: tuple[int, ...] | None) -> list[Place]:
    if layers is None:
        return list(found)
    for number in layers:
        if not -len(found) <= number < len(found):
            raise ValueError(f"layers: got {number}, expected 0 to {len(found) - 1}, or -1 for the last")
    return [found[number] for number in sorted({number % len(found) for number in layers})]


def _image_grid(place: Place, image: Float[Tensor, "batch channels height width"]) -> tuple[int, int]:
    """Rows and columns of first patches in the whole image."""
    return math.ceil(image.shape[2] / place.patch[0]), math.ceil(image.shape[3] / place.patch[1])
