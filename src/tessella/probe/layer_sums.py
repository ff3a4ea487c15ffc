"""What is kept of a layer's attention while images stream past: sums, whose size does not depend on their number.

Attention is looked at a few heads and images at a time, so that what is worked on fits a CPU's cache, and so that a
layer's whole attention on a batch never exists unless the model itself makes it. Queries are those of patches; keys
are all tokens, but for distances, which are between patches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tessella.probe.attention_calls import Call
from tessella.probe.diversity import cosine_diversity_of

CHUNK = {"cpu": 2**19, "cuda": 2**27}
"""Attention weights looked at together: 2 MiB on a CPU, half a GiB on a GPU."""

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Place:
    """Where a layer's tokens stand: its prefix, then patches on a grid, in one window or several."""

    index: int
    name: str
    heads: int
    prefix: tuple[str, ...]
    grid: tuple[int, int]
    patch: tuple[int, int]
    windows: int = 1

    @property
    def tokens(self) -> int:
        return len(self.prefix) + self.grid[0] * self.grid[1]

    def distances(self) -> Float[Tensor, "patches patches"]:
        """Pixels between the middles of patches."""
        rows, columns = (torch.arange(side) * step for side, step in zip(self.grid, self.patch, strict=True))
        middles = torch.cartesian_prod(rows, columns).float()
        return torch.cdist(middles, middles, compute_mode="donot_use_mm_for_euclid_dist")


class LayerSums:
    """Sums over images, and over the windows of each."""

    def __init__(self, place: Place, device: torch.device, examples: int = 0, moved_images: int = 0):
        heads, tokens = place.heads, place.tokens
        self.place, self.units, self._divided = place, 0, False
        self.attention = torch.zeros(heads, tokens, tokens, device=device)
        self.per_head = torch.zeros(4, heads, dtype=torch.float64, device=device)
        """Distance, entropy and diversity, and the squared deviation from uniform attention."""
        self.examples = torch.zeros(examples, heads, tokens, tokens, dtype=torch.float16)
        self.moved_units = 0
        self._moved_images, size = moved_images, tokens if moved_images else 0
        self.squared_answer = torch.zeros(heads, dtype=torch.float64, device=device)
        self.answer_value = torch.zeros(heads, size, size, device=device)
        """The sum of (A V) V^T."""
        self.value_value = torch.zeros(heads, size, size, device=device)
        """The sum of V V^T."""
        self._distances = place.distances().to(device)

    def add(self, call: Call) -> None:
        """Adds a batch."""
        assert not self._divided, "images are added before their mean is taken"
        units, heads, tokens = call.shape
        if (heads, tokens) != (self.place.heads, self.place.tokens) or units % self.place.windows:
            raise ValueError(
                f"model: {self.place.name} attends among {tokens} tokens with {heads} heads, and did among "
                f"{self.place.tokens} with {self.place.heads}; expected images that are treated alike"
            )
        limit = CHUNK.get(call.values.device.type, CHUNK["cpu"])
        wanted = min(units, max(0, self._moved_images * self.place.windows - self.units))
        for images, some in _chunks(units, heads, max(1, limit // tokens**2)):
            weights = call.probabilities(images, some)
            self._measure(weights, images, some)
            if images.start < wanted:
                kept = min(images.stop, wanted) - images.start
                self._compare_answers(weights[:kept], call.values[images, some][:kept].float(), some)
        self.moved_units += wanted
        self.units += units

    def _measure(self, weights: Float[Tensor, "images heads tokens tokens"], images: slice, heads: slice) -> None:
        first = len(self.place.prefix)
        self.attention[heads] += weights.sum(0)
        self._keep_examples(weights, images, heads)
        patches = weights[:, :, first:]
        # A patch that gives patches no weight at all has no distance; its own tiny weights then decide.
        among = patches[..., first:]
        reach = (among * self._distances).sum(-1) / among.sum(-1).clamp_min(TINY)
        # Rows sum to one, so that the mean of squared deviations from uniform follows from their lengths.
        lengths = torch.linalg.vector_norm(patches, dim=-1)
        spread = lengths.square() - 1 / self.place.tokens
        diversity = cosine_diversity_of(patches, lengths)
        found = torch.stack([reach.mean(-1), _entropy(patches).mean(-1), diversity, spread.sum(-1)])
        self.per_head[:, heads] += found.sum(1, dtype=torch.float64)

    def _keep_examples(self, weights: Tensor, images: slice, heads: slice) -> None:
        """An example's attention is the mean over its windows."""
        windows = self.place.windows
        for unit in range(self.units + images.start, min(self.units + images.stop, len(self.examples) * windows)):
            share = weights[unit - self.units - images.start] / windows
            self.examples[unit // windows, heads] += share.half().cpu()

    def _compare_answers(self, weights: Tensor, values: Tensor, heads: slice) -> None:
        """Adds to what says how far A V and M V lie apart, before the mean M is known: |A V|^2 and what M meets."""
        answers = weights @ values
        self.squared_answer[heads] += answers.square().sum((0, 2, 3), dtype=torch.float64)
        by_head, answered = (each.permute(1, 2, 0, 3).flatten(2) for each in (values, answers))
        self.answer_value[heads] += answered @ by_head.transpose(1, 2)
        self.value_value[heads] += by_head @ by_head.transpose(1, 2)

    def mean_attention(self) -> Float[Tensor, "heads tokens tokens"]:
        """Over all images. The sum is divided where it lies, since there may be no room for a second one."""
        if not self._divided:
            self.attention /= self.units
            self._divided = True
        return self.attention

    def drop_products(self) -> None:
        """Gives back the memory of what only `change of the head` is made from."""
        self.answer_value = self.value_value = self.attention.new_zeros(self.place.heads, 0, 0)
        self.moved_units = 0


def _entropy(weights: Float[Tensor, "*batch tokens"]) -> Float[Tensor, "*batch"]:
    if weights.device.type == "cpu":
        # torch's own takes one number at a time there.
        return -(weights * weights.clamp_min(TINY).log()).sum(-1)
    return torch.special.entr(weights).sum(-1)


def _chunks(units: int, heads: int, at_once: int) -> Iterator[tuple[slice, slice]]:
    """Parts of at most `at_once` matrices: all images of a few heads, or where that is too much, a few of one."""
    images = min(units, at_once)
    some = max(1, at_once // images)
    for head in range(0, heads, some):
        for image in range(0, units, images):
            yield slice(image, min(image + images, units)), slice(head, min(head + some, heads))
